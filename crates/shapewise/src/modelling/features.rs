//! What models see of a candidate on a workload: numbers derived from both, never typed in.

use std::hash::Hasher;

use rustc_hash::FxHasher;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Terms;
use crate::ops::elementwise::Program;
use crate::ops::norm::NormKind;
use crate::ops::reduce::ReduceKind;
use crate::ops::{Cost, Knob, Operation, Parameters, TensorDesc, Workload};

/// Changes whenever a number changes its meaning: models and stored features of another version do not mix.
pub const FEATURES_VERSION: u32 = 1;

/// How many numbers describe a candidate on a workload.
pub const FEATURES: usize = 48;

/// Where the numbers stand; everything from [`SHARED`] on is the same for all candidates of a workload.
pub(crate) mod at {
    /// The kernel's identity.
    pub const KERNEL: usize = 0;
    /// The identity of kernel and parameters together.
    pub const VARIANT: usize = 1;
    /// Seconds of each resource: arithmetic, four levels, hand-over.
    pub const TERMS: usize = 2;
    /// Number of the resources' terms.
    pub const TERM_COUNT: usize = 6;
    /// Logarithm of the roofline.
    pub const ROOFLINE: usize = 8;
    /// Threads that share the work.
    pub const THREADS: usize = 9;
    /// Operation's attribute: function, kind of reduction or norm, activation.
    pub const ATTRIBUTE: usize = 22;
    /// Logarithm of the number of results.
    pub const RESULTS: usize = 24;
    /// Sizes of the first input, the second input and the output along their last axes.
    pub const SIZES: usize = 25;
    /// Number of those.
    pub const SIZE_COUNT: usize = 9;
    /// Strides and the rest of the layout.
    pub const LAYOUT: usize = 34;
    /// The first number that all candidates share.
    pub const SHARED: usize = 20;
}

/// What the numbers mean.
const NAMES: [&str; FEATURES] = [
    "kernel",
    "kernel and parameters",
    "seconds of arithmetic",
    "seconds of the first cache",
    "seconds of the second cache",
    "seconds of the third cache",
    "seconds of memory",
    "seconds of hand-overs",
    "roofline",
    "threads",
    "imbalance",
    "hand-overs",
    "scratch",
    "operations for each result",
    "bytes for each result",
    "arithmetic over the first cache",
    "rows of a block",
    "columns of a block",
    "depth of a block",
    "streaming stores",
    "size of an element",
    "element type",
    "attribute",
    "bytes of all operands",
    "results",
    "first input's last size",
    "first input's last size but one",
    "first input's other sizes",
    "second input's last size",
    "second input's last size but one",
    "second input's other sizes",
    "output's last size",
    "output's last size but one",
    "output's other sizes",
    "first input's last stride",
    "first input's last stride but one",
    "second input's last stride",
    "second input's last stride but one",
    "output's last stride",
    "output's last stride but one",
    "alignment",
    "in place",
    "operands",
    "rank",
    "first input's remainder",
    "output's remainder",
    "output's remainder but one",
    "axes",
];

/// The numbers of one candidate on one workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Features(pub [f32; FEATURES]);

impl Features {
    /// The identity of the kernel.
    pub fn kernel(&self) -> u32 {
        self.0[at::KERNEL] as u32
    }

    /// The identity of kernel and parameters.
    pub fn variant(&self) -> u32 {
        self.0[at::VARIANT] as u32
    }

    /// Seconds that each resource would take by itself.
    pub(crate) fn terms(&self) -> [f64; at::TERM_COUNT] {
        std::array::from_fn(|i| f64::from(self.0[at::TERMS + i]))
    }

    /// What a number means.
    pub fn name(index: usize) -> &'static str {
        NAMES.get(index).copied().unwrap_or("unknown")
    }

    /// Whether every number is one that can be computed with.
    pub fn is_finite(&self) -> bool {
        self.0.iter().all(|x| x.is_finite())
    }
}

