//! The sensors of a machine. On Linux they are small files under `/proc` and `/sys`; on macOS and Windows the system is asked for
//! load and memory, and the rest is `None`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::nvidia::Gpus;
use super::{Sensors, SystemState, power};

/// The machine this program runs on.
#[derive(Debug)]
pub struct Machine {
    files: Files,
    gpus: Gpus,
    #[cfg(any(target_os = "macos", windows))]
    system: super::other::System,
    before: Option<Counters>,
}

/// Counters that only grow, at one moment.
#[derive(Debug)]
struct Counters {
    at: Instant,
    /// Ticks of all cores: busy, and all.
    ticks: Option<(f64, f64)>,
    /// Ticks of this process.
    own: Option<f64>,
    /// How often cores slowed down because of heat.
    throttled: Option<f64>,
    energy: Vec<power::Energy>,
    /// Bytes between memory and the last cache.
    traffic: Option<f64>,
}

impl Machine {
    /// The sensors of this machine, its GPUs included.
    pub fn new() -> Self {
        Self { gpus: Gpus::find(), ..Self::at(Path::new("/")) }
    }

    /// The sensors whose files lie under another root, as in a container that has the host's mounted.
    pub fn at(root: &Path) -> Self {
        Self {
            files: Files { root: root.to_owned() },
            gpus: Gpus::default(),
            #[cfg(any(target_os = "macos", windows))]
            system: super::other::System::default(),
            before: None,
        }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Sensors for Machine {
    fn sample(&mut self) -> SystemState {
        let files = &self.files;
        let now = Counters {
            at: Instant::now(),
            ticks: ticks(files),
            own: own_ticks(files),
            throttled: throttle_count(files),
            energy: power::energy(files),
            traffic: files.sum("sys/fs/resctrl/mon_data", "mbm_total_bytes"),
        };
        let mut state = SystemState {
            at: SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs_f64()),
            memory_stall: memory_stall(files),
            cache_occupied: files.sum("sys/fs/resctrl/mon_data", "llc_occupancy").map(|bytes| bytes as u64),
            node: node(files),
            gpus: self.gpus.read(),
            ..SystemState::default()
        };
        memory(files, &mut state);
        heat(files, &mut state);
        clock(files, &mut state);
        power::read(files, &mut state);
        if let Some(before) = &self.before {
            rates(before, &now, &mut state);
        }
        self.before = Some(now);
        #[cfg(any(target_os = "macos", windows))]
        self.system.read(&mut state);
        state
    }
}

fn rates(before: &Counters, now: &Counters, state: &mut SystemState) {
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    if let (Some((busy_then, all_then)), Some((busy, all))) = (before.ticks, now.ticks) {
        let passed = all - all_then;
        // Two samples within one tick of the clock tell nothing.
        if passed > 0.0 {
            state.load = Some(((busy - busy_then) / passed).clamp(0.0, 1.0));
            let own = before.own.zip(now.own).map(|(then, now)| now - then);
            state.own_load = own.map(|own| (own / passed).clamp(0.0, 1.0));
        }
    }
    state.throttled = before.throttled.zip(now.throttled).map(|(then, now)| now > then);
    if seconds > 0.0 {
        state.power = power::watts(&before.energy, &now.energy, seconds);
        let moved = before.traffic.zip(now.traffic).map(|(then, now)| (now - then).max(0.0));
        state.memory_traffic = moved.map(|bytes| bytes / seconds);
    }
}

/// Busy and all ticks since the start: everything but idle and waiting for disks is busy.
fn ticks(files: &Files) -> Option<(f64, f64)> {
    let text = files.text("proc/stat")?;
    let fields: Vec<f64> =
        text.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // Guests' time is part of the first two fields already.
    let all: f64 = fields.iter().take(8).sum();
    let idle = fields.get(3)? + fields.get(4).unwrap_or(&0.0);
    Some((all - idle, all))
}

/// Ticks of this process, in user and kernel mode.
fn own_ticks(files: &Files) -> Option<f64> {
    let text = files.text("proc/self/stat")?;
    // The name in brackets may hold anything, so fields are counted after it.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some(next()? + next()?)
}

/// The node of the core that this thread ran on last.
fn node(files: &Files) -> Option<usize> {
    let text = files.text("proc/thread-self/stat")?;
    // The 39th field; the name is the second.
    let core: usize = text.rsplit_once(')')?.1.split_whitespace().nth(36)?.parse().ok()?;
    let core = format!("sys/devices/system/cpu/cpu{core}");
    let node = files.folders(&core, "node").into_iter().next()?;
    node[core.len() + "/node".len()..].parse().ok()
}

fn memory(files: &Files, state: &mut SystemState) {
    let Some(text) = files.text("proc/meminfo") else { return };
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    state.memory_total = bytes("MemTotal:");
    state.memory_available = bytes("MemAvailable:");
}

fn memory_stall(files: &Files) -> Option<f64> {
    let text = files.text("proc/pressure/memory")?;
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent: f64 = some.split_whitespace().find_map(|word| word.strip_prefix("avg10="))?.parse().ok()?;
    Some(percent / 100.0)
}

/// Names of temperature sensors that belong to processors.
const PROCESSOR_SENSORS: [&str; 7] = ["cpu", "pkg", "soc", "core", "k10temp", "zenpower", "acpitz"];

fn heat(files: &Files, state: &mut SystemState) {
    let ours = |name: Option<String>| {
        let name = name.unwrap_or_default().to_lowercase();
        PROCESSOR_SENSORS.iter().any(|part| name.contains(part))
    };
    let (mut hottest, mut limit) = (None::<f64>, None::<f64>);
    for zone in files.folders("sys/class/thermal", "thermal_zone") {
        if !ours(files.text(&format!("{zone}/type"))) {
            continue;
        }
        hottest = larger(hottest, degrees(files, &format!("{zone}/temp")));
        for trip in 0..16 {
            let Some(kind) = files.text(&format!("{zone}/trip_point_{trip}_type")) else { break };
            if kind.trim() == "critical" {
                limit = smaller(limit, degrees(files, &format!("{zone}/trip_point_{trip}_temp")));
            }
        }
    }
    for chip in files.folders("sys/class/hwmon", "hwmon") {
        if !ours(files.text(&format!("{chip}/name"))) {
            continue;
        }
        for sensor in 1..64 {
            let Some(now) = degrees(files, &format!("{chip}/temp{sensor}_input")) else { break };
            hottest = larger(hottest, Some(now));
            limit = smaller(limit, degrees(files, &format!("{chip}/temp{sensor}_crit")));
        }
    }
    (state.temperature, state.temperature_limit) = (hottest, limit);
}

/// A temperature; what no processor survives is a sensor that is not connected.
fn degrees(files: &Files, path: &str) -> Option<f64> {
    files
        .number(path)
        .map(|thousandths| thousandths / 1000.0)
        .filter(|degrees| (-50.0..200.0).contains(degrees))
}

fn larger(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::max)
}

