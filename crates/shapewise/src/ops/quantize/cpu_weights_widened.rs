//! Products of many rows with quantised weights: chunks of weights are widened, then it is a plain product of f32.
#![allow(unsafe_code)]

use super::cpu_weights::Problem;
use super::weights::{LANES, group};
use crate::backends::cpu::simd::Isa;
use crate::device::{Device, DeviceInfo};
use crate::hash::source_hash;
use crate::ops::matmul::cpu_packed;
use crate::ops::matmul::cpu_problem::{Epilogue, Gemm, Shared};
use crate::ops::matmul::plan::{Algorithm, Blocks, Plan, Sizes};
use crate::ops::{
    Activation, Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace,
    Parameters, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Bytes of weights that are widened at once: they should stay in the third cache until the product has read them.
const CHUNK: usize = 4 << 20;

/// On one instruction set.
pub(super) struct Widened {
    name: &'static str,
    isa: Isa,
    constraints: &'static [Constraint],
}

const NOT_EMPTY: Constraint = Constraint::Shape("at least one row, output and step", |w| {
    w.operands().iter().all(|operand| !operand.is_empty())
});

macro_rules! kernels {
    ($($kernel:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $kernel: Widened = Widened {
            name: concat!("cpu::quantized_matmul::", $name, "_widened"),
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), NOT_EMPTY],
        };
    )*};
}
kernels! {
    AVX512 Avx512 "avx512";
    AVX2 Avx2 "avx2";
    NEON Neon "neon";
    PORTABLE Portable "portable";
}

/// Outputs of a chunk.
fn chunk(p: &Problem) -> usize {
    (CHUNK / 4 / p.k.max(1)).clamp(16, 4096).min(p.n)
}

/// Elements of f32 for the chunk's weights and, beside bf16, for activations and results.
fn own(p: &Problem) -> [usize; 3] {
    let widened = p.dtype != DType::F32;
    let line = |elements: usize| elements.next_multiple_of(16);
    let beside = |elements: usize| if widened { line(elements) } else { 0 };
    [line(chunk(p) * p.k), beside(p.m * p.k), beside(p.m * chunk(p))]
}

/// The product of all rows with a chunk; without memory it is a description.
fn gemm(p: &Problem, columns: usize, memory: [*mut f32; 3]) -> Gemm<f32> {
    let [b, a, c] = memory;
    let epilogue = Epilogue { bias: std::ptr::null(), bias_rs: 0, bias_cs: 0, activation: Activation::None };
    let k = p.k as isize;
    let c_rs = if p.dtype == DType::F32 { p.n } else { columns } as isize;
    Gemm { m: p.m, n: columns, k: p.k, a, a_rs: k, a_cs: 1, b, b_rs: 1, b_cs: k, c, c_rs, c_cs: 1, epilogue }
}

fn blocking(g: &Gemm<f32>, isa: Isa, threads: usize, device: &DeviceInfo) -> cpu_packed::Blocking {
    Plan::new(
        g,
        Algorithm::Packed,
        isa,
        size_of::<f32>(),
        threads,
        false,
        &Sizes::of(device),
        Blocks::default(),
    )
    .packed()
}

fn panels(p: &Problem, isa: Isa, threads: usize, device: &DeviceInfo) -> usize {
    let g = gemm(p, chunk(p), [std::ptr::null_mut(); 3]);
    cpu_packed::scratch(&g, isa, &blocking(&g, isa, threads, device))
}

