//! The kernels: the engines of `cpu_rows` and `cpu_columns` on each instruction set.
#![allow(unsafe_code)]

use super::attributes::{ReduceAttributes, ReduceKind};
use super::cpu_fold::{Baseline, Fold, Narrow, Runner};
use super::cpu_rows::Cut;
use super::cpu_stored::{Sink, Source};
use super::dispatch::{Visitor, is_vector, visit};
use super::plan::Plan;
use super::{cpu_columns, cpu_rows};
use crate::backends::cpu::schedule::Schedule;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Knob, Operation, OperationKind, ParameterSpace,
    Parameters, Refusal, Refusals, Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Which way the elements are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    /// Each result from runs of memory of its own.
    Rows,
    /// Results side by side from rows that stream through.
    Columns,
}

/// One engine on one instruction set.
pub(super) struct Engine {
    name: &'static str,
    walk: Walk,
    isa: Isa,
    constraints: &'static [Constraint],
}

macro_rules! engines {
    ($($static:ident, $walk:ident, $isa:ident, $name:literal, [$($more:ident)?];)*) => {$(
        pub(super) static $static: Engine = Engine {
            name: concat!("cpu::reduce::", $name),
            walk: Walk::$walk,
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), NOT_CUMULATIVE, $($more)?],
        };
    )*};
}
engines! {
    AVX512_ROWS, Rows, Avx512, "avx512_rows", [];
    AVX2_ROWS, Rows, Avx2, "avx2_rows", [];
    AVX2_COLUMNS, Columns, Avx2, "avx2_columns", [SIDE_BY_SIDE];
    NEON_ROWS, Rows, Neon, "neon_rows", [];
    NEON_COLUMNS, Columns, Neon, "neon_columns", [SIDE_BY_SIDE];
    PORTABLE_ROWS, Rows, Portable, "portable_rows", [];
    PORTABLE_COLUMNS, Columns, Portable, "portable_columns", [SIDE_BY_SIDE];
}

const NOT_CUMULATIVE: Constraint = Constraint::Shape("one result, not one for each place", |w| {
    !matches!(attributes(w).kind, ReduceKind::Cumulative(_))
});
const SIDE_BY_SIDE: Constraint =
    Constraint::Shape("results whose elements lie side by side in the input", |w| {
        plan(w).kept.last().is_some_and(|a| a.input == 1)
    });

/// The attributes of a reduction's workload.
pub(super) fn attributes(workload: &Workload) -> ReduceAttributes {
    match workload.operation() {
        Operation::Reduce(attributes) => *attributes,
        other => unreachable!("the registry gives reductions only, not {other}"),
    }
}

/// The axes of a reduction's workload.
fn plan(workload: &Workload) -> Plan {
    let (input, output) = (&workload.inputs()[0], &workload.outputs()[0]);
    Plan::of(&input.shape, &input.strides, &output.strides, attributes(workload).kind.is_ordered())
}

