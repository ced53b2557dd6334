//! Where things are kept.

use std::ffi::OsString;
use std::path::PathBuf;

use super::{CalibrationFiles, MemoryStore, Store, cache_directory};

/// The file of evidence in a directory.
const FILE: &str = "evidence.sqlite";

/// Where what was measured is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreLocation {
    /// The platform's cache directory, or `SHAPEWISE_CACHE_DIR`; evidence in the file that `SHAPEWISE_STORE` names, if any.
    #[default]
    Default,
    /// This directory.
    Directory(PathBuf),
    /// Evidence in this file; calibrations as by default.
    File(PathBuf),
    /// Evidence in memory, for this process only; calibrations as by default.
    Memory,
    /// Nowhere: everything is measured anew in each process.
    None,
}

impl StoreLocation {
    /// The files of calibrations there.
    pub(crate) fn calibrations(&self) -> Option<CalibrationFiles> {
        match self {
            Self::Default | Self::File(_) | Self::Memory => cache_directory().map(CalibrationFiles::new),
            Self::Directory(folder) => Some(CalibrationFiles::new(folder)),
            Self::None => None,
        }
    }

    /// The file of evidence there; none where evidence is kept in memory.
    pub fn file(&self) -> Option<PathBuf> {
        self.file_with(std::env::var_os("SHAPEWISE_STORE"), cache_directory())
    }

    fn file_with(&self, variable: Option<OsString>, cache: Option<PathBuf>) -> Option<PathBuf> {
        match self {
            Self::Default => match variable.filter(|name| !name.is_empty()) {
                Some(name) if name == "memory" => None,
                Some(name) => Some(name.into()),
                None => cache.map(|folder| folder.join(FILE)),
            },
            Self::Directory(folder) => Some(folder.join(FILE)),
            Self::File(path) => Some(path.clone()),
            Self::Memory | Self::None => None,
        }
    }

    /// Opens the store there. What goes wrong is a warning, and work goes on in memory.
    pub fn open(&self) -> Box<dyn Store> {
        match self.file() {
            #[cfg(feature = "store")]
            Some(path) => super::open_or_memory(&path).0,
            #[cfg(not(feature = "store"))]
            Some(path) => {
                tracing::warn!(path = %path.display(), "this build has no `store` feature; evidence stays in memory");
                Box::new(MemoryStore::new())
            }
            None => Box::new(MemoryStore::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_changes_only_the_default() {
        let file = |location: StoreLocation, variable: Option<&str>| {
            location.file_with(variable.map(Into::into), Some("cache".into()))
        };
        let kept = |path: &str| Some(PathBuf::from(path));
        assert_eq!(file(StoreLocation::Default, None), Some(PathBuf::from("cache").join(FILE)));
        assert_eq!(file(StoreLocation::Default, Some("")), Some(PathBuf::from("cache").join(FILE)));
        assert_eq!(file(StoreLocation::Default, Some("mine")), kept("mine"));
        assert_eq!(file(StoreLocation::Default, Some("memory")), None);
        assert_eq!(file(StoreLocation::File("given".into()), Some("mine")), kept("given"));
        assert_eq!(file(StoreLocation::Memory, Some("mine")), None);
        assert_eq!(StoreLocation::Default.file_with(None, None), None);
    }

    #[test]
    fn memory_is_a_store_of_its_own() {
        let (one, other) = (StoreLocation::Memory.open(), StoreLocation::None.open());
        assert_eq!(one.append(&[super::super::record::tests::example(1)]).unwrap(), 1);
        assert_eq!((one.count().unwrap(), other.count().unwrap()), (1, 0));
    }
}