impl Serialize for Features {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Features {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let numbers = Vec::<f32>::deserialize(deserializer)?;
        let len = numbers.len();
        let text = || serde::de::Error::custom(format!("{len} features, {FEATURES} are needed"));
        numbers.try_into().map(Self).map_err(|_| text())
    }
}

/// The part of the features that depends on the workload alone, computed once for all its candidates.
#[derive(Clone, Debug)]
pub struct WorkloadFeatures {
    base: [f32; FEATURES],
    outputs: f64,
}

impl WorkloadFeatures {
    /// Describes a workload.
    pub fn new(workload: &Workload) -> Self {
        let mut base = [0.0; FEATURES];
        let inputs = workload.inputs();
        let output = workload.outputs().first();
        let first = inputs.first().or(output);
        let dtype = first.map_or(0, |t| t.dtype as u8);
        base[20] = log2(first.map_or(1, |t| t.dtype.size()) as f64);
        base[21] = f32::from(dtype);
        base[at::ATTRIBUTE] = attribute(workload.operation());
        base[23] = log2(workload.bytes() as f64);
        base[at::RESULTS] = log2(output.map_or(0, TensorDesc::len) as f64);
        for (i, tensor) in [first, inputs.get(1), output].into_iter().enumerate() {
            let Some(tensor) = tensor else { continue };
            let from = at::SIZES + 3 * i;
            base[from..from + 3].copy_from_slice(&sizes(tensor));
            let from = at::LAYOUT + 2 * i;
            base[from..from + 2].copy_from_slice(&strides(tensor));
        }
        base[40] = f32::from(u8::from(workload.operands().iter().all(|o| o.aligned)));
        base[41] = f32::from(u8::from(workload.in_place()));
        base[42] = workload.operands().len() as f32;
        base[43] = first.map_or(0, |t| t.shape.len()) as f32;
        base[44] = first.map_or(0.0, |t| remainder(t, 0));
        base[45] = output.map_or(0.0, |t| remainder(t, 0));
        base[46] = output.map_or(0.0, |t| remainder(t, 1));
        base[47] = axes(workload.operation());
        Self { base, outputs: output.map_or(0, TensorDesc::len).max(1) as f64 }
    }

    /// The features of one candidate, whose resources take `terms`.
    pub fn candidate(&self, kernel: &str, parameters: &Parameters, cost: &Cost, terms: &Terms) -> Features {
        let mut out = self.base;
        let (kernel, variant) = identities(kernel, parameters);
        out[at::KERNEL] = kernel;
        out[at::VARIANT] = variant;
        let resources = [
            terms.arithmetic,
            terms.levels[0],
            terms.levels[1],
            terms.levels[2],
            terms.levels[3],
            terms.hand_over,
        ];
        for (slot, seconds) in out[at::TERMS..].iter_mut().zip(resources) {
            *slot = seconds as f32;
        }
        out[at::ROOFLINE] = log2(terms.seconds());
        out[at::THREADS] = cost.threads as f32;
        out[10] = cost.imbalance as f32;
        out[11] = cost.forks as f32;
        out[12] = log2(cost.scratch as f64);
        out[13] = log2(cost.operations / self.outputs);
        out[14] = log2(cost.traffic.l1 / self.outputs);
        out[15] = log2(terms.arithmetic) - log2(terms.levels[0]);
        let knob = |knob| parameters.get(knob).map_or(0.0, |value| log2(f64::from(value)));
        out[16] = knob(Knob::BlockM);
        out[17] = knob(Knob::BlockN);
        out[18] = knob(Knob::BlockK);
        out[19] = parameters.get(Knob::Stream).map_or(0.0, |value| value as f32);
        Features(out)
    }
}

/// Identities of the kernel, and of the kernel with its parameters.
fn identities(kernel: &str, parameters: &Parameters) -> (f32, f32) {
    let mut hasher = FxHasher::default();
    hasher.write(kernel.as_bytes());
    let first = identity(&hasher);
    for (knob, value) in parameters.iter() {
        hasher.write_u32(knob as u32);
        hasher.write_u32(value);
    }
    (first, identity(&hasher))
}

