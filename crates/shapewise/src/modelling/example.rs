//! What models learn from, and what every model can do.

use super::Features;

/// One candidate on one workload, measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Example {
    /// What is known about it beforehand.
    pub features: Features,
    /// Seconds by the roofline.
    pub baseline: f64,
    /// Seconds as measured, a median of several where there are several.
    pub seconds: f64,
    /// Hash of the workload: validation never has one shape on both sides.
    pub shape: u64,
    /// How much it counts; 1 for an ordinary measurement.
    pub weight: f32,
}

impl Example {
    /// Whether the numbers can have been measured: positive, finite, and not beyond a day.
    pub fn is_plausible(&self) -> bool {
        const DAY: f64 = 86_400.0;
        let time = |seconds: f64| seconds.is_finite() && seconds > 0.0 && seconds < DAY;
        time(self.seconds)
            && time(self.baseline)
            && self.weight.is_finite()
            && self.weight > 0.0
            && self.features.is_finite()
    }

    /// What models predict: ln(seconds / baseline).
    pub fn residual(&self) -> f32 {
        (self.seconds / self.baseline).ln() as f32
    }
}

/// Why a model was not fitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Nothing to learn from.
    #[error("no examples to learn from")]
    NoExamples,
    /// An example cannot have been measured.
    #[error("example {0} has a time, weight or feature that is not a positive finite number")]
    Implausible(usize),
    /// The numbers led nowhere.
    #[error("the fit did not converge: {0}")]
    Diverged(String),
}

/// A way to learn the logarithm of measured over predicted time; a user's own stands behind the same trait.
pub trait Model: Send + Sync {
    /// Its name in explanations.
    fn name(&self) -> &'static str;

    /// Learns from examples; what was learned before is forgotten.
    fn fit(&mut self, examples: &[Example]) -> Result<(), ModelError>;

    /// ln(seconds / baseline) of each candidate of one workload; never allocates.
    fn predict(&self, batch: &[Features], out: &mut [f32]);
}

/// Refuses what cannot be learned from.
pub(super) fn check(examples: &[Example]) -> Result<(), ModelError> {
    if examples.is_empty() {
        return Err(ModelError::NoExamples);
    }
    match examples.iter().position(|e| !e.is_plausible()) {
        Some(at) => Err(ModelError::Implausible(at)),
        None => Ok(()),
    }
}