fn smaller(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    a.into_iter().chain(b).reduce(f64::min)
}

fn throttle_count(files: &Files) -> Option<f64> {
    let counts = files.folders("sys/devices/system/cpu", "cpu").into_iter().flat_map(|cpu| {
        ["core", "package"].map(|part| files.number(&format!("{cpu}/thermal_throttle/{part}_throttle_count")))
    });
    counts.flatten().reduce(|a, b| a + b)
}

fn clock(files: &Files, state: &mut SystemState) {
    let cpus = files.folders("sys/devices/system/cpu", "cpu");
    let hertz = |name: &str| -> Vec<f64> {
        let read = |cpu: &String| files.number(&format!("{cpu}/cpufreq/{name}"));
        cpus.iter().filter_map(read).map(|kilohertz| kilohertz * 1e3).collect()
    };
    let now = hertz("scaling_cur_freq");
    if !now.is_empty() {
        state.clock = Some(now.iter().sum::<f64>() / now.len() as f64);
    }
    state.clock_limit = hertz("cpuinfo_max_freq").into_iter().reduce(f64::max);
}

/// Small files under a root.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
}

impl Files {
    pub fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    pub fn number(&self, path: &str) -> Option<f64> {
        self.text(path)?.trim().parse().ok()
    }

    /// Folders in `path` named `prefix` and a number.
    pub fn folders(&self, path: &str, prefix: &str) -> Vec<String> {
        let mut folders = self.all(path);
        folders.retain(|folder| {
            let rest = folder[path.len() + 1..].strip_prefix(prefix);
            rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
        });
        folders
    }

    /// Every folder in `path`, in the order of their names.
    pub fn all(&self, path: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root.join(path)) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut folders: Vec<_> = names.map(|name| format!("{path}/{name}")).collect();
        folders.sort_unstable();
        folders
    }

    /// The sum of a number that each folder in `path` may have.
    fn sum(&self, path: &str, name: &str) -> Option<f64> {
        self.all(path)
            .iter()
            .filter_map(|folder| self.number(&format!("{folder}/{name}")))
            .reduce(|a, b| a + b)
    }
}

#[cfg(test)]
mod tests;
