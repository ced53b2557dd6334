//! A store that never fails its user: what the file does not take is kept in memory.

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use super::{Evidence, MemoryStore, Pinned, Refused, Result, SqliteStore, Store, StoreError, merge, unix_ms};
use crate::device::Fingerprint;
use crate::ops::WorkloadKey;

/// Opens a file; what goes wrong is a warning, and work goes on in memory.
///
/// A damaged file is kept under another name and a new one takes its place, with the rows that could still be read. A
/// file of a newer release or of another program is left alone.
pub fn open_or_memory(path: &Path) -> (Box<dyn Store>, Option<StoreError>) {
    let (file, warning) = match SqliteStore::open(path) {
        Ok(store) => (Some(store), None),
        Err(error @ StoreError::Damaged { .. }) => (recovered(path, &error), Some(error)),
        Err(error) => {
            tracing::warn!(%error, "what is measured is kept in memory and ends with this process");
            (None, Some(error))
        }
    };
    let path = path.to_path_buf();
    let failing = AtomicBool::new(warning.is_some());
    (Box::new(Resilient { path, file: RwLock::new(file), memory: MemoryStore::new(), failing }), warning)
}

/// The file, and beside it what the file did not take.
struct Resilient {
    path: PathBuf,
    file: RwLock<Option<SqliteStore>>,
    memory: MemoryStore,
    /// Whether the last use of the file failed, so that a full disk is told once and not at every batch.
    failing: AtomicBool,
}

impl Resilient {
    /// The file's answer; none where there is no file or it fails, with a warning the first time.
    fn ask<T>(&self, work: impl Fn(&SqliteStore) -> Result<T>) -> Option<T> {
        let guard = self.file.read().unwrap_or_else(PoisonError::into_inner);
        let answer = work(guard.as_ref()?);
        drop(guard);
        match answer {
            Ok(answer) => {
                self.failing.store(false, Ordering::Relaxed);
                Some(answer)
            }
            Err(error @ StoreError::Damaged { .. }) => {
                let mut guard = self.file.write().unwrap_or_else(PoisonError::into_inner);
                // The connection must be gone before the file can move on every system.
                *guard = None;
                *guard = recovered(&self.path, &error);
                guard.as_ref().and_then(|file| work(file).ok())
            }
            Err(error) => {
                if !self.failing.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the store fails; what is measured is kept in memory until it works again");
                }
                None
            }
        }
    }
}

impl Store for Resilient {
    fn append(&self, rows: &[Evidence]) -> Result<usize> {
        let Some(new) = self.ask(|file| file.append(rows)) else {
            return self.memory.append(rows);
        };
        if self.memory.count()? > 0 {
            let mut waiting = Vec::new();
            self.memory.visit(None, &mut |row| waiting.push(row))?;
            if self.ask(|file| file.append(&waiting)).is_some() {
                for row in &waiting {
                    self.memory.forget(row.id);
                }
            }
        }
        Ok(new)
    }

    fn visit(&self, device: Option<&Fingerprint>, visit: &mut dyn FnMut(Evidence)) -> Result<()> {
        let read = |file: &SqliteStore| {
            let mut rows = Vec::new();
            file.visit(device, &mut |row| rows.push(row))?;
            Ok(rows)
        };
        self.ask(read).into_iter().flatten().for_each(&mut *visit);
        self.memory.visit(device, visit)
    }

    fn load_workload(&self, device: &Fingerprint, workload: WorkloadKey) -> Result<Vec<Evidence>> {
        let mut rows = self.ask(|file| file.load_workload(device, workload)).unwrap_or_default();
        rows.extend(self.memory.load_workload(device, workload)?);
        Ok(rows)
    }

    fn is_empty(&self) -> Result<bool> {
        Ok(self.ask(SqliteStore::is_empty).unwrap_or(true) && self.memory.is_empty()?)
    }

    fn count(&self) -> Result<u64> {
        Ok(self.ask(SqliteStore::count).unwrap_or(0) + self.memory.count()?)
    }

    fn pin(&self, device: &Fingerprint, wanted: &Pinned) -> Result<Pinned> {
        match self.ask(|file| file.pin(device, wanted)) {
            Some(pinned) => Ok(pinned),
            None => self.memory.pin(device, wanted),
        }
    }

    fn pinned(&self, device: &Fingerprint) -> Result<Vec<Pinned>> {
        let mut all = self.ask(|file| file.pinned(device)).unwrap_or_default();
        for own in self.memory.pinned(device)? {
            if all.iter().all(|p| p.workload != own.workload) {
                all.push(own);
            }
        }
        Ok(all)
    }

