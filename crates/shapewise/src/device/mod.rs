//! Devices: what was found, what it can do at most.

mod calibration;
mod fingerprint;
mod info;
mod peaks;

pub use calibration::{CALIBRATION_VERSION, Calibration, calibrate};
pub use fingerprint::Fingerprint;
pub use info::{BackendKind, Caches, DeviceInfo, NumaNode};
pub use peaks::{ArithmeticPeak, BandwidthPeak, Level, Peaks};

/// A family of devices: finds them on this machine.
pub trait Backend: Send + Sync {
    /// Which family.
    fn kind(&self) -> BackendKind;

    /// The devices that are there, best first; empty when there are none.
    fn find(&self) -> Vec<DeviceInfo>;
}

/// One open device.
pub trait Device: Send + Sync {
    /// What was found about it.
    fn info(&self) -> &DeviceInfo;

    /// Waits until all work given to it is done.
    fn synchronise(&self) -> crate::Result<()>;
}
