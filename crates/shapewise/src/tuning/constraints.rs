//! What a user allows: hard limits. One that cannot be met is an error that names it and the nearest that can be.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::device::{BackendKind, DeviceInfo};
use crate::sensors::{PowerMode, SystemState};

/// How far tuning may go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimisationLevel {
    /// Leaves room for others: half of the CPU's cores, no unrolled GPU code.
    Light,
    /// One thread for each physical core, loops of GPU code unrolled four times.
    #[default]
    Balanced,
    /// Every thread that can run, loops of GPU code unrolled as deep as their tile.
    Full,
}

impl OptimisationLevel {
    /// Threads of a CPU that it may use.
    pub(super) fn threads(self, device: &DeviceInfo) -> usize {
        let physical = device.physical_cores.unwrap_or(device.cores).min(device.threads);
        let allowed = match self {
            Self::Light => physical / 2,
            Self::Balanced => physical,
            Self::Full => device.threads,
        };
        allowed.max(1)
    }
}

impl PowerMode {
    /// What threads cost beyond time: nothing when speed is all, as much as a core's time when power is all, and half of
    /// that (in logarithms) in between, so that a second thread must bring a factor of 1.4.
    pub(super) fn weight(self, threads: usize) -> f64 {
        let power = match self {
            Self::Performance => 0.0,
            Self::Balanced => 0.5,
            Self::Saving => 1.0,
        };
        (threads as f64).powf(power)
    }
}

/// Whether numbers may be computed in a narrower type than the operands have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accuracy {
    /// The operands' own type.
    #[default]
    Exact,
    /// Units that round inputs to fewer bits are allowed, such as TF32 for f32.
    Reduced,
}

/// Limits of a recommendation; `None` is no limit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TuningConstraints {
    /// Bytes of operands and scratch together.
    pub memory: Option<u64>,
    /// The longest that one call may take.
    pub latency: Option<Duration>,
    /// Arithmetic operations per second to reach.
    pub throughput: Option<f64>,
    /// Watts that may be drawn.
    pub power: Option<f64>,
    /// Degrees Celsius that must not be exceeded.
    pub temperature: Option<f64>,
    /// Joules that one call may cost.
    pub energy: Option<f64>,
    /// Whether the latency must hold at the upper end of the predicted interval, not only in the middle.
    pub real_time: bool,
    /// Threads at most, the caller included.
    pub threads: Option<usize>,
    /// Backends that may be used; `None` is all.
    pub backends: Option<Vec<BackendKind>>,
    /// Whether numbers may be rounded to a narrower type.
    pub accuracy: Accuracy,
    /// How far tuning may go.
    pub level: OptimisationLevel,
    /// How speed is traded for power; `None` follows the machine.
    pub power_mode: Option<PowerMode>,
}

/// Which of the constraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConstraintKind {
    /// Bytes.
    Memory,
    /// Seconds.
    Latency,
    /// Operations per second.
    Throughput,
    /// Watts.
    Power,
    /// Degrees Celsius.
    Temperature,
    /// Joules.
    Energy,
    /// Threads.
    Threads,
}

impl ConstraintKind {
    const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Memory => ("memory of at most", "bytes"),
            Self::Latency => ("latency of at most", "s"),
            Self::Throughput => ("throughput of at least", "operations/s"),
            Self::Power => ("power of at most", "W"),
            Self::Temperature => ("temperature of at most", "°C"),
            Self::Energy => ("energy of at most", "J"),
            Self::Threads => ("threads of at most", "threads"),
        }
    }
}

impl fmt::Display for ConstraintKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words().0)
    }
}