    fn unpin(&self, device: &Fingerprint) -> Result<usize> {
        Ok(self.ask(|file| file.unpin(device)).unwrap_or(0) + self.memory.unpin(device)?)
    }

    fn refuse(&self, device: &Fingerprint, refused: &Refused) -> Result<()> {
        match self.ask(|file| file.refuse(device, refused)) {
            Some(()) => Ok(()),
            None => self.memory.refuse(device, refused),
        }
    }

    fn refused(&self, device: &Fingerprint, workload: WorkloadKey) -> Result<Vec<Refused>> {
        let mut all = self.ask(|file| file.refused(device, workload)).unwrap_or_default();
        all.extend(self.memory.refused(device, workload)?);
        Ok(all)
    }

    fn prune(&self, before: i64) -> Result<usize> {
        Ok(self.ask(|file| file.prune(before)).unwrap_or(0) + self.memory.prune(before)?)
    }
}

/// A new file in the place of a damaged one; none, with a warning, where that cannot be had.
fn recovered(path: &Path, damage: &StoreError) -> Option<SqliteStore> {
    match recover(path) {
        Ok((store, None)) => {
            tracing::warn!(%damage, "another process has replaced the damaged store");
            Some(store)
        }
        Ok((store, Some((aside, saved)))) => {
            tracing::warn!(%damage, aside = %aside.display(), saved, "the damaged store is set aside and a new one begun");
            Some(store)
        }
        Err(error) => {
            tracing::warn!(%damage, %error, "what is measured is kept in memory and ends with this process");
            None
        }
    }
}

/// Sets a damaged file aside and begins a new one with what could be read; says where the old one is.
fn recover(path: &Path) -> Result<(SqliteStore, Option<(PathBuf, u64)>)> {
    let unusable =
        |error: std::io::Error| StoreError::Unusable { path: path.into(), reason: error.to_string() };
    // Of several processes that find the damage, one moves the file; the others find the new one.
    let lock = File::create(beside(path, "-lock")).map_err(unusable)?;
    lock.lock().map_err(unusable)?;
    match SqliteStore::open(path).and_then(|store| store.check().map(|()| store)) {
        Ok(store) => return Ok((store, None)),
        Err(StoreError::Damaged { .. }) => {}
        Err(error) => return Err(error),
    }
    let aside = beside(path, &format!(".damaged-{}", unix_ms()));
    fs::rename(path, &aside).map_err(unusable)?;
    for suffix in ["-wal", "-shm"] {
        let log = beside(path, suffix);
        if log.exists() {
            fs::rename(&log, beside(&aside, suffix)).map_err(unusable)?;
        }
    }
    let fresh = SqliteStore::open(path)?;
    if let Err(error) = SqliteStore::open_damaged(&aside).and_then(|old| merge(&fresh, &old)) {
        tracing::debug!(%error, "where reading the damaged store ended");
    }
    let saved = fresh.count()?;
    Ok((fresh, Some((aside, saved))))
}

/// The same path with something at its end.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::example;
    use super::*;

    fn ids(store: &dyn Store) -> Vec<u128> {
        let mut ids: Vec<u128> =
            store.load(&example(0).device).unwrap().iter().map(|row| row.id.bits()).collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn a_full_disk_keeps_rows_in_memory_until_there_is_room() {
        let path = std::env::temp_dir().join(format!("shapewise-full-{}.sqlite", std::process::id()));
        let file = SqliteStore::open(&path).unwrap();
        file.append(&[example(1)]).unwrap();
        file.limit_pages(Some(1));
        let large: Vec<Evidence> = (2..200).map(example).collect();
        let error = file.append(&large).unwrap_err().to_string();
        assert!(error.contains("full"), "{error}");
        assert_eq!(ids(&file), [1], "a batch that does not fit leaves nothing behind");

        let failing = AtomicBool::new(false);
        let store = Resilient {
            path: path.clone(),
            file: RwLock::new(Some(file)),
            memory: MemoryStore::new(),
            failing,
        };
        assert_eq!(store.append(&large).unwrap(), 198);
        assert!(store.failing.load(Ordering::Relaxed));
        assert_eq!(ids(&store), (1..200).collect::<Vec<u128>>());
        assert_eq!(store.memory.count().unwrap(), 198);

        store.file.read().unwrap().as_ref().unwrap().limit_pages(None);
        assert_eq!(store.append(&[example(200)]).unwrap(), 1);
        assert_eq!(store.memory.count().unwrap(), 0, "what waited is in the file now");
        drop(store);
        assert_eq!(ids(&SqliteStore::open(&path).unwrap()), (1..=200).collect::<Vec<u128>>());
        for suffix in ["", "-wal", "-shm"] {
            drop(fs::remove_file(beside(&path, suffix)));
        }
    }
}
