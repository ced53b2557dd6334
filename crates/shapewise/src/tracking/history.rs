//! What is known about one workload: every candidate's times, what runs now, and what was set aside.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arrayvec::ArrayVec;
use serde::Serialize;

use crate::modelling::{Basis, Prediction};
use crate::ops::Parameters;
use crate::store::unix_ms;

/// After this long a measurement counts half.
pub const HALF_LIFE: Duration = Duration::from_hours(7 * 24);
/// Half-lives after which a measurement weighs less than a thousandth and is dropped.
pub const RETENTION_HALF_LIVES: u32 = 10;

/// The time of one candidate on one workload, from all its measurements, weighted by age.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Weighted geometric mean of the medians, in seconds.
    pub seconds: f64,
    /// Timings behind it.
    pub samples: u64,
    /// Relative scatter of those timings; `None` from a single one.
    pub spread: Option<f64>,
}

/// The relative error a median is trusted to when nothing says more: one timing on a shared machine.
const UNKNOWN_SPREAD: f64 = 0.2;

/// How often something that is measured again falls into the interval of its earlier measurements, over all that this process
/// has seen or read: what the confidence of such an interval is.
struct Repeats {
    inside: AtomicU64,
    all: AtomicU64,
}

static REPEATS: Repeats = Repeats::new();

impl Repeats {
    /// Repetitions below which nothing can be said: a tenth of them is four.
    const ENOUGH: u64 = 40;

    const fn new() -> Self {
        Self { inside: AtomicU64::new(0), all: AtomicU64::new(0) }
    }

    fn count(&self, inside: bool) {
        self.inside.fetch_add(u64::from(inside), Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
    }

    /// The share of repetitions inside; zero claims nothing.
    fn confidence(&self) -> f64 {
        let (inside, all) = (self.inside.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed));
        if all < Self::ENOUGH { 0.0 } else { inside.min(all) as f64 / all as f64 }
    }
}

impl Measured {
    /// As a prediction: two standard errors of the mean to each side. The confidence is the share of repeated measurements that fell
    /// into such intervals, and zero before there were enough of them.
    pub fn prediction(&self) -> Prediction {
        let spread = self.spread.unwrap_or(UNKNOWN_SPREAD);
        let reach = 1.0 + 2.0 * spread / (self.samples.max(1) as f64).sqrt();
        Prediction {
            seconds: self.seconds,
            low: self.seconds / reach,
            high: self.seconds * reach,
            confidence: if self.spread.is_some() { REPEATS.confidence() } else { 0.0 },
            basis: Basis::Measured,
        }
    }
}

/// Some timings of one candidate, taken together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timings {
    /// Their median in seconds.
    pub seconds: f64,
    /// How many.
    pub samples: u64,
    /// Their relative scatter.
    pub spread: Option<f64>,
    /// Milliseconds since 1970.
    pub at: i64,
}

impl Timings {
    /// Of samples in seconds; `None` if there are none.
    pub fn of(samples: &[f64]) -> Option<Self> {
        let possible = samples.iter().copied().filter(|s| s.is_finite() && *s > 0.0);
        // Inline, because settled calls that are timed must not allocate; the latest count if there are more.
        let mut sorted: ArrayVec<f64, 64> = possible.rev().take(64).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |share: f64| sorted[(last as f64 * share) as usize];
        let seconds = at(0.5);
        // Half the distance between the quartiles resists interruptions; 0.74 makes it a standard deviation.
        let spread = (last >= 2).then(|| 0.74 * (at(0.75) - at(0.25)) / seconds);
        Some(Self { seconds, samples: sorted.len() as u64, spread, at: unix_ms() })
    }
}

/// One candidate's record on one workload.
#[derive(Clone, Debug)]
pub struct Track {
    /// The kernel's name.
    pub kernel: String,
    /// Its parameters in words, as the store keeps them.
    pub parameters: String,
    /// Calls it computed.
    pub executions: u64,
    /// Calls it failed.
    pub failures: u64,
    /// Times it was picked to be the one that runs.
    pub selections: u64,
    /// Milliseconds since 1970.
    pub last_used: Option<i64>,
    log_sum: f64,
    weight: f64,
    samples: u64,
    spread: Option<f64>,
    /// The moment the weights refer to.
    as_of: i64,
}

impl Track {
    fn new(kernel: &str, parameters: &str) -> Self {
        let (kernel, parameters) = (kernel.to_owned(), parameters.to_owned());
        let [executions, failures, selections, samples] = [0; 4];
        Self {
            kernel,
            parameters,
            executions,
            failures,
            selections,
            last_used: None,
            log_sum: 0.0,
            weight: 0.0,
            samples,
            spread: None,
            as_of: 0,
        }
    }

