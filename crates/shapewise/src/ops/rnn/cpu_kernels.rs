//! The kernels: each way of computing a layer on each instruction set.
#![allow(unsafe_code)]

use super::plan::{Plan, Way, depth, is_wide};
use super::problem::Problem;
use super::{cost, cpu_run};
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, Constraint, Cost, Kernel, KernelError, Knob, OperationKind, ParameterSpace, Parameters, Refusal,
    Refusals, Variant, Workload,
};
use crate::tensor::DType;

/// Sequences that weights are read again for where they are not packed.
const FEW: usize = 8;

/// One way on one instruction set.
pub(super) struct Rnn {
    name: &'static str,
    isa: Isa,
    way: Way,
    constraints: &'static [Constraint],
}

macro_rules! packed {
    ($($fused:ident $projected:ident $batch:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $fused: Rnn = Rnn {
            name: concat!("cpu::rnn::", $name, "_fused"),
            isa: Isa::$isa,
            way: Way::Fused,
            constraints: &[Constraint::Isa(Isa::$isa), WIDE, NOT_EMPTY, CONTIGUOUS_UNITS],
        };
        pub(super) static $projected: Rnn = Rnn {
            name: concat!("cpu::rnn::", $name, "_projected"),
            isa: Isa::$isa,
            way: Way::Projected,
            constraints: &[Constraint::Isa(Isa::$isa), WIDE, NOT_EMPTY, CONTIGUOUS_UNITS],
        };
        pub(super) static $batch: Rnn = Rnn {
            name: concat!("cpu::rnn::", $name, "_batch"),
            isa: Isa::$isa,
            way: Way::Batch,
            constraints: &[Constraint::Isa(Isa::$isa), WIDE, NOT_EMPTY, CONTIGUOUS_UNITS, SEVERAL],
        };
    )*};
}
packed! {
    AVX512_FUSED AVX512_PROJECTED AVX512_BATCH Avx512 "avx512";
    AVX2_FUSED AVX2_PROJECTED AVX2_BATCH Avx2 "avx2";
    NEON_FUSED NEON_PROJECTED NEON_BATCH Neon "neon";
    PORTABLE_FUSED PORTABLE_PROJECTED PORTABLE_BATCH Portable "portable";
}

macro_rules! rows {
    ($($rows:ident $projected:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $rows: Rnn = Rnn {
            name: concat!("cpu::rnn::", $name, "_rows"),
            isa: Isa::$isa,
            way: Way::Rows,
            constraints: &[
                Constraint::Isa(Isa::$isa), WIDE, NOT_EMPTY, CONTIGUOUS_UNITS, FEW_ROWS, CONTIGUOUS_WEIGHTS,
                CONTIGUOUS_INPUTS,
            ],
        };
        pub(super) static $projected: Rnn = Rnn {
            name: concat!("cpu::rnn::", $name, "_projected_rows"),
            isa: Isa::$isa,
            way: Way::ProjectedRows,
            constraints: &[
                Constraint::Isa(Isa::$isa), WIDE, NOT_EMPTY, CONTIGUOUS_UNITS, FEW_ROWS, CONTIGUOUS_WEIGHTS,
            ],
        };
    )*};
}
// Nothing is gained from registers of 512 bits where the caches set the pace.
rows! {
    AVX2_ROWS AVX2_PROJECTED_ROWS Avx2 "avx2";
    NEON_ROWS NEON_PROJECTED_ROWS Neon "neon";
    PORTABLE_ROWS PORTABLE_PROJECTED_ROWS Portable "portable";
}

const WIDE: Constraint = Constraint::Shape("f32 or f64", |w| is_wide(w.outputs()[0].dtype));
const NOT_EMPTY: Constraint = Constraint::Shape("at least one element in every operand", |w| {
    w.operands().iter().all(|operand| !operand.is_empty())
});
const CONTIGUOUS_UNITS: Constraint =
    Constraint::Shape("hidden units of a result side by side", |w| Problem::of(w).y[2] == 1);
const SEVERAL: Constraint = Constraint::Shape("two sequences or more", |w| Problem::of(w).batch > 1);
const FEW_ROWS: Constraint = Constraint::Shape("at most 8 sequences", |w| Problem::of(w).batch <= FEW);
const CONTIGUOUS_WEIGHTS: Constraint =
    Constraint::Shape("elements of each row of weights side by side", |w| {
        let p = Problem::of(w);
        p.w_ih[1] == 1 && p.w_hh[1] == 1
    });
const CONTIGUOUS_INPUTS: Constraint =
    Constraint::Shape("elements of each input side by side", |w| Problem::of(w).x[2] == 1);

impl Kernel for Rnn {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Rnn
    }

    fn source(&self) -> u64 {
        source_hash!(
            "cpu_run.rs",
            "cpu_pack.rs",
            "cpu_phases.rs",
            "cpu_part.rs",
            "cpu_products.rs",
            "cpu_gates.rs",
            "cpu_kernels.rs",
            "plan.rs",
            "../matmul/cpu_micro.rs",
            "../matmul/cpu_tile.rs",
            "../matmul/cpu_pack.rs"
        )
    }

    fn variant(&self) -> Variant {
        match self.way {
            Way::Fused | Way::Projected => Variant::Fused,
            Way::Batch => Variant::Parallel,
            Way::Rows | Way::ProjectedRows => Variant::Vectorised,
        }
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn supports(&self, workload: &Workload, device: &DeviceInfo) -> Result<(), Refusals> {
        Refusals::from_constraints(self.constraints, workload, device)?;
        // With one thread it would be the fused kernel.
        let alone = self.way == Way::Batch && device.threads < 2;
        Refusals::collect(alone.then(|| Refusal::Missing("a second thread".into())))
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let space = ParameterSpace::threads(device.threads);
        if self.way == Way::Batch { space.constrained(|p| p.threads() > 1) } else { space }
    }

    /// Other depths of the pieces that panels are cut into: how much of the first cache a panel takes from inputs and sums.
    fn tuning_space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let (space, p) = (self.space(workload, device), Problem::of(workload));
        if !self.way.packed()[0] || p.kept.is_some() {
            return space;
        }
        let usual = depth(self.isa, device) as u32;
        let longest = p.input.max(p.hidden) as u32;
        let depths: Vec<_> = [usual / 4, usual / 2, 2 * usual, 4 * usual]
            .into_iter()
            .filter(|&depth| depth > 0 && depth < 2 * longest)
            .collect();
        space.clone().and(space.axis(Knob::BlockK, &depths))
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let p = Problem::of(workload);
        let plan = Plan::new(&p, self.isa, self.way, parameters, device);
        cost::layer(&p, &plan, workload.bytes(), device)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => cpu_run::launch::<f32>(self.isa, self.way, call),
            DType::F64 => cpu_run::launch::<f64>(self.isa, self.way, call),
            other => Err(KernelError(format!("{other} is not computed by this kernel").into())),
        }
    }
}