/// Why there is no recommendation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuningError {
    /// A constraint that no parameters meet.
    #[error("{constraint} {wanted} {unit} cannot be met; the nearest that can is {nearest} {unit}", unit = constraint.words().1)]
    Impossible {
        /// Which.
        constraint: ConstraintKind,
        /// What was asked for.
        wanted: f64,
        /// The nearest value that can be met.
        nearest: f64,
    },
    /// A constraint that nothing measured so far says anything about.
    #[error("whether {constraint} {wanted} {unit} holds is not known: {needs}", unit = constraint.words().1)]
    Unknown {
        /// Which.
        constraint: ConstraintKind,
        /// What was asked for.
        wanted: f64,
        /// What would have to be known.
        needs: &'static str,
    },
    /// This backend is not among the allowed ones.
    #[error(
        "the backend {backend} is not allowed; allowed are {allowed:?}, the nearest that can be met is {backend}"
    )]
    Backend {
        /// The strategy's backend.
        backend: BackendKind,
        /// What may be used.
        allowed: Vec<BackendKind>,
    },
    /// The library cannot do it.
    #[error(transparent)]
    Library(#[from] crate::Error),
}

/// What is known about a proposal before it runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    /// Bytes of operands and scratch.
    pub memory: u64,
    /// CPU threads.
    pub threads: usize,
    /// Seconds in the middle and at the upper end of the interval.
    pub seconds: Option<(f64, f64)>,
    /// Watts, from feedback that measured energy.
    pub watts: Option<f64>,
    /// Arithmetic operations of the workload.
    pub operations: f64,
}

/// Whether a value is above a limit; a limit that is no number is never kept.
fn exceeds(value: f64, limit: f64) -> bool {
    value > limit || value.is_nan() || limit.is_nan()
}

/// The constraint that an outlook breaks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Verdict {
    pub constraint: ConstraintKind,
    /// What was asked for.
    pub wanted: f64,
    /// What it would be; `None` where nothing tells.
    pub value: Option<f64>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self { constraint, wanted, value }, unit) = (self, self.constraint.words().1);
        match (constraint, value) {
            (ConstraintKind::Memory, Some(value)) => {
                write!(f, "needs {value} bytes, {wanted} are allowed")
            }
            (ConstraintKind::Threads, Some(value)) => {
                write!(f, "uses {value} threads, {wanted} are allowed")
            }
            (ConstraintKind::Throughput, Some(value)) => {
                write!(f, "reaches {value:.4e} {unit}, {wanted} are asked for")
            }
            (_, Some(value)) => write!(f, "takes {value:.4e} {unit}, {wanted} {unit} are allowed"),
            (_, None) => write!(f, "whether {constraint} {wanted} {unit} holds is not known"),
        }
    }
}

impl TuningConstraints {
    /// What does not depend on the parameters: the backend, and the state of the machine.
    pub(super) fn admit(&self, backend: BackendKind, state: &SystemState) -> Result<(), TuningError> {
        if let Some(allowed) = self.backends.as_ref().filter(|list| !list.contains(&backend)) {
            return Err(TuningError::Backend { backend, allowed: allowed.clone() });
        }
        self.admit_state(state)
    }

    /// Whether the state of the machine is one that is allowed at all.
    pub(super) fn admit_state(&self, state: &SystemState) -> Result<(), TuningError> {
        if let Some(wanted) = self.temperature {
            let constraint = ConstraintKind::Temperature;
            let needs = "the machine does not tell its temperature";
            let now = state.temperature.ok_or(TuningError::Unknown { constraint, wanted, needs })?;
            if exceeds(now, wanted) {
                return Err(TuningError::Impossible { constraint, wanted, nearest: now });
            }
        }
        if let (Some(wanted), Some(now)) = (self.power, state.power)
            && exceeds(now, wanted)
        {
            return Err(TuningError::Impossible { constraint: ConstraintKind::Power, wanted, nearest: now });
        }
        Ok(())
    }

    /// As they are on one device: the light level is a limit on threads.
    pub(super) fn on(&self, device: &DeviceInfo) -> Self {
        let light = (self.level == OptimisationLevel::Light).then(|| self.level.threads(device));
        Self { threads: self.threads.into_iter().chain(light).min(), ..self.clone() }
    }

