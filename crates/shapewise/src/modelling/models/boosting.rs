//! Gradient boosting with symmetric trees: every level of a tree asks one question of all candidates at once.
//!
//! A tree is then a short list of (feature, threshold) and a table of leaves, and a batch goes through it level by
//! level in loops that vectorise.

use crate::backends::cpu::simd::{Isa, MAX_LANES, Simd, SimdTask};
use crate::modelling::example::check;
use crate::modelling::features::at;
use crate::modelling::{Example, FEATURES, Features, Model, ModelError};

/// Bins per feature: about the number of distinct sizes that a hundred shapes have.
const BINS: usize = 48;
/// Candidates that go through a tree side by side: as many as the widest registers hold.
const LANES: usize = MAX_LANES;
/// Candidates that go through all trees before others do: as many as usual operations have.
const TOGETHER: usize = 4 * LANES;

/// How the trees are grown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BoostingSettings {
    /// Number of trees.
    pub trees: usize,
    /// Questions per tree.
    pub depth: usize,
    /// Share of each tree's answer that is taken.
    pub rate: f32,
    /// Weight of examples that every leaf is assumed to have at zero.
    pub shrinkage: f32,
}

impl Default for BoostingSettings {
    /// Deeper and more trees than these gained less than a point of error on the suite (`docs/modelling.md`).
    fn default() -> Self {
        Self { trees: 192, depth: 6, rate: 0.1, shrinkage: 1.0 }
    }
}

/// One question: is this feature above the threshold?
#[derive(Clone, Copy, Debug)]
struct Question {
    feature: u16,
    threshold: f32,
}

/// Boosted symmetric trees.
#[derive(Clone, Debug, Default)]
pub struct GradientBoosting {
    settings: BoostingSettings,
    start: f32,
    /// `depth` questions per tree; those about features that all candidates share stand first. Trees with equally many of those stand
    /// together, so that how long loops over the others are is guessed right.
    questions: Vec<Question>,
    /// 2^`depth` answers per tree, and as many zeros as a look-up reads beyond them.
    leaves: Vec<f32>,
    /// Kernels by identity, with their rank by mean residual.
    ranks: Vec<(u32, f32)>,
}

impl GradientBoosting {
    /// An empty model.
    pub fn new(settings: BoostingSettings) -> Self {
        Self {
            settings: BoostingSettings { depth: settings.depth.clamp(1, 8), ..settings },
            ..Self::default()
        }
    }

    /// A kernel's rank; kernels never seen stand in the middle.
    fn rank(&self, kernel: u32) -> f32 {
        match self.ranks.binary_search_by_key(&kernel, |r| r.0) {
            Ok(at) => self.ranks[at].1,
            Err(_) => self.ranks.len() as f32 / 2.0,
        }
    }

    /// Candidates that share the workload's part of the features.
    fn predict_run(&self, batch: &[Features], out: &mut [f32]) {
        for (batch, out) in batch.chunks(TOGETHER).zip(out.chunks_mut(TOGETHER)) {
            let mut columns = [[0.0; TOGETHER]; at::SHARED];
            let mut kernel = (f32::NAN, 0.0);
            for (i, Features(features)) in batch.iter().enumerate() {
                for (column, &value) in columns.iter_mut().zip(features) {
                    column[i] = value;
                }
                // Points of one kernel stand together.
                if kernel.0 != features[at::KERNEL] {
                    kernel = (features[at::KERNEL], self.rank(batch[i].kernel()));
                }
                columns[at::KERNEL][i] = kernel.1;
            }
            let mut sums = [self.start; TOGETHER];
            let shared = &batch[0].0;
            let groups = batch.len().div_ceil(LANES);
            Isa::best().run(Walk { model: self, shared, columns: &columns, groups, sums: &mut sums });
            out.copy_from_slice(&sums[..out.len()]);
        }
    }
}

