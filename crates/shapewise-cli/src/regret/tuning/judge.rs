//! One workload: every point measured, the search let loose on it, and both brought together.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use shapewise::Runtime;
use shapewise::device::DeviceInfo;
use shapewise::ops::Workload;
use shapewise::selection::Candidate;
use shapewise::tuning::search::Trial;
use shapewise::tuning::{Coordinator, TuningBudget, TuningTask, Workbench};

use super::shapes::{expected, tunable};

/// What was found of one workload; points are numbered as they are listed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Judged {
    /// The operation's name.
    pub operation: String,
    /// The workload in words.
    pub workload: String,
    /// Every point; the first is the default.
    pub points: Vec<Timed>,
    /// The best point: its kernel and parameters.
    pub best: (String, String),
    /// What the search found: its kernel and parameters.
    pub found: (String, String),
    /// Time of the best over the time of the default, of the strategy's start and of what the search found.
    pub shares: Shares,
    /// Points in the order that the search tried them.
    pub order: Vec<usize>,
    /// Points tried until one within two percent of the best; `None` if none was.
    pub within: Option<usize>,
    /// Seconds that the search took.
    pub seconds: f64,
}

/// A point and what was measured of it, so that other models and searches can be tried on the same times.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Timed {
    /// The kernel's name.
    pub kernel: String,
    /// Its parameters, in words.
    pub parameters: String,
    /// Seconds that the model expected.
    pub expected: Option<f64>,
    /// Its time over the default's; `None` where it failed.
    pub time: Option<f64>,
}

/// The best time as a share of others' times: 1 where they are as good.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Shares {
    /// What runs without tuning.
    pub default: f64,
    /// The point that the strategy says to start from, before anything is measured.
    pub start: f64,
    /// What the search found within its budget.
    pub tuned: f64,
}

/// Within this factor of the best time a point counts as found.
const WITHIN: f64 = 1.02;
/// Rounds in which every point that is left takes part, and how far behind a point may be to stay after each.
const STAYS: [(usize, f64); 4] = [(1, 2.0), (3, 1.2), (5, 1.08), (11, 1.0)];
/// Points timed between two samples of the default.
const BETWEEN: usize = 4;
/// Two samples of the default that differ by less than this factor say that nothing disturbed what lies between.
const CALM: f64 = 1.15;
/// Points of the exhaustive measurement that take part in a comparison at the end.
const FINALISTS: usize = 4;
/// Comparisons at most.
const FINALS: usize = 3;
/// Rounds of each.
const ROUNDS: usize = 25;
/// Rounds of their own in which the best and what was found are compared at last.
const JUDGING: usize = 51;

/// Measures everything, searches and compares.
pub fn judge(
    runtime: &Runtime,
    operation: &str,
    workload: &Workload,
    budget: Duration,
) -> Result<Option<Judged>> {
    let candidates = tunable(runtime, workload)?;
    let mut trial = runtime.trial(workload, &candidates)?;
    let mut times = exhaustive(&mut *trial, candidates.len());
    let bench = Recorder { runtime, candidates: &candidates, order: RefCell::default() };
    let began = Instant::now();
    let task = TuningTask { workload: workload.clone(), weight: 1.0, calls: None };
    let limits = TuningBudget { time: Some(budget), trials: None };
    let report = Coordinator::new(&bench).tune(&[task], &limits, &mut |_| true);
    let seconds = began.elapsed().as_secs_f64();
    let Some(tuned) = report.workloads.first() else { return Ok(None) };
    let place = |kernel: &str, parameters: &str| candidates.iter().position(|c| c.is(kernel, parameters));
    let Some(found) = tuned.best.as_ref().and_then(|b| place(&b.kernel, &b.parameters)) else {
        return Ok(None);
    };
    let Some(start) = tuned.starts.first().and_then(|s| place(&s.kernel, &s.parameters)) else {
        return Ok(None);
    };
    let last = finals(&mut *trial, &mut times, [0, start, found]);
    let Some(&(least, first)) = last.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else { return Ok(None) };
    let Some(shares) = shares(&mut *trial, [0, start, found], least) else { return Ok(None) };
    let order = bench.order.into_inner();
    let near = |p: &usize| times[*p].is_some_and(|t| t <= WITHIN * first);
    let name = |p: usize| (candidates[p].kernel.name().to_owned(), candidates[p].parameters.to_string());
    let timed = |(p, time): (usize, &Option<f64>)| {
        let (kernel, parameters) = name(p);
        Timed { kernel, parameters, expected: expected(&candidates[p]), time: *time }
    };
    Ok(Some(Judged {
        operation: operation.to_owned(),
        workload: workload.to_string(),
        points: times.iter().enumerate().map(timed).collect(),
        best: name(least),
        found: name(found),
        shares,
        within: order.iter().position(near).map(|at| at + 1),
        order,
        seconds,
    }))
}

