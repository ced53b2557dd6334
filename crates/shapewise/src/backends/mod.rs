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
        Placement::Auto => Ok(hardware()),
        #[cfg(feature = "webgpu")]
        Placement::On(BackendKind::WebGpu) => on_webgpu(true).map_err(|error| Error::Unsupported {
            what: "placement on webgpu".into(),
            reason: format!(
                "{error}; on Debian `apt-get install mesa-vulkan-drivers` gives a software device"
            ),
        }),
        #[cfg(not(feature = "webgpu"))]
        Placement::Auto => Ok(Vec::new()),
        Placement::On(kind) => Err(Error::Unsupported {
            what: format!("placement on {kind}"),
            reason: match kind {
                BackendKind::WebGpu => "build the library with the feature `webgpu`".into(),
                _ => "there are no kernels for it yet; use cpu or webgpu".into(),
            },
        }),
    }
}

/// The kernels of a GPU that is more than software, which would only compete with the CPU for its cores.
#[cfg(feature = "webgpu")]
fn hardware() -> Vec<Arc<dyn Kernel>> {
    if !may_have_gpu() {
        return Vec::new();
    }
    on_webgpu(false).unwrap_or_else(|error| {
        tracing::debug!(%error, "no WebGPU device takes part");
        Vec::new()
    })
}

#[cfg(all(feature = "webgpu", target_family = "wasm"))]
fn on_webgpu(_: bool) -> webgpu::Result<Vec<Arc<dyn Kernel>>> {
    Err(webgpu::WebGpuError::Unsupported {
        what: "to open a device while a runtime is built",
        reason:
            "browsers open devices only asynchronously; use `open_async` and run kernels on the device itself"
                .into(),
    })
}

#[cfg(all(feature = "webgpu", not(target_family = "wasm")))]
fn on_webgpu(software: bool) -> webgpu::Result<Vec<Arc<dyn Kernel>>> {
    let device = webgpu::shared_device(software)?;
    let kernels = crate::ops::OperationKind::ALL.iter().flat_map(|o| o.webgpu_kernels()).copied();
    webgpu::kernels_on(&device, kernels)
}

/// Whether looking for a GPU is worth the tenth of a second that drivers take: on Linux they all need a device file.
#[cfg(feature = "webgpu")]
fn may_have_gpu() -> bool {
    if !cfg!(target_os = "linux") {
        return true;
    }
    let nodes = std::fs::read_dir("/dev/dri").into_iter().flatten().flatten();
    let mut names = nodes.map(|node| node.file_name());
    names.any(|name| name.to_string_lossy().starts_with("renderD"))
        || ["/dev/nvidiactl", "/dev/dxg"].iter().any(|file| std::path::Path::new(file).exists())
}
