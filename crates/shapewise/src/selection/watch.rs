//! Counts the calls of a settled choice and decides which of them are timed.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

use arrayvec::ArrayVec;

use crate::tracking::{Drift, DriftDetector, Measured, Timings};

/// Timing may cost this share of a kernel's time.
const TIMING_SHARE: f64 = 0.005;
/// The longest distance between two timed calls.
const LONGEST_PERIOD: f64 = 1024.0;
/// Timings that make the first expectation where there was none.
const FIRST_LOOK: usize = 9;
/// Timings kept for the next row of evidence.
const KEPT: usize = 31;

/// Seconds that timing one call costs: two readings of the clock and the bookkeeping, which is twice what it takes in a row of them: between
/// kernels it is not foreseen, and waits until all that was written has reached the cache.
static TIMING_COST: LazyLock<f64> = LazyLock::new(|| {
    const ROW: u32 = 64;
    let attempt = || {
        let watch = Watch::alone(1e-3, None);
        let start = Instant::now();
        for _ in 0..ROW {
            let call = Instant::now();
            std::hint::black_box(watch.note(1e-3 + call.elapsed().as_secs_f64()));
        }
        start.elapsed().as_secs_f64() / f64::from(ROW)
    };
    2.0 * (0..5).map(|_| attempt()).fold(f64::INFINITY, f64::min)
});

/// What is noted while a choice is in use.
pub(crate) struct Watch {
    calls: AtomicU64,
    /// One less than the power of two of calls between two timings.
    mask: AtomicU32,
    /// Bits of the expected seconds; zero before anything is known.
    expected: AtomicU64,
    /// Whether every call is timed, whatever that costs.
    every_call: bool,
    recent: Mutex<Recent>,
    used: AtomicBool,
}

/// The latest timings, oldest first.
struct Recent {
    samples: ArrayVec<f64, KEPT>,
    drift: DriftDetector,
    /// Relative scatter of what is expected.
    scatter: f64,
    /// Timings so far, and the number at which the next row of evidence is due.
    seen: u64,
    next_row: u64,
}

/// What a timed call led to.
pub(crate) struct Noted {
    /// The kernel became slower or faster than expected.
    pub drift: Drift,
    /// A row of evidence that is due.
    pub row: Option<Timings>,
}

impl Watch {
    /// What is expected, if it is known, and whether every call is to be timed.
    pub fn new(expected: Option<Measured>, every_call: bool) -> Self {
        let watch = Self { every_call, ..Self::alone(0.0, expected.and_then(|m| m.spread)) };
        if let Some(measured) = expected {
            watch.expect(measured.seconds);
        }
        watch
    }

    /// One that expects so many seconds, or nothing yet, and has no rhythm.
    fn alone(expected: f64, spread: Option<f64>) -> Self {
        Self {
            calls: AtomicU64::new(0),
            mask: AtomicU32::new(0),
            expected: AtomicU64::new(expected.to_bits()),
            every_call: false,
            recent: Mutex::new(Recent {
                samples: ArrayVec::new(),
                drift: DriftDetector::default(),
                scatter: spread.unwrap_or(0.0),
                seen: 0,
                next_row: KEPT as u64,
            }),
            used: AtomicBool::new(true),
        }
    }

    fn expect(&self, seconds: f64) {
        self.expected.store(seconds.to_bits(), Ordering::Relaxed);
        self.time_some(seconds);
    }

    /// From now on times as many calls, of so many seconds each, as timing may cost.
    pub fn time_some(&self, seconds: f64) {
        let longest = if self.every_call { 1.0 } else { LONGEST_PERIOD };
        let period = (*TIMING_COST / (TIMING_SHARE * seconds)).clamp(1.0, longest) as u32;
        self.mask.store(period.next_power_of_two() - 1, Ordering::Relaxed);
    }

    /// From now on times every call.
    pub fn time_all(&self) {
        self.mask.store(0, Ordering::Relaxed);
    }

    /// Counts a call and says whether it is to be timed.
    #[inline]
    pub fn due(&self) -> bool {
        // Not an atomic addition: a count lost between threads changes nothing, and this is cheaper.
        let calls = self.calls.load(Ordering::Relaxed) + 1;
        self.calls.store(calls, Ordering::Relaxed);
        calls as u32 & self.mask.load(Ordering::Relaxed) == 0
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Calls that one timed call stands for.
    pub fn period(&self) -> u32 {
        self.mask.load(Ordering::Relaxed) + 1
    }

    /// Whether there were calls since this was asked last.
    pub fn used_since(&self) -> bool {
        let calls = self.calls.load(Ordering::Relaxed) > 0;
        self.used.swap(false, Ordering::Relaxed) && calls
    }

    /// Takes the time of one call. Never waits: where another thread is at it, the timing is dropped.
    pub fn note(&self, seconds: f64) -> Noted {
        let mut noted = Noted { drift: Drift::None, row: None };
        let Ok(mut recent) = self.recent.try_lock() else { return noted };
        self.used.store(true, Ordering::Relaxed);
        recent.seen += 1;
        if recent.samples.is_full() {
            recent.samples.remove(0);
        }
        recent.samples.push(seconds);
        let expected = f64::from_bits(self.expected.load(Ordering::Relaxed));
        if expected > 0.0 {
            let scatter = recent.scatter;
            noted.drift = recent.drift.observe(seconds, expected, scatter);
        } else if recent.samples.len() >= FIRST_LOOK {
            self.follow(&mut recent);
        }
        if noted.drift != Drift::None {
            // What was seen before no longer counts; the next timings say what to expect.
            let latest = recent.samples.len().saturating_sub(FIRST_LOOK);
            noted.row = Timings::of(&recent.samples[latest..]);
            recent.samples.clear();
            self.expected.store(0, Ordering::Relaxed);
        }
        if noted.row.is_none() && recent.seen >= recent.next_row {
            // Rows become rarer, so that a workload's evidence grows with the logarithm of its calls.
            recent.next_row *= 4;
            noted.row = Timings::of(&recent.samples);
        }
        noted
    }

    /// Expects what the recent timings say.
    fn follow(&self, recent: &mut Recent) {
        if let Some(timings) = Timings::of(&recent.samples) {
            recent.scatter = timings.spread.unwrap_or(0.0);
            self.expect(timings.seconds);
        }
    }
}
