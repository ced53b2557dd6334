//! The race between candidates whose predictions overlap: the user's own calls are the trials.

use super::Candidate;
use crate::modelling::{Basis, Prediction};
use crate::tracking::{Measured, Timings};

/// Candidates that race at once; the others wait until one of these is beaten.
const AT_ONCE: usize = 4;
/// Candidates that take part in one race at most.
const AT_MOST: usize = 12;
/// A candidate expected above this multiple of the leader is never tried.
pub(crate) const HOPELESS: f64 = 2.0;
/// Rounds after which the lead is settled however close it is.
const LAST_ROUND: usize = 15;
/// Rounds that a leader has run before it is measured against those that wait: the first call may have been cold.
const WARM: usize = 3;
/// A candidate's first call is a rehearsal if it is shorter than this: threads that start and memory that comes from the
/// system cost milliseconds once, which is little beside longer calls.
const REHEARSED_BELOW: f64 = 50e-3;
/// Seconds or calls that a candidate of several threads runs before its block begins: beside candidates of one thread the workers
/// fall asleep, and waking them takes 50 µs on a virtual machine, several times that on a crowded one. Calls in a row find them awake.
/// They are not part of the block: the shortest of more calls would be shorter by chance.
const AWAKE_AFTER: (f64, usize) = (300e-6, 16);
/// Paired log difference that is worth telling apart.
const MATTERS: f64 = 0.01;
/// Paired log difference above which a candidate is out at once, expected or not.
const SHOCKING: f64 = 1.1;

/// A race over the first calls of a workload.
pub(crate) struct Trials {
    racing: Vec<Trial>,
    /// Not tried yet, most promising last.
    waiting: Vec<Candidate>,
    /// Out of the race, kept for what was measured.
    beaten: Vec<Trial>,
    position: usize,
    /// Calls of the block that is under way, and before it those in which workers woke up.
    run_in_block: usize,
    waking: (f64, usize),
    joined: usize,
    /// Turns that were taken under the entry that holds the race.
    turns: u64,
}

/// A candidate and what it took.
pub(crate) struct Trial {
    pub candidate: Candidate,
    /// Seconds, one for each round.
    pub times: Vec<f64>,
    /// Calls it computed.
    pub runs: u64,
    /// The shortest of the block that is under way.
    block: f64,
    /// Seconds and number of its calls after the rehearsal.
    spent: (f64, u64),
    /// Seconds that its turns behind the leader took above what the leader takes; below zero if they were faster.
    behind: f64,
}

impl Trial {
    fn new(candidate: Candidate) -> Self {
        Self { candidate, times: Vec::new(), runs: 0, block: f64::INFINITY, spent: (0.0, 0), behind: 0.0 }
    }

    /// The lower quartile of what was measured here, or what is expected: what else the machine does only adds.
    pub fn estimate(&self) -> f64 {
        let expected = self.candidate.predicted.map(|p| p.seconds);
        quantile(&self.times, 4).or(expected).unwrap_or(f64::INFINITY)
    }

    /// What a call of it takes in the mean, interruptions included, which is what others are compared with when they lose time; not
    /// more than twice the estimate, so that one long interruption does not pay for everyone's trials.
    fn typical(&self) -> f64 {
        let (estimate, (seconds, calls)) = (self.estimate(), self.spent);
        if calls == 0 { estimate } else { (seconds / calls as f64).min(2.0 * estimate).max(estimate) }
    }

    /// The candidate as it is judged when the race is over.
    pub fn judged(&self) -> Option<Candidate> {
        let Timings { samples, spread, .. } = Timings::of(&self.times)?;
        let measured = Some(Measured { seconds: self.estimate(), samples, spread });
        Some(Candidate { measured, ..self.candidate.clone() })
    }
}

impl Trials {
    /// A race led by `candidates[leader]` among those whose interval overlaps its own; `None` when nobody else may join.
    /// Rivals are those that `may_join`.
    pub fn new(
        candidates: &[Candidate],
        leader: usize,
        may_join: impl Fn(&Candidate) -> bool,
    ) -> Option<Self> {
        Self::again(candidates, leader, None, may_join)
    }

