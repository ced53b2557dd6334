//! WebGPU: workgroups and dispatches within what the adapter says, never assumed.

use serde::Serialize;

use super::characteristics::{Characteristics, asking, default_kernel};
use super::constraints::{ConstraintKind, TuningConstraints, TuningError};
use super::feedback::Book;
use super::gpu::{Extent, Machine, Tile, estimate, tiles};
use super::metal::frugal;
use super::strategy::{BackendPlan, Proposal, Proposed, Proposes};
use crate::device::{BackendKind, DeviceInfo};
use crate::ops::{OperationKind, Parameters, Workload};
use crate::sensors::SystemState;
use crate::tensor::DType;
use crate::{Error, Result};

/// Limits and abilities that kernels must keep to; read from the adapter, never assumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuLimits {
    /// Invocations of a workgroup together.
    pub invocations: u32,
    /// Invocations of a workgroup along each axis.
    pub workgroup: [u32; 3],
    /// Bytes of `var<workgroup>` memory.
    pub workgroup_memory: u32,
    /// Workgroups of a dispatch along each axis.
    pub groups: u32,
    /// Bytes of one storage binding.
    pub storage_binding: u64,
    /// Bytes of one buffer.
    pub buffer: u64,
    /// Storage bindings of one shader.
    pub storage_bindings: u32,
    /// Bytes that the offset of a storage binding is a multiple of.
    pub alignment: u32,
    /// Smallest and largest subgroup; `None` without subgroup operations.
    pub subgroup: Option<(u32, u32)>,
    /// Whether 16-bit floats can be computed with.
    pub f16: bool,
    /// Whether shaders have 64-bit integers, of which one load brings two numbers.
    pub u64: bool,
}

/// What was measured of an adapter; `None` where nothing was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuRates {
    /// Multiply-adds per second.
    pub rate: Option<f64>,
    /// Bytes per second.
    pub bandwidth: Option<f64>,
    /// Seconds to start a dispatch.
    pub launch: Option<f64>,
}

/// What a dispatch needs beyond a kernel's tunables.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WebGpuPlan {
    /// Invocations of a workgroup along each axis.
    pub workgroup: [u32; 3],
    /// Workgroups of a dispatch along each axis; the second and third go on where the first ends.
    pub dispatch: [u32; 3],
    /// Dispatches, each after the workgroups of the one before.
    pub dispatches: u64,
    /// Bytes of workgroup memory.
    pub workgroup_memory: u32,
    /// Whether subgroup operations can be used.
    pub subgroups: bool,
    /// Whether the kernel computes in 16-bit floats.
    pub f16: bool,
    /// Pieces that the largest operand is cut into; a dispatch binds one piece of each operand.
    pub bindings: u64,
    /// Whether the pipeline was compiled before: workgroup, tile and unrolling are part of a shader's code, and the device
    /// keeps what it compiled, on disk as well where the adapter can.
    pub compiled: bool,
}

/// Tunes for one WebGPU adapter.
#[derive(Debug)]
pub struct WebGpuStrategy {
    limits: GpuLimits,
    rates: GpuRates,
    asking: DeviceInfo,
    book: Book,
}

impl WebGpuStrategy {
    /// For an adapter.
    pub fn new(name: &str, limits: GpuLimits, rates: GpuRates) -> Self {
        Self { limits, rates, asking: asking(BackendKind::WebGpu, name, None), book: Book::default() }
    }

    /// An adapter tells neither its units nor its clock: what was measured counts as one lane of one unit.
    fn machine(&self) -> Machine {
        let GpuRates { rate, bandwidth, launch } = self.rates;
        Machine { units: 1, lanes: 1.0, latency: 0.0, clock: rate, bandwidth, launch }
    }

    fn traits(&self, workload: &Workload) -> Result<(Characteristics, Extent), TuningError> {
        let wide = |dtype| matches!(dtype, DType::F64 | DType::C64 | DType::I64);
        // Indices that a reduction finds are 32-bit numbers on the device, whatever the host reads them as.
        let index = |dtype| dtype == DType::I64 && workload.kind() == OperationKind::Reduce;
        let inputs = workload.inputs().iter().find(|o| wide(o.dtype));
        let outputs = || workload.outputs().iter().find(|o| wide(o.dtype) && !index(o.dtype));
        if let Some(operand) = inputs.or_else(outputs) {
            let reason = "WGSL has no 64-bit numbers; cast to 32 bits or use the CPU".into();
            return Err(Error::Unsupported { what: format!("{} on WebGPU", operand.dtype), reason }.into());
        }
        let (needed, most) = (workload.operands().len(), self.limits.storage_bindings);
        if needed > most as usize {
            let what = format!("{needed} operands on WebGPU");
            let reason = format!("the adapter binds {most} buffers at once; use the CPU");
            return Err(Error::Unsupported { what, reason }.into());
        }
        let largest = workload.operands().iter().map(|o| o.bytes() as u64).max().unwrap_or(0);
        if largest > self.limits.buffer {
            let (wanted, nearest) = (largest as f64, self.limits.buffer as f64);
            return Err(TuningError::Impossible { constraint: ConstraintKind::Memory, wanted, nearest });
        }
        let (_, _, cost) = default_kernel(workload, &self.asking)?;
        let traits = Characteristics::of(workload, &cost, &self.asking);
        let extent = Extent::of(workload, &traits);
        Ok((traits, extent))
    }