    /// The constraint that an outlook breaks whatever time it takes.
    pub(super) fn broken_before(&self, outlook: &Outlook) -> Option<Verdict> {
        let broken =
            |constraint, value: f64, wanted: f64| Some(Verdict { constraint, wanted, value: Some(value) });
        if let Some(limit) = self.memory.filter(|&limit| outlook.memory > limit) {
            return broken(ConstraintKind::Memory, outlook.memory as f64, limit as f64);
        }
        if let Some(limit) = self.threads.filter(|&limit| outlook.threads > limit) {
            return broken(ConstraintKind::Threads, outlook.threads as f64, limit as f64);
        }
        None
    }

    /// The first constraint that an outlook breaks.
    pub(super) fn broken(&self, outlook: &Outlook, state: &SystemState) -> Option<Verdict> {
        let broken =
            |constraint, value: f64, wanted: f64| Some(Verdict { constraint, wanted, value: Some(value) });
        let unknown = |constraint, wanted: f64| Some(Verdict { constraint, wanted, value: None });
        if let Some(before) = self.broken_before(outlook) {
            return Some(before);
        }
        if let Some(limit) = self.latency.map(|limit| limit.as_secs_f64()) {
            let Some((middle, high)) = outlook.seconds else {
                return unknown(ConstraintKind::Latency, limit);
            };
            let counts = if self.real_time { high } else { middle };
            if counts > limit {
                return broken(ConstraintKind::Latency, counts, limit);
            }
        }
        if let Some(least) = self.throughput {
            let Some((middle, _)) = outlook.seconds else {
                return unknown(ConstraintKind::Throughput, least);
            };
            let rate = outlook.operations / middle;
            if exceeds(least, rate) {
                return broken(ConstraintKind::Throughput, rate, least);
            }
        }
        self.broken_power(outlook, state)
    }

    fn broken_power(&self, outlook: &Outlook, state: &SystemState) -> Option<Verdict> {
        let verdict =
            |constraint, wanted: f64, value: Option<f64>| Some(Verdict { constraint, wanted, value });
        // What the hardware itself never exceeds needs no measurement.
        let capped = |limit: f64| state.power_limit.is_some_and(|cap| cap <= limit);
        if let Some(limit) = self.power.filter(|&limit| !capped(limit)) {
            match outlook.watts {
                None => return verdict(ConstraintKind::Power, limit, None),
                Some(watts) if exceeds(watts, limit) => {
                    return verdict(ConstraintKind::Power, limit, Some(watts));
                }
                Some(_) => {}
            }
        }
        if let Some(limit) = self.energy {
            match outlook.watts.or(state.power_limit).zip(outlook.seconds) {
                None => return verdict(ConstraintKind::Energy, limit, None),
                Some((watts, (middle, _))) if exceeds(watts * middle, limit) => {
                    return verdict(ConstraintKind::Energy, limit, Some(watts * middle));
                }
                Some(_) => {}
            }
        }
        None
    }

    /// The error of a request whose every proposal breaks something: the constraint that stopped the one that came
    /// nearest to being allowed.
    pub(super) fn impossible(all: &[Verdict]) -> Option<TuningError> {
        let ratio = |verdict: &Verdict| match verdict.value {
            Some(value) if verdict.wanted > 0.0 && value > 0.0 => (value / verdict.wanted).ln().abs(),
            // Nothing at all was asked for: the least that there is comes nearest.
            Some(value) if verdict.wanted == 0.0 => f64::MAX.min(1e9 + value),
            _ => f64::INFINITY,
        };
        let Verdict { constraint, wanted, value } =
            *all.iter().min_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
        Some(match value {
            Some(nearest) => TuningError::Impossible { constraint, wanted, nearest },
            None => TuningError::Unknown {
                constraint,
                wanted,
                needs: "nothing measured or calibrated tells it; calibrate the device or give feedback first",
            },
        })
    }

    /// How speed is traded for power: what the user says, else the machine's mode, else frugal on a battery or when
    /// the machine slows down from heat, else as fast as it goes.
    pub fn mode(&self, state: &SystemState) -> PowerMode {
        let strained = state.on_battery == Some(true) || state.throttled == Some(true);
        let own = if strained { PowerMode::Saving } else { PowerMode::Performance };
        self.power_mode.or(state.power_mode).unwrap_or(own)
    }