/// The high bits of a hash as a whole number that f32 holds exactly.
fn identity(hasher: &FxHasher) -> f32 {
    (hasher.finish() >> (u64::BITS - f32::MANTISSA_DIGITS)) as f32
}

/// Logarithms of the last two sizes and of the product of the others.
fn sizes(tensor: &TensorDesc) -> [f32; 3] {
    let shape = &tensor.shape;
    let rank = shape.len();
    let last = |back: usize| if back < rank { shape[rank - 1 - back] } else { 1 } as f64;
    let rest: f64 = shape.iter().rev().skip(2).map(|&n| n as f64).product();
    [log2(last(0)), log2(last(1)), log2(rest)]
}

/// The last two strides: 0 for a repeated element, 1 for neighbours, above that the logarithm of the distance.
fn strides(tensor: &TensorDesc) -> [f32; 2] {
    let rank = tensor.shape.len();
    let class = |back: usize| {
        if back >= rank {
            return 0.0;
        }
        let stride = tensor.strides[rank - 1 - back];
        if stride < 0 { -1.0 } else { log2(2.0 * stride as f64) }
    };
    [class(0), class(1)]
}

/// Elements over a whole number of 64-byte lines along an axis from the last, as a share of a line.
fn remainder(tensor: &TensorDesc, back: usize) -> f32 {
    let rank = tensor.shape.len();
    let line = (64 / tensor.dtype.size()).max(1);
    if back < rank { (tensor.shape[rank - 1 - back] % line) as f32 / line as f32 } else { 0.0 }
}

/// What is computed, as an ordinal within the operation.
fn attribute(operation: &Operation) -> f32 {
    match operation {
        Operation::Conv(a) => a.feature(),
        Operation::Copy => 0.0,
        Operation::Attention(a) => a.feature(),
        Operation::Elementwise(program) => program_identity(program),
        Operation::Fft(a) => a.feature(),
        Operation::Gather(a) => a.feature(),
        Operation::Matmul(a) | Operation::PackedMatmul(a) => {
            let bias = f32::from(u8::from(a.bias));
            2.0 * a.activation.ordinal() + bias
        }
        Operation::Norm(a) => {
            let extras = f32::from(u8::from(a.scale) + u8::from(a.bias));
            3.0 * match a.kind {
                NormKind::BatchInference => 0.0,
                NormKind::BatchTraining => 1.0,
                NormKind::Layer => 2.0,
                NormKind::Rms => 3.0,
                NormKind::Group { .. } => 4.0,
            } + extras
        }
        Operation::IntegerMatmul(a) => a.feature(),
        Operation::Pool(a) => a.feature(),
        Operation::Pad(a) => a.feature(),
        Operation::Quantize(a) => a.feature(),
        Operation::QuantizedMatmul(a) => a.feature(),
        Operation::Reduce(a) => match a.kind {
            ReduceKind::Sum => 0.0,
            ReduceKind::Mean => 1.0,
            ReduceKind::Max => 2.0,
            ReduceKind::Min => 3.0,
            ReduceKind::Any => 4.0,
            ReduceKind::All => 5.0,
            ReduceKind::ArgMax => 6.0,
            ReduceKind::ArgMin => 7.0,
            ReduceKind::Prod => 8.0,
            ReduceKind::Variance { .. } => 9.0,
            ReduceKind::Norm(_) => 10.0,
            ReduceKind::Cumulative(scan) => 11.0 + f32::from(2 * scan.kind as u8 + u8::from(scan.exclusive)),
        },
        Operation::Rnn(a) => a.feature(),
        Operation::Scatter(a) => a.feature(),
        Operation::Softmax(a) => f32::from(u8::from(a.log)),
        Operation::Sort(a) => a.feature(),
        Operation::Sparse(a) => a.feature(),
    }
}

/// A number that tells programs apart by their functions.
fn program_identity(program: &Program) -> f32 {
    let mut hasher = FxHasher::default();
    for step in program.steps() {
        hasher.write(step.function.name().as_bytes());
    }
    identity(&hasher)
}

