//! `rustfft` and `realfft` for `f32` and `f64`. They are generic, so whoever names a type compiles all of their
//! algorithms: a fifth of all that was translated for the library. Here that happens once, and not at every change of the library.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use realfft::RealFftPlanner;
use rustc_hash::FxHashSet;
use rustfft::FftPlanner;

pub use realfft::{ComplexToReal, RealToComplex};
pub use rustfft::{Fft, FftNum};

/// Which transform.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Complex numbers to their spectrum.
    Forward,
    /// A spectrum to complex numbers, not scaled.
    Inverse,
    /// Real numbers to half of their spectrum.
    RealForward,
    /// Half of a spectrum to real numbers, not scaled.
    RealInverse,
}

/// A transform of one length.
pub enum Plan<T: FftNum> {
    /// Complex numbers, either way.
    Complex(Arc<dyn Fft<T>>),
    /// [`Kind::RealForward`].
    Forward(Arc<dyn RealToComplex<T>>),
    /// [`Kind::RealInverse`].
    Inverse(Arc<dyn ComplexToReal<T>>),
}

/// Numbers that can be transformed: `f32` and `f64`.
pub trait Number: FftNum {
    /// The plan for lines of `n`, made once and kept.
    fn plan(kind: Kind, n: usize) -> Plan<Self>;
}

macro_rules! number {
    ($t:ty) => {
        impl Number for $t {
            fn plan(kind: Kind, n: usize) -> Plan<Self> {
                static PLANNERS: LazyLock<Mutex<Planners<$t>>> =
                    LazyLock::new(|| Mutex::new(Planners::new()));
                PLANNERS.lock().unwrap_or_else(PoisonError::into_inner).plan(kind, n)
            }
        }
    };
}
number!(f32);
number!(f64);

/// The crates' planners, which keep what they have planned.
struct Planners<T: FftNum> {
    complex: FftPlanner<T>,
    real: RealFftPlanner<T>,
    /// What was planned since the planners were new.
    planned: FxHashSet<(Kind, usize)>,
}

/// Points that planners may hold before they are made anew: about 200 MB of tables.
const MOST_POINTS: usize = 8 << 20;

impl<T: FftNum> Planners<T> {
    fn new() -> Self {
        Self { complex: FftPlanner::new(), real: RealFftPlanner::new(), planned: FxHashSet::default() }
    }

    fn plan(&mut self, kind: Kind, n: usize) -> Plan<T> {
        if self.planned.insert((kind, n)) {
            // The crates forget nothing, so their planners are made anew now and then.
            if self.planned.iter().map(|&(_, n)| n).sum::<usize>() > MOST_POINTS {
                *self = Self::new();
                self.planned.insert((kind, n));
            }
        }
        match kind {
            Kind::Forward => Plan::Complex(self.complex.plan_fft_forward(n)),
            Kind::Inverse => Plan::Complex(self.complex.plan_fft_inverse(n)),
            Kind::RealForward => Plan::Forward(self.real.plan_fft_forward(n)),
            Kind::RealInverse => Plan::Inverse(self.real.plan_fft_inverse(n)),
        }
    }
}

impl<T: FftNum> Plan<T> {
    /// Complex numbers of scratch that the transform of one line needs beside the line.
    pub fn scratch(&self) -> usize {
        match self {
            Self::Complex(plan) => plan.get_inplace_scratch_len(),
            Self::Forward(plan) => plan.get_scratch_len(),
            Self::Inverse(plan) => plan.get_scratch_len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustfft::num_complex::Complex;

    #[test]
    fn plans_are_made_for_what_was_asked() {
        let Plan::Complex(forward) = f32::plan(Kind::Forward, 12) else {
            panic!("complex transforms are complex")
        };
        let mut line = [Complex::new(1.0, 0.0); 12];
        forward.process(&mut line);
        assert!((line[0].re - 12.0).abs() < 1e-5 && line[1].norm() < 1e-5, "{line:?}");
        assert!(matches!(f64::plan(Kind::RealForward, 7), Plan::Forward(plan) if plan.len() == 7));
        assert!(matches!(f64::plan(Kind::RealInverse, 7), Plan::Inverse(plan) if plan.len() == 7));
    }

    #[test]
    fn planners_forget_before_their_tables_fill_the_memory() {
        let mut planners = Planners::<f32>::new();
        for n in [MOST_POINTS / 2, MOST_POINTS / 2 - 1, 1024] {
            planners.plan(Kind::Forward, n);
        }
        assert!(planners.planned.iter().map(|p| p.1).sum::<usize>() <= MOST_POINTS);
    }
}
