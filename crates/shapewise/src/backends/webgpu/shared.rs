//! The one device that all runtimes of a process share.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::backend::WebGpuBackend;
use super::device::WebGpuDevice;
use super::error::{Result, WebGpuError};
use super::info::AdapterKind;

/// The best device, measured and open for as long as somebody holds it; one that is only software if `software` allows it.
pub fn shared_device(software: bool) -> Result<Arc<WebGpuDevice>> {
    static OPEN: Mutex<Weak<WebGpuDevice>> = Mutex::new(Weak::new());
    // Held while opening and measuring, so that two runtimes never measure at the same time.
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |kind: AdapterKind| software || kind != AdapterKind::Cpu;
    if let Some(device) = open.upgrade().filter(|device| !device.is_lost() && fits(device.adapter().kind)) {
        return Ok(device);
    }
    let backend = WebGpuBackend::builder().calibrate(true).build()?;
    if !fits(backend.adapter().kind) {
        return Err(WebGpuError::NoAdapter {
            asked: "of hardware".into(),
            found: vec![backend.adapter().name],
        });
    }
    let device = Arc::new(backend.open()?);
    *open = Arc::downgrade(&device);
    Ok(device)
}
