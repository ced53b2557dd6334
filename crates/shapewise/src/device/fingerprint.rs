//! What must be equal for a measurement of a device to count.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{CALIBRATION_VERSION, DeviceInfo};
use crate::hash::fnv1a;

/// Names a device in the state that its measurements depend on; the same over restarts, processes and builds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

impl Fingerprint {
    /// The fingerprint of a device: its design, features, caches, cores, threads and the way of measuring.
    pub fn of(info: &DeviceInfo) -> Self {
        let hash = fnv1a(Self::description(info).as_bytes());
        Self(format!("{}-{hash:016x}", info.backend))
    }

    /// What the fingerprint is made from, for people.
    pub fn description(info: &DeviceInfo) -> String {
        let isas: Vec<&str> = info.isas.iter().map(|isa| isa.name()).collect();
        let size = |bytes: Option<usize>| bytes.map_or("?".to_owned(), |bytes| bytes.to_string());
        format!(
            "{} ({}); features {}; instruction sets {}; caches {} {} {}; {} cores ({} physical); {} threads; \
             calibration {CALIBRATION_VERSION}",
            info.name,
            info.model.as_deref().unwrap_or("?"),
            info.features.join(" "),
            isas.join(" "),
            size(info.caches.l1d),
            size(info.caches.l2),
            size(info.caches.l3),
            info.cores,
            size(info.physical_cores),
            info.threads,
        )
    }

    /// A fingerprint that was kept as text.
    #[cfg(feature = "store")]
    pub(crate) fn from_text(text: String) -> Self {
        Self(text)
    }

    /// As text, fit for a file name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::backends::cpu::simd::Isa;
    use crate::device::{BackendKind, Caches};

    /// A made-up device that is the same on every machine.
    pub fn example() -> DeviceInfo {
        DeviceInfo {
            backend: BackendKind::Cpu,
            name: "Example CPU".into(),
            model: Some("Example family 1".into()),
            features: vec!["fma".into(), "avx2".into()],
            cores: 8,
            physical_cores: Some(4),
            threads: 8,
            isas: vec![Isa::Portable, Isa::Avx2],
            caches: Caches { l1d: Some(32 << 10), l2: Some(512 << 10), l3: None },
            l3_groups: Vec::new(),
            numa: Vec::new(),
            memory: Some(1 << 30),
            peaks: None,
        }
    }

    #[test]
    fn stays_the_same_over_releases() {
        assert_eq!(
            Fingerprint::description(&example()),
            "Example CPU (Example family 1); features fma avx2; instruction sets portable avx2; \
             caches 32768 524288 ?; 8 cores (4 physical); 8 threads; calibration 2"
        );
        assert!(Fingerprint::of(&example()).as_str().starts_with("cpu-"));
    }

    #[test]
    fn changes_with_what_matters_and_nothing_else() {
        let base = Fingerprint::of(&example());
        let changes: [fn(&mut DeviceInfo); 7] = [
            |d| d.name.push('2'),
            |d| d.model = None,
            |d| d.features.truncate(1),
            |d| d.isas.truncate(1),
            |d| d.threads = 4,
            |d| d.cores = 16,
            |d| d.caches.l3 = Some(1 << 20),
        ];
        for change in changes {
            let mut other = example();
            change(&mut other);
            assert_ne!(Fingerprint::of(&other), base, "{other:?}");
        }
        let mut same = example();
        same.memory = None;
        assert_eq!(Fingerprint::of(&same), base);
    }
}
