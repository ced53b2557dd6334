//! NVIDIA's GPUs, read through the library that their driver brings (NVML). Without a driver there are none.

use serde::{Deserialize, Serialize};

use super::SystemState;

/// What one GPU is doing. What its driver does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuState {
    /// Its name.
    pub name: Option<String>,
    /// The share of the last moments in which a kernel ran, 0 to 1.
    pub load: Option<f64>,
    /// Bytes of memory.
    pub memory_total: Option<u64>,
    /// Bytes that are free.
    pub memory_available: Option<u64>,
    /// Degrees Celsius.
    pub temperature: Option<f64>,
    /// Degrees at which it slows down.
    pub temperature_limit: Option<f64>,
    /// Watts that it draws.
    pub power: Option<f64>,
    /// Watts that it may draw.
    pub power_limit: Option<f64>,
    /// Hertz of the multiprocessors.
    pub clock: Option<f64>,
    /// The highest clock.
    pub clock_limit: Option<f64>,
    /// Why the clock is below the highest; empty where nothing holds it down.
    pub throttle: Option<Vec<Throttle>>,
}

/// Why a GPU runs slower than it could.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Throttle {
    /// Nothing runs on it.
    Idle,
    /// Somebody set the clocks.
    Clocks,
    /// It draws as much as it may.
    Power,
    /// It is too hot.
    Heat,
    /// The power supply or the board pulled the brake.
    Brake,
    /// Another GPU of its group holds it back.
    Group,
}

/// Bits of NVML's throttle reasons (`nvmlClocksThrottleReason…` in `nvml.h`); two hardware slowdowns and the supply's are brakes.
const REASONS: [(u64, Throttle); 9] = [
    (0x1, Throttle::Idle),
    (0x2, Throttle::Clocks),
    (0x4, Throttle::Power),
    (0x8, Throttle::Brake),
    (0x10, Throttle::Group),
    (0x20, Throttle::Heat),
    (0x40, Throttle::Heat),
    (0x80, Throttle::Brake),
    (0x100, Throttle::Clocks),
];

/// Numbers as the driver tells them, in its units.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Readings {
    name: Option<String>,
    /// Percent.
    utilisation: Option<u32>,
    /// Bytes.
    memory_total: Option<u64>,
    memory_free: Option<u64>,
    /// Degrees Celsius.
    temperature: Option<u32>,
    slowdown_temperature: Option<u32>,
    /// Milliwatts.
    power: Option<u32>,
    power_limit: Option<u32>,
    /// Megahertz.
    clock: Option<u32>,
    clock_limit: Option<u32>,
    /// Bits.
    throttle: Option<u64>,
}

impl From<Readings> for GpuState {
    fn from(read: Readings) -> Self {
        Self {
            name: read.name,
            load: read.utilisation.map(|percent| (f64::from(percent) / 100.0).min(1.0)),
            memory_total: read.memory_total,
            memory_available: read.memory_free,
            temperature: read.temperature.map(f64::from),
            temperature_limit: read.slowdown_temperature.map(f64::from),
            power: read.power.map(|milliwatts| f64::from(milliwatts) / 1e3),
            power_limit: read.power_limit.map(|milliwatts| f64::from(milliwatts) / 1e3),
            clock: read.clock.map(|megahertz| f64::from(megahertz) * 1e6),
            clock_limit: read.clock_limit.map(|megahertz| f64::from(megahertz) * 1e6),
            throttle: read.throttle.map(reasons),
        }
    }
}

/// The reasons whose bits are set, each once.
fn reasons(bits: u64) -> Vec<Throttle> {
    let mut found = Vec::new();
    for (bit, reason) in REASONS {
        if bits & bit != 0 && !found.contains(&reason) {
            found.push(reason);
        }
    }
    found
}

impl GpuState {
    /// Whether heat, power or a brake slows it down.
    pub fn throttled(&self) -> Option<bool> {
        let slows = |reason: &Throttle| matches!(reason, Throttle::Power | Throttle::Heat | Throttle::Brake);
        self.throttle.as_ref().map(|reasons| reasons.iter().any(slows))
    }
}

impl SystemState {
    /// The state as work on a GPU sees it: load, memory, heat, power and clock are the GPU's, the rest is the machine's. `None`
    /// where nothing is known of such a GPU.
    pub fn of_gpu(&self, index: usize) -> Option<Self> {
        let gpu = self.gpus.get(index)?;
        Some(Self {
            load: gpu.load,
            // Which share of it is ours the driver does not tell.
            own_load: None,
            memory_total: gpu.memory_total,
            memory_available: gpu.memory_available,
            temperature: gpu.temperature,
            temperature_limit: gpu.temperature_limit,
            throttled: gpu.throttled(),
            clock: gpu.clock,
            clock_limit: gpu.clock_limit,
            power: gpu.power,
            power_limit: gpu.power_limit,
            memory_traffic: None,
            cache_occupied: None,
            memory_stall: None,
            ..self.clone()
        })
    }
}

/// The driver's library, if it is there.
#[derive(Default)]
pub(super) struct Gpus {
    #[cfg(feature = "nvidia")]
    library: Option<nvml_wrapper::Nvml>,
}

impl Gpus {
    /// Opens the library; without a driver there is none, and that is no news.
    pub fn find() -> Self {
        Self {
            #[cfg(feature = "nvidia")]
            library: nvml_wrapper::Nvml::init().ok(),
        }
    }

