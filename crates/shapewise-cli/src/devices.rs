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
    let mut out = format!("{} · {}\n", info.backend, info.name);
    out += &format!("  threads       {}\n", info.threads);
    out += &format!("  instructions  {}\n", isas.join(", "));
    let c = &info.caches;
    out += &format!("  caches        L1 {}, L2 {}, L3 {}\n", size(c.l1d), size(c.l2), size(c.l3));
    match &info.peaks {
        Some(peaks) => out + &measured(peaks),
        None => out + "  peaks         not measured\n",
    }
}

fn measured(peaks: &Peaks) -> String {
    let mut out = String::from("  measured peaks\n");
    for p in &peaks.arithmetic {
        let isa = p.unit.isa.map_or("scalar".to_owned(), |isa| isa.to_string());
        let rate = p.operations_per_second / 1e9;
        out += &format!("    {:<5} {isa:<9} {} threads {rate:>10.1} GOP/s\n", p.unit.dtype, p.threads);
    }
    for p in &peaks.bandwidth {
        out += &format!(
            "    {:<15} {} threads {:>10.1} GB/s read, {:.1} copy, {:.1} streaming\n",
            format!("{:?}", p.level),
            p.threads,
            p.read / 1e9,
            p.copy / 1e9,
            p.stream / 1e9
        );
    }
    let micros = |s: Option<f64>| s.map_or("unknown".to_owned(), |s| format!("{:.2} µs", s * 1e6));
    out + &format!("    hand-over       {} warm, {} asleep\n", micros(peaks.hand_off), micros(peaks.wake))
}
