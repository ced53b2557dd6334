//! The last race: those near the best take turns until one is clearly ahead.

use super::{Run, median};

/// Points that are this near to the best take part.
const NEAR: f64 = 1.04;
/// The fewest that take part: a best point of one lucky round stands alone, and only a race tells.
const FEWEST: usize = 3;
/// The most that take part.
const MOST: usize = 5;
/// Races at most: one that brings down a lucky point puts another in front, which has to race as well.
const RACES: usize = 3;

/// Fewer pairs than these say too little about their own spread.
const PAIRS: usize = 9;

/// One that takes part: its times, round by round, and whether it is clearly behind.
struct Racer {
    point: usize,
    times: Vec<f64>,
    out: bool,
}

/// Races until the best point is one that has won.
pub(super) fn finish(run: &mut Run<'_>) {
    let mut raced: Vec<usize> = Vec::new();
    for _ in 0..RACES {
        let Some(best) = run.best().filter(|best| !raced.contains(best)) else { return };
        let Some(least) = run.seconds(best).filter(|_| !run.order.is_empty()) else { return };
        let mut racers = near(run, least);
        race(run, &mut racers);
        raced = racers.iter().map(|racer| racer.point).collect();
        note(run, &racers);
    }
}

/// Rounds of paired samples; a rival leaves when its bound clears the leader, and the race ends with the last rival.
///
/// Times count relative to the first, who was the best before the race and runs in every round.
fn race(run: &mut Run<'_>, racers: &mut [Racer]) {
    for round in 0..run.settings.rounds {
        let over = run.settings.time.is_some_and(|time| run.started.elapsed() >= time);
        if over || run.cancelled || racers.iter().filter(|r| !r.out).count() < 2 {
            return;
        }
        for i in 0..racers.len() {
            // Each round in another order: whoever runs before leaves its traces in the caches.
            let at = (i + round) % racers.len();
            let racer = &mut racers[at];
            if at == 0 || !racer.out {
                let time = run.sample(racer.point);
                racer.out |= time.is_none();
                racer.times.extend(time);
            }
        }
        if run.refused[racers[0].point].is_some() {
            return;
        }
        let lead = leader(racers);
        let ahead = racers[lead].times.clone();
        for (i, racer) in racers.iter_mut().enumerate() {
            racer.out |= i != lead && is_behind(&racer.times, &ahead);
        }
    }
}

/// Puts what a race says in the place of what was measured before. Its level is the middle of what the racers had: the
/// first may have been in front only because its times were too low.
fn note(run: &mut Run<'_>, racers: &[Racer]) {
    if racers[0].times.is_empty() || run.refused[racers[0].point].is_some() {
        return;
    }
    let counts = |r: &&Racer| run.refused[r.point].is_none() && !r.times.is_empty();
    let ratios: Vec<(usize, f64)> =
        racers.iter().filter(counts).map(|r| (r.point, middle_ratio(&r.times, &racers[0].times))).collect();
    let levels: Vec<f64> =
        ratios.iter().filter_map(|&(point, ratio)| Some(run.seconds(point)?.ln() - ratio)).collect();
    let Some(level) = median(&levels) else { return };
    for (point, ratio) in ratios {
        run.steady[point] = vec![(level + ratio).exp()];
    }
    run.interval = spread(&racers[leader(racers)].times);
}

/// Those near the best, and at least the next ones; the best first.
fn near(run: &Run<'_>, least: f64) -> Vec<Racer> {
    let mut timed: Vec<(usize, f64)> =
        (0..run.points.len()).filter_map(|p| Some((p, run.seconds(p)?))).collect();
    timed.sort_by(|a, b| a.1.total_cmp(&b.1));
    let close = timed.iter().filter(|(_, seconds)| *seconds <= least * NEAR).count();
    timed.truncate(close.clamp(FEWEST, MOST));
    timed.into_iter().map(|(point, _)| Racer { point, times: Vec::new(), out: false }).collect()
}

/// The one that is ahead of the first by most among those that are left.
fn leader(racers: &[Racer]) -> usize {
    let ahead = |i: &usize| middle_ratio(&racers[*i].times, &racers[0].times);
    let left = (0..racers.len()).filter(|&i| !racers[i].out);
    left.min_by(|a, b| ahead(a).total_cmp(&ahead(b))).unwrap_or(0)
}

/// The middle of the logarithms of paired ratios; zero without pairs.
fn middle_ratio(times: &[f64], of: &[f64]) -> f64 {
    median(&ratios(times, of)).unwrap_or(0.0)
}

fn ratios(times: &[f64], of: &[f64]) -> Vec<f64> {
    times.iter().zip(of).map(|(a, b)| (a / b).ln()).collect()
}

/// Whether the paired differences are above zero by more than three standard errors: they are looked at after every round,
/// and two would be exceeded by chance in one race of several.
fn is_behind(times: &[f64], leader: &[f64]) -> bool {
    let ratios = ratios(times, leader);
    ratios.len() >= PAIRS && median(&ratios).is_some_and(|middle| middle > 3.0 * error(&ratios))
}

/// Two standard errors of the logarithms.
fn spread(times: &[f64]) -> Option<f64> {
    (times.len() >= PAIRS).then(|| 2.0 * error(&times.iter().map(|t| t.ln()).collect::<Vec<_>>()))
}

/// The standard error of a median, from the median distance to it, which interruptions do not move: 1.48 makes that a
/// standard deviation, 1.25 the error of a mean that of a median.
fn error(numbers: &[f64]) -> f64 {
    let middle = median(numbers).unwrap_or(0.0);
    let apart: Vec<f64> = numbers.iter().map(|x| (x - middle).abs()).collect();
    1.25 * 1.48 * median(&apart).unwrap_or(0.0) / (numbers.len().max(1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_difference_counts() {
        let leader = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.08, 0.92, 1.01];
        let factors = [1.02, 1.03, 1.02, 9.0, 1.02, 1.01, 1.02, 1.03, 1.02];
        let slower: Vec<f64> = leader.iter().zip(factors).map(|(t, f)| t * f).collect();
        assert!(is_behind(&slower, &leader), "two percent on the same disturbances, and one interruption");
        let mixed = [1.1, 1.0, 1.0, 0.95, 1.05, 0.98, 1.0, 1.02, 0.97];
        assert!(!is_behind(&mixed, &leader));
        assert!(!is_behind(&slower[..5], &leader[..5]), "five pairs are too few");
    }

    #[test]
    fn the_spread_needs_samples() {
        assert_eq!(spread(&[1.0, 1.0]), None);
        assert_eq!(spread(&[2.0; PAIRS]), Some(0.0));
    }
}
