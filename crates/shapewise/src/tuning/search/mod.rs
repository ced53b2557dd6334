//! The search for better parameters: a model says where to look, races on the real thing say who wins.
//!
//! [`search`] measures few points of a large space: those that a surrogate of all times so far expects to gain most. It
//! stops when the leader's bound clears the rest, when what is left to gain costs more than it brings, or when the budget
//! is used up. Points that fail or compute something wrong are refused and remembered.

mod race;
mod ranked;
mod surrogate;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use serde::Serialize;

use crate::ops::Parameters;

/// Gives times of points: the machine itself, or what was recorded of one.
pub trait Trial {
    /// Seconds of one call at a point, from one sample; an error says why the point is out for good.
    fn sample(&mut self, point: usize) -> Result<f64, String>;
}

/// One point of a space.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Which kernel: times of one say little about those of another.
    pub kernel: usize,
    /// Values of its tunables.
    pub parameters: Parameters,
    /// Seconds that a model expects.
    pub predicted: Option<f64>,
    /// What was measured before, in seconds, and from how many samples: it is not measured again without a reason.
    pub known: Option<(f64, u32)>,
    /// Why it must not be tried: it failed or was wrong before.
    pub refused: Option<String>,
    /// Whether a strategy says to start here: it is tried together with the default.
    pub start: bool,
}

/// How points are picked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchMethod {
    /// Those that the surrogate expects to gain most.
    #[default]
    Ranked,
    /// Any, in an order that this number decides: a baseline.
    Random(u64),
    /// All of them: the truth that the others are judged by.
    Exhaustive,
}

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub struct SearchSettings {
    /// How points are picked.
    pub method: SearchMethod,
    /// Points measured at most.
    pub trials: usize,
    /// Time to spend at most.
    pub time: Option<Duration>,
    /// Samples of a point when it is first tried.
    pub samples: usize,
    /// Rounds of the last race at most.
    pub rounds: usize,
    /// A gain below this share is not looked for.
    pub worth: f64,
    /// Calls that will follow, if anyone knows: a trial must bring more time than it takes.
    pub calls: Option<f64>,
}

impl Default for SearchSettings {
    fn default() -> Self {
        Self {
            method: SearchMethod::Ranked,
            trials: 32,
            time: None,
            samples: 3,
            rounds: 45,
            worth: 0.001,
            calls: None,
        }
    }
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// Every point was measured or refused.
    Exhausted,
    /// What is left to gain is not worth looking for.
    Settled,
    /// The trials are used up.
    Trials,
    /// The time is used up.
    Time,
    /// Somebody asked to stop.
    Cancelled,
}

/// Samples of one point.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sampled {
    /// The point.
    pub point: usize,
    /// Seconds of each sample, in order.
    pub samples: Vec<f64>,
    /// Seconds as they compare with those of the others: samples count relative to the leader's in the same round, because
    /// a machine that slows down slows all of a round.
    pub seconds: f64,
}

/// What a search found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Found {
    /// The best point; `None` if every one was refused.
    pub best: Option<usize>,
    /// Points in the order of their first sample.
    pub sampled: Vec<Sampled>,
    /// Points that failed or were wrong, with the reason.
    pub refused: Vec<(usize, String)>,
    /// Half the interval of the best point's time, as a share: two standard errors.
    pub interval: Option<f64>,
    /// The largest gain that a point not measured yet is expected to bring, as a share of the time.
    pub left: f64,
    /// Why it ended.
    pub stop: Stop,
}

/// What a search has so far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SoFar {
    /// Points measured.
    pub trials: usize,
    /// Seconds of the best.
    pub best_seconds: f64,
}

/// Searches a space; the first point is the default and always measured. `listen` hears of each trial and ends the search
/// with `false`; everything measured until then is kept.
pub fn search(
    points: &[Point],
    settings: &SearchSettings,
    trial: &mut dyn Trial,
    listen: &mut dyn FnMut(SoFar) -> bool,
) -> Found {
    let mut run = Run::new(points, settings, trial, listen);
    let stop = match settings.method {
        SearchMethod::Ranked => ranked::run(&mut run),
        SearchMethod::Random(seed) => run.in_order(&shuffled(points.len(), seed)),
        SearchMethod::Exhaustive => run.in_order(&(0..points.len()).collect::<Vec<_>>()),
    };
    run.left = ranked::left(&run);
    race::finish(&mut run);
    run.found(stop)
}