    /// `None` for a tile that the adapter cannot run.
    fn plan(&self, workload: &Workload, tile: &Tile, extent: &Extent, dtype: DType) -> Option<WebGpuPlan> {
        let limits = &self.limits;
        let memory = tile.shared(extent.size);
        let fits = tile.x <= limits.workgroup[0]
            && tile.y <= limits.workgroup[1]
            && tile.threads() <= limits.invocations
            && memory <= limits.workgroup_memory;
        if !fits {
            return None;
        }
        let (dispatch, dispatches) = dispatch(tile.groups(extent), limits.groups)?;
        let step = u64::from(limits.alignment.max(1));
        let whole = (limits.storage_binding / step * step).max(1);
        let pieces = workload.operands().iter().map(|o| (o.bytes() as u64).div_ceil(whole)).max();
        let bindings = pieces.unwrap_or(0).max(1);
        Some(WebGpuPlan {
            workgroup: [tile.x, tile.y, 1],
            dispatch,
            // Each piece of an operand is bound for a dispatch of its own.
            dispatches: dispatches.max(bindings),
            workgroup_memory: memory,
            // A group that is smaller than a subgroup leaves lanes idle that the operations would count.
            subgroups: limits.subgroup.is_some_and(|(_, most)| tile.threads().is_multiple_of(most)),
            f16: limits.f16 && dtype == DType::F16,
            bindings,
            compiled: false,
        })
    }
}

/// Groups over the axes of a dispatch: what is too many for the first goes on along the second and third, and what is too
/// many for all three in further dispatches. `None` without any groups.
fn dispatch(groups: [u64; 3], most: u32) -> Option<([u32; 3], u64)> {
    let most = u64::from(most);
    if most == 0 {
        return None;
    }
    if groups.iter().all(|&g| g <= most) {
        return Some((groups.map(|g| g.max(1) as u32), 1));
    }
    let all = groups.iter().fold(1u64, |all, &g| all.saturating_mul(g.max(1)));
    let x = all.min(most);
    let y = all.div_ceil(x).min(most);
    let z = all.div_ceil(x * y).min(most);
    let once = x.saturating_mul(y).saturating_mul(z);
    Some(([x as u32, y as u32, z as u32], all.div_ceil(once)))
}

impl Proposes for WebGpuStrategy {
    const BACKEND: BackendKind = BackendKind::WebGpu;

    fn propose(
        &self,
        workload: &Workload,
        state: &SystemState,
        constraints: &TuningConstraints,
    ) -> Result<Proposed, TuningError> {
        let (traits, extent) = self.traits(workload)?;
        let (mode, machine) = (constraints.mode(state), self.machine());
        let (mut proposals, mut bound, mut least) = (Vec::new(), None, f64::INFINITY);
        // Adapters smaller than every listed group still run one invocation at a time.
        let single = Tile { x: 1, y: 1, rows: 1, columns: 1, depth: 0, split: 1 };
        let listed = tiles(&extent, mode, |_| 1).into_iter().map(|(tile, _)| tile);
        for tile in listed.chain([single]) {
            let Some(mut plan) = self.plan(workload, &tile, &extent, traits.dtype) else { continue };
            let found = estimate(&machine, &extent, &tile, 1);
            if found.order < least {
                (least, bound) = (found.order, found.bound());
            }
            let parameters = tile.parameters(constraints.level);
            plan.compiled = self.book.ran(workload.kind(), traits.dtype, &parameters);
            // Compiling takes longer than any call: among equals the pipeline that is there already.
            let fresh = if plan.compiled { 1.0 } else { 1.0 + 1e-3 };
            proposals.push(Proposal {
                parameters,
                plan: BackendPlan::WebGpu(plan),
                seconds: found.seconds(),
                order: found.order * frugal(mode, &tile) * fresh,
                memory: traits.bytes as u64,
                threads: 1,
            });
        }
        if proposals.is_empty() {
            let reason = "its adapter allows no workgroups at all".into();
            return Err(Error::Unsupported { what: "a dispatch on WebGPU".into(), reason }.into());
        }
        let limits = &self.limits;
        let reasons = vec![format!(
            "at most {} invocations and {} bytes of a workgroup, {} workgroups along an axis, {} bindings at multiples \
             of {} bytes, {mode:?}",
            limits.invocations,
            limits.workgroup_memory,
            limits.groups,
            limits.storage_bindings,
            limits.alignment
        )];
        Ok(Proposed { proposals, kernel: None, bound, characteristics: traits, reasons })
    }

