//! Complex lines of neighbours on the calling thread: short ones feel all that goes on around them, so what does not depend on the
//! memory is found out once.
#![allow(unsafe_code)]

use std::sync::Arc;

use super::cpu_lines::{Line, Width};
use super::cpu_passes::{Planned, line, line_isa};
use super::cpu_rows::Numbers;
use super::geometry::attributes;
use super::{FftAttributes, FftKind};
use crate::backends::cpu::OnStack;
use crate::backends::cpu::simd::Isa;
use crate::ops::{Bound, Call, KernelError, Knob, Parameters, Workload};

/// Bytes of scratch on the stack for up to 1024 points of f32: the pool's locks take as long as a part of the transform.
const LITTLE: usize = 24 << 10;

/// The same for up to 4096 points, apart from the others because pages of the stack are touched one by one.
const MUCH: usize = 66 << 10;

/// The lines of a workload; only their places are missing.
pub(super) struct Alone<T> {
    width: Width,
    line: Arc<Line<T>>,
    n: usize,
    lines: usize,
    /// Numbers from line to line, of the input and of the output.
    apart: [isize; 2],
    inverse: bool,
    scale: f64,
    /// Bytes for one line.
    scratch: usize,
}

impl<T: Planned> Alone<T> {
    /// The lines of a workload; `None` where they are no such lines, or several threads work on them.
    pub fn new(isa: Isa, workload: &Workload, parameters: &Parameters) -> Option<Self> {
        let (x, y) = (&workload.inputs()[0], &workload.outputs()[0]);
        let FftAttributes { kind, norm, rigor, axes } = attributes(workload);
        let complex = matches!(kind, FftKind::Forward | FftKind::Inverse);
        let shared = parameters.threads() > 1 || parameters.get(Knob::Stream) == Some(1);
        let (lines, n, apart, strides) = match x.shape[..] {
            [n] => (1, n, [0, 0], [x.strides[0], y.strides[0]]),
            [lines, n] => (lines, n, [x.strides[0], y.strides[0]], [x.strides[1], y.strides[1]]),
            _ => return None,
        };
        if !complex || shared || axes != 1 || strides != [1, 1] || lines * n == 0 {
            return None;
        }
        let width = Width::of::<T>(line_isa(isa, n, size_of::<T>() == 8, lines));
        let line = line::<T>(n, width, rigor, parameters.get(Knob::Plan).unwrap_or(0));
        if matches!(*line, Line::Across(_)) {
            return None;
        }
        let (inverse, scratch) = (kind.is_inverse(), line.scratch(width, n) * size_of::<T>());
        Some(Self { width, line, n, lines, apart, inverse, scale: norm.scale(inverse, n), scratch })
    }

    /// Computes a call of this workload.
    pub fn launch(&self, call: &Call<'_>) -> Result<(), KernelError> {
        let places = [call.inputs[0].address().cast::<T>(), call.outputs[0].address().cast::<T>()];
        if self.scratch <= LITTLE {
            self.run::<LITTLE>(places);
        } else if self.scratch <= MUCH {
            self.run::<MUCH>(places);
        } else {
            let mut scratch = call.cpu().scratch(self.scratch)?;
            // SAFETY: the call's operands are valid, and the scratch is as large as the lines say.
            unsafe { self.transform(places, scratch.as_mut_ptr().cast()) };
        }
        Ok(())
    }

    /// The same for calls that give the places alone; `None` where the stack has no room for the scratch.
    pub fn bind(self) -> Option<Bound> {
        let places = |pointers: &[*mut u8]| [pointers[0].cast::<T>(), pointers[1].cast::<T>()];
        if self.scratch <= LITTLE {
            Some(Bound::new(move |pointers| self.run::<LITTLE>(places(pointers))))
        } else if self.scratch <= MUCH {
            Some(Bound::new(move |pointers| self.run::<MUCH>(places(pointers))))
        } else {
            None
        }
    }

    /// Transforms the lines at these places of a call, with so much of the stack as scratch.
    fn run<const BYTES: usize>(&self, places: [*mut T; 2]) {
        debug_assert!(self.scratch <= BYTES, "{} bytes of scratch", self.scratch);
        let mut scratch = OnStack::<BYTES>::new();
        // SAFETY: the call's operands are valid, and both callers looked whether there are as many bytes as the lines say.
        unsafe { self.transform(places, scratch.at()) };
    }

    /// Transforms the lines from the first place to the second, which may be the same.
    ///
    /// # Safety
    /// Both places have all lines, and the scratch has as many bytes as they say.
    #[inline]
    unsafe fn transform(&self, [x, y]: [*mut T; 2], scratch: *mut T) {
        let from = Numbers::new(x, 1, 1.0, self.inverse, false);
        let to = Numbers::new(y, 1, self.scale, self.inverse, false);
        for index in 0..self.lines as isize {
            let [x, y] = [from.at(index * self.apart[0]), to.at(index * self.apart[1])];
            let more = index + 1 < self.lines as isize;
            let next = if more { x.at(self.apart[0]).first.cast_const() } else { std::ptr::null() };
            // SAFETY: the caller's promise.
            unsafe { self.line.transform(self.width, self.n, [x, y], next, scratch) };
        }
    }
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use super::super::{FftNorm, KERNELS, Rigor};
    use super::*;
    use crate::Runtime;
    use crate::ops::{Operation, TensorDesc};
    use crate::tensor::{DType, Element, Shape};

