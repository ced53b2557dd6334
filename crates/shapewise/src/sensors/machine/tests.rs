use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::sensors::PowerMode;

/// A made-up machine: files in a folder of their own.
struct Tree {
    root: PathBuf,
}

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name =
            format!("shapewise-sensors-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let tree = Self { root: std::env::temp_dir().join(name) };
        tree.write(files);
        tree
    }

    fn write(&self, files: &[(&str, &str)]) {
        fs::create_dir_all(&self.root).unwrap();
        for (path, text) in files {
            let path = self.root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    fn sample(&self) -> SystemState {
        Machine::at(&self.root).sample()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.root).unwrap();
    }
}

#[test]
fn a_machine_that_tells_nothing_has_no_state() {
    let tree = Tree::new(&[]);
    let state = tree.sample();
    assert_eq!(SystemState { at: None, ..state }, SystemState::default());
}

#[test]
fn load_is_what_was_busy_between_two_samples() {
    let own = |ticks: u32| format!("7 (a ) name) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 10 0 0 20 0 1 0");
    let tree = Tree::new(&[
        ("proc/stat", "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 2 3\n"),
        ("proc/self/stat", &own(40)),
    ]);
    let mut machine = Machine::at(&tree.root);
    let first = machine.sample();
    assert_eq!((first.load, first.own_load), (None, None));
    tree.write(&[("proc/stat", "cpu  140 0 110 740 110 0 0 0 90 0\n"), ("proc/self/stat", &own(65))]);
    let second = machine.sample();
    assert_eq!((second.load, second.own_load), (Some(0.5), Some(0.25)));
    // The clock did not tick: nothing is known, rather than no load.
    assert_eq!(machine.sample().load, None);
}

#[test]
fn memory_and_its_stalls() {
    let tree = Tree::new(&[
        ("proc/meminfo", "MemTotal:        1000 kB\nMemFree: 1 kB\nMemAvailable:     250 kB\n"),
        ("proc/pressure/memory", "some avg10=12.50 avg60=0.00 total=1\nfull avg10=3.00 avg60=0.00 total=1\n"),
    ]);
    let state = tree.sample();
    assert_eq!((state.memory_total, state.memory_available), (Some(1000 << 10), Some(250 << 10)));
    assert_eq!(state.memory_stall, Some(0.125));
}

#[test]
fn heat_is_the_hottest_processor_sensor() {
    let tree = Tree::new(&[
        ("sys/class/thermal/thermal_zone0/type", "x86_pkg_temp\n"),
        ("sys/class/thermal/thermal_zone0/temp", "61000\n"),
        ("sys/class/thermal/thermal_zone0/trip_point_0_type", "passive\n"),
        ("sys/class/thermal/thermal_zone0/trip_point_0_temp", "90000\n"),
        ("sys/class/thermal/thermal_zone0/trip_point_1_type", "critical\n"),
        ("sys/class/thermal/thermal_zone0/trip_point_1_temp", "105000\n"),
        ("sys/class/thermal/thermal_zone1/type", "iwlwifi\n"),
        ("sys/class/thermal/thermal_zone1/temp", "99000\n"),
        ("sys/class/hwmon/hwmon2/name", "coretemp\n"),
        ("sys/class/hwmon/hwmon2/temp1_input", "64500\n"),
        ("sys/class/hwmon/hwmon2/temp1_crit", "100000\n"),
        ("sys/class/hwmon/hwmon2/temp2_input", "-273000\n"),
    ]);
    let state = tree.sample();
    assert_eq!((state.temperature, state.temperature_limit), (Some(64.5), Some(100.0)));
}

#[test]
fn throttling_is_a_count_that_grew() {
    let count = "sys/devices/system/cpu/cpu1/thermal_throttle/core_throttle_count";
    let tree =
        Tree::new(&[("sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", "4"), (count, "7")]);
    let mut machine = Machine::at(&tree.root);
    assert_eq!(machine.sample().throttled, None);
    assert_eq!(machine.sample().throttled, Some(false));
    tree.write(&[(count, "8")]);
    assert_eq!(machine.sample().throttled, Some(true));
}

