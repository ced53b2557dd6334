//! The model-ranked search: a first batch by the models alone, then whatever the surrogate expects to gain most.

use super::surrogate::{Coordinates, Surrogate};
use super::{Run, Stop};

/// Points of the first batch beside the default.
const FIRST: usize = 3;
/// Points of each further batch.
const BATCH: usize = 2;
/// Batches that must bring nothing before a search that expects nothing more ends: a surrogate of a few noisy times is
/// often surer than it should be.
const PATIENCE: usize = 3;

pub(super) fn run(run: &mut Run<'_>) -> Stop {
    if run.points.is_empty() {
        return Stop::Exhausted;
    }
    first(run);
    let space = Coordinates::of(run.points);
    let mut idle = 0;
    loop {
        if let Some(stop) = run.ended() {
            return stop;
        }
        let measured: Vec<(usize, f64)> =
            (0..run.points.len()).filter_map(|p| Some((p, run.seconds(p)?.ln()))).collect();
        let new: Vec<usize> = (0..run.points.len()).filter(|&p| run.is_new(p)).collect();
        if new.is_empty() {
            return Stop::Exhausted;
        }
        let before = run.best().and_then(|p| run.seconds(p));
        let worth = worth(run, before.unwrap_or(f64::INFINITY));
        let batch = match next(&space, measured.clone(), &new, run, worth) {
            Some(batch) => batch,
            // Nobody pays for these trials by the call, so a surrogate that expects nothing has to be right more than once.
            None if run.settings.calls.is_none() && idle < PATIENCE => {
                idle += 1;
                match next(&space, measured, &new, run, 0.0) {
                    Some(batch) => batch,
                    None => return Stop::Settled,
                }
            }
            None => return Stop::Settled,
        };
        run.trials(&batch);
        let after = run.best().and_then(|p| run.seconds(p));
        if after.zip(before).is_some_and(|(after, before)| after < before * (1.0 - worth)) {
            idle = 0;
        }
    }
}

/// The default, where the strategies say to start, and those that the models alone put first, one of each kernel before a second of any. Where the default uses
/// several threads the best of those with one comes along: models know nothing of what else the cores do.
fn first(run: &mut Run<'_>) {
    let seconds = |p: usize| run.points[p].predicted.unwrap_or(f64::INFINITY);
    let mut order: Vec<usize> = (0..run.points.len()).filter(|&p| run.is_new(p)).collect();
    // The sort keeps the kernels' own order among equals.
    order.sort_by(|&a, &b| seconds(a).total_cmp(&seconds(b)));
    let mut kernels = Vec::new();
    let (heads, rest): (Vec<usize>, Vec<usize>) = order.into_iter().partition(|&p| {
        let head = !kernels.contains(&run.points[p].kernel);
        kernels.push(run.points[p].kernel);
        head
    });
    let known = run.best().is_some();
    let mut batch: Vec<usize> = if run.is_new(0) { vec![0] } else { Vec::new() };
    let starts: Vec<usize> =
        (1..run.points.len()).filter(|&p| run.points[p].start && run.is_new(p)).collect();
    let usual = if known { batch.len() } else { FIRST + 1 };
    let threads = |p: usize| run.points[p].parameters.threads();
    let singles = heads.iter().chain(&rest).copied().filter(|&p| threads(0) > 1 && threads(p) == 1);
    let single = singles.min_by(|&a, &b| seconds(a).total_cmp(&seconds(b)));
    batch.extend(single);
    batch.extend(heads.into_iter().chain(rest).filter(|&p| p != 0 && Some(p) != single));
    batch.truncate(usual);
    // A start takes no other's place, only its own earlier in the list, in case there is room for few.
    let default = batch.iter().copied().filter(|&p| p == 0);
    let others = batch.iter().copied().filter(|p| *p != 0 && !starts.contains(p));
    let mut batch: Vec<usize> = default.chain(starts.iter().copied()).chain(others).collect();
    batch.truncate(run.settings.trials);
    run.trials(&batch);
}

/// The points with the largest expected gains; `None` when none is worth a trial.
fn next(
    space: &Coordinates,
    mut measured: Vec<(usize, f64)>,
    new: &[usize],
    run: &Run<'_>,
    worth: f64,
) -> Option<Vec<usize>> {
    let best = measured.iter().map(|m| m.1).fold(f64::INFINITY, f64::min);
    let mut batch = Vec::new();
    let room = BATCH.min(run.settings.trials.saturating_sub(run.tried()));
    while batch.len() < room {
        // Nothing measured means that everything so far was refused: the next best by the models goes on.
        let Some(fit) = Surrogate::fit(space, &measured) else {
            let seconds = |p: usize| run.points[p].predicted.unwrap_or(f64::INFINITY);
            let least = new.iter().copied().min_by(|&a, &b| seconds(a).total_cmp(&seconds(b)));
            return least.map(|p| vec![p]);
        };
        let left = new.iter().copied().filter(|p| !batch.contains(p));
        let gains = left.map(|p| (p, fit.expected_gain(p, best)));
        // Turned round, because `min_by` keeps the first of equals: the kernels' own order.
        let Some((point, gain)) = gains.min_by(|a, b| b.1.total_cmp(&a.1)) else { break };
        if gain < worth {
            break;
        }
        // The next one is picked as if this one came out as expected, so that a batch is spread out.
        measured.push((point, fit.predict(point).0));
        batch.push(point);
    }
    (!batch.is_empty()).then_some(batch)
}

/// The least gain that a trial is worth: the setting's, or what a trial takes over all calls that will follow.
fn worth(run: &Run<'_>, best: f64) -> f64 {
    let trials = run.order.len().max(1) as f64;
    let sampled: f64 = run.samples.iter().flatten().sum();
    let each = run.started.elapsed().as_secs_f64().max(sampled) / trials;
    let paid = run.settings.calls.map_or(0.0, |calls| each / (best * calls.max(1.0)));
    run.settings.worth.max(paid)
}

/// The largest gain that a new point is expected to bring, as a share of the best time; all of it where nothing was
/// measured.
pub(super) fn left(run: &Run<'_>) -> f64 {
    let new: Vec<usize> = (0..run.points.len()).filter(|&p| run.is_new(p)).collect();
    if new.is_empty() {
        return 0.0;
    }
    let measured: Vec<(usize, f64)> =
        (0..run.points.len()).filter_map(|p| Some((p, run.seconds(p)?.ln()))).collect();
    let space = Coordinates::of(run.points);
    let Some(fit) = Surrogate::fit(&space, &measured) else { return 1.0 };
    let best = measured.iter().map(|m| m.1).fold(f64::INFINITY, f64::min);
    let most = new.iter().map(|&p| fit.expected_gain(p, best)).fold(0.0, f64::max);
    1.0 - (-most).exp()
}
