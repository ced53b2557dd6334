//! What goes wrong while calls run: slow outliers, throttling, memory pressure, failing kernels.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::Prediction;

/// How much an anomaly matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Worth knowing.
    Notice,
    /// Choices may be wrong while it lasts.
    Warning,
    /// Results come far too late or not at all.
    Critical,
}

/// Something unusual.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Anomaly {
    /// One call far above its interval.
    SlowOutlier {
        /// The kernel.
        kernel: String,
        /// Measured over predicted time.
        factor: f64,
        /// How much it matters.
        severity: Severity,
    },
    /// Most calls of different workloads are slower than predicted, all by about the same.
    Throttling {
        /// The common factor.
        factor: f64,
        /// How much it matters.
        severity: Severity,
    },
    /// A call needs more memory than there is to spare.
    MemoryPressure {
        /// Bytes that the call needs.
        needed: usize,
        /// Bytes that were free.
        available: usize,
        /// How much it matters.
        severity: Severity,
    },
    /// A kernel fails again and again.
    FailingKernel {
        /// The kernel.
        kernel: String,
        /// Failures without a success in between.
        failures: u32,
        /// How much it matters.
        severity: Severity,
    },
}

impl Anomaly {
    /// How much it matters.
    pub fn severity(&self) -> Severity {
        match self {
            Self::SlowOutlier { severity, .. }
            | Self::Throttling { severity, .. }
            | Self::MemoryPressure { severity, .. }
            | Self::FailingKernel { severity, .. } => *severity,
        }
    }
}

/// Calls that throttling is judged by.
const RECENT: usize = 24;
/// Different workloads among them: one slow workload is drift, several are the machine.
const WORKLOADS: usize = 5;
/// Share of them that must be slower.
const MOST: f64 = 0.8;

/// Watches outcomes and says what is unusual about them.
#[derive(Clone, Debug, Default)]
pub struct AnomalyWatch {
    recent: VecDeque<(u64, f64)>,
    failures: BTreeMap<String, u32>,
    throttled: Option<Severity>,
}