    /// Every GPU's state, in the driver's order.
    pub fn read(&self) -> Vec<GpuState> {
        self.readings().into_iter().map(GpuState::from).collect()
    }

    #[cfg(feature = "nvidia")]
    fn readings(&self) -> Vec<Readings> {
        let Some(library) = &self.library else { return Vec::new() };
        let count = library.device_count().unwrap_or(0);
        (0..count).filter_map(|i| library.device_by_index(i).ok()).map(|device| readings(&device)).collect()
    }

    #[cfg(not(feature = "nvidia"))]
    #[allow(clippy::unused_self)] // nobody can be asked without the feature
    fn readings(&self) -> Vec<Readings> {
        Vec::new()
    }
}

impl std::fmt::Debug for Gpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gpus")
    }
}

#[cfg(feature = "nvidia")]
fn readings(device: &nvml_wrapper::Device<'_>) -> Readings {
    use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor, TemperatureThreshold};
    let memory = device.memory_info().ok();
    Readings {
        name: device.name().ok(),
        utilisation: device.utilization_rates().ok().map(|rates| rates.gpu),
        memory_total: memory.as_ref().map(|memory| memory.total),
        memory_free: memory.as_ref().map(|memory| memory.free),
        temperature: device.temperature(TemperatureSensor::Gpu).ok(),
        slowdown_temperature: device.temperature_threshold(TemperatureThreshold::Slowdown).ok(),
        power: device.power_usage().ok(),
        power_limit: device.enforced_power_limit().ok(),
        clock: device.clock_info(Clock::Graphics).ok(),
        clock_limit: device.max_clock_info(Clock::Graphics).ok(),
        throttle: device.current_throttle_reasons().ok().map(|reasons| reasons.bits()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensors::{Sensors, Trace};

    /// Readings of a card that begins idle, works, gets hot and is held back by its supply; an old one tells little.
    const READINGS: &str = r#"[
        {"name":"A","utilisation":0,"memory_total":8589934592,"memory_free":8000000000,"temperature":41,"slowdown_temperature":90,
         "power":18250,"power_limit":220000,"clock":210,"clock_limit":1950,"throttle":1},
        {"name":"A","utilisation":100,"memory_total":8589934592,"memory_free":1000000000,"temperature":78,"slowdown_temperature":90,
         "power":219500,"power_limit":220000,"clock":1800,"clock_limit":1950,"throttle":4},
        {"name":"A","utilisation":99,"temperature":91,"clock":900,"throttle":104},
        {"name":"A","utilisation":60,"clock":900,"throttle":136},
        {"name":"A","utilisation":100,"clock":1950,"throttle":0},
        {"name":"old"}
    ]"#;

    fn states() -> Vec<GpuState> {
        let readings: Vec<Readings> = serde_json::from_str(READINGS).unwrap();
        readings.into_iter().map(GpuState::from).collect()
    }

    #[test]
    fn readings_become_states_in_plain_units() {
        let states = states();
        let busy = &states[1];
        assert_eq!((busy.load, busy.memory_available), (Some(1.0), Some(1_000_000_000)));
        assert_eq!((busy.temperature, busy.temperature_limit), (Some(78.0), Some(90.0)));
        assert_eq!((busy.power, busy.power_limit), (Some(219.5), Some(220.0)));
        assert_eq!((busy.clock, busy.clock_limit), (Some(1.8e9), Some(1.95e9)));
        let why: Vec<_> = states.iter().map(|s| s.throttle.clone()).collect();
        let all = [
            Some(vec![Throttle::Idle]),
            Some(vec![Throttle::Power]),
            Some(vec![Throttle::Brake, Throttle::Heat]),
            Some(vec![Throttle::Brake]),
            Some(Vec::new()),
            None,
        ];
        assert_eq!(why, all);
        let slowed: Vec<_> = states.iter().map(GpuState::throttled).collect();
        assert_eq!(slowed, [Some(false), Some(true), Some(true), Some(true), Some(false), None]);
        assert_eq!(
            GpuState { name: None, ..states[5].clone() },
            GpuState::default(),
            "what is not told is unknown"
        );
    }

    #[test]
    fn a_recording_of_gpus_can_be_replayed() {
        let machine = |gpu: GpuState| SystemState {
            load: Some(0.1),
            temperature: Some(50.0),
            on_battery: Some(true),
            gpus: vec![gpu],
            ..Default::default()
        };
        let trace = Trace { states: states().into_iter().map(machine).collect() };
        let mut file = Vec::new();
        trace.write(&mut file).unwrap();
        let mut replay = Trace::read(&file[..]).unwrap().replay();
        replay.sample();
        let state = replay.sample();
        let seen = state.of_gpu(0).unwrap();
        assert_eq!((seen.load, seen.temperature, seen.power), (Some(1.0), Some(78.0), Some(219.5)));
        assert_eq!((seen.throttled, seen.on_battery), (Some(true), Some(true)));
        assert_eq!(state.of_gpu(1), None);
        assert_eq!((state.temperature, state.load), (Some(50.0), Some(0.1)), "the machine's own stay");
    }

    #[test]
    fn without_a_driver_there_are_no_gpus() {
        assert_eq!(Gpus::default().read(), Vec::new());
    }
}
