//! What a page is made from.

use serde::{Deserialize, Serialize};

/// Everything that a page shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of the program that made it.
    pub version: String,
    /// When it was made, in milliseconds since 1970.
    pub made_at: i64,
    /// Where was measured.
    pub machine: Machine,
    /// What was measured.
    pub workloads: Vec<Workload>,
    /// How the gain grew while measuring, oldest first.
    pub progress: Vec<Progress>,
    /// Where it is kept.
    pub store: Store,
}

/// A device with its measured peaks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The name its maker gave it.
    pub name: String,
    /// Its family: `cpu`, `webgpu` …
    pub backend: String,
    /// What must be equal for measurements to count.
    pub fingerprint: String,
    /// Threads that can run at once.
    pub cores: Option<u64>,
    /// Threads that were used.
    pub threads: Option<u64>,
    /// Instruction sets, worst first.
    pub instructions: Vec<String>,
    /// Bytes of the data caches: first, second and third level.
    pub caches: [Option<u64>; 3],
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Measured arithmetic.
    pub compute: Vec<Compute>,
    /// Measured bandwidths.
    pub bandwidth: Vec<Bandwidth>,
    /// Seconds to hand work to threads that spin.
    pub hand_off: Option<f64>,
    /// Seconds to hand work to threads that sleep.
    pub wake: Option<f64>,
    /// Whether something else took the machine's time while the peaks were measured.
    pub busy: bool,
}

/// Measured peak of an arithmetic unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compute {
    /// Element type and instruction set, such as `f32 avx2`.
    pub unit: String,
    /// Threads that ran at once.
    pub threads: u64,
    /// Operations per second of all threads together.
    pub rate: f64,
}

/// Measured bandwidth of a level of memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// `L1`, `L2`, `L3` or `memory`.
    pub level: String,
    /// Threads that ran at once.
    pub threads: u64,
    /// Bytes read per second.
    pub read: f64,
    /// Bytes read and written per second by a copy.
    pub copy: f64,
    /// The same past the caches.
    pub stream: f64,
}

/// A time between two bounds, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// A time that was predicted without having seen the workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// Seconds.
    pub seconds: f64,
    /// Where the measured time should lie.
    pub interval: Interval,
    /// What it rests on: `roofline`, `learned` or `transfer`.
    pub basis: String,
}

/// A kernel with its parameters on one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Kernel name.
    pub kernel: String,
    /// Its parameters in words; may be empty.
    pub parameters: String,
    /// Seconds of a call.
    pub seconds: f64,
    /// Where the true time lies, from the scatter of the samples; `None` from a single one.
    pub interval: Option<Interval>,
    /// Samples behind it.
    pub samples: u64,
    /// Arithmetic operations that it executes, padding included.
    pub operations: Option<f64>,
    /// Seconds that the machine's peaks would allow it.
    pub limit: Option<f64>,
    /// What was predicted.
    pub predicted: Option<Predicted>,
}

/// An operation on shapes with every candidate that was timed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// The operation's name.
    pub operation: String,
    /// The workload in words.
    pub description: String,
    /// Bytes of all operands, each counted once.
    pub bytes: Option<f64>,
    /// Every candidate that was timed.
    pub candidates: Vec<Candidate>,
    /// The one that is chosen, as an index into the candidates.
    pub chosen: Option<usize>,
    /// The one that would run without any measurement.
    pub default: Option<usize>,
    /// Why it is chosen.
    pub why: Option<String>,
}

/// The gain after some of the measuring.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Candidates timed so far.
    pub timed: u64,
    /// Geometric mean over all workloads of default over best time known by then; what is not measured yet counts as 1.
    pub gain: f64,
}

/// The file that keeps the evidence.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Store {
    /// Where it is; `None` in memory.
    pub path: Option<String>,
    /// Its size in bytes.
    pub bytes: Option<u64>,
    /// Version of its tables.
    pub schema: Option<i64>,
    /// Whether every page of it could be read; `None` if nobody looked, otherwise what is broken.
    pub damage: Option<Result<(), String>>,
    /// Rows of all devices.
    pub rows: u64,
    /// Rows of other devices, which do not count here.
    pub elsewhere: u64,
    /// Rows of kernels whose code has changed since, which no longer count.
    pub stale: u64,
    /// Rows measured while the machine was busy with something else.
    pub busy: u64,
    /// When the oldest and the newest row were measured, in milliseconds since 1970.
    pub span: Option<(i64, i64)>,
    /// Rows of this device by operation.
    pub operations: Vec<Rows>,
}

/// Rows of one operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// The operation's name.
    pub operation: String,
    /// Its rows.
    pub rows: u64,
    /// Different workloads in them.
    pub workloads: u64,
}