    /// The same, with a candidate that takes part whatever its latest times say: they were those of a slow time, in which the others,
    /// whose times are older, did not run.
    pub fn again(
        candidates: &[Candidate],
        leader: usize,
        incumbent: Option<usize>,
        may_join: impl Fn(&Candidate) -> bool,
    ) -> Option<Self> {
        let lead = candidates[leader].predicted?;
        let incumbent = incumbent.filter(|&i| i != leader);
        let others = (0..candidates.len()).filter(|&i| i != leader && Some(i) != incumbent);
        let others = others.map(|i| &candidates[i]).filter(|c| may_join(c));
        let mut rivals: Vec<(Prediction, &Candidate)> =
            others.filter_map(|c| c.predicted.map(|p| (p, c))).collect();
        rivals.sort_by(|(a, _), (b, _)| b.seconds.total_cmp(&a.seconds));
        let mut waiting: Vec<Candidate> = rivals.into_iter().map(|(_, c)| c.clone()).collect();
        let first = std::iter::once(leader).chain(incumbent);
        let mut racing: Vec<Trial> = first.map(|i| Trial::new(candidates[i].clone())).collect();
        while racing.len() < AT_ONCE && waiting.last().is_some_and(|c| may_beat(c, lead.seconds, lead.high)) {
            racing.extend(waiting.pop().map(Trial::new));
        }
        let joined = racing.len();
        // A leader without a rival runs alone for a few rounds: it may be slower than predicted, unless it was measured.
        let alone = joined == 1 && (waiting.is_empty() || lead.basis == Basis::Measured);
        let trials = Self {
            racing,
            waiting,
            beaten: Vec::new(),
            position: 0,
            run_in_block: 0,
            waking: (0.0, 0),
            joined,
            turns: 0,
        };
        (!alone).then_some(trials)
    }

    /// The race as it stands, for the entry that takes the place of this one; nobody but the leader is left here.
    pub fn hand_over(&mut self) -> Self {
        let left = Self {
            racing: vec![Trial::new(self.leader().clone())],
            waiting: Vec::new(),
            beaten: Vec::new(),
            position: 0,
            run_in_block: 0,
            waking: (0.0, 0),
            joined: 1,
            turns: self.turns,
        };
        Self { turns: 0, ..std::mem::replace(self, left) }
    }

    /// Turns that were taken under the entry that holds the race.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// The candidate whose turn it is.
    pub fn turn(&self) -> &Candidate {
        &self.racing[self.position].candidate
    }

    /// Seconds the turn is expected to take above the leader; `None` where it is the leader's own.
    pub fn stake(&self) -> Option<f64> {
        let (best, turn) = (self.best(), &self.racing[self.position]);
        let lead = self.racing[best].estimate();
        let above = (turn.estimate() - lead).max(0.0);
        let stake = match turn.candidate.predicted {
            Some(p) if turn.times.is_empty() => above.max(expected_loss(p, lead)),
            _ => above,
        };
        (self.position != best).then_some(stake)
    }

    /// The candidate to run where there is no room for a trial.
    pub fn leader(&self) -> &Candidate {
        &self.racing[self.best()].candidate
    }

    /// Who leads by what was measured here, and over how many rounds; `None` before the first one.
    pub fn leading(&self) -> Option<(&Candidate, usize)> {
        let Trial { candidate, times, .. } = &self.racing[self.best()];
        (!times.is_empty()).then_some((candidate, times.len()))
    }

    /// The fastest of those that were timed: a prediction alone does not lead beside times. Before the first time, the favourite.
    fn best(&self) -> usize {
        let untimed = |i: usize| self.racing[i].times.is_empty();
        let estimates: Vec<f64> = self.racing.iter().map(Trial::estimate).collect();
        let order =
            |&a: &usize, &b: &usize| untimed(a).cmp(&untimed(b)).then(estimates[a].total_cmp(&estimates[b]));
        (0..estimates.len()).min_by(order).unwrap_or(0)
    }