    fn modelled(&self, workload: &Workload, parameters: &Parameters) -> Option<f64> {
        let (traits, extent) = self.traits(workload).ok()?;
        let tile = Tile::from_parameters(parameters);
        self.plan(workload, &tile, &extent, traits.dtype)?;
        estimate(&self.machine(), &extent, &tile, 1).seconds()
    }

    fn book(&self) -> &Book {
        &self.book
    }

    fn book_mut(&mut self) -> &mut Book {
        &mut self.book
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{matmul, relu, typed_matmul};
    use super::super::{BackendTuningStrategy, OptimisationLevel, TuningRecommendation};
    use super::*;
    use crate::ops::Knob;
    use crate::sensors::PowerMode;

    /// What the standard promises of every adapter.
    fn least() -> GpuLimits {
        GpuLimits {
            invocations: 256,
            workgroup: [256, 256, 64],
            workgroup_memory: 16_384,
            groups: 65_535,
            storage_binding: 128 << 20,
            buffer: 256 << 20,
            storage_bindings: 8,
            alignment: 256,
            subgroup: None,
            f16: false,
            u64: false,
        }
    }

    fn ask(
        limits: GpuLimits,
        workload: &Workload,
        c: &TuningConstraints,
    ) -> (TuningRecommendation, WebGpuPlan) {
        let mut strategy = WebGpuStrategy::new("adapter", limits, GpuRates::default());
        let found = strategy.tune_for_workload(workload, &SystemState::default(), c).unwrap();
        let BackendPlan::WebGpu(plan) = found.best.plan.clone() else { panic!() };
        (found, plan)
    }

    #[test]
    fn the_adapters_own_limits_hold() {
        let none = TuningConstraints::default();
        let (_, plan) = ask(least(), &matmul(512, 512, 512), &none);
        assert!(plan.workgroup.iter().product::<u32>() <= 256 && plan.workgroup_memory <= 16_384);
        let large =
            GpuLimits { invocations: 1024, workgroup: [1024; 3], workgroup_memory: 32_768, ..least() };
        let (_, wide) = ask(large, &matmul(512, 512, 512), &none);
        assert!(wide.workgroup.iter().product::<u32>() > 256, "a larger adapter is used: {wide:?}");
        let tiny = GpuLimits { invocations: 1, workgroup: [1; 3], workgroup_memory: 0, ..least() };
        assert_eq!(ask(tiny, &matmul(8, 8, 8), &none).1.workgroup, [1, 1, 1]);
    }

    #[test]
    fn long_dispatches_are_split() {
        assert_eq!(dispatch([65_535, 3, 1], 65_535), Some(([65_535, 3, 1], 1)));
        assert_eq!(dispatch([65_536, 1, 1], 65_535), Some(([65_535, 2, 1], 1)));
        assert_eq!(dispatch([100, 1, 1], 4), Some(([4, 4, 4], 2)));
        assert_eq!(dispatch([0, 1, 1], 4), Some(([1, 1, 1], 1)));
        assert_eq!(dispatch([1, 1, 1], 0), None);
        let (found, plan) = ask(least(), &relu(&[1 << 25], None), &TuningConstraints::default());
        let tile = Tile::from_parameters(&found.best.parameters);
        let once: u64 = plan.dispatch.iter().map(|&g| u64::from(g)).product();
        let covered = once * plan.dispatches * u64::from(tile.threads() * tile.columns);
        assert!(covered >= 1 << 25, "{covered}");
    }

    #[test]
    fn large_operands_are_cut_into_bindings_or_refused() {
        let small = GpuLimits { storage_binding: 1 << 20, ..least() };
        assert_eq!(ask(small, &relu(&[1 << 20], None), &TuningConstraints::default()).1.bindings, 4);
        let smaller = GpuLimits { buffer: 1 << 20, ..least() };
        let mut strategy = WebGpuStrategy::new("adapter", smaller, GpuRates::default());
        let none = TuningConstraints::default();
        let error = strategy.tune_for_workload(&relu(&[1 << 20], None), &SystemState::default(), &none);
        let text = error.unwrap_err().to_string();
        assert!(text.contains("4194304 bytes cannot be met; the nearest that can is 1048576"), "{text}");
        let error =
            strategy.tune_for_workload(&typed_matmul(8, 8, 8, DType::F64), &SystemState::default(), &none);
        assert!(error.unwrap_err().to_string().contains("64-bit"));
    }

    #[test]
    fn bindings_follow_the_adapter() {
        let none = TuningConstraints::default();
        let binding = 1000;
        let cut = |alignment| {
            let limits = GpuLimits { storage_binding: binding, alignment, ..least() };
            ask(limits, &relu(&[1920], None), &none).1
        };
        // 7680 bytes in bindings of 1000, of 992 or of 768.
        assert_eq!([cut(1), cut(32), cut(256)].map(|plan| plan.bindings), [8, 8, 10]);
        assert!(cut(256).dispatches >= 10, "one for each piece");
        let few = GpuLimits { storage_bindings: 2, ..least() };
        let mut strategy = WebGpuStrategy::new("adapter", few, GpuRates::default());
        let state = SystemState::default();
        assert!(strategy.tune_for_workload(&relu(&[8], None), &state, &none).is_ok());
        let error = strategy.tune_for_workload(&matmul(8, 8, 8), &state, &none).unwrap_err().to_string();
        assert!(error.contains("3 operands") && error.contains("binds 2 buffers"), "{error}");
    }

    #[test]
    fn indices_of_extremes_are_found_on_the_device() {
        let rt = crate::Runtime::builder().threads(1).without_calibration().build().unwrap();
        let x = crate::Tensor::zeros(&[8, 64], DType::F32).unwrap();
        let over = crate::ops::reduce::Over::from(-1);
        let workload = rt.workloads(|rt| rt.argmax(&x, over)).unwrap().remove(0);
        let (found, _) = ask(least(), &workload, &TuningConstraints::default());
        assert_eq!(found.backend, BackendKind::WebGpu);
    }

    #[test]
    fn a_compiled_pipeline_comes_first_among_equals() {
        let (state, none) = (SystemState::default(), TuningConstraints::default());
        let mut strategy = WebGpuStrategy::new("adapter", least(), GpuRates::default());
        let ask = |strategy: &mut WebGpuStrategy| {
            let found = strategy.tune_for_workload(&relu(&[1 << 20], None), &state, &none).unwrap();
            let BackendPlan::WebGpu(plan) = found.best.plan.clone() else { panic!() };
            (found, plan.compiled)
        };
        let (found, compiled) = ask(&mut strategy);
        assert!(!compiled);
        let other = found.alternatives[0].parameters.clone();
        let feedback = crate::tuning::Feedback {
            workload: relu(&[1 << 19], None),
            parameters: other.clone(),
            outcome: Ok(1e-3),
            default_seconds: None,
            joules: None,
        };
        strategy.update_from_feedback(&feedback).unwrap();
        let (found, compiled) = ask(&mut strategy);
        assert_eq!((found.best.parameters, compiled), (other, true));
    }

    #[test]
    fn abilities_are_used_where_the_adapter_has_them() {
        let none = TuningConstraints::default();
        let able = GpuLimits { subgroup: Some((8, 32)), f16: true, ..least() };
        let (_, plan) = ask(able.clone(), &typed_matmul(256, 256, 256, DType::F16), &none);
        assert!(plan.subgroups && plan.f16);
        let (_, plan) = ask(able, &matmul(256, 256, 256), &none);
        assert!(plan.subgroups && !plan.f16);
        let (_, plan) = ask(least(), &typed_matmul(256, 256, 256, DType::F16), &none);
        assert!(!plan.subgroups && !plan.f16);
    }

    #[test]
    fn modes_change_the_workgroup_and_levels_the_unrolling() {
        let with = |mode, level| TuningConstraints { power_mode: Some(mode), level, ..Default::default() };
        let group = |mode| {
            let constraints = with(mode, OptimisationLevel::Balanced);
            ask(least(), &matmul(512, 512, 512), &constraints).1.workgroup.iter().product::<u32>()
        };
        assert!(group(PowerMode::Saving) < group(PowerMode::Performance));
        let unroll = |level| {
            let constraints = with(PowerMode::Performance, level);
            ask(least(), &matmul(512, 512, 512), &constraints).0.best.parameters.get(Knob::Unroll)
        };
        assert_eq!(unroll(OptimisationLevel::Light), Some(1));
        assert_eq!(unroll(OptimisationLevel::Full), Some(16));
    }
}
