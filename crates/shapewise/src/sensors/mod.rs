//! What the machine is doing: load, memory, heat, power, clock, battery. Read from the operating system off the hot path;
//! what cannot be read is `None`, and nothing stands in for it.
//!
//! ```
//! use shapewise::sensors::{Machine, Sensors};
//! let mut machine = Machine::new();
//! machine.sample(); // rates need two samples
//! let state = machine.sample();
//! if let (Some(left), Some(all)) = (state.memory_available, state.memory_total) {
//!     assert!(left <= all);
//! }
//! ```

mod machine;
mod monitor;
mod nvidia;
#[cfg(any(target_os = "macos", windows))]
mod other;
mod power;
mod trace;

use serde::{Deserialize, Serialize};

pub use machine::Machine;
pub use monitor::Monitor;
pub use nvidia::{GpuState, Throttle};
pub use trace::{Replay, Trace, TraceError};

/// The state of the machine at one moment. Rates are over the time since the sample before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SystemState {
    /// Seconds since 1970 when it was read.
    pub at: Option<f64>,
    /// The share of all cores' time that was busy, 0 to 1.
    pub load: Option<f64>,
    /// The share of all cores' time that this process used.
    pub own_load: Option<f64>,
    /// Bytes of memory.
    pub memory_total: Option<u64>,
    /// Bytes that programs can still get without swapping.
    pub memory_available: Option<u64>,
    /// The share of the last ten seconds in which some task waited for memory, 0 to 1.
    pub memory_stall: Option<f64>,
    /// Degrees Celsius of the hottest part of the processor.
    pub temperature: Option<f64>,
    /// Degrees at which the machine protects itself.
    pub temperature_limit: Option<f64>,
    /// Whether the processor slowed down because of heat.
    pub throttled: Option<bool>,
    /// Hertz, mean over the cores.
    pub clock: Option<f64>,
    /// The highest clock of any core.
    pub clock_limit: Option<f64>,
    /// Watts that the processor draws.
    pub power: Option<f64>,
    /// Watts that it may draw for long.
    pub power_limit: Option<f64>,
    /// Whether the machine runs on its battery; `None` without one.
    pub on_battery: Option<bool>,
    /// Charge of the battery, 0 to 1.
    pub battery: Option<f64>,
    /// What the user asked of the machine.
    pub power_mode: Option<PowerMode>,
    /// Bytes per second between memory and the last cache, of all programs.
    pub memory_traffic: Option<f64>,
    /// Bytes of the last cache that are in use, of all programs.
    pub cache_occupied: Option<u64>,
    /// The node of memory that the reading thread ran on.
    pub node: Option<usize>,
    /// NVIDIA's GPUs, in their driver's order; none without a driver.
    pub gpus: Vec<GpuState>,
}

/// How a machine trades speed for power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerMode {
    /// As fast as it goes.
    Performance,
    /// The system decides.
    Balanced,
    /// As frugal as it goes.
    Saving,
}

/// Something that tells the state of a machine: the machine itself, or what was recorded of one.
pub trait Sensors: Send {
    /// The state now.
    fn sample(&mut self) -> SystemState;
}

impl SystemState {
    /// Bytes per second that memory can still move, given the measured peak.
    pub fn memory_traffic_left(&self, peak: f64) -> Option<f64> {
        self.memory_traffic.map(|used| (peak - used).max(0.0))
    }

    /// The share of the last cache that is in use, given its size.
    pub fn cache_pressure(&self, size: u64) -> Option<f64> {
        self.cache_occupied.filter(|_| size > 0).map(|used| (used as f64 / size as f64).min(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_is_used() {
        let state =
            SystemState { memory_traffic: Some(3e9), cache_occupied: Some(1 << 20), ..Default::default() };
        assert_eq!(state.memory_traffic_left(10e9), Some(7e9));
        assert_eq!(state.memory_traffic_left(1e9), Some(0.0));
        assert_eq!(state.cache_pressure(4 << 20), Some(0.25));
        assert_eq!(state.cache_pressure(0), None);
        assert_eq!(SystemState::default().memory_traffic_left(1e9), None);
        assert_eq!(SystemState::default().cache_pressure(1), None);
    }
}