    /// Takes the time of the candidate whose turn it is; returns what it lost against the leader. A trial that was slow by chance
    /// gets that back from later ones of the same candidate, which is a loss below zero.
    pub fn record(&mut self, seconds: f64) -> f64 {
        // The leader would have run anyway: that is no loss, whatever it took.
        let best = self.best();
        let above = if self.position == best { 0.0 } else { seconds - self.racing[best].typical() };
        let trial = &mut self.racing[self.position];
        let before = trial.behind;
        trial.behind += above;
        let lost = trial.behind.max(0.0) - before.max(0.0);
        trial.runs += 1;
        self.turns += 1;
        if trial.runs == 1 && seconds < REHEARSED_BELOW {
            return lost;
        }
        trial.spent = (trial.spent.0 + seconds, trial.spent.1 + 1);
        let is_awake = trial.candidate.parameters.threads() <= 1
            || seconds >= REHEARSED_BELOW
            || self.waking.0 >= AWAKE_AFTER.0
            || self.waking.1 >= AWAKE_AFTER.1;
        if !is_awake {
            self.waking = (self.waking.0 + seconds, self.waking.1 + 1);
            return lost;
        }
        trial.block = trial.block.min(seconds);
        self.run_in_block += 1;
        if self.run_in_block >= block_length(trial.block) {
            trial.times.push(std::mem::replace(&mut trial.block, f64::INFINITY));
            (self.run_in_block, self.waking) = (0, (0.0, 0));
            self.position += 1;
        }
        if self.position == self.racing.len() {
            self.position = 0;
            self.eliminate();
        }
        lost
    }

    /// Whether nobody is left to beat.
    pub fn finished(&self) -> bool {
        self.racing.len() == 1 && self.racing[0].times.len() >= WARM
    }

    /// Everyone that took part, the winner first.
    pub fn results(&self) -> impl Iterator<Item = &Trial> {
        self.racing.iter().chain(&self.beaten)
    }

    /// At the end of a round: out with those that are clearly slower, in with those that may be faster.
    fn eliminate(&mut self) {
        let best = self.best();
        let lead = self.racing[best].times.clone();
        let mut keep = Vec::new();
        for (i, trial) in self.racing.drain(..).enumerate() {
            if i == best || !clearly_slower(&trial, &lead) {
                keep.push(trial);
            } else {
                self.beaten.push(trial);
            }
        }
        // The leader stands first; the others keep their order, so that ties stay with the earlier prediction.
        keep.sort_by(|a, b| a.estimate().total_cmp(&b.estimate()));
        self.racing = keep;
        let settled = self.racing.iter().all(|t| t.times.len() >= LAST_ROUND);
        if settled {
            self.beaten.extend(self.racing.drain(1..));
        }
        self.admit();
    }

    /// Lets waiting candidates in that may beat what was measured.
    fn admit(&mut self) {
        let best = &self.racing[self.best()];
        if best.times.len() < WARM {
            return;
        }
        // Seconds that the leader would have by the standards of the predictions.
        let lead = best.estimate() / self.faster_than_predicted();
        while self.racing.len() < AT_ONCE && self.joined < AT_MOST {
            if !self.waiting.last().is_some_and(|c| may_beat(c, lead, lead)) {
                break;
            }
            self.racing.extend(self.waiting.pop().map(Trial::new));
            self.joined += 1;
        }
    }

    /// Measured over predicted time in the geometric mean of those that were timed, where that is below one: what makes all of
    /// them faster than predicted on this workload does so for those that wait. Where they are slower, the others keep their promise.
    fn faster_than_predicted(&self) -> f64 {
        let ratio = |t: &Trial| Some((quantile(&t.times, 4)? / t.candidate.predicted?.seconds).ln());
        let logs: Vec<f64> = self.results().filter_map(ratio).collect();
        (logs.iter().sum::<f64>() / logs.len().max(1) as f64).min(0.0).exp()
    }
}

/// What a time loses in the mean against `lead` seconds whose logarithm may lie anywhere in its interval: nothing below it, the
/// difference above.
fn expected_loss(predicted: Prediction, lead: f64) -> f64 {
    let Prediction { low, high, .. } = predicted;
    let from = low.max(lead);
    if high <= lead {
        0.0
    } else if high <= low {
        high - lead
    } else {
        (high - from - lead * (high / from).ln()) / (high / low).ln()
    }
}

/// Whether a candidate's interval reaches below `reach` and it is not hopeless beside a leader at `lead` seconds.
fn may_beat(candidate: &Candidate, lead: f64, reach: f64) -> bool {
    candidate.predicted.is_some_and(|p| p.low <= reach && p.seconds <= HOPELESS * lead)
}

