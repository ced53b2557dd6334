//! `shapewise devices`: what was found and measured, and what the machine is doing.

use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;
use shapewise::backends::webgpu::WebGpuBackend;
use shapewise::device::{BackendKind, Device, DeviceInfo, Peaks};
use shapewise::sensors::{Machine, Sensors, SystemState};
use shapewise::{Placement, Runtime, StoreLocation};

use crate::output;

/// Between the two samples that rates are made of: a few ticks of the system's clock.
const BETWEEN_SAMPLES: Duration = Duration::from_millis(50);

/// The device, and the state of the machine beside it.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    device: &'a DeviceInfo,
    state: SystemState,
    /// The device that WebGPU would use.
    webgpu: Option<DeviceInfo>,
    /// Backends without a device here, and why.
    absent: Vec<(BackendKind, String)>,
}

/// Prints the device of a runtime.
pub fn print(runtime: &Runtime, json: bool) -> Result<()> {
    let device = runtime.device_info();
    let mut machine = Machine::new();
    machine.sample();
    std::thread::sleep(BETWEEN_SAMPLES);
    let state = machine.sample();
    let webgpu = webgpu(device.peaks.is_some());
    let mut absent = absent();
    let mut shown = format!("{}{}", text(device), sensed(&state));
    let webgpu = match webgpu {
        Ok(found) => {
            shown += &gpu(&found);
            Some(found)
        }
        Err(why) => {
            absent.insert(0, (BackendKind::WebGpu, why.to_string()));
            None
        }
    };
    for (backend, why) in &absent {
        // Writing to a string cannot fail.
        let _ = writeln!(shown, "{backend} · not available: {why}");
    }
    output::print(json, &Shown { device, state, webgpu, absent }, &shown)
}

/// The best WebGPU device, measured if the CPU was.
fn webgpu(measured: bool) -> shapewise::Result<DeviceInfo> {
    let backend = WebGpuBackend::builder().calibrate(measured).build()?;
    Ok(backend.open()?.info().clone())
}

/// A GPU for people.
fn gpu(info: &DeviceInfo) -> String {
    let mut lines = vec![
        format!("{} · {}", info.backend, info.name),
        format!("  driver        {}", info.model.as_deref().unwrap_or("unknown")),
        format!("  features      {}", info.features.join(", ")),
    ];
    lines.extend(info.peaks.iter().flat_map(measured));
    lines.join("\n") + "\n"
}

/// Backends that have no device here, and why.
fn absent() -> Vec<(BackendKind, String)> {
    let others = [BackendKind::Cuda, BackendKind::Metal];
    let why = |kind: BackendKind| {
        let builder = Runtime::builder().placement(Placement::On(kind)).store(StoreLocation::None);
        Some((kind, builder.without_calibration().build().err()?.to_string()))
    };
    others.into_iter().filter_map(why).collect()
}

/// What the sensors tell, one line for each kind of them; what they do not is said to be unknown.
fn sensed(state: &SystemState) -> String {
    let known =
        |value: Option<f64>, unit: &str| value.map_or("unknown".to_owned(), |v| format!("{v:.1}{unit}"));
    let percent = |share: Option<f64>| known(share.map(|s| s * 100.0), " %");
    let gigabytes = |bytes: Option<u64>| known(bytes.map(|b| b as f64 / f64::from(1 << 30)), " GiB");
    let gigahertz = |hertz: Option<f64>| known(hertz.map(|h| h / 1e9), " GHz");
    let heat = match state.throttled {
        Some(true) => ", slowed down by heat",
        Some(false) => "",
        None => ", throttling unknown",
    };
    let supply = match (state.on_battery, state.battery) {
        (Some(true), charge) => format!(", on battery at {}", percent(charge)),
        (Some(false), charge) => format!(", plugged in, battery at {}", percent(charge)),
        (None, _) => String::new(),
    };
    let mode = state.power_mode.map_or(String::new(), |mode| format!(", mode {mode:?}").to_lowercase());
    let lines = [
        String::from("  sensors"),
        format!("    load            {}, of which ours {}", percent(state.load), percent(state.own_load)),
        format!(
            "    memory          {} of {} left",
            gigabytes(state.memory_available),
            gigabytes(state.memory_total)
        ),
        format!(
            "    temperature     {}, limit {}{heat}",
            known(state.temperature, " °C"),
            known(state.temperature_limit, " °C")
        ),
        format!("    clock           {}, at most {}", gigahertz(state.clock), gigahertz(state.clock_limit)),
        format!(
            "    power           {}, limit {}{supply}{mode}",
            known(state.power, " W"),
            known(state.power_limit, " W")
        ),
    ];
    let gpus = state.gpus.iter().map(|gpu| {
        let why: Vec<String> =
            gpu.throttle.iter().flatten().map(|t| format!("{t:?}").to_lowercase()).collect();
        let held = if why.is_empty() { String::new() } else { format!(", held down by {}", why.join(", ")) };
        format!(
            "    {:<15} load {}, memory {} of {} left, {} of {}, {} of {}, {} of {}{held}",
            gpu.name.as_deref().unwrap_or("GPU"),
            percent(gpu.load),
            gigabytes(gpu.memory_available),
            gigabytes(gpu.memory_total),
            known(gpu.temperature, " °C"),
            known(gpu.temperature_limit, " °C"),
            known(gpu.power, " W"),
            known(gpu.power_limit, " W"),
            gigahertz(gpu.clock),
            gigahertz(gpu.clock_limit)
        )
    });
    lines.into_iter().chain(gpus).collect::<Vec<_>>().join("\n") + "\n"
}

