//! Backends: families of devices, each with its memory, its way of launching and its clock.

pub mod cpu;
#[cfg(feature = "webgpu")]
pub mod webgpu;

use std::sync::Arc;

use crate::device::BackendKind;
use crate::error::{Error, Result};
use crate::ops::Kernel;
use crate::runtime::Placement;

/// The kernels of devices other than the CPU that a placement allows; an error if it asks for a device that is not there.
pub(crate) fn kernels(placement: Placement) -> Result<Vec<Arc<dyn Kernel>>> {
    match placement {
        Placement::On(BackendKind::Cpu) => Ok(Vec::new()),
        #[cfg(feature = "webgpu")]
        Placement::Auto => Ok(webgpu::kernels_of_hardware()),
        #[cfg(feature = "webgpu")]
        Placement::On(BackendKind::WebGpu) => webgpu::kernels_of_any(),
        #[cfg(not(feature = "webgpu"))]
        Placement::Auto => Ok(Vec::new()),
        Placement::On(kind) => Err(Error::Unsupported {
            what: format!("placement on {kind}"),
            reason: "this build has no such backend; WebGPU needs the feature `webgpu`".into(),
        }),
    }
}