/// Calls are timed several times in a row and the shortest counts: switching kernels leaves cold caches, and interruptions would put
/// a good candidate out. Two more than caches need took about a third off the regret of the worst hundredth in a model of races over
/// the recorded times.
fn block_length(seconds: f64) -> usize {
    match seconds {
        s if s > REHEARSED_BELOW => 2,
        s if s > 50e-6 => 4,
        s if s > 10e-6 => 5,
        _ => 6,
    }
}

/// Whether one candidate's times are above the leader's by more than chance, compared round by round.
fn clearly_slower(trial: &Trial, lead: &[f64]) -> bool {
    let rounds = trial.times.len().min(lead.len());
    // Those who joined later are compared over their own rounds, which are the last ones.
    let late = |all: &[f64]| all[all.len() - rounds..].to_vec();
    let differences: Vec<f64> =
        late(&trial.times).iter().zip(late(lead)).map(|(t, l)| (t / l).ln()).collect();
    let least = differences.iter().copied().fold(f64::INFINITY, f64::min);
    // A time that nobody expected may be the machine's: it needs another round, unless that would be expensive.
    let shortest = trial.times.iter().copied().fold(f64::INFINITY, f64::min);
    let is_expected = least > SHOCKING || trial.candidate.predicted.is_none_or(|p| shortest <= p.high);
    match rounds {
        0 => false,
        // Few rounds settle only large differences, so that one interruption decides nothing.
        1 => least > 0.5 && is_expected,
        2 => least > 0.1 && is_expected,
        n => {
            let mean = differences.iter().sum::<f64>() / n as f64;
            let variance = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / (n - 1) as f64;
            let middle = median(&differences).unwrap_or(0.0);
            let error = (variance / n as f64).sqrt();
            middle > MATTERS && (mean > 2.0 * error || least > 0.0)
        }
    }
}

/// The middle of some numbers; of an even count the lower one, because interruptions only add.
fn median(numbers: &[f64]) -> Option<f64> {
    quantile(numbers, 2)
}

