//! Honest timings: candidates take turns, short calls are repeated, medians are kept.

mod race;
mod recorder;
mod rehearsal;
mod statistics;
mod survey;

pub use race::{Race, RaceOptions, Timing};
pub(crate) use recorder::{Recorded, Recorder};
pub use rehearsal::Rehearsal;
pub use statistics::Summary;
pub use survey::{FEWEST_SAMPLES, SurveyOptions, Surveyed, survey, survey_some};
