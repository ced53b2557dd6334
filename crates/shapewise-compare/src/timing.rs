//! Timing in turns: every round takes one sample of each contestant, so that a change of the machine's speed meets
//! all of them, and ratios are taken within rounds.
#![allow(unsafe_code)]

use crate::contestants::Contestant;
use std::time::{Duration, Instant};

/// How samples are taken.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Rounds taken when calls are quick.
    pub most_rounds: usize,
    /// Rounds taken however slow the calls are.
    pub least_rounds: usize,
    /// Short calls are repeated until a sample lasts this long.
    pub sample: Duration,
    /// After this time no more than `least_rounds` are taken.
    pub budget: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            most_rounds: 31,
            least_rounds: 15,
            sample: Duration::from_micros(2500),
            budget: Duration::from_secs(4),
        }
    }
}

/// The samples of one contestant, in the order of the rounds.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// Microseconds per call, one per round.
    pub samples: Vec<f64>,
    /// Calls in one sample.
    pub inner: usize,
    /// Median of the time that its threads kept spinning after a turn.
    pub spin: Duration,
}

/// Microseconds per call: what a record keeps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The middle sample.
    pub median: f64,
    /// A tenth of the samples is below.
    pub p10: f64,
    /// A tenth of the samples is above.
    pub p90: f64,
    /// The best sample.
    pub min: f64,
}

impl Timing {
    /// Median, tenth and ninetieth percentile and minimum.
    pub fn summary(&self) -> Summary {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let at = |share| quantile(&sorted, share);
        Summary { median: at(0.5), p10: at(0.1), p90: at(0.9), min: at(0.0) }
    }

    /// How many times longer this one takes than `base`: the median over the rounds of the ratio within a round.
    pub fn ratio_to(&self, base: &Self) -> f64 {
        let ratios: Vec<f64> = self.samples.iter().zip(&base.samples).map(|(a, b)| a / b).collect();
        median(ratios)
    }
}

/// The middle of some values; NaN of none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    quantile(&values, 0.5)
}

/// The value that this share of the sorted values does not exceed, interpolated; NaN of none.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    let place = (sorted.len() - 1) as f64 * share;
    let (below, part) = (place.floor() as usize, place.fract());
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * part
}

/// The geometric mean of some ratios; `None` of none.
pub fn geometric_mean(ratios: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, n) = ratios.into_iter().fold((0.0, 0), |(s, n), r| (s + r.ln(), n + 1));
    (n > 0).then(|| (sum / f64::from(n)).exp())
}

/// The outcome of one workload.
pub struct Race {
    /// One timing per contestant, in their order.
    pub timings: Vec<Timing>,
    /// Cores that other processes kept busy meanwhile; `None` where the system does not tell.
    pub foreign_cores: Option<f64>,
}

/// Times all contestants in turns; `progress` hears of every finished round.
pub fn race(
    contestants: &mut [Box<dyn Contestant + '_>],
    out: &mut [f32],
    plan: &Plan,
    threads: usize,
    progress: &mut dyn FnMut(usize, usize),
) -> Race {
    let load = Load::now();
    let mut timings: Vec<Timing> = contestants
        .iter_mut()
        .map(|c| {
            // Whoever looks for the best way to compute does so here: threads of others that still spin must not mislead it.
            if threads > 1 {
                settle();
            }
            Timing { inner: calibrate(c.as_mut(), out, plan), ..Timing::default() }
        })
        .collect();
    let mut spins = vec![Vec::new(); contestants.len()];
    let begin = Instant::now();
    let mut round = 0;
    while round < plan.least_rounds || (round < plan.most_rounds && begin.elapsed() < plan.budget) {
        for place in order(contestants.len(), round) {
            let timing = &mut timings[place];
            timing.samples.push(turn(contestants[place].as_mut(), out, timing.inner, plan));
            if threads > 1 {
                spins[place].push(settle().as_secs_f64());
            }
        }
        round += 1;
        progress(round, plan.most_rounds);
    }
    for (timing, spin) in timings.iter_mut().zip(spins) {
        timing.spin = Duration::from_secs_f64(if spin.is_empty() { 0.0 } else { median(spin) });
    }
    Race { timings, foreign_cores: load.foreign_cores() }
}

/// The order of one round: rotated so that each contestant has every place, reversed in odd rounds so that nobody
/// always follows the same neighbour.
fn order(contestants: usize, round: usize) -> impl Iterator<Item = usize> {
    (0..contestants).map(move |i| {
        let place = (i + round / 2) % contestants;
        if round.is_multiple_of(2) { place } else { contestants - 1 - place }
    })
}

/// Runs a contestant until it is warm, and returns how many calls fill a sample.
fn calibrate(contestant: &mut dyn Contestant, out: &mut [f32], plan: &Plan) -> usize {
    let warm = Instant::now();
    let mut calls = 0usize;
    while calls < 2 || (warm.elapsed() < 8 * plan.sample && calls < 1_000_000) {
        contestant.call(out);
        calls += 1;
    }
    let again = (calls / 4).max(1);
    let begin = Instant::now();
    (0..again).for_each(|_| contestant.call(out));
    let one = begin.elapsed().as_secs_f64() / again as f64;
    ((plan.sample.as_secs_f64() / one.max(1e-9)).ceil() as usize).max(1)
}

/// One sample, after calls that bring caches and threads back: a tenth of the sample when calls are short, one call
/// when a few fill the sample, none when one call is far longer than waking up takes.
fn turn(contestant: &mut dyn Contestant, out: &mut [f32], inner: usize, plan: &Plan) -> f64 {
    let warm = Instant::now();
    if inner > 1 {
        while warm.elapsed() < plan.sample / 10 {
            contestant.call(out);
        }
    }
    let begin = Instant::now();
    for _ in 0..inner {
        contestant.call(out);
    }
    begin.elapsed().as_secs_f64() * 1e6 / inner as f64
}

/// Waits until no other thread of this process runs any more, and returns how long that took.
fn settle() -> Duration {
    const LOOK: Duration = Duration::from_micros(200);
    const MOST: Duration = Duration::from_millis(400);
    let begin = Instant::now();
    let (mut quiet, mut since) = (0, Duration::ZERO);
    // Twice in a row: a thread may be on its way from one state to another.
    while quiet < 2 && begin.elapsed() < MOST {
        if others_run() {
            (quiet, since) = (0, begin.elapsed());
        } else {
            quiet += 1;
        }
        std::thread::sleep(LOOK);
    }
    since
}

/// Whether another thread of this process is running or wants to. Used CPU time would not tell: the system adds that of a thread on
/// another core only when its clock ticks, every few milliseconds.
fn others_run() -> bool {
    // SAFETY: asks for a number.
    let own = unsafe { libc::gettid() }.to_string();
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return false };
    threads.flatten().filter(|thread| *thread.file_name() != *own).any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        is_running(&stat)
    })
}

