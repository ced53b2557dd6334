//! Fourier transforms: Shapewise, and rustfft and realfft as their users call them.

use super::ours::PREPARED;
use super::{Contestant, Entrants, OURS};
use crate::problem::{Problem, input};
use crate::workload::{Task, Transform};
use anyhow::Result;
use rayon::prelude::*;
use realfft::RealFftPlanner;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};
use shapewise::ops::fft::{FftKind, FftOptions};
use shapewise::{DType, Runtime, Tensor};

type C = Complex<f32>;

/// A contestant with a complex tensor of its own for the answer.
struct Owned<F> {
    name: &'static str,
    out: Tensor,
    call: F,
}

impl<F: FnMut(&mut Tensor) -> shapewise::Result<()>> Contestant for Owned<F> {
    fn name(&self) -> &str {
        self.name
    }
    fn call(&mut self, _: &mut [f32]) {
        (self.call)(&mut self.out).expect("a call that was right when it was checked");
    }
    fn answer(&mut self, out: &mut [f32]) {
        match (self.call)(&mut self.out) {
            Ok(()) => flatten(self.out.as_slice::<C>().expect("a contiguous tensor of c32"), out),
            Err(error) => eprintln!("{}: {error}", self.name),
        }
    }
}

fn flatten(numbers: &[C], out: &mut [f32]) {
    out.as_chunks_mut::<2>().0.iter_mut().zip(numbers).for_each(|(o, z)| *o = [z.re, z.im]);
}

fn complex(floats: &[f32]) -> Vec<C> {
    floats.as_chunks::<2>().0.iter().map(|&[re, im]| C::new(re, im)).collect()
}

/// Shapewise's call, and the same call prepared once.
pub fn ours<'a>(problem: &Problem, runtime: &'a Runtime) -> Result<Entrants<'a>> {
    let Task::Fft { op, n, batch } = problem.task else { return Ok(vec![]) };
    let (x, options) = (&problem.inputs[input::X], FftOptions::new());
    let rows = |n: usize| if batch == 1 { vec![n] } else { vec![batch, n] };
    let bins = if op == Transform::Real { n / 2 + 1 } else { n };
    let mut out = Tensor::zeros(&rows(bins), DType::C32)?;
    let x = match op {
        Transform::Real => Tensor::from_slice(x, &rows(n))?,
        _ => Tensor::from_slice(&complex(x), &rows(n))?,
    };
    let (kind, axes) = match op {
        Transform::Real => (FftKind::RealForward, &[-1][..]),
        Transform::Plane => (FftKind::Forward, &[-2, -1][..]),
        Transform::Complex => (FftKind::Forward, &[-1][..]),
    };
    let prepared = runtime.prepare_fft(kind, &x, &options.axes(axes), &mut out)?;
    let (own, again) = (x.clone(), Tensor::zeros(&rows(bins), DType::C32)?);
    let plain = move |out: &mut Tensor| match op {
        Transform::Complex => runtime.fft_into(&x, &options, out),
        Transform::Plane => runtime.fft2_into(&x, &options, out),
        Transform::Real => runtime.rfft_into(&x, &options, out),
    };
    let run = move |out: &mut Tensor| prepared.run(&[&own], out);
    Ok(vec![
        Box::new(Owned { name: OURS, out, call: plain }),
        Box::new(Owned { name: PREPARED, out: again, call: run }),
    ])
}

/// A peer that keeps its answer as complex numbers until it is asked for it.
struct Kept<F> {
    name: &'static str,
    out: Vec<C>,
    call: F,
}

impl<F: FnMut(&mut [C])> Contestant for Kept<F> {
    fn name(&self) -> &str {
        self.name
    }
    fn call(&mut self, _: &mut [f32]) {
        (self.call)(&mut self.out);
    }
    fn answer(&mut self, out: &mut [f32]) {
        (self.call)(&mut self.out);
        flatten(&self.out, out);
    }
}

/// The crates, single lines on one thread only: they have no threads of their own, and rayon shares batches.
pub fn enter(problem: &Problem, threads: usize) -> Entrants<'_> {
    let Task::Fft { op, n, batch } = problem.task else { return vec![] };
    let x = &problem.inputs[input::X];
    if op == Transform::Real {
        return real(x, n, batch);
    }
    let (from, mut planner) = (complex(x), FftPlanner::<f32>::new());
    let (row, column) = (planner.plan_fft_forward(n), planner.plan_fft_forward(batch));
    let mut turned = vec![C::default(); if op == Transform::Plane { n * batch } else { 0 }];
    let call = move |out: &mut [C]| {
        lines(&*row, threads, &from, out);
        if op == Transform::Plane {
            transpose(out, &mut turned, n);
            let mut columns = vec![C::default(); turned.len()];
            lines(&*column, threads, &turned, &mut columns);
            transpose(&columns, out, batch);
        }
    };
    vec![Box::new(Kept { name: "rustfft", out: vec![C::default(); n * batch], call })]
}

fn real(x: &[f32], n: usize, batch: usize) -> Entrants<'_> {
    let plan = RealFftPlanner::<f32>::new().plan_fft_forward(n);
    let (mut work, mut scratch) = (x.to_vec(), plan.make_scratch_vec());
    let call = move |out: &mut [C]| {
        // The crate overwrites its input.
        work.copy_from_slice(x);
        for (from, to) in work.chunks_exact_mut(n).zip(out.chunks_exact_mut(n / 2 + 1)) {
            plan.process_with_scratch(from, to, &mut scratch).expect("lengths of the plan");
        }
    };
    vec![Box::new(Kept { name: "realfft", out: vec![C::default(); (n / 2 + 1) * batch], call })]
}

fn lines(plan: &dyn Fft<f32>, threads: usize, from: &[C], to: &mut [C]) {
    let scratch = || vec![C::default(); plan.get_immutable_scratch_len()];
    if threads == 1 || from.len() == plan.len() {
        return plan.process_immutable_with_scratch(from, to, &mut scratch());
    }
    let part = (from.len() / plan.len()).div_ceil(threads) * plan.len();
    to.par_chunks_mut(part).zip(from.par_chunks(part)).for_each(|(to, from)| {
        plan.process_immutable_with_scratch(from, to, &mut scratch());
    });
}

/// Rows of `columns` numbers become columns, block by block.
fn transpose(from: &[C], to: &mut [C], columns: usize) {
    const BLOCK: usize = 16;
    let rows = from.len() / columns;
    for (i, j) in (0..rows).step_by(BLOCK).flat_map(|i| (0..columns).step_by(BLOCK).map(move |j| (i, j))) {
        for row in i..(i + BLOCK).min(rows) {
            for column in j..(j + BLOCK).min(columns) {
                to[column * rows + row] = from[row * columns + column];
            }
        }
    }
}
