//! One attention as kernels see it: sizes, strides, which keys are visible.

use super::{AttentionAttributes, Causality};
use crate::ops::{Operation, TensorDesc, Workload};
use crate::tensor::DType;

/// Strides of an operand along batch, heads, length and dim.
pub(super) type Strides4 = [isize; 4];

/// Sizes, strides and attributes of a workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Problem {
    pub dtype: DType,
    pub batch: usize,
    /// Heads of the queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub dim: usize,
    pub value_dim: usize,
    pub causality: Causality,
    pub scale: f64,
    pub q: Strides4,
    pub k: Strides4,
    pub v: Strides4,
    pub out: Strides4,
    /// Element type and strides of the mask.
    pub mask: Option<(DType, Strides4)>,
}

impl Problem {
    pub fn of(workload: &Workload) -> Self {
        let attributes = attributes(workload);
        let inputs = workload.inputs();
        let (q, k, v, out) = (&inputs[0], &inputs[1], &inputs[2], &workload.outputs()[0]);
        Self {
            dtype: q.dtype,
            batch: q.shape[0],
            heads: q.shape[1],
            kv_heads: k.shape[1],
            queries: q.shape[2],
            keys: k.shape[2],
            dim: q.shape[3],
            value_dim: v.shape[3],
            causality: attributes.causality,
            scale: attributes.scale(),
            q: strides(q),
            k: strides(k),
            v: strides(v),
            out: strides(out),
            mask: attributes.mask.then(|| (inputs[3].dtype, strides(&inputs[3]))),
        }
    }

    /// Heads of queries that share a head of keys.
    pub fn group(&self) -> usize {
        self.heads.checked_div(self.kv_heads).unwrap_or(0)
    }

    /// How many keys, from the first on, a query may look at.
    #[inline]
    pub fn visible(&self, query: usize) -> usize {
        match self.causality {
            Causality::None => self.keys,
            Causality::FromStart => self.keys.min(query + 1),
            Causality::FromEnd => (query + 1 + self.keys).saturating_sub(self.queries).min(self.keys),
        }
    }

    /// Pairs of a query and a key it may look at, of one head.
    pub fn pairs(&self) -> f64 {
        let (m, n) = (self.queries as f64, self.keys as f64);
        let triangle = |side: f64| side * (side + 1.0) / 2.0;
        match self.causality {
            Causality::None => m * n,
            Causality::FromStart => triangle(m.min(n)) + (m - n).max(0.0) * n,
            Causality::FromEnd => triangle(m.min(n)) + (n - m).max(0.0) * m,
        }
    }

    /// Whether there is nothing to compute.
    pub fn is_empty(&self) -> bool {
        self.batch * self.heads * self.queries * self.value_dim == 0
    }
}

fn strides(desc: &TensorDesc) -> Strides4 {
    [desc.strides[0], desc.strides[1], desc.strides[2], desc.strides[3]]
}

/// The attributes of a workload of this operation.
pub(super) fn attributes(workload: &Workload) -> AttentionAttributes {
    match workload.operation() {
        Operation::Attention(attributes) => *attributes,
        other => unreachable!("the registry gives attention only, not {other}"),
    }
}

/// How far an element is from the first.
#[inline]
pub(super) fn at(strides: &Strides4, batch: usize, head: usize, row: usize) -> isize {
    batch as isize * strides[0] + head as isize * strides[1] + row as isize * strides[2]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensor::Shape;

    fn problem(queries: usize, keys: usize, causality: Causality) -> Problem {
        let of = |length: usize, dim: usize| {
            TensorDesc::contiguous(DType::F32, Shape::new(&[1, 1, length, dim]).unwrap())
        };
        let operation = Operation::Attention(AttentionAttributes::new(causality, false, 1.0));
        let inputs = [of(queries, 2), of(keys, 2), of(keys, 3)];
        Problem::of(&Workload::new(operation, &inputs, &[of(queries, 3)]))
    }

    #[test]
    fn visible_keys_and_their_sum() {
        for queries in 0..6 {
            for keys in 0..6 {
                for causality in [Causality::None, Causality::FromStart, Causality::FromEnd] {
                    let p = problem(queries, keys, causality);
                    let sum: usize = (0..queries).map(|i| p.visible(i)).sum();
                    assert_eq!(p.pairs(), sum as f64, "{queries} {keys} {causality:?}");
                }
            }
        }
        assert_eq!(problem(2, 5, Causality::FromStart).visible(0), 1);
        assert_eq!(problem(2, 5, Causality::FromEnd).visible(0), 4);
        assert_eq!(problem(5, 2, Causality::FromEnd).visible(0), 0);
    }
}
