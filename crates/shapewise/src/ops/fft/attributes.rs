//! What a transform is: its kind, how it is scaled, and how much may be spent on finding its best plan.

use std::fmt;

/// Which way a transform goes, and between which kinds of numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FftKind {
    /// Complex to complex, Xₖ = Σ xⱼ e^(−2πi jk/n).
    #[default]
    Forward,
    /// Complex to complex with the opposite sign in the exponent.
    Inverse,
    /// Real numbers to the non-negative frequencies, forward.
    RealForward,
    /// Non-negative frequencies to real numbers, inverse.
    RealInverse,
}

impl FftKind {
    /// The name of the call along one axis.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "fft",
            Self::Inverse => "ifft",
            Self::RealForward => "rfft",
            Self::RealInverse => "irfft",
        }
    }

    /// Whether the sign of the exponent is positive.
    pub const fn is_inverse(self) -> bool {
        matches!(self, Self::Inverse | Self::RealInverse)
    }
}

/// Which direction is divided by the number of points.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FftNorm {
    /// The inverse, so that it undoes the forward transform.
    #[default]
    Backward,
    /// Both, by the square root: the transform keeps lengths.
    Ortho,
    /// The forward one.
    Forward,
}

impl FftNorm {
    const fn name(self) -> &'static str {
        match self {
            Self::Backward => "backward",
            Self::Ortho => "ortho",
            Self::Forward => "forward",
        }
    }

    /// What a transform of `points` points is multiplied by.
    pub fn scale(self, inverse: bool, points: usize) -> f64 {
        match self {
            Self::Ortho => 1.0 / (points as f64).sqrt(),
            Self::Backward if inverse => 1.0 / points as f64,
            Self::Forward if !inverse => 1.0 / points as f64,
            _ => 1.0,
        }
    }
}

/// How many of the ways to cut a length into factors are tried on the caller's own calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rigor {
    /// The one that counting favours.
    Estimate,
    /// The few that counting cannot tell apart.
    #[default]
    Measure,
    /// Every one that makes sense.
    Exhaustive,
}

impl Rigor {
    const fn name(self) -> &'static str {
        match self {
            Self::Estimate => "estimate",
            Self::Measure => "measure",
            Self::Exhaustive => "exhaustive",
        }
    }
}

/// A transform along the last axes of its input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FftAttributes {
    /// Direction and numbers.
    pub kind: FftKind,
    /// How many axes are transformed; a real transform halves the last.
    pub axes: u8,
    /// Which direction is divided.
    pub norm: FftNorm,
    /// How many plans are tried.
    pub rigor: Rigor,
}

impl FftAttributes {
    /// Writes what tells transforms apart in the store.
    pub(crate) fn write_key(self, out: &mut impl fmt::Write) -> fmt::Result {
        let Self { kind, axes, norm, rigor } = self;
        write!(out, " {} axes {axes} {} {}", kind.name(), norm.name(), rigor.name())
    }

    /// The kind as models see it.
    pub(crate) fn feature(self) -> f32 {
        4.0 * f32::from(self.axes) + f32::from(self.kind as u8)
    }
}

impl fmt::Display for FftAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind.name())?;
        if self.axes != 1 {
            write!(f, " over {} axes", self.axes)?;
        }
        if self.norm != FftNorm::Backward {
            write!(f, " {}", self.norm.name())?;
        }
        if self.rigor == Rigor::Measure { Ok(()) } else { write!(f, " {}", self.rigor.name()) }
    }
}
