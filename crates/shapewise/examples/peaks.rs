//! Measures this machine (or reads what was measured before) and prints its peaks.

use shapewise::Runtime;

fn main() -> shapewise::Result<()> {
    let start = std::time::Instant::now();
    let runtime = Runtime::new()?;
    let info = runtime.device_info();
    println!("{}, {} threads, after {:.2} s", info.name, info.threads, start.elapsed().as_secs_f64());
    let Some(peaks) = &info.peaks else {
        println!("not calibrated");
        return Ok(());
    };
    for peak in &peaks.arithmetic {
        let isa = peak.unit.isa.map_or("scalar", |isa| isa.name());
        let rate = peak.operations_per_second * 1e-9;
        println!("{:>6} {isa:>9} {:>3} threads {rate:>8.2} Gop/s", peak.unit.dtype, peak.threads);
    }
    for peak in &peaks.bandwidth {
        let [read, copy, stream] = [peak.read, peak.copy, peak.stream].map(|rate| rate * 1e-9);
        let (level, threads) = (format!("{:?}", peak.level), peak.threads);
        println!(
            "{level:>6} {threads:>3} threads: read {read:.1}, copy {copy:.1}, past the caches {stream:.1} GB/s"
        );
    }
    for (what, seconds) in [("hand-over", peaks.hand_off), ("wake-up", peaks.wake)] {
        if let Some(seconds) = seconds {
            println!("{what}: {:.2} µs", seconds * 1e6);
        }
    }
    println!("busy meanwhile: {}", peaks.busy);
    Ok(())
}
