//! What repeated measurements of a candidate on one shape tell about its next one.

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use super::Example;
use super::interval::Scores;

/// Distances between measurements that the usual one counts for beside a candidate's own (0.5 to 4 gave intervals within a tenth of each other).
const SHARED: f32 = 0.5;

/// Logarithms of the times of each candidate on each shape, in the order of the examples.
pub(super) struct Repeated {
    groups: HashMap<(u64, u32), Vec<f32>, FxBuildHasher>,
    /// Half of all times are nearer to the one before.
    usual: f32,
}

/// A candidate's own times on a shape.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Own {
    /// Logarithm of the time that is expected.
    pub log: f32,
    /// How far its times lie from one another.
    pub apart: f32,
}

impl Repeated {
    pub fn of(examples: &[Example]) -> Self {
        let mut groups = HashMap::<(u64, u32), Vec<f32>, FxBuildHasher>::default();
        for example in examples {
            let logs = groups.entry((example.shape, example.features.variant())).or_default();
            logs.push(example.seconds.ln() as f32);
        }
        let mut steps: Vec<f32> =
            groups.values().flat_map(|logs| logs.windows(2).map(|pair| (pair[1] - pair[0]).abs())).collect();
        let middle = steps.len() / 2;
        let usual =
            if steps.is_empty() { 0.0 } else { *steps.select_nth_unstable_by(middle, f32::total_cmp).1 };
        Self { groups, usual: usual.max(1e-4) }
    }

    /// What is known of a candidate on a shape.
    pub fn own(&self, shape: u64, variant: u32) -> Option<Own> {
        self.groups.get(&(shape, variant)).map(|logs| self.judge(logs.clone()))
    }

    /// How far each time is from what the others of its candidate on its shape tell, in their scatter.
    pub fn scores(&self) -> Scores {
        let of = |logs: &Vec<f32>| {
            let score = |i: usize| {
                let mut others = logs.clone();
                let log = others.remove(i);
                let told = self.judge(others);
                (f64::from(log).exp(), (log - told.log).abs() / told.apart)
            };
            (0..logs.len()).map(score).collect::<Vec<_>>()
        };
        Scores::new(self.groups.values().filter(|logs| logs.len() > 1).flat_map(of))
    }

    /// The lower quartile, as races judge: what else the machine does only ever makes a call slower.
    fn judge(&self, mut logs: Vec<f32>) -> Own {
        logs.sort_by(f32::total_cmp);
        let last = logs.len() - 1;
        let middle = f32::midpoint(logs[last / 2], logs[logs.len() / 2]);
        let distances: f32 = logs.iter().map(|log| (log - middle).abs()).sum();
        Own { log: logs[last / 4], apart: (SHARED * self.usual + distances) / (SHARED + last as f32) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modelling::{FEATURES, Features};

    fn example(shape: u64, seconds: f64) -> Example {
        Example { features: Features([1.0; FEATURES]), baseline: 1e-6, seconds, shape, weight: 1.0 }
    }

    #[test]
    fn one_slow_pass_does_not_move_what_is_expected() {
        let times = [(1, 1.0), (1, 1.01), (1, 3.0), (2, 1.0), (2, 1.001), (2, 1.002)];
        let repeated = Repeated::of(&times.map(|(shape, seconds)| example(shape, seconds)));
        let variant = example(1, 1.0).features.variant();
        let [scattered, steady] = [1, 2].map(|shape| repeated.own(shape, variant).unwrap());
        assert!(scattered.log.abs() < 1e-6 && steady.log.abs() < 1e-6);
        assert!(scattered.apart > 20.0 * steady.apart, "{scattered:?} {steady:?}");
        assert!(repeated.own(3, variant).is_none());
    }

    #[test]
    fn times_measured_once_tell_no_scores() {
        let once: Vec<Example> = (0..100).map(|shape| example(shape, 1.0)).collect();
        assert_eq!(Repeated::of(&once).scores().quantile(1.0, 0.9), None);
        let twice: Vec<Example> = once.iter().chain(&once).copied().collect();
        assert_eq!(Repeated::of(&twice).scores().quantile(1.0, 0.9), Some(0.0));
    }
}
