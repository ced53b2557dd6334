//! The kernels: each way of computing an attention on each instruction set.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::problem::Problem;
use super::{cost, cpu_decode, cpu_matmuls, cpu_tiled, plan};
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters, Variant, Workload,
};
use crate::tensor::DType;

/// How a kernel goes about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Blocks of queries and keys, the softmax taken on the way.
    Tiled,
    /// All scores of a head by one product, then the softmax, then another product.
    Matmuls,
    /// Keys and values read once for a few queries.
    Decode,
}

/// One way on one instruction set.
pub(super) struct Attention {
    name: &'static str,
    isa: Isa,
    way: Way,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($tiled:ident $matmuls:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $tiled: Attention = Attention {
            name: concat!("cpu::attention::", $name, "_tiled"),
            isa: Isa::$isa,
            way: Way::Tiled,
            constraints: &[Constraint::Isa(Isa::$isa)],
        };
        pub(super) static $matmuls: Attention = Attention {
            name: concat!("cpu::attention::", $name, "_matmuls"),
            isa: Isa::$isa,
            way: Way::Matmuls,
            constraints: &[Constraint::Isa(Isa::$isa), LONG, NOT_EMPTY, CONTIGUOUS_ROWS],
        };
    )*};
}
kernels! {
    AVX512_TILED AVX512_MATMULS Avx512 "avx512";
    AVX2_TILED AVX2_MATMULS Avx2 "avx2";
    NEON_TILED NEON_MATMULS Neon "neon";
    PORTABLE_TILED PORTABLE_MATMULS Portable "portable";
}

macro_rules! decode {
    ($($decode:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $decode: Attention = Attention {
            name: concat!("cpu::attention::", $name, "_decode"),
            isa: Isa::$isa,
            way: Way::Decode,
            constraints: &[Constraint::Isa(Isa::$isa), NOT_EMPTY, FEW_QUERIES, CONTIGUOUS_KEYS],
        };
    )*};
}
// Nothing is gained from registers of 512 bits where memory sets the pace.
decode! {
    AVX2_DECODE Avx2 "avx2";
    NEON_DECODE Neon "neon";
    PORTABLE_DECODE Portable "portable";
}

const LONG: Constraint =
    Constraint::Shape("f32 or f64", |w| matches!(w.outputs()[0].dtype, DType::F32 | DType::F64));
const NOT_EMPTY: Constraint = Constraint::Shape("at least one element in every operand", |w| {
    w.operands().iter().all(|operand| !operand.is_empty())
});
const CONTIGUOUS_ROWS: Constraint =
    Constraint::Shape("results of a query side by side", |w| w.outputs()[0].strides[3] == 1);

const FEW_QUERIES: Constraint = Constraint::Shape("at most 16 queries that share keys", |w| {
    let p = Problem::of(w);
    p.queries * p.group() <= cpu_decode::ROWS
});
const CONTIGUOUS_KEYS: Constraint = Constraint::Shape("elements of each key and value side by side", |w| {
    w.inputs()[1].strides[3] == 1 && w.inputs()[2].strides[3] == 1
});

impl Kernel for Attention {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Attention
    }

    fn source(&self) -> u64 {
        match self.way {
            Way::Tiled => source_hash!(
                "cpu_tiled.rs",
                "cpu_block.rs",
                "cpu_pack.rs",
                "cpu_mask.rs",
                "cpu_kernels.rs",
                "plan.rs",
                "../matmul/cpu_micro.rs",
                "../matmul/cpu_tile.rs",
                "../matmul/cpu_pack.rs"
            ),
            Way::Matmuls => source_hash!(
                "cpu_matmuls.rs",
                "cpu_block.rs",
                "cpu_mask.rs",
                "cpu_kernels.rs",
                "../matmul/cpu_micro.rs",
                "../matmul/cpu_tile.rs",
                "../matmul/cpu_pack.rs",
                "../matmul/cpu_packed.rs",
                "../matmul/plan.rs"
            ),
            Way::Decode => source_hash!("cpu_decode.rs", "cpu_block.rs", "cpu_mask.rs", "cpu_kernels.rs"),
        }
    }

    fn variant(&self) -> Variant {
        match self.way {
            Way::Tiled => Variant::Fused,
            Way::Matmuls => Variant::Tiled,
            Way::Decode => Variant::Vectorised,
        }
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        match self.way {
            Way::Tiled => plan::space(&Problem::of(workload), device),
            Way::Matmuls | Way::Decode => ParameterSpace::threads(device.threads),
        }
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let p = Problem::of(workload);
        match self.way {
            Way::Tiled => cost::tiled(&p, workload.bytes(), self.isa, parameters, device),
            Way::Matmuls => cost::matmuls(&p, workload.bytes(), self.isa, parameters, device),
            Way::Decode => cost::decode(&p, workload.bytes(), self.isa, parameters, device),
        }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match (self.way, call.workload.outputs()[0].dtype) {
            (Way::Tiled, DType::F32) => cpu_tiled::launch::<f32>(self.isa, call),
            (Way::Tiled, DType::F64) => cpu_tiled::launch::<f64>(self.isa, call),
            (Way::Tiled, DType::F16) => cpu_tiled::launch::<f16>(self.isa, call),
            (Way::Tiled, DType::BF16) => cpu_tiled::launch::<bf16>(self.isa, call),
            (Way::Matmuls, DType::F32) => cpu_matmuls::launch::<f32>(self.isa, call),
            (Way::Matmuls, DType::F64) => cpu_matmuls::launch::<f64>(self.isa, call),
            (Way::Decode, DType::F32) => cpu_decode::launch::<f32>(self.isa, call),
            (Way::Decode, DType::F64) => cpu_decode::launch::<f64>(self.isa, call),
            (Way::Decode, DType::F16) => cpu_decode::launch::<f16>(self.isa, call),
            (Way::Decode, DType::BF16) => cpu_decode::launch::<bf16>(self.isa, call),
            (_, other) => Err(KernelError(format!("{other} is not computed by this kernel").into())),
        }
    }
}