/// The best time over the times of default, start and what was found, all four in turns in rounds that had no part in saying
/// which is the best: the least of many noisy times is lower than that point's true time, and whatever it is compared with
/// in the same samples looks worse than it is. Whatever comes out faster than the best is the best itself: a share of one.
fn shares(trial: &mut dyn Trial, [default, start, found]: [usize; 3], least: usize) -> Option<Shares> {
    let fresh = compare(trial, &[default, start, found, least], JUDGING);
    let [default, start, found, least] = &fresh[..] else { return None };
    let share = |of: &(usize, f64)| (least.1 / of.1).min(1.0);
    Some(Shares { default: share(default), start: share(start), tuned: share(found) })
}

/// Compares some points with the best of all, which then have more rounds behind them, until none of the others looks better:
/// a point may be in front only because it was timed in a lucky moment.
fn finals(trial: &mut dyn Trial, times: &mut [Option<f64>], always: [usize; 3]) -> Vec<(usize, f64)> {
    let (mut points, mut last) = (always.to_vec(), Vec::new());
    for _ in 0..FINALS {
        let mut order: Vec<(usize, f64)> =
            times.iter().enumerate().filter_map(|(p, t)| Some((p, (*t)?))).collect();
        order.sort_by(|a, b| a.1.total_cmp(&b.1));
        order.truncate(FINALISTS);
        order.retain(|(p, _)| !points.contains(p));
        if !last.is_empty() && order.is_empty() {
            break;
        }
        points.extend(order.iter().map(|best| best.0));
        last = compare(trial, &points, ROUNDS);
        for &(point, time) in &last {
            times[point] = Some(time);
        }
    }
    last
}

/// Every point's time over the default's. All take turns, with the default before and after every few of them; those that
/// are clearly behind leave, and the nearer to the best the more rounds a point has.
fn exhaustive(trial: &mut dyn Trial, points: usize) -> Vec<Option<f64>> {
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); points];
    let mut left: Vec<usize> = (0..points).collect();
    let mut done = 0;
    for (rounds, stays) in STAYS {
        for _ in done..rounds {
            for few in left.chunks(BETWEEN) {
                for (point, ratio) in turn(trial, few) {
                    ratios[point].push(ratio);
                }
            }
        }
        done = rounds;
        let least = ratios.iter().filter_map(|r| median(r)).fold(f64::INFINITY, f64::min);
        left.retain(|&p| median(&ratios[p]).is_some_and(|time| time <= stays * least));
    }
    ratios.iter().map(|r| median(r)).collect()
}

/// A few points between two samples of the default; once more if that was disturbed.
fn turn(trial: &mut dyn Trial, few: &[usize]) -> Vec<(usize, f64)> {
    let mut ratios = Vec::new();
    for _ in 0..2 {
        let before = trial.sample(0);
        let times: Vec<(usize, f64)> = few.iter().filter_map(|&p| Some((p, trial.sample(p).ok()?))).collect();
        let (Ok(before), Ok(after)) = (before, trial.sample(0)) else { return Vec::new() };
        let usual = (before * after).sqrt();
        ratios = times.into_iter().map(|(p, time)| (p, time / usual)).collect();
        if before.max(after) < CALM * before.min(after) {
            break;
        }
    }
    ratios
}

/// Some points in turns, each round in another order: times over the first one's of the same round, the middle of all rounds.
fn compare(trial: &mut dyn Trial, points: &[usize], rounds: usize) -> Vec<(usize, f64)> {
    let mut distinct: Vec<usize> = Vec::new();
    for &p in points {
        if !distinct.contains(&p) {
            distinct.push(p);
        }
    }
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); distinct.len()];
    for round in 0..rounds {
        let mut times = vec![None; distinct.len()];
        for i in 0..distinct.len() {
            let at = (i + round) % distinct.len();
            times[at] = trial.sample(distinct[at]).ok();
        }
        for (of, time) in ratios.iter_mut().zip(&times) {
            of.extend(time.zip(times[0]).map(|(time, first)| time / first));
        }
    }
    let time = |p: &usize| {
        let at = distinct.iter().position(|d| d == p)?;
        Some((*p, median(&ratios[at])?))
    };
    points.iter().filter_map(time).collect()
}

/// The middle of some numbers; the lower of two.
pub fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// A runtime that forgets what is measured and notes which points were tried.
struct Recorder<'a> {
    runtime: &'a Runtime,
    candidates: &'a [Candidate],
    order: RefCell<Vec<usize>>,
}

