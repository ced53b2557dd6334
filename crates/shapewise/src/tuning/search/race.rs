//! The last race: those near the best take turns until one is clearly ahead.

use super::{Run, median};

/// Points that are this near to the best take part.
const NEAR: f64 = 1.04;
/// The most that take part.
const MOST: usize = 4;

/// One that takes part: its times, round by round, and whether it is clearly behind.
struct Racer {
    point: usize,
    times: Vec<f64>,
    out: bool,
}

/// Rounds of paired samples; a rival leaves when its bound clears the leader, and the race ends with the last rival.
///
/// Times count relative to the first, who was the best before the race and runs in every round.
pub(super) fn finish(run: &mut Run<'_>) {
    let Some(best) = run.best() else { return };
    let Some(usual) = run.seconds(best).filter(|_| !run.order.is_empty()) else { return };
    let mut racers = near(run, usual);
    for _ in 0..run.settings.rounds {
        let over = run.settings.time.is_some_and(|time| run.started.elapsed() >= time);
        if over || run.cancelled || racers.iter().filter(|r| !r.out).count() < 2 {
            break;
        }
        for (i, racer) in racers.iter_mut().enumerate() {
            if i == 0 || !racer.out {
                let time = run.sample(racer.point);
                racer.out |= time.is_none();
                racer.times.extend(time);
            }
        }
        if run.refused[best].is_some() {
            return;
        }
        let lead = leader(&racers);
        let ahead = racers[lead].times.clone();
        for (i, racer) in racers.iter_mut().enumerate() {
            racer.out |= i != lead && is_behind(&racer.times, &ahead);
        }
    }
    if racers[0].times.is_empty() {
        return;
    }
    for racer in racers.iter().filter(|r| run.refused[r.point].is_none()) {
        run.steady[racer.point] = vec![usual * middle_ratio(&racer.times, &racers[0].times).exp()];
    }
    run.interval = spread(&racers[leader(&racers)].times);
}

/// Those near the best, the best first.
fn near(run: &Run<'_>, least: f64) -> Vec<Racer> {
    let timed = (0..run.points.len()).filter_map(|p| Some((p, run.seconds(p)?)));
    let mut near: Vec<(usize, f64)> = timed.filter(|(_, seconds)| *seconds <= least * NEAR).collect();
    near.sort_by(|a, b| a.1.total_cmp(&b.1));
    near.into_iter().take(MOST).map(|(point, _)| Racer { point, times: Vec::new(), out: false }).collect()
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

/// Whether the paired differences are above zero by more than two standard errors.
fn is_behind(times: &[f64], leader: &[f64]) -> bool {
    let ratios = ratios(times, leader);
    // Fewer pairs say too little about their own spread.
    ratios.len() >= 5 && median(&ratios).is_some_and(|middle| middle > 2.0 * error(&ratios))
}

/// Two standard errors of the logarithms.
fn spread(times: &[f64]) -> Option<f64> {
    (times.len() >= 5).then(|| 2.0 * error(&times.iter().map(|t| t.ln()).collect::<Vec<_>>()))
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
        let leader = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0];
        let slower: Vec<f64> =
            leader.iter().zip([1.02, 1.03, 1.02, 9.0, 1.02, 1.01]).map(|(t, f)| t * f).collect();
        assert!(is_behind(&slower, &leader), "two percent on the same disturbances, and one interruption");
        let mixed = [1.1, 1.0, 1.0, 0.95, 1.05, 0.98];
        assert!(!is_behind(&mixed, &leader));
        assert!(!is_behind(&slower[..3], &leader[..3]), "three pairs are too few");
    }

    #[test]
    fn the_spread_needs_samples() {
        assert_eq!(spread(&[1.0, 1.0]), None);
        assert_eq!(spread(&[2.0; 5]), Some(0.0));
    }
}