/// Sends candidates of one workload through all trees.
struct Walk<'a> {
    model: &'a GradientBoosting,
    shared: &'a [f32; FEATURES],
    /// The candidates feature by feature.
    columns: &'a [[f32; TOGETHER]; at::SHARED],
    /// How many groups of lanes have candidates.
    groups: usize,
    sums: &'a mut [f32; TOGETHER],
}

impl SimdTask for Walk<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always)] // must melt into a function compiled for the instruction set
    fn run<S: Simd>(self, s: S) {
        let depth = self.model.settings.depth;
        let trees = self.model.questions.chunks_exact(depth).zip((0..).step_by(1 << depth));
        for (questions, leaves) in trees {
            let mut base = 0;
            let mut shared = 0;
            for question in questions {
                let feature = question.feature as usize;
                if feature < at::SHARED {
                    break;
                }
                base = base << 1 | usize::from(self.shared[feature] > question.threshold);
                shared += 1;
            }
            let own = &questions[shared..];
            let leaves = &self.model.leaves[leaves + (base << own.len())..];
            // A register of leaves is looked up at once, by the last questions; the first ones tell which register.
            let (first, last) = own.split_at(own.len().saturating_sub(LOOKED_UP));
            for group in 0..self.groups {
                let from = group * LANES;
                let place = answers(self.columns, from, last);
                let sums = &mut self.sums[from..from + LANES];
                if first.is_empty() {
                    let found = s.look_up(register(leaves, 0), &place);
                    for lane in 0..LANES {
                        sums[lane] += found[lane];
                    }
                    continue;
                }
                let which = answers(self.columns, from, first);
                for number in 0..1 << first.len() {
                    let found = s.look_up(register(leaves, number), &place);
                    for lane in 0..LANES {
                        sums[lane] += if which[lane] == number as u32 { found[lane] } else { 0.0 };
                    }
                }
            }
        }
    }
}

/// Questions whose answers choose among the leaves of one register.
const LOOKED_UP: usize = LANES.ilog2() as usize;

/// So many leaves from a register's on.
#[inline(always)]
#[allow(clippy::inline_always)] // must melt into a function compiled for the instruction set
fn register(leaves: &[f32], number: usize) -> &[f32; LANES] {
    leaves[number * LANES..].first_chunk().expect("zeros follow the last tree's leaves")
}

/// The answers of candidates from one on, the last question's in the lowest bit.
#[inline(always)]
#[allow(clippy::inline_always)] // must melt into a function compiled for the instruction set
#[allow(clippy::needless_range_loop)] // one index for several arrays
fn answers(columns: &[[f32; TOGETHER]; at::SHARED], from: usize, questions: &[Question]) -> [u32; LANES] {
    let mut out = [0u32; LANES];
    for question in questions {
        let column = &columns[question.feature as usize][from..from + LANES];
        for lane in 0..LANES {
            out[lane] = out[lane] << 1 | u32::from(column[lane] > question.threshold);
        }
    }
    out
}

impl Model for GradientBoosting {
    fn name(&self) -> &'static str {
        "gradient_boosting"
    }

    fn fit(&mut self, examples: &[Example]) -> Result<(), ModelError> {
        check(examples)?;
        self.ranks = ranks(examples);
        let targets: Vec<f32> = examples.iter().map(Example::residual).collect();
        let weights: Vec<f32> = examples.iter().map(|e| e.weight).collect();
        let total: f32 = weights.iter().sum();
        self.start = targets.iter().zip(&weights).map(|(t, w)| t * w).sum::<f32>() / total;
        let columns = Columns::new(examples, |kernel| self.rank(kernel));
        let mut errors: Vec<f32> = targets.iter().map(|t| t - self.start).collect();
        let mut trees = Vec::with_capacity(self.settings.trees);
        for number in 0..self.settings.trees {
            let tree = columns.grow(number, &errors, &weights, &self.settings);
            for (error, &leaf) in errors.iter_mut().zip(&tree.index) {
                *error -= tree.leaves[leaf as usize];
            }
            trees.push((tree.questions, tree.leaves));
        }
        let shared = |questions: &[Question]| {
            questions.iter().take_while(|q| usize::from(q.feature) >= at::SHARED).count()
        };
        trees.sort_by_key(|(questions, _)| shared(questions));
        self.questions = trees.iter().flat_map(|(questions, _)| questions).copied().collect();
        self.leaves = trees.iter().flat_map(|(_, leaves)| leaves).copied().chain([0.0; LANES]).collect();
        Ok(())
    }

    fn predict(&self, batch: &[Features], out: &mut [f32]) {
        let mut from = 0;
        while from < batch.len() {
            let shared = &batch[from].0[at::SHARED..];
            let same = batch[from..].iter().take_while(|f| f.0[at::SHARED..] == *shared).count();
            // NaN is unlike itself; such a candidate still goes through alone.
            let to = from + same.max(1);
            self.predict_run(&batch[from..to], &mut out[from..to]);
            from = to;
        }
    }
}

