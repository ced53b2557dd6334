//! The selector's way through the calls of one workload, played against recorded times.

use super::trials::Trials;
use super::{Budget, Candidate, Policy, Situation};
use crate::ops::Workload;

/// What happened to one workload.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// The candidate of the first call.
    pub first: usize,
    /// The candidate that runs in the end.
    pub chosen: usize,
    /// Candidates in the order in which they were first timed.
    pub tried: Vec<usize>,
    /// Calls until the race was over; `None` if it was not over at the end.
    pub settled: Option<usize>,
}

/// Plays a number of calls of a workload. `time` gives the seconds of a call of candidate `i`.
///
/// The candidates' `learned` predictions are what the policy starts from; this is the same race that live calls run.
pub fn replay(
    workload: &Workload,
    candidates: &[Candidate],
    policy: &dyn Policy,
    budget: &Budget,
    calls: usize,
    time: &mut dyn FnMut(usize) -> f64,
) -> Replayed {
    let mut candidates = candidates.to_vec();
    for candidate in &mut candidates {
        candidate.predicted = policy.believe(candidate);
    }
    let decide =
        |list: &[Candidate]| policy.decide(&Situation { workload, candidates: list, last: None }).index;
    let first = decide(&candidates);
    let mut out = Replayed { first, chosen: first, tried: vec![first], settled: Some(0) };
    let settled = |from: usize, chosen: usize, time: &mut dyn FnMut(usize) -> f64| {
        (from..calls).for_each(|_| budget.ran(time(chosen)));
    };
    let race = if budget.explores() { Trials::new(&candidates, first, |_| true) } else { None };
    let Some(mut trials) = race else {
        settled(0, first, time);
        return out;
    };
    let index = |list: &[Candidate], of: &Candidate| {
        list.iter().position(|c| c.is(of.kernel.name(), &of.parameters.to_string())).unwrap_or(first)
    };
    let mut made = 0;
    while !trials.finished() && made < calls {
        let trial = budget.affords(trials.stake());
        let i = index(&candidates, if trial { trials.turn() } else { trials.leader() });
        let seconds = time(i);
        budget.ran(seconds);
        if trial {
            budget.tried(trials.record(seconds));
            if !out.tried.contains(&i) {
                out.tried.push(i);
            }
        }
        made += 1;
    }
    out.settled = trials.finished().then_some(made);
    for result in trials.results() {
        let Some(judged) = result.judged() else { continue };
        let i = index(&candidates, &judged);
        candidates[i].measured = judged.measured;
        candidates[i].predicted = policy.believe(&candidates[i]);
    }
    let measured: Vec<usize> = (0..candidates.len()).filter(|&i| candidates[i].measured.is_some()).collect();
    let list: Vec<Candidate> = measured.iter().map(|&i| candidates[i].clone()).collect();
    if !list.is_empty() {
        out.chosen = measured[decide(&list)];
    }
    settled(made, out.chosen, time);
    out
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::made_up;
    use super::super::{Hybrid, policy};
    use super::*;

    #[test]
    fn a_replayed_race_ends_on_the_fastest_and_counts_what_it_tried() {
        let candidates = [made_up(1, 1.0e-3, 1.3), made_up(2, 1.1e-3, 1.3), made_up(3, 9e-3, 1.1)];
        let truth = [1.2e-3, 0.9e-3, 8e-3];
        let budget = Budget::new(0.01);
        let workload = policy::tests::workload();
        let out = replay(&workload, &candidates, &Hybrid::default(), &budget, 200, &mut |i| truth[i]);
        assert_eq!((out.first, out.chosen), (0, 1));
        assert_eq!(out.tried, [0, 1]);
        assert!(budget.lost() > 0.0 && budget.run() > budget.lost());
    }

    #[test]
    fn without_a_budget_the_first_choice_stays() {
        let candidates = [made_up(1, 1.0e-3, 1.01), made_up(2, 9e-3, 1.01)];
        let workload = policy::tests::workload();
        let out = replay(&workload, &candidates, &Hybrid::default(), &Budget::new(0.0), 5, &mut |_| 1e-3);
        assert_eq!((out.first, out.chosen, out.settled), (0, 0, Some(0)));
    }
}
