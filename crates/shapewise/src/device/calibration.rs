//! Calibration: the peaks of a device, measured once and kept by fingerprint.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::{DeviceInfo, Fingerprint, Peaks};
use crate::store::CalibrationFiles;

/// Rises when the way of measuring changes, so that old numbers no longer count.
pub const CALIBRATION_VERSION: u32 = 2;
/// A machine that was busy this many times is taken as it is.
const MOST_ATTEMPTS: u32 = 3;

/// A kept calibration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The device it belongs to.
    pub fingerprint: Fingerprint,
    /// The device in words.
    pub device: String,
    /// How often it was measured: more than once if the machine was busy.
    pub attempts: u32,
    /// What was measured.
    pub peaks: Peaks,
}

/// The peaks of a device: from this process, else from the files, else measured now and kept.
///
/// Peaks from a busy machine are measured again at the next chance, and the better numbers stay.
pub fn calibrate(
    info: &DeviceInfo,
    files: Option<&CalibrationFiles>,
    measure: impl FnOnce() -> Peaks,
) -> Peaks {
    /// Held while measuring, so that two threads never disturb each other's measurements.
    static KNOWN: Mutex<BTreeMap<Fingerprint, Peaks>> = Mutex::new(BTreeMap::new());
    let fingerprint = Fingerprint::of(info);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(peaks) = known.get(&fingerprint) {
        return peaks.clone();
    }
    let kept = files.and_then(|files| files.load(&fingerprint));
    let peaks = settle(info, kept, files, measure);
    known.insert(fingerprint, peaks.clone());
    peaks
}

/// Takes what was kept if it is good enough, and measures otherwise.
fn settle(
    info: &DeviceInfo,
    kept: Option<Calibration>,
    files: Option<&CalibrationFiles>,
    measure: impl FnOnce() -> Peaks,
) -> Peaks {
    let (attempts, before) = match kept {
        Some(kept) if !kept.peaks.busy || kept.attempts >= MOST_ATTEMPTS => return kept.peaks,
        Some(kept) => (kept.attempts, kept.peaks),
        None => (0, Peaks::default()),
    };
    let measured = measure();
    let peaks = if attempts > 0 { measured.best_of(before) } else { measured };
    if let Some(files) = files {
        files.save(&Calibration {
            fingerprint: Fingerprint::of(info),
            device: Fingerprint::description(info),
            attempts: attempts + 1,
            peaks: peaks.clone(),
        });
    }
    peaks
}

#[cfg(test)]
mod tests {
    use super::super::fingerprint::tests::example;
    use super::*;
    use crate::device::ArithmeticPeak;
    use crate::ops::ComputeUnit;

    const UNIT: ComputeUnit = ComputeUnit { dtype: crate::DType::F32, isa: None };

    fn measured(rate: f64, busy: bool) -> Peaks {
        let peak = ArithmeticPeak { unit: UNIT, threads: 1, operations_per_second: rate };
        Peaks { arithmetic: vec![peak], busy, ..Peaks::default() }
    }

    fn kept(attempts: u32, peaks: Peaks) -> Calibration {
        let fingerprint = Fingerprint::of(&example());
        Calibration { fingerprint, device: String::new(), attempts, peaks }
    }

    #[test]
    fn is_measured_once_in_a_process() {
        let mut device = example();
        device.name = "measured once".into();
        let first = calibrate(&device, None, || measured(1.0, true));
        assert_eq!(first, measured(1.0, true));
        assert_eq!(calibrate(&device, None, || unreachable!("it is known")), first);
    }

    #[test]
    fn a_good_one_is_taken_and_a_busy_one_improved() {
        let device = example();
        let good = settle(&device, Some(kept(1, measured(5.0, false))), None, || unreachable!("it is good"));
        assert_eq!(good, measured(5.0, false));
        let improved = settle(&device, Some(kept(1, measured(5.0, true))), None, || measured(7.0, true));
        assert_eq!(improved, measured(7.0, true));
        let calm = settle(&device, Some(kept(2, measured(5.0, true))), None, || measured(4.0, false));
        assert_eq!(calm, measured(5.0, false));
        let enough =
            settle(&device, Some(kept(MOST_ATTEMPTS, measured(5.0, true))), None, || unreachable!("enough"));
        assert_eq!(enough, measured(5.0, true));
    }
}