    /// Adds timings; older ones weigh less the longer ago they were.
    fn add(&mut self, timings: &Timings) {
        if let Some(before) = self.measured().filter(|before| before.spread.is_some()) {
            let expected = before.prediction();
            REPEATS.count((expected.low..=expected.high).contains(&timings.seconds));
        }
        let newest = self.as_of.max(timings.at);
        let old = if self.weight > 0.0 { half(newest - self.as_of) } else { 0.0 };
        let new = half(newest - timings.at) * timings.samples as f64;
        self.log_sum = self.log_sum * old + timings.seconds.ln() * new;
        self.weight = self.weight * old + new;
        self.samples += timings.samples;
        self.spread = timings.spread.or(self.spread);
        self.as_of = newest;
    }

    /// What all its timings say.
    pub fn measured(&self) -> Option<Measured> {
        (self.weight > 0.0).then(|| Measured {
            seconds: (self.log_sum / self.weight).exp(),
            samples: self.samples,
            spread: self.spread,
        })
    }
}

/// The weight left after some milliseconds.
fn half(age: i64) -> f64 {
    0.5f64.powf(age.max(0) as f64 / HALF_LIFE.as_millis() as f64)
}

/// Everything known about one workload.
#[derive(Debug, Default)]
pub struct History(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    tracks: Vec<Track>,
    current: Option<(String, String)>,
    switches: u64,
    /// Whether a race over this workload was decided, here or in an earlier process.
    raced: bool,
    set_aside: Vec<(String, String)>,
    /// Users' kernels and parameters whose answer was checked, and the generation that the kernel came with.
    checked: Vec<(String, String, u64)>,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic while it was held leaves numbers, never half a structure.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds timings of a candidate.
    pub fn add(&self, kernel: &str, parameters: &str, timings: &Timings) {
        self.lock().track(kernel, parameters).add(timings);
    }

    /// Forgets what a candidate took before and takes these timings instead: the machine has changed.
    pub fn replace(&self, kernel: &str, parameters: &str, timings: &Timings) {
        let mut inner = self.lock();
        let track = inner.track(kernel, parameters);
        (track.weight, track.samples, track.spread) = (0.0, 0, None);
        track.add(timings);
    }

    /// Whether anything was noted about a candidate.
    pub fn is_empty(&self) -> bool {
        self.lock().tracks.is_empty()
    }

    /// What a candidate took.
    pub fn measured(&self, kernel: &str, parameters: &Parameters) -> Option<Measured> {
        let inner = self.lock();
        if inner.tracks.is_empty() {
            return None;
        }
        let parameters = parameters.to_string();
        inner.tracks.iter().find(|t| t.kernel == kernel && t.parameters == parameters)?.measured()
    }

    /// Says that from now on this candidate runs.
    pub fn select(&self, kernel: &str, parameters: &str) {
        let mut inner = self.lock();
        let next = (kernel.to_owned(), parameters.to_owned());
        if inner.current.as_ref().is_some_and(|current| *current != next) {
            inner.switches += 1;
        }
        let track = inner.track(kernel, parameters);
        track.selections += 1;
        track.last_used = Some(unix_ms());
        inner.current = Some(next);
    }

    /// Says what an earlier process ran last; that it runs now is for a decision to say.
    pub fn resume(&self, kernel: &str, parameters: &str) {
        self.lock().current = Some((kernel.to_owned(), parameters.to_owned()));
    }

    /// Counts calls of a candidate.
    pub fn executed(&self, kernel: &str, parameters: &str, calls: u64) {
        let mut inner = self.lock();
        let track = inner.track(kernel, parameters);
        track.executions += calls;
        track.last_used = Some(unix_ms());
    }

    /// Counts a failure; the kernel is not asked again for this workload.
    pub fn failed(&self, kernel: &str, parameters: &str, reason: &str) {
        let mut inner = self.lock();
        inner.track(kernel, parameters).failures += 1;
        if !inner.set_aside.iter().any(|(k, _)| k == kernel) {
            inner.set_aside.push((kernel.to_owned(), reason.to_owned()));
        }
    }

    /// Says that a user's kernel was checked.
    pub fn set_checked(&self, kernel: &str, parameters: &str, birth: u64) {
        let mut inner = self.lock();
        inner.checked.retain(|(k, _, b)| k != kernel || *b == birth);
        inner.checked.push((kernel.to_owned(), parameters.to_owned(), birth));
    }

    /// Whether a user's kernel was checked: at these parameters, or at any.
    pub fn is_checked(&self, kernel: &str, parameters: Option<&str>, birth: u64) -> bool {
        let same = |(k, p, b): &(String, String, u64)| {
            k == kernel && *b == birth && parameters.is_none_or(|q| p == q)
        };
        self.lock().checked.iter().any(same)
    }

    /// Kernels that are out for this workload, and why.
    pub fn all_set_aside(&self) -> Vec<(String, String)> {
        self.lock().set_aside.clone()
    }

    /// Whether a kernel is out for this workload.
    pub fn has_set_aside(&self) -> bool {
        !self.lock().set_aside.is_empty()
    }

    /// The fastest point of each kernel that was measured: kernel and parameters.
    pub fn fastest(&self) -> Vec<(String, String)> {
        let inner = self.lock();
        let mut best: Vec<(&Track, f64)> = Vec::new();
        for track in &inner.tracks {
            let Some(Measured { seconds, .. }) = track.measured() else { continue };
            match best.iter_mut().find(|(other, _)| other.kernel == track.kernel) {
                Some(slot) if seconds < slot.1 => *slot = (track, seconds),
                Some(_) => {}
                None => best.push((track, seconds)),
            }
        }
        best.into_iter().map(|(track, _)| (track.kernel.clone(), track.parameters.clone())).collect()
    }

    /// Lets a kernel that was set aside back in.
    pub fn forgive(&self, kernel: &str) {
        self.lock().set_aside.retain(|(k, _)| k != kernel);
    }

    /// The kernel and parameters that run now.
    pub fn current(&self) -> Option<(String, String)> {
        self.lock().current.clone()
    }

    /// How often what runs was replaced by something else.
    pub fn switches(&self) -> u64 {
        self.lock().switches
    }

    /// Whether a race was decided.
    pub fn raced(&self) -> bool {
        self.lock().raced
    }

    /// Says that a race was decided.
    pub fn set_raced(&self) {
        self.lock().raced = true;
    }

    /// Every candidate's record.
    pub fn tracks(&self) -> Vec<Track> {
        self.lock().tracks.clone()
    }

    /// The same with calls that are not noted yet: kernel, parameters and number.
    pub fn tracks_with(&self, running: &[(String, String, u64)]) -> Vec<Track> {
        let mut inner = Inner { tracks: self.tracks(), ..Inner::default() };
        for (kernel, parameters, calls) in running.iter().filter(|row| row.2 > 0) {
            inner.track(kernel, parameters).executions += calls;
        }
        inner.tracks
    }
}

