//! What a profile holds, and its form as a Chrome trace, which Perfetto and `chrome://tracing` open.

use std::time::Duration;

use serde_json::{Value, json};

use super::profiler::{Clock, MemoryEvent};

/// One run of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelEvent {
    /// The kernel's name.
    pub label: String,
    /// When it began, since the profile was started.
    pub start: Duration,
    /// How long it took.
    pub duration: Duration,
}

/// Something that happened to memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemoryRecord {
    /// What.
    pub event: MemoryEvent,
    /// How many bytes.
    pub bytes: u64,
    /// When it began, since the profile was started.
    pub start: Duration,
    /// How long it took; zero for allocations and releases.
    pub duration: Duration,
    /// Bytes allocated and reserved afterwards, for allocations and releases.
    pub held: Option<(u64, u64)>,
}

/// Everything recorded between start and stop.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Where the kernels' times come from.
    pub clock: Clock,
    /// Kernels, in the order of time.
    pub kernels: Vec<KernelEvent>,
    /// Copies, allocations and releases, in the order of time.
    pub memory: Vec<MemoryRecord>,
}

/// The rows of the trace.
const KERNELS: u32 = 1;
const COPIES: u32 = 2;

impl Profile {
    /// The profile in Chrome's trace format.
    pub fn to_chrome_trace(&self) -> String {
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let row = |tid, name| json!({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}});
        let clock = match self.clock {
            Clock::Gpu => "GPU timestamps",
            Clock::Wall => "host clock around each kernel",
        };
        let mut events = vec![row(KERNELS, format!("kernels ({clock})")), row(COPIES, "copies".into())];
        events.extend(self.kernels.iter().map(|kernel| {
            json!({"ph": "X", "pid": 1, "tid": KERNELS, "cat": "kernel", "name": kernel.label,
                "ts": micros(kernel.start), "dur": micros(kernel.duration)})
        }));
        events.extend(self.memory.iter().map(|record| match record.held {
            Some((allocated, reserved)) => json!({"ph": "C", "pid": 1, "name": "device memory",
                "ts": micros(record.start), "args": {"allocated": allocated, "reserved": reserved}}),
            None => json!({"ph": "X", "pid": 1, "tid": COPIES, "cat": "copy", "name": format!("{:?}", record.event),
                "ts": micros(record.start), "dur": micros(record.duration), "args": {"bytes": record.bytes}}),
        }));
        let trace: Value =
            json!({"traceEvents": events, "displayTimeUnit": "ns", "otherData": {"clock": clock}});
        trace.to_string()
    }

    /// Time of all kernels together.
    pub fn kernel_time(&self) -> Duration {
        self.kernels.iter().map(|kernel| kernel.duration).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_json_that_holds_every_event() {
        let start = Duration::from_micros(5);
        let duration = Duration::from_nanos(1500);
        let profile = Profile {
            clock: Clock::Gpu,
            kernels: vec![KernelEvent { label: "a \"quoted\" name".into(), start, duration }],
            memory: vec![
                MemoryRecord { event: MemoryEvent::Upload, bytes: 64, start, duration, held: None },
                MemoryRecord {
                    event: MemoryEvent::Allocate,
                    bytes: 64,
                    start,
                    duration: Duration::ZERO,
                    held: Some((64, 256)),
                },
            ],
        };
        let trace: Value = serde_json::from_str(&profile.to_chrome_trace()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 5);
        assert_eq!(events[2]["name"], "a \"quoted\" name");
        assert_eq!((&events[2]["ts"], &events[2]["dur"]), (&json!(5.0), &json!(1.5)));
        assert_eq!(events[3]["args"]["bytes"], 64);
        assert_eq!(events[4]["args"]["reserved"], 256);
        assert_eq!(profile.kernel_time(), duration);
    }
}