impl Workbench for Recorder<'_> {
    fn info(&self) -> &DeviceInfo {
        self.runtime.device_info()
    }

    fn candidates(&self, _: &Workload) -> shapewise::Result<Vec<Candidate>> {
        Ok(self.candidates.to_vec())
    }

    fn trial<'b>(
        &'b self,
        workload: &'b Workload,
        candidates: &'b [Candidate],
    ) -> shapewise::Result<Box<dyn Trial + 'b>> {
        let trial = self.runtime.trial(workload, candidates)?;
        Ok(Box::new(Recorded { trial, order: &self.order }))
    }

    fn keep(&self, _: &Workload, _: &Candidate, _: &[f64]) {}

    fn refuse(&self, _: &Workload, _: &Candidate, _: &str) {}

    fn settle(&self, _: &Workload) {}
}

struct Recorded<'a> {
    trial: Box<dyn Trial + 'a>,
    order: &'a RefCell<Vec<usize>>,
}

impl Trial for Recorded<'_> {
    fn sample(&mut self, point: usize) -> Result<f64, String> {
        let mut order = self.order.borrow_mut();
        if !order.contains(&point) {
            order.push(point);
        }
        drop(order);
        self.trial.sample(point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of known times on a machine whose speed changes all the time.
    struct Swinging {
        times: Vec<Option<f64>>,
        calls: u32,
    }

    impl Trial for Swinging {
        fn sample(&mut self, point: usize) -> Result<f64, String> {
            self.calls += 1;
            let speed = 1.0 + 0.5 * (f64::from(self.calls) / 400.0).sin();
            self.times[point].map(|time| time * speed).ok_or_else(|| "broken".into())
        }
    }

    #[test]
    fn the_best_point_is_found_while_the_machine_swings() {
        let mut times: Vec<Option<f64>> = (0..120).map(|i| Some(1.0 + f64::from(i % 60) * 0.02)).collect();
        times[77] = Some(0.9);
        times[5] = None;
        let mut trial = Swinging { times, calls: 0 };
        let found = exhaustive(&mut trial, 120);
        assert_eq!(found[5], None);
        let least = (0..120)
            .filter(|&p| found[p].is_some())
            .min_by(|&a, &b| found[a].unwrap_or(f64::INFINITY).total_cmp(&found[b].unwrap_or(f64::INFINITY)));
        assert_eq!(least, Some(77));
        assert!((found[77].unwrap() - 0.9).abs() < 0.01, "{:?}", found[77]);
        let last = compare(&mut trial, &[0, 77, 0, 10], ROUNDS);
        assert_eq!(last.iter().map(|l| l.0).collect::<Vec<_>>(), [0, 77, 0, 10]);
        assert!((last[1].1 - 0.9).abs() < 0.01 && (last[3].1 - 1.2).abs() < 0.01, "{last:?}");
    }

    #[test]
    fn points_of_lucky_moments_do_not_hide_the_best() {
        let times: Vec<Option<f64>> = (0..60).map(|i| Some(1.0 + f64::from(i) * 0.01)).collect();
        let mut trial = Swinging { times: times.clone(), calls: 0 };
        let mut seen = times;
        seen[3] = Some(1.02);
        for lucky in [20, 21, 22, 23, 24] {
            seen[lucky] = Some(0.5);
        }
        let last = finals(&mut trial, &mut seen, [3, 10, 3]);
        assert_eq!(last[..3].iter().map(|l| l.0).collect::<Vec<_>>(), [3, 10, 3]);
        let least = last.iter().min_by(|a, b| a.1.total_cmp(&b.1)).map(|l| l.0);
        assert_eq!(least, Some(0), "{last:?}");
    }

    /// Points that are all the same, on a machine that disturbs each sample.
    struct Noisy(u64);

    impl Trial for Noisy {
        fn sample(&mut self, _: usize) -> Result<f64, String> {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Ok(1.0 + 0.1 * (self.0 >> 40) as f64 / f64::from(1 << 24))
        }
    }

    #[test]
    fn among_equals_nobody_is_judged_worse_than_the_luckiest() {
        let (mut before, mut after) = (0.0, 0.0);
        for seed in 0..40 {
            let mut trial = Noisy(seed);
            let last = compare(&mut trial, &(0..15).collect::<Vec<_>>(), ROUNDS);
            let (least, first) = *last.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
            before += (first / last[2].1).ln() / 40.0;
            let fresh = compare(&mut trial, &[2, least], JUDGING);
            after += (fresh[1].1 / fresh[0].1).ln() / 40.0;
            let judged = shares(&mut trial, [0, 1, 2], least).unwrap();
            assert!(judged.tuned > 0.97 && judged.tuned <= 1.0, "{}", judged.tuned);
        }
        assert!(before < -0.01, "the least of fifteen is below the others: {before}");
        assert!(after.abs() < 0.005, "in rounds of their own they are equals: {after}");
    }
}
