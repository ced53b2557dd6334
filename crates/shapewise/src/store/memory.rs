//! Evidence of this process only.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Evidence, EvidenceId, Pinned, Refused, Result, Store, valid};
use crate::device::Fingerprint;
use crate::ops::WorkloadKey;

/// A store that ends with its process: for tests, and for machines where nothing can be written.
#[derive(Default)]
pub struct MemoryStore(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    evidence: BTreeMap<EvidenceId, Evidence>,
    by_workload: HashMap<WorkloadKey, Vec<EvidenceId>>,
    pinned: BTreeMap<(Fingerprint, WorkloadKey), Pinned>,
    refused: Vec<(Fingerprint, Refused)>,
}

impl MemoryStore {
    /// An empty store.
    pub fn new() -> Self {
        Self::default()
    }

    /// Drops one row.
    #[cfg(feature = "store")]
    pub(super) fn forget(&self, id: EvidenceId) {
        let mut tables = self.tables();
        if let Some(row) = tables.evidence.remove(&id)
            && let Some(ids) = tables.by_workload.get_mut(&row.workload)
        {
            ids.retain(|other| *other != id);
        }
    }

    // A panic while the lock was held cannot leave a row half-written, so poisoning carries no news.
    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Store for MemoryStore {
    fn append(&self, rows: &[Evidence]) -> Result<usize> {
        let mut tables = self.tables();
        let Tables { evidence, by_workload, .. } = &mut *tables;
        let before = evidence.len();
        for row in rows.iter().filter(|row| valid(row)) {
            if let Entry::Vacant(place) = evidence.entry(row.id) {
                place.insert(row.clone());
                by_workload.entry(row.workload).or_default().push(row.id);
            }
        }
        Ok(evidence.len() - before)
    }

    fn visit(&self, device: Option<&Fingerprint>, visit: &mut dyn FnMut(Evidence)) -> Result<()> {
        // Visited without the lock, so that the visitor may use the store.
        let tables = self.tables();
        let wanted = tables.evidence.values().filter(|row| device.is_none_or(|d| row.device == *d));
        let rows: Vec<Evidence> = wanted.cloned().collect();
        drop(tables);
        rows.into_iter().for_each(visit);
        Ok(())
    }

    fn load_workload(&self, device: &Fingerprint, workload: WorkloadKey) -> Result<Vec<Evidence>> {
        let tables = self.tables();
        let ids = tables.by_workload.get(&workload).into_iter().flatten();
        let rows = ids.filter_map(|id| tables.evidence.get(id)).filter(|row| row.device == *device);
        Ok(rows.cloned().collect())
    }

    fn count(&self) -> Result<u64> {
        Ok(self.tables().evidence.len() as u64)
    }

    fn pin(&self, device: &Fingerprint, wanted: &Pinned) -> Result<Pinned> {
        let key = (device.clone(), wanted.workload);
        Ok(self.tables().pinned.entry(key).or_insert_with(|| wanted.clone()).clone())
    }

    fn pinned(&self, device: &Fingerprint) -> Result<Vec<Pinned>> {
        let tables = self.tables();
        Ok(tables.pinned.iter().filter(|((of, _), _)| of == device).map(|(_, p)| p.clone()).collect())
    }

    fn unpin(&self, device: &Fingerprint) -> Result<usize> {
        let mut tables = self.tables();
        let before = tables.pinned.len();
        tables.pinned.retain(|(of, _), _| of != device);
        Ok(before - tables.pinned.len())
    }

    fn refuse(&self, device: &Fingerprint, refused: &Refused) -> Result<()> {
        let mut tables = self.tables();
        let key = |r: &Refused| (r.workload, r.kernel.clone(), r.parameters.clone());
        tables.refused.retain(|(of, known)| of != device || key(known) != key(refused));
        tables.refused.push((device.clone(), refused.clone()));
        Ok(())
    }

    fn refused(&self, device: &Fingerprint, workload: WorkloadKey) -> Result<Vec<Refused>> {
        let tables = self.tables();
        let wanted = tables.refused.iter().filter(|(of, r)| of == device && r.workload == workload);
        Ok(wanted.map(|(_, refused)| refused.clone()).collect())
    }

    fn prune(&self, before: i64) -> Result<usize> {
        let mut tables = self.tables();
        tables.refused.retain(|(_, refused)| refused.at >= before);
        let Tables { evidence, by_workload, .. } = &mut *tables;
        let count = evidence.len();
        evidence.retain(|_, row| row.measured_at >= before);
        by_workload.retain(|_, ids| {
            ids.retain(|id| evidence.contains_key(id));
            !ids.is_empty()
        });
        Ok(count - evidence.len())
    }
}
