//! A predicted time and how sure it is.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a prediction rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Basis {
    /// The kernel's cost over the measured peaks, nothing else.
    Roofline,
    /// The roofline, corrected by a model of this operation on this device.
    Learned,
    /// The roofline, corrected by the same kernel at the nearest shapes.
    Transfer,
    /// This very candidate on this very workload was timed.
    Measured,
}

/// A predicted time with an interval that holds the true one with the stated confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Seconds of one call.
    pub seconds: f64,
    /// Lower end of the interval, in seconds.
    pub low: f64,
    /// Upper end of the interval, in seconds.
    pub high: f64,
    /// Share of calls whose time lies in the interval, as calibrated.
    pub confidence: f64,
    /// What it rests on.
    pub basis: Basis,
}

impl Prediction {
    /// Half the width of the interval, relative to the time: √(high / low) − 1.
    pub fn half_width(&self) -> f64 {
        (self.high / self.low).sqrt() - 1.0
    }
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Roofline => "roofline",
            Self::Learned => "learned",
            Self::Transfer => "transfer",
            Self::Measured => "measured",
        })
    }
}
