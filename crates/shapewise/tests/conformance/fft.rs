//! Fourier transforms of every kind, along any axes.

use proptest::prelude::*;
use shapewise::DType;
use shapewise::ops::OperationKind;
use shapewise::ops::fft::{FftKind, FftNorm, FftOptions, Rigor};

use crate::common::compare::{Tolerance, precision};
use crate::common::data::Grade;
use crate::common::operand::{Arrangement, Operand, arrangement};
#[cfg(feature = "webgpu")]
use crate::runner::each_again;
use crate::runner::{Suite, each};
#[cfg(feature = "webgpu")]
use crate::webgpu;

#[derive(Clone, Debug)]
struct Case {
    kind: FftKind,
    double: bool,
    /// The shape of the numbers in time, of which real transforms have all and spectra half.
    shape: Vec<usize>,
    axes: Vec<isize>,
    norm: FftNorm,
    grade: Grade,
    input: Arrangement,
    output: Arrangement,
    seed: u64,
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    let odd =
        prop::sample::select(&[1usize, 2, 3, 5, 7, 11, 13, 17, 25, 31, 37, 49, 97, 101, 127, 139, 257][..]);
    let even = prop::sample::select(
        &[4usize, 8, 16, 24, 32, 60, 64, 80, 96, 128, 192, 240, 256, 320, 512, 1000][..],
    );
    let length = prop_oneof![odd, even, 1usize..300];
    prop_oneof![
        4 => length.clone().prop_map(|n| vec![n]),
        4 => (1usize..20, length.clone()).prop_map(|(a, n)| vec![a, n]),
        3 => (length, 1usize..20).prop_map(|(n, b)| vec![n, b]),
        2 => prop::collection::vec(1usize..13, 3..=4),
        1 => Just(vec![0usize, 8]),
        1 => prop::sample::select(&[1009usize, 1024, 2048, 4096, 6000, 32_768][..]).prop_map(|n| vec![n]),
    ]
}

fn cases() -> impl Strategy<Value = Case> {
    let kinds = [FftKind::Forward, FftKind::Inverse, FftKind::RealForward, FftKind::RealInverse];
    let norms = [FftNorm::Backward, FftNorm::Ortho, FftNorm::Forward];
    // Numbers near the largest overflow in one order of sums and not in another.
    let grades = [Grade::Ordinary, Grade::Positive, Grade::Whole, Grade::Denormal];
    (
        (prop::sample::select(kinds.to_vec()), any::<bool>(), prop::sample::select(norms.to_vec())),
        shapes(),
        (1usize..4, 0usize..4),
        prop::sample::select(grades.to_vec()),
        (arrangement(), arrangement(), any::<u64>()),
    )
        .prop_map(|((kind, double, norm), shape, (count, first), grade, (input, output, seed))| {
            let rank = shape.len();
            let some = (0..count.min(rank)).map(|i| ((first + i) % rank) as isize);
            let axes: Vec<isize> = some.filter(|&a| shape[a as usize] > 0).collect();
            let axes = if axes.is_empty() { vec![rank as isize - 1] } else { axes };
            Case { kind, double, shape, axes, norm, grade, input, output: output.writable(), seed }
        })
}

impl Case {
    fn halved(&self) -> Vec<usize> {
        let mut shape = self.shape.clone();
        let last = self.axes[self.axes.len() - 1] as usize;
        shape[last] = shape[last] / 2 + 1;
        shape
    }

    fn operand(&self, input: bool) -> (DType, Vec<usize>) {
        let real = if input { FftKind::RealForward } else { FftKind::RealInverse };
        let half = if input { FftKind::RealInverse } else { FftKind::RealForward };
        let dtype = match (self.kind == real, self.double) {
            (true, false) => DType::F32,
            (true, true) => DType::F64,
            (false, false) => DType::C32,
            (false, true) => DType::C64,
        };
        (dtype, if self.kind == half { self.halved() } else { self.shape.clone() })
    }
}

#[test]
fn fft() {
    let mut suite = Suite::new(OperationKind::Fft);
    each(220, cases(), |case| check(&mut suite, &case));
    suite.finish();
}

#[cfg(feature = "webgpu")]
#[test]
fn webgpu_fft() {
    let Some(mut suite) = webgpu::suite(OperationKind::Fft, 1, webgpu::FUNCTIONS) else { return };
    each_again(30, cases(), |case| {
        check(&mut suite, &Case { double: false, grade: webgpu::normal(case.grade), ..case })
    });
    // The others are choosy; the unit tests bring what they take.
    suite.finish_where(|name| name.ends_with("::stockham"));
}

fn check(suite: &mut Suite, case: &Case) -> Result<(), TestCaseError> {
    let ((from, x), (to, y)) = (case.operand(true), case.operand(false));
    let input = Operand::new(from, &x, &case.input, case.grade, case.seed);
    let points: Vec<usize> = case.axes.iter().map(|&a| case.shape[a as usize]).collect();
    let options = FftOptions::new().axes(&case.axes).lens(&points).norm(case.norm).rigor(Rigor::Exhaustive);
    let tolerance = tolerance(case, points.iter().product());
    suite.check(
        || vec![Operand::new(to, &y, &case.output, Grade::Whole, 1)],
        |rt, out| {
            let (x, out) = (input.view(), out[0].view_mut());
            match case.kind {
                FftKind::Forward => rt.fftn_into(x, &options, out),
                FftKind::Inverse => rt.ifftn_into(x, &options, out),
                FftKind::RealForward => rt.rfftn_into(x, &options, out),
                FftKind::RealInverse => rt.irfftn_into(x, &options, out),
            }
        },
        |_, _| tolerance,
    )
}

/// How far a number may be from the reference, which computes in f64.
///
/// Errors are O(ε log n) of the root mean square of the result, √n times that of numbers up to 2 (complex: √8 at
/// most); the largest of some thousand errors is within a few times that. Positive numbers add up to 2n at frequency 0,
/// which the same relative error covers. Below the smallest normal number spacing no longer shrinks.
fn tolerance(case: &Case, points: usize) -> Tolerance {
    let dtype = if case.double { DType::C64 } else { DType::C32 };
    let (epsilon, tiny) = precision(dtype);
    let n = points as f64;
    let inverse = matches!(case.kind, FftKind::Inverse | FftKind::RealInverse);
    let scale = case.norm.scale(inverse, points);
    let size = match case.grade {
        Grade::Denormal => 0.0,
        Grade::Whole => 4.0,
        Grade::Positive => 2.0 * n.sqrt().max(1.0),
        _ => 2.0,
    };
    let absolute = 2.0 * epsilon * (n.log2() + 2.0) * n.sqrt() * size * 1.5;
    // A convolution passes through numbers of three times the size.
    Tolerance { ulps: 0.0, absolute: scale * (3.0 * absolute) + tiny * 16.0 * n.max(1.0) }
}
