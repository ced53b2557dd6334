//! One row of evidence, and what it must satisfy.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::str::FromStr;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::StoreError;
use crate::device::Fingerprint;
use crate::ops::WorkloadKey;

/// The longest text in a row, in bytes: several times the longest description that the library writes.
pub const MAX_TEXT: usize = 4096;
/// The most features of a row: several times what the library derives from a workload and a candidate.
pub const MAX_FEATURES: usize = 512;
/// The longest time that counts as one run of a kernel, in seconds: a day.
pub const MAX_SECONDS: f64 = 86_400.0;

/// Names a row in every store it is ever copied to; written as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct EvidenceId(u128);

impl EvidenceId {
    /// A new name: 64 bits drawn for this process, then a sequence.
    pub fn new() -> Self {
        static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // A fork inherits the keys and the sequence, never the process id.
        let origin = KEYS.hash_one(std::process::id());
        Self(u128::from(origin) << 64 | u128::from(NEXT.fetch_add(1, Ordering::Relaxed)))
    }

    /// The name from its bits.
    pub const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }

    /// Its bits.
    pub const fn bits(self) -> u128 {
        self.0
    }
}

impl Default for EvidenceId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for EvidenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:032x}", self.0))
    }
}

impl fmt::Debug for EvidenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EvidenceId({self})")
    }
}

impl FromStr for EvidenceId {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self, StoreError> {
        let bits = crate::hash::parse_hex(text);
        bits.map(Self).ok_or_else(|| invalid("an id is 32 hexadecimal digits".into()))
    }
}

impl From<EvidenceId> for String {
    fn from(id: EvidenceId) -> Self {
        id.to_string()
    }
}

impl TryFrom<String> for EvidenceId {
    type Error = StoreError;

    fn try_from(text: String) -> Result<Self, StoreError> {
        text.parse()
    }
}

/// What was measured of one candidate on one workload, winner or not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// Its name; rows of the same name are the same row.
    pub id: EvidenceId,
    /// The device in the state that timings depend on.
    pub device: Fingerprint,
    /// The operation's name.
    pub operation: String,
    /// The workload.
    pub workload: WorkloadKey,
    /// The workload in words.
    pub description: String,
    /// The kernel's name.
    pub kernel: String,
    /// The kernel's [`source`](crate::ops::Kernel::source).
    #[serde(with = "hex")]
    pub source: u64,
    /// The kernel's parameters, as they are displayed.
    pub parameters: String,
    /// Seconds of one run.
    pub seconds: f64,
    /// Runs that the time was taken from.
    pub samples: u32,
    /// How far the samples lie apart, as a share of the time; `None` for one sample.
    pub spread: Option<f64>,
    /// Whether the machine was busy with something else: shown, never averaged in silence.
    pub busy: bool,
    /// Seconds that the roofline predicted.
    pub baseline: Option<f64>,
    /// What models learn from.
    pub features: Vec<f32>,
    /// Which features these are; rows of another version are not learned from.
    pub features_version: u32,
    /// When, in milliseconds since 1970.
    pub measured_at: i64,
}

impl Evidence {
    /// Whether every value can have been measured; the error says which one cannot.
    pub fn validate(&self) -> Result<(), StoreError> {
        let texts = [
            ("device", self.device.as_str()),
            ("operation", &self.operation),
            ("description", &self.description),
            ("kernel", &self.kernel),
            ("parameters", &self.parameters),
        ];
        for (name, text) in texts {
            if text.len() > MAX_TEXT {
                return Err(invalid(format!("{name} has {} bytes, at most {MAX_TEXT} are kept", text.len())));
            }
        }
        for (name, text) in [texts[0], texts[1], texts[3]] {
            if text.is_empty() {
                return Err(invalid(format!("{name} is empty")));
            }
        }
        time("seconds", self.seconds)?;
        self.baseline.map_or(Ok(()), |seconds| time("baseline", seconds))?;
        if let Some(spread) = self.spread.filter(|s| !s.is_finite() || *s < 0.0) {
            return Err(invalid(format!("spread is {spread}")));
        }
        if self.samples == 0 {
            return Err(invalid("no samples".into()));
        }
        if self.features.len() > MAX_FEATURES {
            let count = self.features.len();
            return Err(invalid(format!("{count} features, at most {MAX_FEATURES} are kept")));
        }
        if let Some(i) = self.features.iter().position(|x| !x.is_finite()) {
            return Err(invalid(format!("feature {i} is {}", self.features[i])));
        }
        if self.measured_at < 0 {
            return Err(invalid(format!("measured {} ms before 1970", -i128::from(self.measured_at))));
        }
        Ok(())
    }
}