    fn workload(dtype: DType, shape: &[usize], kind: FftKind) -> Workload {
        let attributes = FftAttributes { kind, axes: 1, norm: FftNorm::Ortho, rigor: Rigor::Exhaustive };
        let lines =
            TensorDesc { aligned: false, ..TensorDesc::contiguous(dtype, Shape::new(shape).unwrap()) };
        Workload::new(Operation::Fft(attributes), &[lines], &[lines])
    }

    /// Numbers that start at a cache line or within one.
    struct Placed<T>(Vec<T>, usize);

    impl<T: Element> Placed<T> {
        fn new(numbers: &[T], within: usize) -> Self {
            let line = 64 / size_of::<T>();
            let mut all = Vec::<T>::with_capacity(numbers.len() + 2 * line);
            let first = all.as_ptr().align_offset(64) + within;
            all.resize(first, numbers[0]);
            all.extend_from_slice(numbers);
            Self(all, first)
        }

        fn first(&mut self) -> *mut u8 {
            self.0[self.1..].as_mut_ptr().cast()
        }

        fn numbers(&self) -> &[T] {
            &self.0[self.1..]
        }
    }

    /// Every bound launch against the reference: to another place, in its own, from and to places within cache lines.
    fn agree<T: Element>(
        x: &[T],
        shape: &[usize],
        kind: FftKind,
        distance: impl Fn(&[T], &[T]) -> f64 + Sync,
    ) -> usize {
        let rt = Runtime::builder().threads(2).without_calibration().build().unwrap();
        let (workload, device) = (workload(T::DTYPE, shape, kind), rt.device());
        let (reference, others) = KERNELS.split_last().unwrap();
        let (mut from, mut wanted) = (Placed::new(x, 0), Placed::new(x, 0));
        let none = Parameters::new();
        reference.launch(&mut Call::new(&workload, &none, &[from.first(), wanted.first()], device)).unwrap();
        let mut bound_launches = 0;
        for kernel in others.iter().filter(|k| k.supports(&workload, rt.device_info()).is_ok()) {
            for parameters in kernel.space(&workload, rt.device_info()).points() {
                let Some(bound) = kernel.bind(&workload, parameters) else { continue };
                bound_launches += 1;
                for (within, in_place) in [([0, 0], false), ([0, 0], true), ([1, 1], true), ([1, 2], false)] {
                    // Two threads at once, each with operands of its own.
                    std::thread::scope(|scope| {
                        for _ in 0..2 {
                            scope.spawn(|| {
                                let [mut from, mut to] = within.map(|within| Placed::new(x, within));
                                let y = to.first();
                                bound.run(&[if in_place { y } else { from.first() }, y]);
                                let error = distance(to.numbers(), wanted.numbers());
                                assert!(
                                    error < 1.0,
                                    "{} {parameters} on {workload} {within:?}: {error}",
                                    kernel.name()
                                );
                                assert!(
                                    in_place || from.numbers() == x,
                                    "{} writes its input",
                                    kernel.name()
                                );
                            });
                        }
                    });
                }
            }
        }
        bound_launches
    }

    #[test]
    fn bound_lines_lie_anywhere_and_run_on_several_threads() {
        for shape in
            [&[16][..], &[64], &[512], &[1024], &[4096], &[1009], &[1755], &[3, 64], &[5, 360], &[2, 2048]]
        {
            for kind in [FftKind::Forward, FftKind::Inverse] {
                let of = |i: usize| ((i * 7919 % 101) as f32 - 50.0, (i * 104_729 % 103) as f32 - 51.0);
                let x: Vec<Complex<f32>> =
                    (0..shape.iter().product()).map(of).map(|(re, im)| Complex::new(re, im)).collect();
                let far = |a: &[Complex<f32>], b: &[Complex<f32>]| {
                    a.iter().zip(b).map(|(a, b)| f64::from((a - b).norm())).fold(0.0, f64::max) / 2e-3
                };
                assert!(agree(&x, shape, kind, far) > 0, "nothing is bound for {shape:?}");
                let x: Vec<Complex<f64>> = x.iter().map(|z| Complex::new(z.re.into(), z.im.into())).collect();
                let far = |a: &[Complex<f64>], b: &[Complex<f64>]| {
                    a.iter().zip(b).map(|(a, b)| (a - b).norm()).fold(0.0, f64::max) / 1e-10
                };
                // Twice the bytes: the longest are more than the stack is asked for.
                agree(&x, shape, kind, far);
            }
        }
    }

    #[test]
    fn other_transforms_are_launched() {
        let one = Parameters::new();
        let bound = |workload: &Workload, parameters: &Parameters| {
            KERNELS.iter().any(|kernel| kernel.bind(workload, parameters).is_some())
        };
        assert!(bound(&workload(DType::C32, &[1024], FftKind::Forward), &one));
        assert!(!bound(
            &workload(DType::C32, &[1024], FftKind::Forward),
            &one.clone().with(Knob::Threads, 2)
        ));
        // More scratch than the stack is asked for, nothing at all, and several axes of a batch.
        assert!(!bound(&workload(DType::C32, &[1 << 16], FftKind::Forward), &one));
        assert!(!bound(&workload(DType::C32, &[0, 64], FftKind::Forward), &one));
        assert!(!bound(&workload(DType::C32, &[2, 2, 64], FftKind::Forward), &one));
    }
}