/// The number that one part of `parts` lies below, the lower one of two.
fn quantile(numbers: &[f64], parts: usize) -> Option<f64> {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / parts).copied()
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::made_up;
    use super::*;

    /// Runs a race against true times, with some noise, and returns who won and how many calls it took.
    fn race(candidates: &[Candidate], leader: usize, truth: &[f64]) -> (usize, usize) {
        let mut trials = Trials::new(candidates, leader, |_| true).expect("there are rivals");
        let mut state = 7u64;
        let index = |c: &Candidate| c.parameters.threads() - 1;
        for call in 0.. {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let noise = 1.0 + 0.04 * ((state >> 40) as f64 / (1u64 << 24) as f64 - 0.5);
            // Every now and then something interrupts the call.
            let interruption = if call % 17 == 16 { 30.0 } else { 1.0 };
            trials.record(truth[index(trials.turn())] * noise * interruption);
            if trials.finished() {
                return (index(trials.leader()), call + 1);
            }
            assert!(call < 1000, "the race never ends");
        }
        unreachable!()
    }

    #[test]
    fn the_fastest_wins_in_spite_of_predictions_and_interruptions() {
        let candidates: Vec<_> = (1..=4).map(|i| made_up(i, 1e-3 + 1e-5 * f64::from(i), 1.3)).collect();
        let (winner, calls) = race(&candidates, 0, &[1.3e-3, 1.2e-3, 1e-3, 1.1e-3]);
        assert_eq!(winner, 2);
        assert!(calls <= 4 * (1 + 5 * LAST_ROUND), "{calls}");
    }

    #[test]
    fn a_leader_that_lied_lets_the_waiting_ones_in() {
        let mut candidates = vec![made_up(1, 1e-6, 1.1), made_up(2, 1.1e-6, 1.1)];
        candidates.extend((3..=8).map(|i| made_up(i, 1e-3 * f64::from(i), 1.1)));
        let truth: Vec<f64> = (0..8).map(|i| if i < 2 { 0.1 } else { 1e-3 * f64::from(i + 1) }).collect();
        assert_eq!(race(&candidates, 0, &truth).0, 2);
    }

    #[test]
    fn where_all_are_faster_than_predicted_the_waiting_ones_may_be_too() {
        let candidates: Vec<_> =
            [1.0, 1.1, 1.2, 1.3, 1.4].into_iter().zip(1..).map(|(s, i)| made_up(i, s, 1.5)).collect();
        assert_eq!(race(&candidates, 0, &[0.4, 0.44, 0.48, 0.52, 0.3]).0, 4);
    }

    #[test]
    fn workers_that_wake_up_do_not_decide() {
        let candidates = [made_up(1, 40e-6, 1.5), made_up(2, 41e-6, 1.5)];
        let mut trials = Trials::new(&candidates, 0, |_| true).unwrap();
        let mut awake = 0.0;
        while !trials.finished() {
            let seconds = match trials.turn().parameters.threads() {
                1 => 40e-6,
                // Nobody helps for as long as it takes to wake up.
                _ if awake < 150e-6 => 60e-6,
                _ => 25e-6,
            };
            awake = if trials.turn().parameters.threads() == 1 { 0.0 } else { awake + seconds };
            trials.record(seconds);
        }
        assert_eq!(trials.leader().parameters.threads(), 2);
    }

    #[test]
    fn nobody_hopeless_or_apart_joins() {
        let apart = [made_up(1, 1.0, 1.1), made_up(2, 1.5, 1.1)];
        let hopeless = [made_up(1, 1.0, 3.0), made_up(2, 2.1, 3.0)];
        for candidates in [apart, hopeless] {
            let mut trials = Trials::new(&candidates, 0, |_| true).unwrap();
            while !trials.finished() {
                assert_eq!(trials.turn().parameters.threads(), 1);
                trials.record(1.0);
            }
        }
        let close = [made_up(1, 1.0, 1.1), made_up(2, 1.05, 1.1)];
        assert!(Trials::new(&close, 0, |_| false).is_none());
        assert_eq!(race(&close, 0, &[1.0, 0.9]).0, 1);
    }

    #[test]
    fn who_was_slow_for_a_while_is_judged_by_new_times() {
        // It took 0.8 until the machine was slow; the others were not timed since.
        let candidates = [made_up(1, 1.0, 1.1), made_up(2, 3.0, 1.1), made_up(3, 1.05, 1.1)];
        let mut trials = Trials::again(&candidates, 0, Some(1), |_| true).unwrap();
        while !trials.finished() {
            let seconds = [1.0, 0.8, 1.05][trials.turn().parameters.threads() - 1];
            trials.record(seconds);
        }
        assert_eq!(trials.leader().parameters.threads(), 2);
    }

    #[test]
    fn what_a_turn_may_lose_is_known_before_it_is_taken() {
        let candidates = [made_up(1, 1e-3, 1.5), made_up(2, 1.2e-3, 1.5)];
        let mut trials = Trials::new(&candidates, 0, |_| true).unwrap();
        assert_eq!(trials.stake(), None);
        for _ in 0..=block_length(1e-3) {
            assert_eq!(trials.record(1e-3), 0.0);
        }
        // Nobody timed it: anything from 0.8 to 1.8 ms, which is slower in 72 cases of a hundred, by 0.36 ms in the mean.
        assert!(trials.stake().is_some_and(|s| (s - 0.26169e-3).abs() < 1e-8), "{:?}", trials.stake());
        assert!((trials.record(1.5e-3) - 0.5e-3).abs() < 1e-9);
        assert_eq!(expected_loss(candidates[1].predicted.unwrap(), 2e-3), 0.0);
        assert!((expected_loss(candidates[1].predicted.unwrap(), 0.5e-3) - 0.73315e-3).abs() < 1e-8);
    }

    #[test]
    fn a_newcomer_does_not_lead_by_its_prediction_alone() {
        // The leader turns out ten times slower than predicted, and the one that waits seems faster now; it is not.
        let candidates = [made_up(1, 2e-3, 1.1), made_up(2, 18e-3, 1.1)];
        let mut trials = Trials::new(&candidates, 0, |_| true).unwrap();
        let mut lost = [0.0; 2];
        while !trials.finished() {
            assert_eq!(
                trials.leader().parameters.threads(),
                1,
                "it was timed, the other only predicted or slower"
            );
            let who = trials.turn().parameters.threads() - 1;
            assert!(trials.stake().is_none_or(|s| s == 0.0), "the newcomer is expected to win");
            lost[who] += trials.record([23e-3, 70e-3][who]);
        }
        assert!(lost[0] == 0.0 && (lost[1] - 2.0 * 47e-3).abs() < 1e-9, "{lost:?}");
    }

    #[test]
    fn a_candidate_that_is_interrupted_half_of_the_time_still_wins() {
        let candidates = [made_up(1, 1e-3, 1.5), made_up(2, 1.1e-3, 1.5)];
        let mut trials = Trials::new(&candidates, 0, |_| true).unwrap();
        for call in 0.. {
            let slow = trials.turn().parameters.threads() == 1;
            // The faster one takes three times as long in every other call.
            trials.record(if slow { 1e-3 } else { [0.9e-3, 2.7e-3][call % 2] });
            if trials.finished() {
                break;
            }
        }
        assert_eq!(trials.leader().parameters.threads(), 2);
        let judged = trials.results().next().and_then(Trial::judged).and_then(|c| c.measured).unwrap();
        assert!((judged.seconds - 0.9e-3).abs() < 1e-9, "{judged:?}");
    }

    #[test]
    fn one_slow_round_that_nobody_expected_decides_nothing() {
        let candidates = [made_up(1, 1e-3, 1.2), made_up(2, 1.1e-3, 1.2)];
        let winner = |slowed: f64| {
            let mut trials = Trials::new(&candidates, 0, |_| true).unwrap();
            let mut runs = 0;
            while !trials.finished() {
                let who = trials.turn().parameters.threads() - 1;
                runs += who;
                // Rehearsal, waking and the first round of the faster one meet a slow time of the machine.
                let slow = if runs <= 2 + block_length(1e-3) { slowed } else { 1.0 };
                trials.record([1e-3, 0.8e-3 * slow][who]);
            }
            trials.leader().parameters.threads()
        };
        assert_eq!((winner(1.0), winner(2.5)), (2, 2));
        // So slow that finding out would be too expensive.
        assert_eq!(winner(4.0), 1);
    }

    #[test]
    fn threads_do_not_win_by_having_more_calls_to_choose_from() {
        let candidates = [made_up(1, 20e-6, 1.5), made_up(2, 20.5e-6, 1.5)];
        let mut trials = Trials::new(&candidates, 0, |_| true).unwrap();
        let mut calls = [0; 2];
        while !trials.finished() {
            let who = trials.turn().parameters.threads() - 1;
            calls[who] += 1;
            // Every twelfth call of either is as short as never else.
            let lucky = if calls[who] % 12 == 0 { 0.7 } else { 1.0 };
            trials.record([20e-6, 22e-6][who] * lucky);
        }
        assert_eq!(trials.leader().parameters.threads(), 1);
    }

    #[test]
    fn scatter_alone_loses_nothing_in_the_long_run() {
        let candidates = [made_up(1, 1e-3, 1.5), made_up(2, 1e-3, 1.5)];
        let mut trials = Trials::new(&candidates, 0, |_| true).unwrap();
        let (mut lost, mut calls) = (0.0, [0usize; 2]);
        while !trials.finished() {
            let who = trials.turn().parameters.threads() - 1;
            calls[who] += 1;
            lost += trials.record([1e-3, 1.4e-3][calls[who] % 2]);
        }
        // Every other call takes 0.4 ms longer, of both.
        assert!(calls[1] > 50 && (0.0..1.5e-3).contains(&lost), "{calls:?} {lost}");
    }

    #[test]
    fn a_cold_first_call_decides_nothing() {
        let candidates = [made_up(1, 1e-3, 2.5), made_up(2, 1.9e-3, 1.5)];
        let mut trials = Trials::new(&candidates, 0, |_| true).unwrap();
        let mut runs = [0; 2];
        while !trials.finished() {
            let who = trials.turn().parameters.threads() - 1;
            runs[who] += 1;
            // The leader's first call pays for threads and memory that everyone uses afterwards.
            trials.record([if runs[0] == 1 { 7e-3 } else { 1.7e-3 }, 3.3e-3][who]);
        }
        assert_eq!(trials.leader().parameters.threads(), 1);
        assert!(
            trials.results().all(|trial| median(&trial.times).is_none_or(|t| t < 4e-3)),
            "it was not noted either"
        );
    }
}
