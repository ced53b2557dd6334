//! A decision tree: questions until the examples that are left agree.

use super::encode::{Encoder, Row};
use crate::modelling::example::check;
use crate::modelling::{Example, FEATURES, Features, Model, ModelError};

/// Examples that a leaf has at least.
const LEAF: usize = 3;
/// Questions from the root to a leaf at most.
const DEPTH: usize = 12;

/// One question or, with a threshold of infinity that nothing exceeds, an answer.
#[derive(Clone, Copy, Debug)]
struct Node {
    feature: u32,
    threshold: f32,
    /// The node for yes; the one for no follows its question.
    above: u32,
    value: f32,
}

/// Nodes in one array, each question's `no` behind it.
#[derive(Clone, Debug, Default)]
pub(super) struct Nodes(Vec<Node>);

/// What a tree is grown from.
pub(super) struct Ground<'a> {
    pub rows: &'a [Row],
    pub targets: &'a [f32],
    pub weights: &'a [f32],
    /// Decides whether a feature is asked about at a node.
    pub allowed: &'a mut dyn FnMut(usize) -> bool,
}

impl Nodes {
    /// Grows a tree on some of the examples.
    pub fn grow(ground: &mut Ground<'_>, chosen: &mut [u32]) -> Self {
        let mut nodes = Self::default();
        nodes.split(ground, chosen, 0);
        nodes
    }

    fn split(&mut self, ground: &mut Ground<'_>, chosen: &mut [u32], depth: usize) {
        let here = self.0.len();
        let (sum, weight) = chosen.iter().fold((0.0, 0.0), |(s, w), &i| {
            let weight = ground.weights[i as usize];
            (s + weight * ground.targets[i as usize], w + weight)
        });
        let value = if weight > 0.0 { sum / weight } else { 0.0 };
        self.0.push(Node { feature: 0, threshold: f32::INFINITY, above: 0, value });
        if depth == DEPTH || chosen.len() < 2 * LEAF {
            return;
        }
        // Where the features drawn for this node tell nothing apart, all are asked.
        let found = best(ground, chosen, (sum, weight), false);
        let found = found.or_else(|| best(ground, chosen, (sum, weight), true));
        let Some((feature, threshold)) = found else { return };
        chosen.sort_unstable_by_key(|&i| ground.rows[i as usize][feature] > threshold);
        let middle = chosen.partition_point(|&i| ground.rows[i as usize][feature] <= threshold);
        let (low, high) = chosen.split_at_mut(middle);
        self.split(ground, low, depth + 1);
        let above = self.0.len() as u32;
        self.split(ground, high, depth + 1);
        self.0[here] = Node { feature: feature as u32, threshold, above, value };
    }

    /// The answer for a row.
    pub fn value(&self, row: &Row) -> f32 {
        let mut at = 0;
        while let Some(node) = self.0.get(at) {
            if node.threshold == f32::INFINITY {
                return node.value;
            }
            at = if row[node.feature as usize] > node.threshold { node.above as usize } else { at + 1 };
        }
        0.0
    }
}

/// The question that separates the targets best.
fn best(
    ground: &mut Ground<'_>,
    chosen: &mut [u32],
    (sum, weight): (f32, f32),
    everything: bool,
) -> Option<(usize, f32)> {
    let mut most = sum * sum / weight * (1.0 + 1e-6);
    let mut found = None;
    for feature in 0..FEATURES {
        if !(everything || (ground.allowed)(feature)) {
            continue;
        }
        let value = |i: u32| ground.rows[i as usize][feature];
        chosen.sort_unstable_by(|&a, &b| value(a).total_cmp(&value(b)));
        let (mut low, mut below) = (0.0, 0.0);
        for (k, pair) in chosen.windows(2).enumerate() {
            let i = pair[0] as usize;
            low += ground.weights[i] * ground.targets[i];
            below += ground.weights[i];
            let (here, next) = (value(pair[0]), value(pair[1]));
            if here == next || k + 1 < LEAF || chosen.len() - k - 1 < LEAF {
                continue;
            }
            let gain =
                low * low / below + (sum - low) * (sum - low) / (weight - below).max(f32::MIN_POSITIVE);
            if gain > most {
                most = gain;
                // Halfway, but never so close that rounding puts the upper value below.
                let middle = here + (next - here) / 2.0;
                found = Some((feature, if middle < next { middle } else { here }));
            }
        }
    }
    found
}

/// A single regression tree.
#[derive(Clone, Debug, Default)]
pub struct DecisionTree {
    encoder: Encoder,
    nodes: Nodes,
}

impl Model for DecisionTree {
    fn name(&self) -> &'static str {
        "decision_tree"
    }

    fn fit(&mut self, examples: &[Example]) -> Result<(), ModelError> {
        check(examples)?;
        self.encoder = Encoder::new(examples);
        let rows: Vec<Row> = examples.iter().map(|e| self.encoder.row(&e.features)).collect();
        let targets: Vec<f32> = examples.iter().map(Example::residual).collect();
        let weights: Vec<f32> = examples.iter().map(|e| e.weight).collect();
        let mut ground = Ground { rows: &rows, targets: &targets, weights: &weights, allowed: &mut |_| true };
        let mut chosen: Vec<u32> = (0..examples.len() as u32).collect();
        self.nodes = Nodes::grow(&mut ground, &mut chosen);
        Ok(())
    }

    fn predict(&self, batch: &[Features], out: &mut [f32]) {
        for (value, features) in out.iter_mut().zip(batch) {
            *value = self.nodes.value(&self.encoder.row(features));
        }
    }
}
