//! The device that runtimes of this process share, and its kernels.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::adaptor::DeviceKernel;
use super::backend::WebGpuBackend;
use super::device::WebGpuDevice;
use super::error::Result as DeviceResult;
use super::info::AdapterKind;
use crate::error::{Error, Result};
use crate::ops::{Kernel, OperationKind};

/// Every kernel on the best adapter, if that is hardware: software would only compete with the CPU for its cores.
pub(crate) fn kernels_of_hardware() -> Vec<Arc<dyn Kernel>> {
    shared(|backend| !backend.adapters().iter().all(|adapter| adapter.kind == AdapterKind::Cpu))
        .unwrap_or_else(|error| {
            tracing::debug!(%error, "no WebGPU device takes part");
            Vec::new()
        })
}

/// Every kernel on the best adapter, whatever it is.
pub(crate) fn kernels_of_any() -> Result<Vec<Arc<dyn Kernel>>> {
    shared(|_| true).map_err(|error| Error::Unsupported {
        what: "placement on webgpu".into(),
        reason: format!("{error}; on Debian `apt-get install mesa-vulkan-drivers` gives a software device"),
    })
}

/// Kernels on the device that is open already, or on the best adapter if it is wanted.
fn shared(wanted: impl FnOnce(&WebGpuBackend) -> bool) -> DeviceResult<Vec<Arc<dyn Kernel>>> {
    static OPEN: Mutex<Weak<WebGpuDevice>> = Mutex::new(Weak::new());
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let backend = WebGpuBackend::builder().calibrate(true).build()?;
    if !wanted(&backend) {
        return Ok(Vec::new());
    }
    let device = match open.upgrade().filter(|device| !device.is_lost()) {
        Some(device) => device,
        None => Arc::new(backend.open()?),
    };
    *open = Arc::downgrade(&device);
    let kernels = OperationKind::ALL.iter().flat_map(|operation| operation.webgpu_kernels());
    Ok(kernels.map(|&kernel| Arc::new(DeviceKernel::new(kernel, Arc::clone(&device))) as _).collect())
}
