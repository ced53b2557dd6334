//! Power, batteries, and what the user asked for.

use super::machine::Files;
use super::{PowerMode, SystemState};

/// A counter of energy that starts anew at its end.
#[derive(Debug)]
pub(super) struct Energy {
    joules: f64,
    end: Option<f64>,
}

/// The counters of the processors; parts of a processor are counted in it already.
pub(super) fn energy(files: &Files) -> Vec<Energy> {
    let counter = |zone: &String| {
        let micro = |name: &str| files.number(&format!("{zone}/{name}")).map(|number| number / 1e6);
        Some(Energy { joules: micro("energy_uj")?, end: micro("max_energy_range_uj") })
    };
    packages(files).iter().filter_map(counter).collect()
}

/// Watts between two readings; `None` unless every counter can be compared.
pub(super) fn watts(before: &[Energy], now: &[Energy], seconds: f64) -> Option<f64> {
    if now.is_empty() || before.len() != now.len() {
        return None;
    }
    let used = before.iter().zip(now).map(|(then, now)| {
        let used = now.joules - then.joules;
        if used >= 0.0 { Some(used) } else { now.end.map(|end| used + end) }
    });
    used.sum::<Option<f64>>().map(|joules| joules / seconds)
}

pub(super) fn read(files: &Files, state: &mut SystemState) {
    let limits =
        packages(files).into_iter().map(|zone| files.number(&format!("{zone}/constraint_0_power_limit_uw")));
    state.power_limit = limits.flatten().reduce(|a, b| a + b).map(|microwatts| microwatts / 1e6);
    supplies(files, state);
    state.power_mode = mode(files);
}

fn packages(files: &Files) -> Vec<String> {
    let is_package =
        |zone: &String| files.text(&format!("{zone}/name")).is_some_and(|name| name.starts_with("package"));
    files.all("sys/class/powercap").into_iter().filter(is_package).collect()
}

fn supplies(files: &Files, state: &mut SystemState) {
    let mut charges = Vec::new();
    for supply in files.all("sys/class/power_supply") {
        let word = |name: &str| files.text(&format!("{supply}/{name}")).map(|text| text.trim().to_owned());
        // Mice and headsets have batteries too, and say so.
        if word("type").as_deref() != Some("Battery") || word("scope").as_deref() == Some("Device") {
            continue;
        }
        charges.extend(files.number(&format!("{supply}/capacity")).map(|percent| percent / 100.0));
        let discharging = word("status").map(|status| status == "Discharging");
        state.on_battery = state.on_battery.into_iter().chain(discharging).reduce(|a, b| a || b);
    }
    if !charges.is_empty() {
        state.battery = Some(charges.iter().sum::<f64>() / charges.len() as f64);
    }
}

/// The platform's profile; without one the preference, and without that the governor of the first core.
fn mode(files: &Files) -> Option<PowerMode> {
    let word = |path: &str| files.text(path).map(|text| text.trim().to_owned());
    if let Some(profile) = word("sys/firmware/acpi/platform_profile") {
        return named(&profile);
    }
    let cpu = "sys/devices/system/cpu/cpu0/cpufreq";
    if let Some(preference) = word(&format!("{cpu}/energy_performance_preference")) {
        return named(&preference);
    }
    match word(&format!("{cpu}/scaling_governor"))?.as_str() {
        "performance" => Some(PowerMode::Performance),
        "powersave" => Some(PowerMode::Saving),
        "ondemand" | "conservative" | "schedutil" => Some(PowerMode::Balanced),
        _ => None,
    }
}

fn named(word: &str) -> Option<PowerMode> {
    match word {
        "performance" => Some(PowerMode::Performance),
        "balanced" | "balance_performance" | "balanced-performance" | "balance_power" | "default" => {
            Some(PowerMode::Balanced)
        }
        "power" | "low-power" | "quiet" | "cool" => Some(PowerMode::Saving),
        _ => None,
    }
}