impl AnomalyWatch {
    /// A call that succeeded; `shape` is the hash of its workload.
    pub fn succeeded(
        &mut self,
        kernel: &str,
        shape: u64,
        prediction: &Prediction,
        seconds: f64,
    ) -> Vec<Anomaly> {
        self.failures.remove(kernel);
        let excess = (seconds / prediction.seconds).ln();
        if !(excess.is_finite() && seconds > 0.0) {
            return Vec::new();
        }
        let mut found = Vec::new();
        // In units of the interval's upper half: that many times further off than nine in ten calls are.
        let half = (prediction.high / prediction.seconds).ln();
        let severity = grade(excess / half, [3.0, 6.0, 12.0]);
        if let Some(severity) = severity.filter(|_| half > 0.0) {
            found.push(Anomaly::SlowOutlier { kernel: kernel.to_owned(), factor: excess.exp(), severity });
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((shape, excess));
        found.extend(self.throttling());
        found
    }

    /// Reports a common slow-down once, and again only if it grows worse.
    fn throttling(&mut self) -> Option<Anomaly> {
        if self.recent.len() < RECENT {
            return None;
        }
        let mut shapes: Vec<u64> = self.recent.iter().map(|r| r.0).collect();
        shapes.sort_unstable();
        shapes.dedup();
        let mut excess: Vec<f64> = self.recent.iter().map(|r| r.1).collect();
        excess.sort_by(f64::total_cmp);
        // All but a fifth are slower than this.
        let common = excess[((1.0 - MOST) * RECENT as f64) as usize];
        let median = excess[RECENT / 2].exp();
        let severity =
            if shapes.len() >= WORKLOADS && common > 0.0 { grade(median, [1.15, 1.5, 3.0]) } else { None };
        let before = std::mem::replace(&mut self.throttled, severity);
        let severity = severity.filter(|now| before.is_none_or(|before| *now > before))?;
        Some(Anomaly::Throttling { factor: median, severity })
    }

    /// A call that failed.
    pub fn failed(&mut self, kernel: &str) -> Option<Anomaly> {
        let failures = self.failures.entry(kernel.to_owned()).or_default();
        *failures = failures.saturating_add(1);
        let (kernel, failures) = (kernel.to_owned(), *failures);
        grade(f64::from(failures), [1.0, 3.0, 10.0]).map(|severity| Anomaly::FailingKernel {
            kernel,
            failures,
            severity,
        })
    }

    /// A call is about to need `needed` bytes of the `available` ones.
    pub fn memory(&self, needed: usize, available: usize) -> Option<Anomaly> {
        let share = needed as f64 / available.max(1) as f64;
        // More than half leaves no room for the next call's output; more than all cannot be had.
        grade(share, [0.5, 0.9, 1.0]).map(|severity| Anomaly::MemoryPressure { needed, available, severity })
    }
}

/// The severity of a value that crosses these limits.
fn grade(value: f64, limits: [f64; 3]) -> Option<Severity> {
    let grades = [Severity::Notice, Severity::Warning, Severity::Critical];
    grades.into_iter().zip(limits).rev().find(|&(_, limit)| value >= limit).map(|(severity, _)| severity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modelling::Basis;

    fn prediction() -> Prediction {
        Prediction { seconds: 1.0, low: 0.9, high: 1.1, confidence: 0.9, basis: Basis::Learned }
    }

    #[test]
    fn ordinary_calls_raise_nothing() {
        let mut watch = AnomalyWatch::default();
        for i in 0..200u64 {
            let seconds = 0.95 + 0.1 * ((i * 7 % 11) as f64 / 11.0);
            assert_eq!(watch.succeeded("k", i % 8, &prediction(), seconds), []);
        }
    }

    #[test]
    fn outliers_by_severity() {
        let of = |seconds| AnomalyWatch::default().succeeded("k", 0, &prediction(), seconds);
        assert!(of(1.2).is_empty());
        assert_eq!(of(1.4)[0].severity(), Severity::Notice);
        assert_eq!(of(2.0)[0].severity(), Severity::Warning);
        assert_eq!(of(100.0)[0].severity(), Severity::Critical);
    }

    #[test]
    fn a_common_slow_down_is_throttling_and_a_single_workload_is_not() {
        let run = |workloads: u64| {
            let mut watch = AnomalyWatch::default();
            (0..100)
                .flat_map(|i| watch.succeeded("k", i % workloads, &prediction(), 1.25))
                .collect::<Vec<_>>()
        };
        let many = run(8);
        assert_eq!(many.len(), 1, "reported once: {many:?}");
        assert!(
            matches!(many[0], Anomaly::Throttling { factor, severity: Severity::Notice } if factor > 1.2)
        );
        assert!(run(1).is_empty());
    }

    #[test]
    fn failures_grow_worse_until_a_success() {
        let mut watch = AnomalyWatch::default();
        let severities: Vec<_> = (0..10).map(|_| watch.failed("k").unwrap().severity()).collect();
        assert_eq!(
            (severities[0], severities[3], severities[9]),
            (Severity::Notice, Severity::Warning, Severity::Critical)
        );
        watch.succeeded("k", 0, &prediction(), 1.0);
        assert_eq!(watch.failed("k").unwrap().severity(), Severity::Notice);
    }

    #[test]
    fn memory_that_is_short() {
        let watch = AnomalyWatch::default();
        assert_eq!(watch.memory(10, 100), None);
        assert_eq!(watch.memory(60, 100).unwrap().severity(), Severity::Notice);
        assert_eq!(watch.memory(usize::MAX, 0).unwrap().severity(), Severity::Critical);
    }

    #[test]
    fn hostile_times_raise_nothing() {
        let mut watch = AnomalyWatch::default();
        for seconds in [f64::NAN, 0.0, -1.0, f64::INFINITY] {
            assert_eq!(watch.succeeded("k", 0, &prediction(), seconds), []);
        }
        let flat = Prediction { high: 1.0, low: 1.0, ..prediction() };
        assert_eq!(watch.succeeded("k", 0, &flat, 5.0), [], "an interval without width judges nothing");
    }
}
