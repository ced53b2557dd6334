//! Finding adapters and opening them, again and again if need be.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::device::WebGpuDevice;
use super::error::{Result, WebGpuError};
use super::info::{AdapterInfo, AdapterKind};
use super::options::{Options, PowerPreference, Wanted, WebGpuBackendBuilder};
use crate::device::{Backend, BackendKind, DeviceInfo};
#[cfg(not(target_family = "wasm"))]
use crate::store::{CalibrationFiles, cache_directory};

/// Whatever Vulkan, Metal, DirectX 12 or a browser reaches.
///
/// ```no_run
/// use shapewise::backends::webgpu::WebGpuBackend;
///
/// let device = WebGpuBackend::builder().build()?.initialise()?;
/// let x = device.upload(&[1.0f32, 2.0, 3.0])?;
/// assert_eq!(device.download::<f32>(&x)?, [1.0, 2.0, 3.0]);
/// # Ok::<(), shapewise::backends::webgpu::WebGpuError>(())
/// ```
pub struct WebGpuBackend {
    options: Options,
    adapters: Vec<wgpu::Adapter>,
    chosen: usize,
    current: Mutex<Option<Arc<WebGpuDevice>>>,
}

impl WebGpuBackend {
    /// Its name.
    pub const NAME: &'static str = "WebGPU";

    /// Settings.
    pub fn builder() -> WebGpuBackendBuilder {
        WebGpuBackendBuilder::default()
    }

    pub(super) async fn find(options: Options) -> Result<Self> {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::PRIMARY;
        descriptor.flags =
            if options.debug { wgpu::InstanceFlags::debugging() } else { wgpu::InstanceFlags::empty() };
        let instance = wgpu::Instance::new(descriptor);
        let mut adapters = all_adapters(&instance, options.power).await;
        adapters.sort_by_key(|adapter| rank(AdapterInfo::of(adapter).kind, options.power));
        let kinds: Vec<_> = adapters.iter().map(AdapterInfo::of).collect();
        let chosen = choose(&kinds, &options)?;
        Ok(Self { options, adapters, chosen, current: Mutex::default() })
    }

    /// The adapters that were found, best first.
    pub fn adapters(&self) -> Vec<AdapterInfo> {
        self.adapters.iter().map(AdapterInfo::of).collect()
    }

    /// The adapter that was chosen.
    pub fn adapter(&self) -> AdapterInfo {
        AdapterInfo::of(&self.adapters[self.chosen])
    }

    fn current(&self) -> MutexGuard<'_, Option<Arc<WebGpuDevice>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the chosen adapter; does nothing if it is open, and opens it anew if it was lost or shut down.
    #[cfg(not(target_family = "wasm"))]
    pub fn initialise(&self) -> Result<Arc<WebGpuDevice>> {
        let mut current = self.current();
        if let Some(device) = current.as_ref().filter(|device| !device.is_lost()) {
            return Ok(Arc::clone(device));
        }
        let device = Arc::new(self.open()?);
        *current = Some(Arc::clone(&device));
        Ok(device)
    }

    /// The open device.
    pub fn device(&self) -> Result<Arc<WebGpuDevice>> {
        self.current().clone().ok_or(WebGpuError::NotInitialised)
    }

    /// Gives the device up with all its memory; `initialise` opens it again.
    pub fn shut_down(&self) {
        if let Some(device) = self.current().take() {
            device.shut_down();
        }
    }

    /// Another device on the chosen adapter, with a queue, memory and kernels of its own.
    #[cfg(not(target_family = "wasm"))]
    pub fn open(&self) -> Result<WebGpuDevice> {
        let mut device = pollster::block_on(self.open_async())?;
        if self.options.calibrate {
            device.calibrate(cache_directory().map(CalibrationFiles::new).as_ref())?;
        }
        Ok(device)
    }

    /// The same without blocking, for browsers; nothing is measured.
    pub async fn open_async(&self) -> Result<WebGpuDevice> {
        WebGpuDevice::open(&self.adapters[self.chosen], &self.options).await
    }
}

/// Every adapter; in browsers, which name none, the one they would give.
async fn all_adapters(instance: &wgpu::Instance, power: PowerPreference) -> Vec<wgpu::Adapter> {
    let adapters = instance.enumerate_adapters(wgpu::Backends::all()).await;
    if !adapters.is_empty() {
        return adapters;
    }
    let power_preference = match power {
        PowerPreference::HighPerformance => wgpu::PowerPreference::HighPerformance,
        PowerPreference::LowPower => wgpu::PowerPreference::LowPower,
    };
    let options = wgpu::RequestAdapterOptions { power_preference, ..Default::default() };
    instance.request_adapter(&options).await.into_iter().collect()
}

/// The place of the wanted adapter; the best one is first.
fn choose(found: &[AdapterInfo], options: &Options) -> Result<usize> {
    let missing = |asked: String| {
        let found = found.iter().map(|adapter| adapter.name.clone()).collect();
        WebGpuError::NoAdapter { asked, found }
    };
    match &options.wanted {
        Wanted::Index(index) if *index < found.len() => Ok(*index),
        Wanted::Index(index) => Err(missing(format!("number {index}"))),
        Wanted::Name(name) => {
            let wanted = name.to_lowercase();
            let is = |adapter: &AdapterInfo| adapter.name.to_lowercase().contains(&wanted);
            found.iter().position(is).ok_or_else(|| missing(format!("named `{name}`")))
        }
        Wanted::Any if found.is_empty() => Err(missing("of any kind".into())),
        Wanted::Any => Ok(0),
    }
}

/// The place of a kind of adapter among all kinds, best first.
fn rank(kind: AdapterKind, power: PowerPreference) -> u32 {
    let saving = power == PowerPreference::LowPower;
    match kind {
        AdapterKind::Discrete => u32::from(saving),
        AdapterKind::Integrated => u32::from(!saving),
        AdapterKind::Virtual => 2,
        AdapterKind::Other => 3,
        AdapterKind::Cpu => 4,
    }
}

impl Backend for WebGpuBackend {
    fn kind(&self) -> BackendKind {
        BackendKind::WebGpu
    }

    fn find(&self) -> Vec<DeviceInfo> {
        self.adapters().iter().map(AdapterInfo::device_info).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_order() {
        use AdapterKind::{Cpu, Discrete, Integrated, Other, Virtual};
        let sorted = |power| {
            let mut kinds = [Cpu, Other, Virtual, Integrated, Discrete];
            kinds.sort_by_key(|&kind| rank(kind, power));
            kinds
        };
        assert_eq!(sorted(PowerPreference::HighPerformance), [Discrete, Integrated, Virtual, Other, Cpu]);
        assert_eq!(sorted(PowerPreference::LowPower), [Integrated, Discrete, Virtual, Other, Cpu]);
    }
}