impl Kernel for Engine {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Reduce
    }

    fn source(&self) -> u64 {
        match self.walk {
            Walk::Rows => source_hash!(
                "cpu_rows.rs",
                "cpu_kernels.rs",
                "cpu_fold.rs",
                "cpu_stored.rs",
                "cpu_moments.rs",
                "sums.rs",
                "extremes.rs",
                "norms.rs",
                "plan.rs",
                "../../backends/cpu/schedule.rs"
            ),
            Walk::Columns => source_hash!(
                "cpu_columns.rs",
                "cpu_kernels.rs",
                "cpu_fold.rs",
                "cpu_stored.rs",
                "cpu_moments.rs",
                "sums.rs",
                "extremes.rs",
                "norms.rs",
                "plan.rs"
            ),
        }
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn supports(&self, workload: &Workload, device: &DeviceInfo) -> Result<(), Refusals> {
        let (kind, dtype) = (attributes(workload).kind, workload.inputs()[0].dtype);
        let idle = self.isa != Isa::Portable && !is_vector(kind, dtype);
        let reason = || {
            Refusal::Shape(format!("a reduction that gains from wide vectors, not {kind} of {dtype}").into())
        };
        let failing = self.constraints.iter().filter_map(|c| c.check(workload, device));
        Refusals::collect(failing.chain(idle.then(reason)))
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn tuning_space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let usual = self.space(workload, device);
        let wide = match self.walk {
            // How tasks are cut and given to threads changes nothing on one.
            Walk::Rows => ParameterSpace::threads(device.threads)
                .axis(Knob::Split, &[1, 2, 4, 8, 16])
                .axis(Knob::Schedule, &Schedule::ALL.map(|schedule| schedule as u32))
                .constrained(|p| {
                    let usual = p.get(Knob::Split) == Some(4) && p.get(Knob::Schedule) == Some(1);
                    p.threads() > 1 || usual
                })
                // The kernel's own block first: what the cost does not tell apart is tried in this order.
                .axis(Knob::BlockK, &[2048, 1024, 512, 256])
                .axis(Knob::Unroll, &[4, 1]),
            Walk::Columns => ParameterSpace::threads(device.threads)
                .axis(Knob::BlockN, &[64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096]),
        };
        usual.and(wide)
    }

    fn schedules(&self) -> bool {
        self.walk == Walk::Rows
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let plan = plan(workload);
        let (input, output) = (&workload.inputs()[0], &workload.outputs()[0]);
        let (elements, size) = ((plan.outputs() * plan.depth()) as f64, input.dtype.size() as f64);
        let (run, stride) = match self.walk {
            Walk::Rows => plan.reduced.last().map_or((1, 1), |a| (a.size, a.input.unsigned_abs())),
            Walk::Columns => plan.kept.last().map_or((1, 1), |a| (a.size, 1)),
        };
        // Elements that are not side by side move a cache line each, up to the whole line.
        let moved = elements * size * (stride as f64).clamp(1.0, (64.0 / size).max(1.0));
        let vector = (self.isa.register_bytes() as f64 / size).max(1.0);
        let padding = (run as f64 / vector).ceil() * vector / run.max(1) as f64;
        // A gathered element is copied before it is used.
        let mut work = if stride == 1 { 1.0 } else { 2.0 };
        let mut unit = ComputeUnit { dtype: unit_type(input.dtype), isa: Some(self.isa) };
        if self.walk == Walk::Columns
            && matches!(attributes(workload).kind, ReduceKind::ArgMax | ReduceKind::ArgMin)
        {
            // Values and places side by side do not become vectors: comparisons for order, ties and NaN, and two choices.
            (work, unit.isa) = (10.0, None);
        }
        let set = moved + output.bytes() as f64;
        let traffic = Traffic::pass(moved, set, &device.caches)
            + Traffic::pass(output.bytes() as f64, set, &device.caches);
        let cost = Cost::new(elements * padding * work, unit, traffic).converting(workload);
        let threads = parameters.threads();
        match self.walk {
            Walk::Rows => {
                let (pieces, takes) = Cut::of(parameters).pieces(plan.outputs(), threads);
                let cost = cost.split(threads, pieces);
                // To take a piece that others may take as well a line of the cache goes there and back, as for a hand-over.
                Cost { forks: if cost.threads > 1 { takes } else { 0 }, ..cost }
            }
            Walk::Columns => {
                let rows = plan.outputs() / run.max(1);
                let widest = parameters.get(Knob::BlockN).map_or(usize::MAX, |n| n as usize);
                cost.split(threads, rows * cpu_columns::bands(rows, run, threads, widest))
            }
        }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let kind = attributes(call.workload).kind;
        let plan = plan(call.workload);
        let launch = Launch { engine: self, plan: &plan, call };
        visit(kind, call.workload.inputs()[0].dtype, launch)
            .flatten()
            .ok_or_else(|| KernelError(format!("{kind} is not defined for this type").into()))
    }
}

/// The calibrated unit whose rate the lanes of a type come closest to.
fn unit_type(dtype: DType) -> DType {
    if dtype.size() >= 8 { DType::F64 } else { DType::F32 }
}

struct Launch<'a, 'c> {
    engine: &'a Engine,
    plan: &'a Plan,
    call: &'a Call<'c>,
}

impl Launch<'_, '_> {
    /// `None` where the fold cannot read or write the operands' types.
    fn run<F: Fold>(&self, fold: F, rows: impl Runner, columns: impl Runner) -> Option<()> {
        let (input, output) = (&self.call.inputs[0], &self.call.outputs[0]);
        let source = Source::<F::In>::new(input.address(), input.desc().dtype)?;
        let sink = Sink::<F::Out>::new(output.address(), output.desc().dtype)?;
        let team = (self.call.cpu().threads(), self.call.parameters.threads());
        match self.engine.walk {
            Walk::Rows => {
                let cut = Cut::of(self.call.parameters);
                // SAFETY: the plan walks exactly the operands' elements, which are valid, and the output is ours alone.
                unsafe { cpu_rows::reduce(fold, self.plan, source, sink, rows, team, cut) }
            }
            Walk::Columns => {
                let band = self.call.parameters.get(Knob::BlockN).map(|n| n as usize);
                // SAFETY: as above.
                unsafe { cpu_columns::reduce(fold, self.plan, source, sink, columns, team, band) }
            }
        }
        Some(())
    }
}

impl Visitor for Launch<'_, '_> {
    type Output = Option<()>;

    fn vector<F: Fold>(self, fold: F) -> Option<()> {
        if const { F::WIDE } {
            self.run(fold, self.engine.isa, self.engine.isa)
        } else {
            self.run(fold, self.engine.isa, Narrow(self.engine.isa))
        }
    }

    fn plain<F: Fold>(self, fold: F) -> Option<()> {
        self.run(fold, Baseline, Baseline)
    }
}
