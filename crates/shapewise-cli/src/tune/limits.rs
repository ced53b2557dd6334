//! What a search must keep to, as the command line says it.

use std::time::Duration;

use clap::{Args, ValueEnum};
use shapewise::sensors::PowerMode;
use shapewise::tuning::{OptimisationLevel, TuningConstraints};

/// Hard limits of the search for parameters. With any of them nothing but the search runs.
#[derive(Args)]
#[command(next_help_heading = "Limits of the search")]
pub struct Limits {
    /// Bytes of operands and scratch together, such as 64M or 1.5G
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    max_memory: Option<u64>,
    /// The longest that one call may take: 200us, 1.5ms, 2s
    #[arg(long, value_name = "TIME", value_parser = short_time)]
    max_latency: Option<Duration>,
    /// The latency must hold for the longest call that was measured, not only for the usual one
    #[arg(long, requires = "max_latency")]
    real_time: bool,
    /// Arithmetic operations per second to reach, such as 2.5e9
    #[arg(long, value_name = "RATE", value_parser = positive)]
    min_throughput: Option<f64>,
    /// Threads at most, the caller included
    #[arg(long, value_name = "N")]
    max_threads: Option<usize>,
    /// Watts that may be drawn
    #[arg(long, value_name = "WATTS", value_parser = positive)]
    max_power: Option<f64>,
    /// Degrees Celsius of the processor
    #[arg(long, value_name = "DEGREES", value_parser = positive)]
    max_temperature: Option<f64>,
    /// Joules of one call
    #[arg(long, value_name = "JOULES", value_parser = positive)]
    max_energy: Option<f64>,
    /// How much of the machine may be used: light leaves half of the cores to others
    #[arg(long, value_enum, default_value_t = Level::Balanced)]
    level: Level,
    /// How threads are weighed against speed [default: speed alone]
    #[arg(long, value_enum)]
    power_mode: Option<Mode>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Light,
    Balanced,
    Full,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    Performance,
    Balanced,
    Saving,
}

impl Limits {
    /// As the library takes them.
    pub fn constraints(&self) -> TuningConstraints {
        TuningConstraints {
            memory: self.max_memory,
            latency: self.max_latency,
            throughput: self.min_throughput,
            power: self.max_power,
            temperature: self.max_temperature,
            energy: self.max_energy,
            real_time: self.real_time,
            threads: self.max_threads,
            level: match self.level {
                Level::Light => OptimisationLevel::Light,
                Level::Balanced => OptimisationLevel::Balanced,
                Level::Full => OptimisationLevel::Full,
            },
            power_mode: self.power_mode.map(|mode| match mode {
                Mode::Performance => PowerMode::Performance,
                Mode::Balanced => PowerMode::Balanced,
                Mode::Saving => PowerMode::Saving,
            }),
            ..TuningConstraints::default()
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| format!("`{text}` is not a number above zero; write 20 or 2.5e9"))
}

/// `1000`, `64M` or `1.5G`, in powers of 1024.
fn bytes(text: &str) -> Result<u64, String> {
    let (number, power) = match text.chars().next_back() {
        Some('K' | 'k') => (&text[..text.len() - 1], 10),
        Some('M') => (&text[..text.len() - 1], 20),
        Some('G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let count = number.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    let count = count.map(|n| n * f64::from(1u32 << power)).filter(|n| *n < u64::MAX as f64);
    count
        .map(|n| n as u64)
        .ok_or_else(|| format!("`{text}` is not a size; write bytes like 1000, or 64M, 1.5G"))
}

/// `200us`, `1.5ms` or `2s`.
fn short_time(text: &str) -> Result<Duration, String> {
    let units = [("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let number = unit.and_then(|(number, seconds)| Some(number.parse::<f64>().ok()? * seconds));
    let time = number.filter(|n| n.is_finite() && *n > 0.0).map(Duration::try_from_secs_f64);
    time.and_then(Result::ok).ok_or_else(|| format!("`{text}` is not a time; write 200us, 1.5ms or 2s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_as_people_write_them() {
        assert_eq!(["1000", "2k", "64M", "1.5G"].map(|t| bytes(t).unwrap()), [1000, 2048, 64 << 20, 3 << 29]);
        for wrong in ["", "M", "-1", "much", "1T", "inf"] {
            assert!(bytes(wrong).unwrap_err().contains("write bytes"), "{wrong}");
        }
        assert_eq!(short_time("200us").unwrap(), Duration::from_micros(200));
        assert_eq!(short_time("1.5ms").unwrap(), Duration::from_micros(1500));
        assert_eq!(short_time("2s").unwrap(), Duration::from_secs(2));
        for wrong in ["", "2", "0s", "-1ms", "soon", "infs"] {
            assert!(short_time(wrong).unwrap_err().contains("write 200us"), "{wrong}");
        }
        assert!(positive("0").is_err() && positive("nan").is_err() && positive("2.5e9").is_ok());
    }
}
