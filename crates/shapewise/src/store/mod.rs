//! What is kept between processes: evidence, pinned decisions, calibrations.

mod calibration;
mod directory;
mod error;
mod exchange;
mod location;
mod memory;
pub(crate) mod record;
#[cfg(feature = "store")]
mod resilient;
#[cfg(feature = "store")]
mod schema;
#[cfg(feature = "store")]
mod sqlite;

pub use calibration::CalibrationFiles;
pub use directory::cache_directory;
pub use error::StoreError;
pub use exchange::{Imported, export, import, merge};
pub use location::StoreLocation;
pub use memory::MemoryStore;
pub use record::{Evidence, EvidenceId, MAX_FEATURES, MAX_SECONDS, MAX_TEXT, Pinned, Refused, unix_ms};
#[cfg(feature = "store")]
pub use resilient::open_or_memory;
#[cfg(feature = "store")]
pub use sqlite::SqliteStore;

use crate::device::Fingerprint;
use crate::ops::WorkloadKey;

/// A result of the store.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;

/// Keeps evidence. Rows are only ever added or aged out, so merging two stores is a set union by id.
pub trait Store: Send + Sync {
    /// Adds rows and says how many were new; once it returns, a killed process loses none of them.
    ///
    /// Rows whose id is there already are left out, and those that are not [valid](Evidence::validate) with a warning.
    fn append(&self, rows: &[Evidence]) -> Result<usize>;

    /// Shows every row of a device, or of all; rows that are not valid are left out with a warning.
    fn visit(&self, device: Option<&Fingerprint>, visit: &mut dyn FnMut(Evidence)) -> Result<()>;

    /// Every row of a device.
    fn load(&self, device: &Fingerprint) -> Result<Vec<Evidence>> {
        let mut rows = Vec::new();
        self.visit(Some(device), &mut |row| rows.push(row))?;
        Ok(rows)
    }

    /// Every row of one workload on a device; worth an index, because a runtime asks it for every new workload.
    fn load_workload(&self, device: &Fingerprint, workload: WorkloadKey) -> Result<Vec<Evidence>> {
        let mut rows = Vec::new();
        self.visit(Some(device), &mut |row| {
            if row.workload == workload {
                rows.push(row);
            }
        })?;
        Ok(rows)
    }

    /// Number of rows, of all devices.
    fn count(&self) -> Result<u64>;

    /// Whether there is no row.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.count()? == 0)
    }

    /// Pins a decision and returns what is pinned: of several processes that pin one workload the first wins.
    fn pin(&self, device: &Fingerprint, wanted: &Pinned) -> Result<Pinned>;

    /// Every pinned decision of a device.
    fn pinned(&self, device: &Fingerprint) -> Result<Vec<Pinned>>;

    /// Forgets the pinned decisions of a device and says how many there were.
    fn unpin(&self, device: &Fingerprint) -> Result<usize>;

    /// Remembers that a candidate must not be tried again; what was known of it before is replaced.
    fn refuse(&self, device: &Fingerprint, refused: &Refused) -> Result<()>;

    /// Every candidate of a workload on a device that must not be tried again.
    fn refused(&self, device: &Fingerprint, workload: WorkloadKey) -> Result<Vec<Refused>>;

    /// Drops rows measured before this time (milliseconds since 1970), refusals as well, and says how many rows there were.
    fn prune(&self, before: i64) -> Result<usize>;
}

/// Whether a row may be kept; says why not in a warning.
fn valid(row: &Evidence) -> bool {
    let checked = row.validate();
    if let Err(error) = &checked {
        tracing::warn!(id = %row.id, %error, "a row of evidence is left out");
    }
    checked.is_ok()
}