/// A search as it goes.
struct Run<'a> {
    points: &'a [Point],
    settings: &'a SearchSettings,
    trial: &'a mut dyn Trial,
    listen: &'a mut dyn FnMut(SoFar) -> bool,
    samples: Vec<Vec<f64>>,
    /// The same as the leader would have been timed all along: a machine that slows down slows all of a round.
    steady: Vec<Vec<f64>>,
    order: Vec<usize>,
    refused: Vec<Option<String>>,
    started: Instant,
    cancelled: bool,
    interval: Option<f64>,
    left: f64,
}

impl<'a> Run<'a> {
    fn new(
        points: &'a [Point],
        settings: &'a SearchSettings,
        trial: &'a mut dyn Trial,
        listen: &'a mut dyn FnMut(SoFar) -> bool,
    ) -> Self {
        Self {
            points,
            settings,
            trial,
            listen,
            samples: vec![Vec::new(); points.len()],
            steady: vec![Vec::new(); points.len()],
            order: Vec::new(),
            refused: points.iter().map(|p| p.refused.clone()).collect(),
            started: Instant::now(),
            cancelled: false,
            interval: None,
            left: 0.0,
        }
    }

    /// One sample of a point; a point that fails is out.
    fn sample(&mut self, point: usize) -> Option<f64> {
        if self.refused[point].is_some() {
            return None;
        }
        let sampled = self.trial.sample(point);
        let seconds = match sampled {
            Ok(seconds) if seconds.is_finite() && seconds > 0.0 => seconds,
            Ok(wrong) => {
                self.refused[point] = Some(format!("took {wrong} s, which cannot be"));
                return None;
            }
            Err(reason) => {
                self.refused[point] = Some(reason);
                return None;
            }
        };
        if self.samples[point].is_empty() {
            self.order.push(point);
        }
        self.samples[point].push(seconds);
        Some(seconds)
    }

    /// The median of what was sampled now, else what was known before.
    fn seconds(&self, point: usize) -> Option<f64> {
        if self.refused[point].is_some() {
            return None;
        }
        median(&self.steady[point]).or(self.points[point].known.map(|(seconds, _)| seconds))
    }

    /// One round: the leader, each of the points, the leader again. What they took counts relative to the leader; whether
    /// the leader took the same both times says whether the round counts at all.
    fn round(&mut self, leader: usize, points: &[usize]) -> Round {
        let before = self.sample(leader);
        let times: Vec<Option<f64>> = points.iter().map(|&point| self.sample(point)).collect();
        let after = self.sample(leader);
        let now = before.into_iter().chain(after).reduce(f64::min);
        let calm = before.zip(after).is_none_or(|(a, b)| a.max(b) < CALM * a.min(b));
        let slower = now.zip(self.seconds(leader)).map_or(1.0, |(now, usual)| now / usual);
        let times = points.iter().zip(times).filter_map(|(&p, time)| Some((p, time? / slower))).collect();
        Round { times, leader: now, calm }
    }

    /// Points measured that were not known before.
    fn tried(&self) -> usize {
        self.order.iter().filter(|&&p| self.points[p].known.is_none()).count()
    }

    fn is_new(&self, point: usize) -> bool {
        self.refused[point].is_none() && self.seconds(point).is_none()
    }

