//! The plain sums that every other kernel is tested against.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::FftKind;
use super::geometry::Geometry;
use crate::backends::cpu::Value;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::walk::offset;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic, Variant,
    Workload,
};
use crate::tensor::DType;

/// Lengths up to this are summed term by term; longer ones are cut at their smallest prime factor first, because the
/// plain sum of a million points would take hours. Prime lengths are always summed term by term.
const PLAIN: usize = 64;

/// Every transform under any layout, in f64.
pub(super) struct Reference;

pub(super) static REFERENCE: Reference = Reference;

type C = Complex<f64>;

impl Kernel for Reference {
    fn name(&self) -> &'static str {
        "cpu::fft::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Fft
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_reference.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn constraints(&self) -> &[Constraint] {
        &[Constraint::DTypes(super::DTYPES)]
    }

    fn in_place(&self) -> bool {
        true
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let geometry = Geometry::new(workload);
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        let terms: usize = geometry.axes.iter().map(|a| terms(a.n)).sum();
        // Eight operations for each term, a product and a sum of complex numbers.
        let operations = 8.0 * (geometry.points() * geometry.repeats()) as f64 * terms as f64;
        let bytes = workload.bytes() as f64;
        Cost::new(operations, unit, Traffic::pass(bytes, bytes, &device.caches))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let geometry = Geometry::new(call.workload);
        let (x, y) = (call.inputs[0].address(), call.outputs[0].address());
        let (from, to) = (call.workload.inputs()[0].dtype, call.workload.outputs()[0].dtype);
        let roots: Vec<Vec<C>> = geometry.axes.iter().map(|a| roots(a.n, geometry.kind)).collect();
        for index in 0..geometry.repeats() {
            let first = offset(&geometry.batch, index, |a| a.input);
            let mut block = Vec::with_capacity(geometry.points());
            walk(
                &geometry,
                |a| (a.from, a.input),
                |at| {
                    // SAFETY: the offset is that of an index inside the operand's shape.
                    block.push(unsafe { Value::read(x, first + at, from) }.complex());
                },
            );
            let block = transform(&geometry, block, &roots);
            let first = offset(&geometry.batch, index, |a| a.output);
            let mut numbers = block.into_iter();
            walk(
                &geometry,
                |a| (a.to, a.output),
                |at| {
                    let Some(z) = numbers.next() else { return };
                    let z = z * geometry.scale;
                    let value = if to.is_complex() { Value::Complex(z) } else { Value::Real(z.re) };
                    // SAFETY: as above.
                    unsafe { value.write(y, first + at, to) };
                },
            );
        }
        Ok(())
    }
}

/// Terms of the sums for each point.
fn terms(n: usize) -> usize {
    let factor = factor(n);
    if n <= PLAIN || factor == n { n } else { factor + terms(n / factor) }
}

/// The smallest prime factor.
fn factor(n: usize) -> usize {
    (2..=n.isqrt()).find(|f| n.is_multiple_of(*f)).unwrap_or(n)
}

/// e^(∓2πi k/n) for every k, each from its own angle.
fn roots(n: usize, kind: FftKind) -> Vec<C> {
    let turn = if kind.is_inverse() { std::f64::consts::TAU } else { -std::f64::consts::TAU };
    (0..n).map(|k| C::cis(turn * k as f64 / n as f64)).collect()
}

/// Visits the offsets of one transform's elements in row-major order.
fn walk(
    geometry: &Geometry,
    size: impl Fn(&super::geometry::Along) -> (usize, isize),
    mut visit: impl FnMut(isize),
) {
    let axes: Vec<_> = geometry.axes.iter().map(size).collect();
    for index in 0..axes.iter().map(|a| a.0).product() {
        let (mut at, mut left) = (0, index);
        for &(size, stride) in axes.iter().rev() {
            at += (left % size) as isize * stride;
            left /= size;
        }
        visit(at);
    }
}

/// Every axis in turn; the halved axis of a real transform comes first forward and last inverse.
fn transform(geometry: &Geometry, mut block: Vec<C>, roots: &[Vec<C>]) -> Vec<C> {
    let count = geometry.axes.len();
    let mut sizes: Vec<usize> = geometry.axes.iter().map(|a| a.from).collect();
    let order: Vec<usize> =
        if geometry.kind.is_inverse() { (0..count).collect() } else { (0..count).rev().collect() };
    for axis in order {
        let along = &geometry.axes[axis];
        let inner: usize = sizes[axis + 1..].iter().product();
        let outer: usize = sizes[..axis].iter().product();
        let mut next = vec![C::default(); outer * along.to * inner];
        for line in 0..outer * inner {
            let (o, i) = (line / inner, line % inner);
            let take = |k: usize| block[(o * along.from + k) * inner + i];
            let mut x: Vec<C> = (0..along.from).map(take).collect();
            if geometry.kind == FftKind::RealInverse && axis == count - 1 {
                complete(&mut x, along.n);
            }
            let y = dft(&x, &roots[axis], 1);
            (0..along.to).for_each(|k| next[(o * along.to + k) * inner + i] = y[k]);
        }
        sizes[axis] = along.to;
        block = next;
    }
    block
}

/// The whole spectrum of real numbers from its first half; the imaginary parts that real numbers cannot have are left out.
fn complete(half: &mut Vec<C>, n: usize) {
    half[0].im = 0.0;
    if n.is_multiple_of(2) {
        half[n / 2].im = 0.0;
    }
    for k in half.len()..n {
        half.push(half[n - k].conj());
    }
}

/// The transform of `x`, whose own roots are every `step`-th of `roots`.
pub(super) fn dft(x: &[C], roots: &[C], step: usize) -> Vec<C> {
    let n = x.len();
    let factor = factor(n);
    if n <= PLAIN || factor == n {
        return (0..n).map(|k| (0..n).map(|j| x[j] * roots[j * k % n * step]).sum()).collect();
    }
    let rest = n / factor;
    let parts: Vec<Vec<C>> = (0..factor)
        .map(|j| dft(&x.iter().copied().skip(j).step_by(factor).collect::<Vec<_>>(), roots, step * factor))
        .collect();
    (0..n).map(|k| (0..factor).map(|j| parts[j][k % rest] * roots[j * k % n * step]).sum()).collect()
}
