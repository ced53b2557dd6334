//! From a kind and an element type to the fold that computes it.

use std::marker::PhantomData;

use num_complex::Complex;

use super::attributes::{NormOrder, ReduceKind};
use super::cpu_fold::Fold;
use super::extremes::{ArgExtreme, Extreme, Ordered, Quantified};
use super::norms::{Euclid, ExtremeNorm, Measure, Power, SumNorm, Taxicab, Variance};
use super::sums::{Product, Sum, Summand};
use crate::tensor::DType;

/// What to do with the fold that was found.
pub(super) trait Visitor: Sized {
    type Output;
    /// A fold that gains from wide vectors.
    fn vector<F: Fold>(self, fold: F) -> Self::Output;
    /// A fold that does not.
    fn plain<F: Fold>(self, fold: F) -> Self::Output;
}

/// Whether the fold of this kind and type gains from wide vectors.
pub(super) fn is_vector(kind: ReduceKind, dtype: DType) -> bool {
    struct Which;
    impl Visitor for Which {
        type Output = bool;
        fn vector<F: Fold>(self, _: F) -> bool {
            true
        }
        fn plain<F: Fold>(self, _: F) -> bool {
            false
        }
    }
    visit(kind, dtype, Which).unwrap_or(false)
}

/// Calls the visitor with the fold; `None` where the reduction is not defined for the type.
pub(super) fn visit<V: Visitor>(kind: ReduceKind, dtype: DType, v: V) -> Option<V::Output> {
    kind.output(dtype)?;
    let exact = dtype.is_integer() || dtype == DType::Bool;
    Some(match kind {
        ReduceKind::Any => v.plain(Quantified { any: true }),
        ReduceKind::All => v.plain(Quantified { any: false }),
        ReduceKind::Norm(order) => match order {
            NormOrder::One if single(dtype) => v.vector(SumNorm::<f32, _>(Taxicab, PhantomData)),
            NormOrder::One => v.vector(SumNorm::<f64, _>(Taxicab, PhantomData)),
            NormOrder::Two if single(dtype) => v.vector(SumNorm::<f32, _>(Euclid, PhantomData)),
            NormOrder::Two => v.vector(SumNorm::<f64, _>(Euclid, PhantomData)),
            NormOrder::Infinity if single(dtype) => v.vector(ExtremeNorm::<f32, true>(PhantomData)),
            NormOrder::Infinity => v.vector(ExtremeNorm::<f64, true>(PhantomData)),
            NormOrder::NegativeInfinity => v.plain(ExtremeNorm::<f64, false>(PhantomData)),
            NormOrder::Zero => v.plain(SumNorm::<f64, _>(Power(0.0), PhantomData)),
            NormOrder::Other(p) => v.plain(SumNorm::<f64, _>(Power(p.value()), PhantomData)),
        },
        ReduceKind::Prod if exact => v.plain(Product::<i64>(PhantomData)),
        ReduceKind::Prod if dtype.is_complex() => v.plain(Product::<Complex<f64>>(PhantomData)),
        ReduceKind::Prod => v.plain(Product::<f64>(PhantomData)),
        ReduceKind::Sum if exact => v.plain(sum::<i64>(kind)),
        ReduceKind::Sum | ReduceKind::Mean if dtype.is_complex() => v.plain(sum::<Complex<f64>>(kind)),
        ReduceKind::Max if exact => v.plain(Extreme::<i64, true>(PhantomData)),
        ReduceKind::Min if exact => v.plain(Extreme::<i64, false>(PhantomData)),
        ReduceKind::ArgMax if exact => v.plain(ArgExtreme::<i64, true>(PhantomData)),
        ReduceKind::ArgMin if exact => v.plain(ArgExtreme::<i64, false>(PhantomData)),
        _ if single(dtype) => return real::<f32, V>(kind, v),
        _ => return real::<f64, V>(kind, v),
    })
}

/// Whether the type is computed in f32.
fn single(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

fn sum<T>(kind: ReduceKind) -> Sum<T> {
    Sum { mean: kind == ReduceKind::Mean, element: PhantomData }
}

/// The folds worth compiling for every instruction set.
fn real<T: Summand + Ordered + Measure, V: Visitor>(kind: ReduceKind, v: V) -> Option<V::Output> {
    Some(match kind {
        ReduceKind::Sum | ReduceKind::Mean => v.vector(sum::<T>(kind)),
        ReduceKind::Max => v.vector(Extreme::<T, true>(PhantomData)),
        ReduceKind::Min => v.vector(Extreme::<T, false>(PhantomData)),
        ReduceKind::ArgMax => v.vector(ArgExtreme::<T, true>(PhantomData)),
        ReduceKind::ArgMin => v.vector(ArgExtreme::<T, false>(PhantomData)),
        ReduceKind::Variance { correction } => v.vector(Variance::<T> { correction, element: PhantomData }),
        _ => return None,
    })
}