/// Whether a tree may ask about a column: half of them, others for each tree. That takes half the time and makes trees differ.
fn takes_part(tree: usize, column: usize) -> bool {
    // SplitMix64's last steps.
    let mut z = ((tree << 16) + column) as u64;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    (z ^ (z >> 31)) & 1 == 0
}

/// Kernels in the order of their mean residual.
fn ranks(examples: &[Example]) -> Vec<(u32, f32)> {
    let mut sums = std::collections::BTreeMap::<u32, (f64, f64)>::new();
    for example in examples {
        let sum = sums.entry(example.features.kernel()).or_default();
        sum.0 += f64::from(example.residual() * example.weight);
        sum.1 += f64::from(example.weight);
    }
    let mut order: Vec<(u32, f64)> =
        sums.into_iter().map(|(kernel, (sum, weight))| (kernel, sum / weight)).collect();
    order.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mut ranks: Vec<(u32, f32)> = order.iter().enumerate().map(|(i, r)| (r.0, i as f32)).collect();
    ranks.sort_unstable_by_key(|r| r.0);
    ranks
}

/// Examples by feature, each value as the number of thresholds below it.
struct Columns {
    features: Vec<Column>,
    len: usize,
}

struct Column {
    feature: usize,
    thresholds: Vec<f32>,
    bins: Vec<u8>,
}

struct Tree {
    questions: Vec<Question>,
    leaves: Vec<f32>,
    /// The leaf of every example.
    index: Vec<u8>,
}

impl Columns {
    fn new(examples: &[Example], rank: impl Fn(u32) -> f32) -> Self {
        let mut features = Vec::new();
        for feature in (0..FEATURES).filter(|&f| f != at::VARIANT) {
            let value = |e: &Example| {
                if feature == at::KERNEL { rank(e.features.kernel()) } else { e.features.0[feature] }
            };
            let values: Vec<f32> = examples.iter().map(value).collect();
            let thresholds = thresholds(&values);
            if !thresholds.is_empty() {
                let bin = |&x: &f32| thresholds.partition_point(|&t| x > t) as u8;
                let bins = values.iter().map(bin).collect();
                features.push(Column { feature, thresholds, bins });
            }
        }
        Self { features, len: examples.len() }
    }

    /// The tree that lowers the squared errors most, one level after the other.
    fn grow(&self, number: usize, errors: &[f32], weights: &[f32], settings: &BoostingSettings) -> Tree {
        let depth = settings.depth;
        let mut index = vec![0u8; self.len];
        let mut questions = Vec::with_capacity(depth);
        let mut sums = vec![[0.0f32; 2]; BINS << depth];
        let weighed: Vec<[f32; 2]> = errors.iter().zip(weights).map(|(e, w)| [e * w, *w]).collect();
        for level in 0..depth {
            let mut best: Option<(f32, usize, usize)> = None;
            for (c, column) in self.features.iter().enumerate().filter(|(c, _)| takes_part(number, *c)) {
                let sums = &mut sums[..BINS << level];
                sums.fill([0.0; 2]);
                for ((&leaf, &bin), [error, weight]) in index.iter().zip(&column.bins).zip(&weighed) {
                    let sum = &mut sums[leaf as usize * BINS + bin as usize];
                    sum[0] += error;
                    sum[1] += weight;
                }
                let (gain, threshold) = column.best(sums, settings.shrinkage);
                if best.is_none_or(|(most, ..)| gain > most) {
                    best = Some((gain, c, threshold));
                }
            }
            let Some((_, c, threshold)) = best else { break };
            let column = &self.features[c];
            for (leaf, &bin) in index.iter_mut().zip(&column.bins) {
                *leaf = *leaf << 1 | u8::from(usize::from(bin) > threshold);
            }
            questions.push((c, threshold));
        }
        self.finish(&questions, index, errors, weights, settings)
    }

