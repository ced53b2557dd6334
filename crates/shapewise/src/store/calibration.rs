//! Calibrations as JSON files, one for each fingerprint, so that writers never overwrite each other's.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::device::{Calibration, Fingerprint};

/// The layout of the files; rises when it changes.
const FORMAT: u32 = 1;
/// No calibration is longer; a longer file is something else.
const LONGEST: u64 = 4 << 20;

/// A folder of calibrations. Nothing that is wrong with it is more than a warning: the numbers can be measured again.
#[derive(Clone, Debug)]
pub struct CalibrationFiles {
    folder: PathBuf,
}

/// A whole file.
#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    #[serde(flatten)]
    calibration: Calibration,
}

/// Only what every format has.
#[derive(Deserialize)]
struct Header {
    format: u32,
}

impl CalibrationFiles {
    /// Files in this folder, which is made when the first one is saved.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// What was kept for a device; a file that cannot be understood is set aside.
    pub fn load(&self, fingerprint: &Fingerprint) -> Option<Calibration> {
        let path = self.path(fingerprint);
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a kept calibration cannot be read and is left out");
                return None;
            }
        };
        match parse(&bytes, fingerprint) {
            Ok(calibration) => Some(calibration),
            Err(reason) => {
                let aside = path.with_extension("json.damaged");
                let moved = fs::rename(&path, &aside).is_ok();
                tracing::warn!(path = %path.display(), reason, moved, "a kept calibration is damaged and set aside");
                None
            }
        }
    }

    /// Keeps a calibration; readers see the old file or the new one, never a part.
    pub fn save(&self, calibration: &Calibration) {
        let path = self.path(&calibration.fingerprint);
        if let Err(error) = self.write(&path, calibration) {
            tracing::warn!(path = %path.display(), %error, "the calibration cannot be kept and is measured again next time");
        }
    }

    fn write(&self, path: &Path, calibration: &Calibration) -> io::Result<()> {
        let document = Document { format: FORMAT, calibration: calibration.clone() };
        let text = serde_json::to_vec_pretty(&document)?;
        fs::create_dir_all(&self.folder)?;
        let temporary = path.with_extension(format!("json.new-{}", std::process::id()));
        let written = File::create(&temporary)
            .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            // The first error says more than one about the leftover would.
            drop(fs::remove_file(&temporary));
        }
        written
    }

    fn path(&self, fingerprint: &Fingerprint) -> PathBuf {
        self.folder.join(format!("calibration-{fingerprint}.json"))
    }
}

/// The bytes of a file, up to one more than a calibration may have.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The calibration in a file, or what is wrong with it.
fn parse(bytes: &[u8], fingerprint: &Fingerprint) -> Result<Calibration, String> {
    if bytes.len() as u64 > LONGEST {
        return Err("it is too long".into());
    }
    let header: Header = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if header.format != FORMAT {
        return Err(format!("its format is {}, this library reads {FORMAT}", header.format));
    }
    let document: Document = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let calibration = document.calibration;
    if calibration.fingerprint != *fingerprint {
        return Err(format!("it belongs to {}", calibration.fingerprint));
    }
    if !calibration.peaks.is_plausible() {
        return Err("its numbers cannot have been measured".into());
    }
    Ok(calibration)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::cpu::simd::Isa;
    use crate::device::{ArithmeticPeak, BandwidthPeak, Level, Peaks};
    use crate::ops::ComputeUnit;
    use proptest::prelude::*;

    /// A folder that goes away with its test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("shapewise-store-{name}-{}", std::process::id()));
            drop(fs::remove_dir_all(&path));
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let entries = fs::read_dir(&self.0).into_iter().flatten().flatten();
            let mut names: Vec<String> =
                entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    fn example() -> Calibration {
        let unit = ComputeUnit { dtype: crate::DType::F32, isa: Some(Isa::Avx2) };
        Calibration {
            fingerprint: serde_json::from_str("\"cpu-0123456789abcdef\"").unwrap(),
            device: "an example".into(),
            attempts: 1,
            peaks: Peaks {
                arithmetic: vec![ArithmeticPeak { unit, threads: 2, operations_per_second: 1.25e11 }],
                bandwidth: vec![BandwidthPeak {
                    level: Level::Memory,
                    threads: 1,
                    read: 1e10,
                    copy: 2e10,
                    stream: 3e10,
                }],
                hand_off: Some(3e-7),
                wake: None,
                busy: false,
            },
        }
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let folder = Folder::new("round-trip");
        let files = CalibrationFiles::new(folder.0.join("made/on/the/way"));
        let mut calibration = example();
        assert_eq!(files.load(&calibration.fingerprint), None);
        files.save(&calibration);
        assert_eq!(files.load(&calibration.fingerprint), Some(calibration.clone()));
        calibration.attempts = 2;
        files.save(&calibration);
        assert_eq!(files.load(&calibration.fingerprint), Some(calibration));
    }

    #[test]
    fn damaged_files_are_set_aside() {
        let folder = Folder::new("damaged");
        let files = CalibrationFiles::new(&folder.0);
        let calibration = example();
        files.save(&calibration);
        let path = files.path(&calibration.fingerprint);
        let whole = fs::read_to_string(&path).unwrap();
        let wrong = [
            String::new(),
            whole[..whole.len() / 2].to_owned(),
            whole.replace("\"format\": 1", "\"format\": 2"),
            whole.replace("cpu-0123456789abcdef", "cpu-other"),
            whole.replace("125000000000.0", "-1.0"),
            whole.replace("125000000000.0", "null"),
            whole.replace("Avx2", "Avx9").replace("avx2", "avx9"),
            "[1, 2]".to_owned(),
            "{".repeat(100_000),
            " ".repeat(LONGEST as usize + 10),
        ];
        for text in wrong {
            assert_ne!(text, whole);
            fs::write(&path, &text).unwrap();
            assert_eq!(files.load(&calibration.fingerprint), None, "{text:.300}");
            assert_eq!(folder.names(), ["calibration-cpu-0123456789abcdef.json.damaged"]);
        }
        files.save(&calibration);
        assert_eq!(files.load(&calibration.fingerprint), Some(calibration));
    }

    #[test]
    fn a_folder_that_cannot_be_used_is_no_error() {
        let folder = Folder::new("unusable");
        fs::create_dir_all(&folder.0).unwrap();
        let file = folder.0.join("file");
        fs::write(&file, "not a folder").unwrap();
        let files = CalibrationFiles::new(file.join("below"));
        files.save(&example());
        assert_eq!(files.load(&example().fingerprint), None);
        let files = CalibrationFiles::new(&folder.0);
        fs::create_dir_all(files.path(&example().fingerprint)).unwrap();
        files.save(&example());
        assert_eq!(files.load(&example().fingerprint), None);
        assert_eq!(folder.names(), ["calibration-cpu-0123456789abcdef.json", "file"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(parse(&bytes, &example().fingerprint).is_err());
        }

        #[test]
        fn any_single_change_is_survived(at in 0_usize..600, byte in any::<u8>()) {
            let document = Document { format: FORMAT, calibration: example() };
            let mut bytes = serde_json::to_vec(&document).unwrap();
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            if let Ok(read) = parse(&bytes, &example().fingerprint) {
                prop_assert!(read.peaks.is_plausible());
            }
        }
    }
}