impl Inner {
    fn track(&mut self, kernel: &str, parameters: &str) -> &mut Track {
        let found = self.tracks.iter().position(|t| t.kernel == kernel && t.parameters == parameters);
        let i = found.unwrap_or_else(|| {
            self.tracks.push(Track::new(kernel, parameters));
            self.tracks.len() - 1
        });
        &mut self.tracks[i]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timings(seconds: f64, samples: u64, days_ago: i64) -> Timings {
        Timings { seconds, samples, spread: Some(0.01), at: 1_800_000_000_000 - days_ago * 24 * 3_600_000 }
    }

    #[test]
    fn a_week_halves_the_weight_in_any_order() {
        for order in [[0, 1], [1, 0]] {
            let history = History::default();
            let both = [timings(1.0, 4, 0), timings(8.0, 4, 7)];
            for i in order {
                history.add("k", "", &both[i]);
            }
            // Weights 1 and ½: ln = ln 8 / 3, so the mean is 2.
            let measured = history.measured("k", &Parameters::new()).unwrap();
            assert!((measured.seconds - 2.0).abs() < 1e-9, "{measured:?}");
            assert_eq!(measured.samples, 8);
        }
    }

    #[test]
    fn switches_are_counted_only_when_something_else_runs() {
        let history = History::default();
        for kernel in ["a", "a", "b", "a"] {
            history.select(kernel, "threads=1");
        }
        assert_eq!(history.switches(), 2);
        assert_eq!(history.current(), Some(("a".into(), "threads=1".into())));
        assert_eq!(history.tracks()[0].selections, 3);
    }

    #[test]
    fn the_fastest_of_each_kernel() {
        let history = History::default();
        for (kernel, parameters, seconds) in [("a", "blockk=64", 2.0), ("a", "", 3.0), ("b", "", 1.0)] {
            history.add(kernel, parameters, &timings(seconds, 1, 0));
        }
        let name = |kernel: &str, parameters: &str| (kernel.to_owned(), parameters.to_owned());
        assert_eq!(history.fastest(), [name("a", "blockk=64"), name("b", "")]);
    }

    #[test]
    fn timings_resist_interruptions_and_nonsense() {
        let t = Timings::of(&[1.0, 1.01, 0.99, 1.0, 50.0, f64::NAN, -1.0]).unwrap();
        assert_eq!((t.seconds, t.samples), (1.0, 5));
        assert!(t.spread.unwrap() < 0.02);
        assert_eq!(Timings::of(&[f64::INFINITY, 0.0]), None);
        assert_eq!(Timings::of(&[2.0]).unwrap().spread, None);
    }

    #[test]
    fn a_single_timing_claims_no_confidence() {
        let one = Measured { seconds: 7.0, samples: 1, spread: None }.prediction();
        assert!(one.low < 6.0 && one.high > 8.0 && one.confidence == 0.0);
        let many = Measured { seconds: 7.0, samples: 100, spread: Some(0.02) }.prediction();
        assert!(many.low > 6.9 && many.high < 7.1);
    }

    #[test]
    fn confidence_is_the_share_of_repetitions_inside() {
        let repeats = Repeats::new();
        (0..30).for_each(|_| repeats.count(true));
        assert_eq!(repeats.confidence(), 0.0, "thirty are too few");
        (0..10).for_each(|_| repeats.count(false));
        assert_eq!(repeats.confidence(), 0.75);
    }
}