    /// Every field as words that can be hashed: two constraints with the same words are the same.
    pub(super) fn words(&self) -> Vec<u64> {
        let number = |x: Option<f64>| x.map_or([0, 0], |x| [1, x.to_bits()]);
        let mut words = Vec::with_capacity(24);
        words.extend(self.memory.map_or([0, 0], |x| [1, x]));
        words.extend(self.latency.map_or([0, 0], |x| [1, x.as_nanos() as u64]));
        for x in [self.throughput, self.power, self.temperature, self.energy] {
            words.extend(number(x));
        }
        words.extend(self.threads.map_or([0, 0], |x| [1, x as u64]));
        let backend = |list: &Vec<BackendKind>| list.iter().fold(1, |bits, &b| bits | 2u64 << b as u64);
        words.push(self.backends.as_ref().map_or(0, backend));
        words.push(self.power_mode.map_or(0, |mode| 1 + mode as u64));
        words.push(u64::from(self.real_time) | (self.accuracy as u64) << 1 | (self.level as u64) << 2);
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTLOOK: Outlook =
        Outlook { memory: 1000, threads: 4, seconds: Some((1e-3, 2e-3)), watts: None, operations: 1e6 };

    fn kind(constraints: &TuningConstraints, outlook: &Outlook) -> Option<(ConstraintKind, Option<f64>)> {
        constraints.broken(outlook, &SystemState::default()).map(|v| (v.constraint, v.value))
    }

    #[test]
    fn every_limit_is_checked() {
        let none = TuningConstraints::default();
        assert_eq!(kind(&none, &OUTLOOK), None);
        let memory = TuningConstraints { memory: Some(999), ..none.clone() };
        assert_eq!(kind(&memory, &OUTLOOK), Some((ConstraintKind::Memory, Some(1000.0))));
        let threads = TuningConstraints { threads: Some(3), ..none.clone() };
        assert_eq!(kind(&threads, &OUTLOOK), Some((ConstraintKind::Threads, Some(4.0))));
        let latency = TuningConstraints { latency: Some(Duration::from_micros(1500)), ..none.clone() };
        assert_eq!(kind(&latency, &OUTLOOK), None);
        let real_time = TuningConstraints { real_time: true, ..latency.clone() };
        assert_eq!(kind(&real_time, &OUTLOOK), Some((ConstraintKind::Latency, Some(2e-3))));
        let unmeasured = Outlook { seconds: None, ..OUTLOOK };
        assert_eq!(kind(&latency, &unmeasured), Some((ConstraintKind::Latency, None)));
        let throughput = TuningConstraints { throughput: Some(1.1e9), ..none.clone() };
        assert_eq!(kind(&throughput, &OUTLOOK), Some((ConstraintKind::Throughput, Some(1e9))));
        let power = TuningConstraints { power: Some(10.0), ..none.clone() };
        assert_eq!(kind(&power, &OUTLOOK), Some((ConstraintKind::Power, None)));
        let hungry = Outlook { watts: Some(20.0), ..OUTLOOK };
        assert_eq!(kind(&power, &hungry), Some((ConstraintKind::Power, Some(20.0))));
        let energy = TuningConstraints { energy: Some(0.01), ..none };
        assert_eq!(kind(&energy, &hungry), Some((ConstraintKind::Energy, Some(0.02))));
        assert_eq!(kind(&energy, &Outlook { watts: Some(5.0), ..OUTLOOK }), None);
    }

    #[test]
    fn what_the_machine_never_exceeds_needs_no_measurement() {
        let power = TuningConstraints { power: Some(65.0), ..Default::default() };
        let capped = SystemState { power_limit: Some(45.0), ..Default::default() };
        assert_eq!(power.broken(&OUTLOOK, &capped), None);
    }

    #[test]
    fn the_state_of_the_machine_is_a_constraint_too() {
        let hot = SystemState { temperature: Some(91.0), power: Some(30.0), ..Default::default() };
        let limits = |temperature, power| TuningConstraints { power, temperature, ..Default::default() };
        let error = limits(Some(90.0), None).admit(BackendKind::Cpu, &hot).unwrap_err();
        assert_eq!(
            error.to_string(),
            "temperature of at most 90 °C cannot be met; the nearest that can is 91 °C"
        );
        assert!(limits(Some(95.0), Some(35.0)).admit(BackendKind::Cpu, &hot).is_ok());
        assert!(limits(None, Some(29.0)).admit(BackendKind::Cpu, &hot).is_err());
        assert!(limits(Some(f64::NAN), None).admit(BackendKind::Cpu, &hot).is_err());
        let error = limits(Some(90.0), None).admit(BackendKind::Cpu, &SystemState::default()).unwrap_err();
        assert!(error.to_string().ends_with("the machine does not tell its temperature"), "{error}");
        let gpu = TuningConstraints { backends: Some(vec![BackendKind::Cuda]), ..Default::default() };
        assert!(gpu.admit(BackendKind::Cpu, &hot).unwrap_err().to_string().contains("cpu is not allowed"));
    }

    #[test]
    fn the_nearest_to_being_allowed_is_named() {
        let takes = |value| Verdict { constraint: ConstraintKind::Latency, wanted: 1.0, value: Some(value) };
        let (slow, slower) = (takes(2.0), takes(3.0));
        let error = TuningConstraints::impossible(&[slower, slow]).unwrap();
        assert_eq!(error.to_string(), "latency of at most 1 s cannot be met; the nearest that can is 2 s");
        assert!(TuningConstraints::impossible(&[]).is_none());
    }

    #[test]
    fn a_battery_and_heat_ask_for_saving_unless_somebody_says_otherwise() {
        let none = TuningConstraints::default();
        let state = |on_battery, throttled, power_mode| SystemState {
            throttled,
            on_battery,
            power_mode,
            ..Default::default()
        };
        assert_eq!(none.mode(&SystemState::default()), PowerMode::Performance);
        assert_eq!(none.mode(&state(Some(true), None, None)), PowerMode::Saving);
        assert_eq!(none.mode(&state(None, Some(true), None)), PowerMode::Saving);
        assert_eq!(none.mode(&state(Some(true), None, Some(PowerMode::Balanced))), PowerMode::Balanced);
        let user = TuningConstraints { power_mode: Some(PowerMode::Performance), ..none };
        assert_eq!(user.mode(&state(Some(true), Some(true), None)), PowerMode::Performance);
    }

    #[test]
    fn every_field_changes_the_words() {
        let base = TuningConstraints::default();
        let all = [
            TuningConstraints { memory: Some(0), ..base.clone() },
            TuningConstraints { latency: Some(Duration::ZERO), ..base.clone() },
            TuningConstraints { throughput: Some(0.0), ..base.clone() },
            TuningConstraints { power: Some(0.0), ..base.clone() },
            TuningConstraints { temperature: Some(0.0), ..base.clone() },
            TuningConstraints { energy: Some(0.0), ..base.clone() },
            TuningConstraints { real_time: true, ..base.clone() },
            TuningConstraints { threads: Some(0), ..base.clone() },
            TuningConstraints { backends: Some(vec![]), ..base.clone() },
            TuningConstraints { backends: Some(vec![BackendKind::Cuda]), ..base.clone() },
            TuningConstraints { accuracy: Accuracy::Reduced, ..base.clone() },
            TuningConstraints { level: OptimisationLevel::Full, ..base.clone() },
            TuningConstraints { power_mode: Some(PowerMode::Performance), ..base.clone() },
        ];
        let mut words: Vec<_> = all.iter().chain([&base]).map(TuningConstraints::words).collect();
        words.sort();
        words.dedup();
        assert_eq!(words.len(), all.len() + 1);
    }
}
