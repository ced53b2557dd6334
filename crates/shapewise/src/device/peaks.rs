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
    /// Whether something else took the machine's time meanwhile, so that the true peaks may be higher.
    pub busy: bool,
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

    /// How many times as long the same copy takes there with stores that bypass the caches.
    pub fn streaming(&self, level: Level, threads: usize) -> Option<f64> {
        let rates =
            self.bandwidth.iter().filter(|p| p.level == level).map(|p| (p.threads, p.copy / p.stream));
        interpolate(rates, threads)
    }
}

impl Peaks {
    /// Whether every number is one that can have been measured.
    pub fn is_plausible(&self) -> bool {
        let rates = self.arithmetic.iter().map(|p| p.operations_per_second);
        let rates = rates.chain(self.bandwidth.iter().flat_map(|p| [p.read, p.copy, p.stream]));
        let mut all = rates.chain(self.hand_off).chain(self.wake);
        !self.arithmetic.is_empty() && all.all(|number| number.is_finite() && number > 0.0)
    }

    /// The better of two measurements of the same device, number by number; busy if both were.
    #[must_use]
    pub fn best_of(mut self, other: Self) -> Self {
        for theirs in other.arithmetic {
            let same =
                |ours: &&mut ArithmeticPeak| ours.unit == theirs.unit && ours.threads == theirs.threads;
            match self.arithmetic.iter_mut().find(same) {
                Some(ours) => {
                    ours.operations_per_second = ours.operations_per_second.max(theirs.operations_per_second);
                }
                None => self.arithmetic.push(theirs),
            }
        }
        for theirs in other.bandwidth {
            let same =
                |ours: &&mut BandwidthPeak| ours.level == theirs.level && ours.threads == theirs.threads;
            match self.bandwidth.iter_mut().find(same) {
                Some(ours) => {
                    ours.read = ours.read.max(theirs.read);
                    ours.copy = ours.copy.max(theirs.copy);
                    ours.stream = ours.stream.max(theirs.stream);
                }
                None => self.bandwidth.push(theirs),
            }
        }
        let least = |ours: Option<f64>, theirs: Option<f64>| match (ours, theirs) {
            (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
        self.hand_off = least(self.hand_off, other.hand_off);
        self.wake = least(self.wake, other.wake);
        self.busy &= other.busy;
        self
    }
}

/// The value at `threads`, linear between the nearest measured numbers of threads and flat outside them.
fn interpolate(points: impl Iterator<Item = (usize, f64)> + Clone, threads: usize) -> Option<f64> {
    // Nearly always that very number was measured.
    if let Some((_, value)) = points.clone().find(|p| p.0 == threads) {
        return Some(value);
    }
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

    #[test]
    fn the_better_of_two_measurements() {
        let unit = ComputeUnit { dtype: crate::DType::F32, isa: None };
        let bandwidth = |level, read, copy| BandwidthPeak { level, threads: 1, read, copy, stream: 1.0 };
        let first = Peaks {
            arithmetic: vec![ArithmeticPeak { unit, threads: 1, operations_per_second: 5.0 }],
            bandwidth: vec![bandwidth(Level::L1, 10.0, 20.0)],
            hand_off: Some(1.0),
            wake: None,
            busy: true,
        };
        let second = Peaks {
            arithmetic: vec![
                ArithmeticPeak { unit, threads: 1, operations_per_second: 4.0 },
                ArithmeticPeak { unit, threads: 2, operations_per_second: 9.0 },
            ],
            bandwidth: vec![bandwidth(Level::L1, 12.0, 19.0), bandwidth(Level::L2, 1.0, 1.0)],
            hand_off: Some(2.0),
            wake: Some(3.0),
            busy: false,
        };
        let best = first.best_of(second);
        assert_eq!([best.arithmetic(unit, 1), best.arithmetic(unit, 2)], [Some(5.0), Some(9.0)]);
        assert_eq!(best.bandwidth, [bandwidth(Level::L1, 12.0, 20.0), bandwidth(Level::L2, 1.0, 1.0)]);
        assert_eq!((best.hand_off, best.wake, best.busy), (Some(1.0), Some(3.0), false));
        assert!(best.is_plausible());
        assert!(!Peaks { wake: Some(f64::INFINITY), ..best.clone() }.is_plausible());
        assert!(!Peaks { hand_off: Some(0.0), ..best }.is_plausible());
        assert!(!Peaks::default().is_plausible(), "nothing was measured");
    }
}
