//! The trait of WGSL kernels: pure functions from a workload to a plan.

use super::{Plan, WebGpuLimits};
use crate::ops::{OperationKind, ParameterSpace, Parameters, Refusals, Variant, Workload};

/// One WGSL implementation of one operation.
pub trait WebGpuKernel: Send + Sync {
    /// `webgpu::operation::speciality`.
    fn name(&self) -> &'static str;

    /// The operation it computes.
    fn operation(&self) -> OperationKind;

    /// What kind of implementation it is.
    fn variant(&self) -> Variant;

    /// A hash of its source files.
    fn source(&self) -> u64;

    /// Whether it can run the workload within these limits, with every reason why not.
    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals>;

    /// The parameters worth considering, the favourite first; every point keeps to the limits.
    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace;

    /// Arithmetic operations and bytes of device memory that it moves.
    fn cost(&self, workload: &Workload, parameters: &Parameters) -> WebGpuCost;

    /// What the device has to do. Operands of the plan are the workload's operands, each in a buffer of its own with element `[0, 0, …]` first
    /// and the strides of the workload.
    fn plan(&self, workload: &Workload, parameters: &Parameters, limits: &WebGpuLimits) -> Plan;
}

/// What a WGSL kernel executes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WebGpuCost {
    /// Arithmetic operations.
    pub operations: f64,
    /// Bytes between the device's memory and its cores.
    pub bytes: f64,
}