fn text(info: &DeviceInfo) -> String {
    let size = |bytes: Option<usize>| bytes.map_or("unknown".to_owned(), |b| format!("{} KiB", b >> 10));
    let isas: Vec<_> = info.isas.iter().map(ToString::to_string).collect();
    let c = &info.caches;
    let mut lines = vec![
        format!("{} · {}", info.backend, info.name),
        format!("  threads       {}", info.threads),
        format!("  instructions  {}", isas.join(", ")),
        format!("  caches        L1 {}, L2 {}, L3 {}", size(c.l1d), size(c.l2), size(c.l3)),
    ];
    match &info.peaks {
        Some(peaks) => lines.extend(measured(peaks)),
        None => lines.push("  peaks         not measured".into()),
    }
    lines.join("\n") + "\n"
}

fn measured(peaks: &Peaks) -> Vec<String> {
    let mut lines = vec![String::from("  measured peaks")];
    lines.extend(peaks.arithmetic.iter().map(|p| {
        let isa = p.unit.isa.map_or("scalar".to_owned(), |isa| isa.to_string());
        let rate = p.operations_per_second / 1e9;
        format!("    {:<5} {isa:<9} {} threads {rate:>10.1} GOP/s", p.unit.dtype, p.threads)
    }));
    lines.extend(peaks.bandwidth.iter().map(|p| {
        let level = format!("{:?}", p.level);
        let [read, copy, stream] = [p.read, p.copy, p.stream].map(|rate| rate / 1e9);
        format!(
            "    {level:<15} {} threads {read:>10.1} GB/s read, {copy:.1} copy, {stream:.1} streaming",
            p.threads
        )
    }));
    let micros = |s: Option<f64>| s.map_or("unknown".to_owned(), |s| format!("{:.2} µs", s * 1e6));
    lines.push(format!("    hand-over       {} warm, {} asleep", micros(peaks.hand_off), micros(peaks.wake)));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use shapewise::sensors::{GpuState, PowerMode, Throttle};

    #[test]
    fn what_sensors_do_not_tell_is_unknown() {
        let text = sensed(&SystemState::default());
        assert!(text.contains("load            unknown") && text.contains("throttling unknown"), "{text}");
        let state = SystemState {
            temperature: Some(71.25),
            throttled: Some(true),
            on_battery: Some(true),
            battery: Some(0.5),
            power_mode: Some(PowerMode::Saving),
            ..Default::default()
        };
        let text = sensed(&state);
        assert!(text.contains("71.2 °C") && text.contains("slowed down by heat"), "{text}");
        assert!(text.contains("on battery at 50.0 %, mode saving"), "{text}");
        let throttle = Some(vec![Throttle::Power, Throttle::Heat]);
        let gpu = GpuState { name: Some("A".into()), power: Some(219.5), throttle, ..Default::default() };
        let text = sensed(&SystemState { gpus: vec![gpu], ..Default::default() });
        assert!(text.contains("A               load unknown"), "{text}");
        assert!(text.contains("219.5 W of unknown") && text.contains("held down by power, heat"), "{text}");
    }
}