/// A decision kept for good: the same candidate for this workload over restarts and processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinned {
    /// The workload.
    pub workload: WorkloadKey,
    /// The kernel's name.
    pub kernel: String,
    /// The kernel's [`source`](crate::ops::Kernel::source) when it was pinned.
    #[serde(with = "hex")]
    pub source: u64,
    /// The kernel's parameters, as they are displayed.
    pub parameters: String,
}

/// A candidate that failed, hung or computed something wrong when a tuner tried it, and is not tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The workload.
    pub workload: WorkloadKey,
    /// The kernel's name.
    pub kernel: String,
    /// The kernel's [`source`](crate::ops::Kernel::source) then: one that has changed is tried again.
    #[serde(with = "hex")]
    pub source: u64,
    /// The kernel's parameters, as they are displayed.
    pub parameters: String,
    /// What went wrong.
    pub reason: String,
    /// When, in milliseconds since 1970.
    pub at: i64,
}

/// Now, in milliseconds since 1970; zero on a clock that stands before.
pub fn unix_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

fn time(name: &str, seconds: f64) -> Result<(), StoreError> {
    if seconds.is_finite() && seconds > 0.0 && seconds <= MAX_SECONDS {
        return Ok(());
    }
    Err(invalid(format!("{name} is {seconds}; times are above 0 and at most {MAX_SECONDS} seconds")))
}

fn invalid(reason: String) -> StoreError {
    StoreError::Invalid { reason }
}

/// 64 bits as 16 hexadecimal digits: numbers of JSON lose bits in many programs.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives references")]
    pub fn serialize<S: Serializer>(bits: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&format!("{bits:016x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        if text.len() != 16 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(D::Error::custom("16 hexadecimal digits are needed"));
        }
        u64::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A row that is right.
    pub fn example(id: u128) -> Evidence {
        Evidence {
            id: EvidenceId::from_bits(id),
            device: serde_json::from_str("\"cpu-0123456789abcdef\"").unwrap(),
            operation: "matmul".into(),
            workload: WorkloadKey::from_bits(7),
            description: "matmul(f32 2×3, f32 3×4) → f32 2×4".into(),
            kernel: "cpu::matmul::avx2_small".into(),
            source: u64::MAX,
            parameters: "threads=1".into(),
            seconds: 1.5e-6,
            samples: 3,
            spread: Some(0.02),
            busy: false,
            baseline: Some(1e-6),
            features: vec![1.0, -2.5],
            features_version: 1,
            measured_at: 1_700_000_000_000,
        }
    }

    #[test]
    fn ids_are_never_given_twice() {
        let threads: Vec<_> =
            (0..4).map(|_| std::thread::spawn(|| (0..1000).map(|_| EvidenceId::new()).collect())).collect();
        let lists: Vec<Vec<EvidenceId>> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        let all: HashSet<EvidenceId> = lists.into_iter().flatten().collect();
        assert_eq!(all.len(), 4000);
    }

    #[test]
    fn what_cannot_have_been_measured_is_refused() {
        type Change = fn(&mut Evidence);
        assert!(example(1).validate().is_ok());
        let wrong: [(&str, Change); 14] = [
            ("seconds is NaN", |e| e.seconds = f64::NAN),
            ("seconds is 0", |e| e.seconds = 0.0),
            ("seconds is -1", |e| e.seconds = -1.0),
            ("seconds is inf", |e| e.seconds = f64::INFINITY),
            ("seconds is 86401", |e| e.seconds = 86_401.0),
            ("baseline is NaN", |e| e.baseline = Some(f64::NAN)),
            ("spread is -0.5", |e| e.spread = Some(-0.5)),
            ("no samples", |e| e.samples = 0),
            ("kernel is empty", |e| e.kernel.clear()),
            ("kernel has 5000 bytes", |e| e.kernel = "k".repeat(5000)),
            ("description has 5000", |e| e.description = "d".repeat(5000)),
            ("600 features", |e| e.features = vec![0.0; 600]),
            ("feature 1 is NaN", |e| e.features[1] = f32::NAN),
            ("before 1970", |e| e.measured_at = i64::MIN),
        ];
        for (message, change) in wrong {
            let mut row = example(1);
            change(&mut row);
            let error = row.validate().unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn rows_survive_json() {
        let text = serde_json::to_string(&example(1)).unwrap();
        assert!(text.contains("\"source\":\"ffffffffffffffff\""), "{text}");
        assert_eq!(serde_json::from_str::<Evidence>(&text).unwrap(), example(1));
        for source in ["fff", "+00000000000000f"] {
            let wrong = text.replace("ffffffffffffffff", source);
            assert!(serde_json::from_str::<Evidence>(&wrong).is_err(), "{wrong}");
        }
    }
}
