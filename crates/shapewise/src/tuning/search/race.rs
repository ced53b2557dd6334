//! The last race: those near the best take turns until one is clearly ahead.

use super::Run;

/// Points that are this near to the best take part.
const NEAR: f64 = 1.04;
/// The most that take part.
const MOST: usize = 4;

/// Rounds of paired samples; a rival leaves when its bound clears the leader, and the race ends with the last rival.
pub(super) fn finish(run: &mut Run<'_>) {
    let Some(best) = run.best() else { return };
    if run.samples[best].is_empty() && run.order.is_empty() {
        // Nothing was measured now, so there is nothing to settle.
        return;
    }
    let least = run.seconds(best).unwrap_or(f64::INFINITY);
    let mut near: Vec<(usize, f64)> = (0..run.points.len())
        .filter_map(|p| Some((p, run.seconds(p)?)))
        .filter(|r| r.1 <= least * NEAR)
        .collect();
    near.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut racers: Vec<(usize, Vec<f64>)> =
        near.into_iter().take(MOST).map(|(p, _)| (p, Vec::new())).collect();
    for _ in 0..run.settings.rounds {
        let over = run.settings.time.is_some_and(|time| run.started.elapsed() >= time);
        if over || run.cancelled || racers.len() < 2 {
            break;
        }
        for (point, times) in &mut racers {
            times.extend(run.sample(*point));
        }
        racers.retain(|(point, _)| run.refused[*point].is_none());
        let Some(leader) = leader(&racers) else { break };
        let ahead = racers[leader].1.clone();
        let point = racers[leader].0;
        racers.retain(|(p, times)| *p == point || !is_behind(times, &ahead));
    }
    if let Some(leader) = leader(&racers) {
        run.interval = spread(&racers[leader].1);
    }
}

/// The one with the least geometric mean; all have as many samples.
fn leader(racers: &[(usize, Vec<f64>)]) -> Option<usize> {
    let mean = |times: &[f64]| times.iter().map(|t| t.ln()).sum::<f64>();
    (0..racers.len()).min_by(|&a, &b| mean(&racers[a].1).total_cmp(&mean(&racers[b].1)))
}

/// Whether the paired differences are above zero by more than two standard errors.
fn is_behind(times: &[f64], leader: &[f64]) -> bool {
    let ratios: Vec<f64> = times.iter().zip(leader).map(|(a, b)| (a / b).ln()).collect();
    // Fewer pairs say too little about their own spread.
    if ratios.len() < 4 {
        return false;
    }
    let (mean, error) = mean_and_error(&ratios);
    mean > 2.0 * error
}

/// Two standard errors of the logarithms.
fn spread(times: &[f64]) -> Option<f64> {
    (times.len() >= 4).then(|| 2.0 * mean_and_error(&times.iter().map(|t| t.ln()).collect::<Vec<_>>()).1)
}

fn mean_and_error(numbers: &[f64]) -> (f64, f64) {
    let n = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / n;
    let squares: f64 = numbers.iter().map(|x| (x - mean).powi(2)).sum();
    (mean, (squares / (n - 1.0) / n).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_difference_counts() {
        let leader = [1.0, 1.1, 0.9, 1.05, 0.95];
        let slower: Vec<f64> = leader.iter().map(|t| t * 1.02).collect();
        assert!(is_behind(&slower, &leader), "two percent on the same disturbances");
        let mixed = [1.1, 1.0, 1.0, 0.95, 1.05];
        assert!(!is_behind(&mixed, &leader));
        assert!(!is_behind(&slower[..3], &leader[..3]), "three pairs are too few");
    }

    #[test]
    fn the_spread_needs_samples() {
        assert_eq!(spread(&[1.0, 1.0]), None);
        assert_eq!(spread(&[2.0; 5]), Some(0.0));
    }
}
