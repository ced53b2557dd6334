//! `shapewise devices`: what was found and measured.

use anyhow::Result;
use shapewise::Runtime;
use shapewise::device::{DeviceInfo, Peaks};

/// Prints the device of a runtime.
pub fn print(runtime: &Runtime, json: bool) -> Result<()> {
    let info = runtime.device_info();
    if json {
        println!("{}", serde_json::to_string_pretty(info)?);
    } else {
        print!("{}", text(info));
    }
    Ok(())
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