    fn best(&self) -> Option<usize> {
        let timed = (0..self.points.len()).filter_map(|p| Some((p, self.seconds(p)?)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(point, _)| point)
    }

    /// Tries some points in turns, so that all of them see the same disturbances. The best so far takes part, or the first
    /// of the points where there is none yet.
    fn trials(&mut self, batch: &[usize]) {
        let Some(leader) = batch.first().map(|&first| self.best().unwrap_or(first)) else { return };
        let mut racing: Vec<usize> = batch.iter().copied().filter(|&p| p != leader).collect();
        let mut calm = 0;
        for round in 0..2 * self.settings.samples {
            let Round { times, leader: now, calm: counts } = self.round(leader, &racing);
            if self.seconds(leader).is_none() {
                self.steady[leader].extend(now);
            }
            // A disturbed round counts only for those who have no other.
            for (point, time) in times {
                if counts || self.steady[point].is_empty() {
                    self.steady[point].push(time);
                }
            }
            calm += usize::from(counts);
            if calm >= self.settings.samples {
                break;
            }
            if round == 0 {
                let least = self.best().and_then(|best| self.seconds(best)).unwrap_or(f64::INFINITY);
                racing.retain(|&p| self.seconds(p).is_some_and(|s| s < HOPELESS * least));
            }
        }
        let mut sure = vec![leader];
        while let Some(best) = self.best().filter(|best| batch.contains(best) && !sure.contains(best)) {
            self.confirm(leader, best);
            sure.push(best);
        }
    }

    /// Samples a point that has come to the front once more, and takes these times for those that brought it there: the best of
    /// many is often only lucky, and the surrogate would follow it.
    fn confirm(&mut self, leader: usize, point: usize) {
        let mut again = Vec::new();
        for _ in 0..2 * self.settings.samples {
            let Round { times, calm, .. } = self.round(leader, &[point]);
            again.extend(times.into_iter().filter(|_| calm).map(|(_, time)| time));
            if again.len() >= self.settings.samples || self.refused[point].is_some() {
                break;
            }
        }
        if !again.is_empty() {
            self.steady[point] = again;
        }
    }

    /// Whether the search must end, and why.
    fn ended(&mut self) -> Option<Stop> {
        let best_seconds = self.best().and_then(|p| self.seconds(p)).unwrap_or(f64::INFINITY);
        let trials = self.tried();
        self.cancelled |= !(self.listen)(SoFar { trials, best_seconds });
        if self.cancelled {
            Some(Stop::Cancelled)
        } else if trials >= self.settings.trials {
            Some(Stop::Trials)
        } else if self.settings.time.is_some_and(|time| self.started.elapsed() >= time.mul_f64(LOOKING)) {
            Some(Stop::Time)
        } else {
            None
        }
    }

    /// The default and then every point that is new, in an order.
    fn in_order(&mut self, order: &[usize]) -> Stop {
        if !self.points.is_empty() && self.is_new(0) {
            self.trials(&[0]);
        }
        for &point in order {
            if let Some(stop) = self.ended() {
                return stop;
            }
            if self.is_new(point) {
                self.trials(&[point]);
            }
        }
        Stop::Exhausted
    }

    fn found(mut self, stop: Stop) -> Found {
        let best = self.best();
        let mut sampled = Vec::with_capacity(self.order.len());
        for &point in &self.order {
            let samples = std::mem::take(&mut self.samples[point]);
            // A leader that was known before has samples of now, but counts with what was known.
            let known = self.points[point].known.map(|known| known.0);
            let seconds = median(&self.steady[point]).or(known).or(median(&samples));
            sampled.extend(seconds.map(|seconds| Sampled { point, samples, seconds }));
        }
        let refused = self.refused.into_iter().enumerate().filter_map(|(p, why)| Some((p, why?))).collect();
        let stop = if self.cancelled { Stop::Cancelled } else { stop };
        Found { best, sampled, refused, interval: self.interval, left: self.left, stop }
    }
}

/// The share of the time in which new points are tried; the rest is the last race's, without which a lucky point may win.
const LOOKING: f64 = 0.75;

/// What a round of samples gave.
struct Round {
    /// Points, and seconds as the leader would have been timed all along.
    times: Vec<(usize, f64)>,
    /// Seconds of the leader, the lesser of two: that resists an interruption of either.
    leader: Option<f64>,
    /// Whether the leader took the same before and after.
    calm: bool,
}

/// The leader's two times of a calm round differ by less than this factor: on a machine of its own they agree within a few
/// percent, and a neighbour on the same core makes them differ by half and more.
const CALM: f64 = 1.15;

/// A point whose first sample takes this many times the best one is not sampled again: interruptions on a shared machine
/// double a sample, rarely more.
const HOPELESS: f64 = 2.0;

/// The middle of some numbers; the lower of two.
pub(super) fn median(numbers: &[f64]) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// All numbers below `n` in an order that the seed decides.
fn shuffled(n: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    for i in (1..n).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(i, (state % (i as u64 + 1)) as usize);
    }
    order
}