/// Axes that the operation works along.
fn axes(operation: &Operation) -> f32 {
    match operation {
        Operation::Reduce(a) => f32::from(a.axes),
        Operation::Norm(a) => f32::from(a.axis),
        Operation::Sparse(a) => log2(f64::from(a.span)),
        _ => 0.0,
    }
}

/// The binary logarithm to about 0.01 and monotonic, which is all that models need; no size at all is below one.
pub(crate) fn log2(x: f64) -> f32 {
    let x = x as f32;
    if x < f32::MIN_POSITIVE {
        return if x > 0.0 { f32::MIN_EXP as f32 } else { -1.0 };
    }
    let bits = x.to_bits();
    let exponent = (bits >> 23) as f32 - 127.0;
    let mantissa = f32::from_bits(bits & 0x007F_FFFF | 0x3F80_0000);
    // The parabola through the logarithm's values at 1 and 2 with its slopes' mean error.
    exponent + (-1.0 / 3.0 * mantissa + 2.0) * mantissa - 5.0 / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::matmul::MatmulAttributes;
    use crate::ops::{ComputeUnit, Traffic};
    use crate::tensor::{DType, Shape};

    fn product(m: usize, k: usize, n: usize) -> Workload {
        let of = |shape: &[usize]| TensorDesc::contiguous(DType::F32, Shape::new(shape).unwrap());
        Workload::new(
            Operation::Matmul(MatmulAttributes::default()),
            &[of(&[m, k]), of(&[k, n])],
            &[of(&[m, n])],
        )
    }

    fn describe(workload: &Workload, kernel: &str, threads: u32) -> Features {
        let unit = ComputeUnit { dtype: DType::F32, isa: None };
        let cost = Cost::new(1e6, unit, Traffic { l1: 1e4, ..Traffic::default() });
        let terms = Terms { arithmetic: 1e-3, ..Terms::default() };
        let parameters = Parameters::new().with(Knob::Threads, threads);
        WorkloadFeatures::new(workload).candidate(kernel, &parameters, &cost, &terms)
    }

    #[test]
    fn kernels_parameters_and_shapes_tell_apart() {
        let workload = product(3, 4, 5);
        let one = describe(&workload, "cpu::matmul::a", 1);
        assert_eq!(one, describe(&workload, "cpu::matmul::a", 1));
        let other = describe(&workload, "cpu::matmul::b", 1);
        assert_ne!(one.kernel(), other.kernel());
        let two = describe(&workload, "cpu::matmul::a", 2);
        assert_eq!(one.kernel(), two.kernel());
        assert_ne!(one.variant(), two.variant());
        assert_ne!(one, describe(&product(3, 4, 6), "cpu::matmul::a", 1));
    }

    #[test]
    fn the_shared_part_is_the_same_for_all_candidates() {
        let workload = product(30, 4, 5);
        let (a, b) = (describe(&workload, "a", 1), describe(&workload, "b", 2));
        assert_eq!(a.0[at::SHARED..], b.0[at::SHARED..]);
        assert!(a.is_finite());
    }

    #[test]
    fn empty_and_huge_operands_give_finite_numbers() {
        for workload in [product(0, 4, 5), product(usize::MAX >> 40, 1, usize::MAX >> 40)] {
            assert!(describe(&workload, "a", 1).is_finite());
        }
    }

    #[test]
    fn logarithms_grow_and_are_close() {
        let mut last = f32::NEG_INFINITY;
        for i in 1..4000 {
            let x = 1.01f64.powi(i) * 1e-12;
            let found = log2(x);
            assert!(found >= last && (f64::from(found) - x.log2()).abs() < 0.02, "{x}: {found}");
            last = found;
        }
        assert_eq!((log2(0.0), log2(1.0), log2(8.0)), (-1.0, 0.0, 3.0));
    }

    #[test]
    fn features_survive_json_and_refuse_other_lengths() {
        let features = describe(&product(3, 4, 5), "a", 1);
        let text = serde_json::to_string(&features).unwrap();
        assert_eq!(serde_json::from_str::<Features>(&text).unwrap(), features);
        assert!(serde_json::from_str::<Features>("[1.0, 2.0]").is_err());
    }
}