#[test]
fn clocks_are_those_of_cores_only() {
    let tree = Tree::new(&[
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", "1000000\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq", "3000000\n"),
        ("sys/devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "4000000\n"),
        ("sys/devices/system/cpu/cpufreq/scaling_cur_freq", "9000000\n"),
    ]);
    let state = tree.sample();
    assert_eq!((state.clock, state.clock_limit), (Some(2e9), Some(4e9)));
}

#[test]
fn power_is_energy_over_time_even_where_the_counter_starts_anew() {
    let zone = "sys/class/powercap/intel-rapl:0";
    let file = |name: &str| format!("{zone}/{name}");
    let (name, energy, end, limit) =
        (file("name"), file("energy_uj"), file("max_energy_range_uj"), file("constraint_0_power_limit_uw"));
    let tree = Tree::new(&[
        (&name, "package-0\n"),
        (&energy, "9000000\n"),
        (&end, "10000000\n"),
        (&limit, "65000000\n"),
        ("sys/class/powercap/intel-rapl:0:0/name", "core\n"),
        ("sys/class/powercap/intel-rapl:0:0/energy_uj", "5000000\n"),
    ]);
    let mut machine = Machine::at(&tree.root);
    let first = machine.sample();
    assert_eq!((first.power, first.power_limit), (None, Some(65.0)));
    tree.write(&[(&energy, "1000000\n")]);
    let before = machine.before.as_ref().unwrap().at;
    let watts = machine.sample().power.unwrap();
    let seconds = machine.before.as_ref().unwrap().at.duration_since(before).as_secs_f64();
    assert!((watts * seconds - 2.0).abs() < 1e-9, "two joules, not {}", watts * seconds);
}

#[test]
fn batteries_of_the_machine_count_and_those_of_mice_do_not() {
    let tree = Tree::new(&[
        ("sys/class/power_supply/AC/type", "Mains\n"),
        ("sys/class/power_supply/BAT0/type", "Battery\n"),
        ("sys/class/power_supply/BAT0/status", "Discharging\n"),
        ("sys/class/power_supply/BAT0/capacity", "40\n"),
        ("sys/class/power_supply/mouse/type", "Battery\n"),
        ("sys/class/power_supply/mouse/scope", "Device\n"),
        ("sys/class/power_supply/mouse/capacity", "90\n"),
    ]);
    let state = tree.sample();
    assert_eq!((state.on_battery, state.battery), (Some(true), Some(0.4)));
    tree.write(&[("sys/class/power_supply/BAT0/status", "Charging\n")]);
    assert_eq!(tree.sample().on_battery, Some(false));
}

#[test]
fn the_mode_is_the_platforms_then_the_preference_then_the_governor() {
    let cpu = "sys/devices/system/cpu/cpu0/cpufreq";
    let (governor, preference) =
        (format!("{cpu}/scaling_governor"), format!("{cpu}/energy_performance_preference"));
    let tree = Tree::new(&[(&governor, "powersave\n")]);
    assert_eq!(tree.sample().power_mode, Some(PowerMode::Saving));
    tree.write(&[(&preference, "balance_performance\n")]);
    assert_eq!(tree.sample().power_mode, Some(PowerMode::Balanced));
    tree.write(&[("sys/firmware/acpi/platform_profile", "performance\n")]);
    assert_eq!(tree.sample().power_mode, Some(PowerMode::Performance));
    tree.write(&[("sys/firmware/acpi/platform_profile", "turbo-of-tomorrow\n")]);
    assert_eq!(tree.sample().power_mode, None);
}

#[test]
fn traffic_and_occupancy_where_the_system_counts_them() {
    let file = |part: u32, name: &str| format!("sys/fs/resctrl/mon_data/mon_L3_0{part}/{name}");
    let tree = Tree::new(&[
        (&file(0, "mbm_total_bytes"), "1000\n"),
        (&file(1, "mbm_total_bytes"), "500\n"),
        (&file(0, "llc_occupancy"), "4096\n"),
        (&file(1, "llc_occupancy"), "Unavailable\n"),
    ]);
    let mut machine = Machine::at(&tree.root);
    assert_eq!(machine.sample().cache_occupied, Some(4096));
    tree.write(&[(&file(1, "mbm_total_bytes"), "2500\n")]);
    let before = machine.before.as_ref().unwrap().at;
    let rate = machine.sample().memory_traffic.unwrap();
    let seconds = machine.before.as_ref().unwrap().at.duration_since(before).as_secs_f64();
    assert!((rate * seconds - 2000.0).abs() < 1e-6);
}

#[test]
#[cfg(target_os = "linux")]
fn this_machine_has_memory() {
    let state = Machine::new().sample();
    assert!(state.memory_available.unwrap() <= state.memory_total.unwrap());
}

#[test]
fn the_node_is_that_of_the_core_that_reads() {
    let stat = format!("7 (a ) name) R {} 5 0 0", ["0"; 35].join(" "));
    let tree = Tree::new(&[
        ("proc/thread-self/stat", &stat),
        ("sys/devices/system/cpu/cpu5/node1/cpulist", "4-7"),
        ("sys/devices/system/cpu/cpu5/topology/core_id", "1"),
    ]);
    assert_eq!(tree.sample().node, Some(1));
    assert_eq!(Tree::new(&[("proc/thread-self/stat", &stat)]).sample().node, None, "its node is not told");
}
