//! Measured limits of a device: the roof of every prediction.

use serde::{Deserialize, Serialize};

use crate::ops::ComputeUnit;

/// A level of the memory hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// First-level cache.
    L1,
    /// Second-level cache.
    L2,
    /// Third-level cache.
    L3,
    /// Main memory.
    Memory,
}

/// Measured peak of one arithmetic unit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ArithmeticPeak {
    /// Which unit.
    pub unit: ComputeUnit,
    /// Threads that ran at once.
    pub threads: usize,
    /// All threads together.
    pub operations_per_second: f64,
}

/// Measured bandwidth of one level.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct BandwidthPeak {
    /// Which level.
    pub level: Level,
    /// Threads that ran at once.
    pub threads: usize,
    /// Bytes read per second, all threads together.
    pub read: f64,
    /// Bytes read and written per second by a copy.
    pub copy: f64,
    /// The same with stores that bypass the caches.
    pub stream: f64,
}

/// Everything calibration measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Peaks {
    /// Per unit and number of threads.
    pub arithmetic: Vec<ArithmeticPeak>,
    /// Per level and number of threads.
    pub bandwidth: Vec<BandwidthPeak>,
    /// Seconds to hand work to spinning threads and get it back.
    pub hand_off: Option<f64>,
    /// Seconds to do so when they sleep.
    pub wake: Option<f64>,
}

impl Peaks {
    /// Operations per second of a unit on `threads` threads.
    pub fn arithmetic(&self, unit: ComputeUnit, threads: usize) -> Option<f64> {
        interpolate(
            self.arithmetic.iter().filter(|p| p.unit == unit).map(|p| (p.threads, p.operations_per_second)),
            threads,
        )
    }

    /// Bytes per second that a copy moves at a level on `threads` threads.
    pub fn bandwidth(&self, level: Level, threads: usize) -> Option<f64> {
        interpolate(self.bandwidth.iter().filter(|p| p.level == level).map(|p| (p.threads, p.copy)), threads)
    }
}

/// The value at `threads`, linear between the nearest measured numbers of threads and flat outside them.
fn interpolate(points: impl Iterator<Item = (usize, f64)> + Clone, threads: usize) -> Option<f64> {
    let below = points.clone().filter(|p| p.0 <= threads).max_by_key(|p| p.0);
    let above = points.filter(|p| p.0 >= threads).min_by_key(|p| p.0);
    match (below, above) {
        (Some((t0, v0)), Some((t1, v1))) if t1 > t0 => {
            Some(v0 + (v1 - v0) * (threads - t0) as f64 / (t1 - t0) as f64)
        }
        (Some((_, v)), _) | (_, Some((_, v))) => Some(v),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_between_measurements_are_interpolated() {
        let points = [(1, 10.0), (4, 40.0)];
        let at = |threads| interpolate(points.into_iter(), threads);
        assert_eq!([at(1), at(2), at(4), at(9)], [Some(10.0), Some(20.0), Some(40.0), Some(40.0)]);
        assert_eq!(interpolate([].into_iter(), 1), None);
    }
}