/// Whether a line of `/proc/…/stat` is of a thread that runs; its name, in brackets, may contain anything.
fn is_running(stat: &str) -> bool {
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('R'))
}

/// CPU seconds used by all threads of this process.
fn own_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local of the right type.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Busy time of the machine and of this process at one moment.
struct Load {
    at: Instant,
    machine: Option<f64>,
    own: f64,
}

impl Load {
    fn now() -> Self {
        let machine = std::fs::read_to_string("/proc/stat").ok().and_then(|text| busy_ticks(&text));
        // SAFETY: asks for a constant of the system.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        Self { at: Instant::now(), machine: machine.map(|m| m as f64 / ticks), own: own_seconds() }
    }

    fn foreign_cores(&self) -> Option<f64> {
        let now = Self::now();
        let busy = (now.machine? - self.machine?) - (now.own - self.own);
        Some((busy / (now.at - self.at).as_secs_f64()).max(0.0))
    }
}

/// Ticks not spent idle or waiting for a disc, from the text of `/proc/stat`; time stolen by the host counts as busy.
fn busy_ticks(text: &str) -> Option<u64> {
    let fields = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = fields.split_whitespace().take(8).filter_map(|f| f.parse().ok()).collect();
    (ticks.len() == 8).then(|| ticks.iter().sum::<u64>() - ticks[3] - ticks[4])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_run_are_told_from_those_that_sleep() {
        assert!(is_running("12 (a ) b) R 1 2 3"));
        assert!(!is_running("12 (R) S 1 2 3") && !is_running(""));
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| while !stop.load(std::sync::atomic::Ordering::Relaxed) {});
            let seen = (0..1000).any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                others_run()
            });
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(seen, "a thread that spins is seen");
        });
    }

    struct Counter(usize);

    impl Contestant for Counter {
        fn name(&self) -> &'static str {
            "counter"
        }
        fn call(&mut self, _: &mut [f32]) {
            self.0 += 1;
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    fn timing(samples: &[f64]) -> Timing {
        Timing { samples: samples.to_vec(), ..Timing::default() }
    }

    #[test]
    fn summary_interpolates() {
        let s = timing(&[5.0, 1.0, 3.0, 2.0, 4.0]).summary();
        assert_eq!((s.min, s.median), (1.0, 3.0));
        assert!((s.p10 - 1.4).abs() < 1e-9 && (s.p90 - 4.6).abs() < 1e-9);
        assert!(timing(&[]).summary().median.is_nan());
    }

    #[test]
    fn ratio_is_paired() {
        // The machine halves its speed in the middle: pairs still agree on 2.
        let (a, b) = (timing(&[2.0, 2.0, 4.0, 4.0]), timing(&[1.0, 1.0, 2.0, 2.0]));
        assert_eq!(a.ratio_to(&b), 2.0);
        assert!((geometric_mean([2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), None);
    }

    #[test]
    fn order_gives_everyone_every_place() {
        let first: Vec<usize> = (0..6).map(|r| order(3, r).next().unwrap()).collect();
        assert_eq!(first, [0, 2, 1, 1, 2, 0]);
        let mut all: Vec<usize> = order(5, 7).collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_race_takes_the_least_rounds() {
        let plan = Plan {
            most_rounds: 5,
            least_rounds: 3,
            sample: Duration::from_micros(600),
            budget: Duration::ZERO,
        };
        let mut heard = 0;
        let mut contestants: Vec<Box<dyn Contestant>> = vec![Box::new(Counter(0)), Box::new(Counter(0))];
        let race = race(&mut contestants, &mut [], &plan, 2, &mut |_, _| heard += 1);
        assert_eq!(heard, 3);
        assert!(race.timings.iter().all(|t| t.samples.len() == 3 && t.inner >= 1));
        assert!(race.timings[0].summary().min >= 300.0);
    }

    #[test]
    fn reads_busy_ticks() {
        assert_eq!(busy_ticks("cpu  1 2 3 100 50 4 5 6 0 0\ncpu0 1"), Some(21));
        assert_eq!(busy_ticks("cpu  1 2"), None);
        assert_eq!(busy_ticks(""), None);
    }
}