    /// Orders the questions (shared features first) and averages the leaves.
    fn finish(
        &self,
        found: &[(usize, usize)],
        mut index: Vec<u8>,
        errors: &[f32],
        weights: &[f32],
        settings: &BoostingSettings,
    ) -> Tree {
        let mut order: Vec<&(usize, usize)> = found.iter().collect();
        order.sort_by_key(|(c, _)| self.features[*c].feature < at::SHARED);
        index.fill(0);
        let mut questions = Vec::with_capacity(settings.depth);
        // Without anything to tell examples apart, a question that nobody answers with yes.
        let nothing = Question { feature: (FEATURES - 1) as u16, threshold: f32::INFINITY };
        questions.resize(settings.depth - order.len(), nothing);
        for &&(c, threshold) in &order {
            let column = &self.features[c];
            questions
                .push(Question { feature: column.feature as u16, threshold: column.thresholds[threshold] });
            for (leaf, &bin) in index.iter_mut().zip(&column.bins) {
                *leaf = *leaf << 1 | u8::from(usize::from(bin) > threshold);
            }
        }
        let mut sums = vec![[0.0f32; 2]; 1 << settings.depth];
        for ((&leaf, &error), &weight) in index.iter().zip(errors).zip(weights) {
            sums[leaf as usize][0] += error * weight;
            sums[leaf as usize][1] += weight;
        }
        let leaves =
            sums.iter().map(|[sum, weight]| settings.rate * sum / (weight + settings.shrinkage)).collect();
        Tree { questions, leaves, index }
    }
}

impl Column {
    /// The threshold that separates the errors of all leaves best, and what it gains.
    fn best(&self, sums: &[[f32; 2]], shrinkage: f32) -> (f32, usize) {
        let mut gains = [0.0f32; BINS];
        let gains = &mut gains[..self.thresholds.len()];
        for leaf in sums.chunks_exact(BINS) {
            let all = leaf.iter().fold([0.0f32; 2], |a, s| [a[0] + s[0], a[1] + s[1]]);
            let mut low = [0.0f32; 2];
            for (gain, sum) in gains.iter_mut().zip(leaf) {
                low = [low[0] + sum[0], low[1] + sum[1]];
                let high = [all[0] - low[0], all[1] - low[1]];
                *gain += low[0] * low[0] / (low[1] + shrinkage)
                    + high[0] * high[0] / (high[1].max(0.0) + shrinkage);
            }
        }
        let best = (0..gains.len()).max_by(|&a, &b| gains[a].total_cmp(&gains[b])).unwrap_or(0);
        (gains.get(best).copied().unwrap_or(0.0), best)
    }
}

/// Thresholds between distinct values: all of them, or as many quantiles as there are bins.
fn thresholds(values: &[f32]) -> Vec<f32> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f32::total_cmp);
    let mut distinct = sorted.clone();
    distinct.dedup();
    let between = |a: f32, b: f32| a + (b - a) / 2.0;
    if distinct.len() <= BINS {
        return distinct.windows(2).map(|w| between(w[0], w[1])).collect();
    }
    let mut out: Vec<f32> = (1..BINS)
        .filter_map(|i| {
            let low = sorted[i * sorted.len() / BINS];
            let next = distinct.partition_point(|&x| x <= low);
            distinct.get(next).map(|&high| between(low, high))
        })
        .collect();
    out.dedup();
    out
}
