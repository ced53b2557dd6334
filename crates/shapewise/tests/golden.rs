//! Every operation against answers of numpy, scipy, torch and the definitions of ONNX (`golden/make.py` makes the files).
//!
//! Each case runs through the runtime's own choice, and forced on the reference: the conformance suite compares all
//! other kernels with the reference.

#[path = "golden/attention.rs"]
mod attention;
#[path = "common/compare.rs"]
mod compare;
#[path = "golden/conv.rs"]
mod conv;
#[path = "golden/copy.rs"]
mod copy;
#[path = "golden/elementwise.rs"]
mod elementwise;
#[path = "golden/fft.rs"]
mod fft;
#[path = "golden/gather.rs"]
mod gather;
#[path = "golden/matmul.rs"]
mod matmul;
#[path = "golden/norm.rs"]
mod norm;
#[path = "common/numbers.rs"]
mod numbers;
#[path = "golden/pad.rs"]
mod pad;
#[path = "golden/pool.rs"]
mod pool;
#[path = "golden/quantize.rs"]
mod quantize;
#[path = "golden/read.rs"]
mod read;
#[path = "golden/reduce.rs"]
mod reduce;
#[path = "golden/rnn.rs"]
mod rnn;
#[path = "golden/softmax.rs"]
mod softmax;
#[path = "golden/sort.rs"]
mod sort;
#[path = "golden/sparse.rs"]
mod sparse;

use compare::{Tolerance, differs};
use numbers::{Numbers, numbers};
use read::{Case, cases};
use shapewise::ops::OperationKind;
use shapewise::{DType, Runtime, Tensor};

/// Runs every case of an operation; all that fail are reported together.
fn run(
    operation: OperationKind,
    compute: impl Fn(&Runtime, &Case) -> shapewise::Result<Vec<Tensor>>,
    tolerance: impl Fn(&Case, DType, f64) -> Tolerance,
) {
    let chosen = Runtime::builder().without_calibration().build().unwrap();
    let reference = operation.kernels().last().expect("a reference").name();
    let forced = chosen.with_kernel(reference).unwrap();
    let mut failures = Vec::new();
    let all = cases(operation.name());
    for case in &all {
        for rt in [&chosen, &forced] {
            match compute(rt, case) {
                Ok(found) => failures.extend(check(case, &found, &tolerance)),
                Err(error) => failures.push(format!("{}: {error}", case.name)),
            }
        }
    }
    assert!(!all.is_empty(), "{operation}: no cases");
    failures.dedup();
    assert!(
        failures.is_empty(),
        "{} failures in {} cases:\n{}",
        failures.len(),
        all.len(),
        failures.join("\n")
    );
}

fn check(
    case: &Case,
    found: &[Tensor],
    tolerance: &impl Fn(&Case, DType, f64) -> Tolerance,
) -> Option<String> {
    assert_eq!(found.len(), case.outputs.len(), "{}", case.name);
    for (f, w) in found.iter().zip(&case.outputs) {
        if (f.dtype(), f.shape()) != (w.dtype(), w.shape()) {
            return Some(format!("{}: {f:?} instead of {w:?}", case.name));
        }
        let wanted = numbers(&w.view());
        let largest = match &wanted {
            Numbers::Real(v) | Numbers::Complex(v) => {
                v.iter().filter(|x| x.is_finite()).fold(0.0f64, |m, x| m.max(x.abs()))
            }
            Numbers::Integer(_) => 0.0,
        };
        let allowed = tolerance(case, w.dtype(), largest);
        if let Some(difference) = differs(&numbers(&f.view()), &wanted, w.dtype(), |_| allowed) {
            return Some(format!("{}: {difference}", case.name));
        }
    }
    None
}