impl Kernel for Widened {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::QuantizedMatmul
    }

    fn source(&self) -> u64 {
        source_hash!(
            "cpu_weights_widened.rs",
            "../matmul/cpu_packed.rs",
            "../matmul/cpu_micro.rs",
            "../matmul/cpu_tile.rs"
        )
    }

    fn variant(&self) -> Variant {
        Variant::Tiled
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let p = Problem::describe(workload);
        let lanes = (self.isa.register_bytes() / 4) as f64;
        let (rows, weights) = (p.m as f64, (p.n * p.k) as f64);
        let unit = ComputeUnit { dtype: DType::F32, isa: Some(self.isa) };
        // Plain code widens a weight in about eight instructions; packing moves it once more.
        let operations = weights * (2.0 * rows + 8.0 * lanes);
        let bytes = p.bytes();
        let widened = 4.0 * weights;
        let mut traffic = Traffic::pass(bytes, bytes, &device.caches);
        // Written, read by the packing, written and read as panels.
        traffic.l1 += 4.0 * widened;
        traffic.l2 += 4.0 * widened;
        traffic.l3 += 2.0 * widened;
        let threads = parameters.threads();
        let scratch = 4 * (own(&p).iter().sum::<usize>() + panels(&p, self.isa, threads, device));
        let chunks = p.n.div_ceil(chunk(&p).max(1)) as u32;
        let cost = Cost { scratch, ..Cost::new(operations, unit, traffic) }.split(threads, p.n);
        Cost { forks: cost.forks * 3 * chunks, ..cost }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let p = Problem::of(call);
        let (device, threads) = (call.cpu(), call.parameters.threads());
        let [weights, left, result] = own(&p);
        let scratch = weights + left + result + panels(&p, self.isa, threads, device.info());
        let memory = device.scratch(4 * scratch)?;
        #[allow(clippy::cast_ptr_alignment)] // memory of the pool starts a line
        let memory = Shared(memory.as_ptr().cast_mut().cast::<f32>());
        let plain = p.dtype == DType::F32;
        if !plain {
            for i in 0..p.m {
                // SAFETY: the scratch memory has room for every row.
                unsafe { p.widen_row(i, std::slice::from_raw_parts_mut(memory.at(weights + i * p.k), p.k)) };
            }
        }
        let a = if plain { p.x.cast_mut().cast() } else { memory.at(weights) };
        let own_panels = memory.at(weights + left + result);
        let mut first = 0;
        while first < p.n {
            let columns = chunk(&p).min(p.n - first);
            device.threads().run(threads, columns, &|j| {
                // SAFETY: every task has a row of the chunk to itself.
                let to = unsafe { std::slice::from_raw_parts_mut(memory.at(j * p.k), p.k) };
                // SAFETY: the weights have this row.
                unsafe { widen(&p, first + j, to) };
            });
            let c = if plain { p.y.cast::<f32>().wrapping_add(first) } else { memory.at(weights + left) };
            let g = gemm(&p, columns, [memory.at(0), a, c]);
            let blocking = blocking(&g, self.isa, threads, device.info());
            // SAFETY: operands and result are valid and not empty, and the scratch memory is for the largest chunk.
            unsafe { cpu_packed::run(&g, self.isa, &blocking, device.threads(), own_panels) };
            if !plain {
                for (i, j) in (0..p.m).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                    // SAFETY: the result has this element.
                    unsafe { p.put(i, first + j, *g.c_at(i, j)) };
                }
            }
            first += columns;
        }
        Ok(())
    }
}

/// Row `j` of the weights as f32.
///
/// # Safety
/// The weights have this row.
unsafe fn widen(p: &Problem, j: usize, to: &mut [f32]) {
    let mask = (1u64 << p.bits) as u32 - 1;
    let group = group(p.bits);
    for (index, lanes) in to.chunks_mut(LANES).enumerate() {
        let start = index * LANES;
        // SAFETY: the caller's promise; an output has all its words.
        let words = unsafe { std::slice::from_raw_parts(p.word(j, start / group), LANES) };
        let shift = (start % group / LANES) as u32 * p.bits;
        for (lane, (out, word)) in lanes.iter_mut().zip(words).enumerate() {
            let block = (start + lane).checked_div(p.block).unwrap_or(0);
            // SAFETY: the caller's promise; an output has all its scales.
            let (scale, zero) = unsafe { p.scale_and_zero(j, block) };
            *out = ((word >> shift & mask) as f32 - zero) * scale;
        }
    }
}
