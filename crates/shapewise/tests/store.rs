//! The store as a user has it: what is kept comes back, and nothing that happens to the file stops the work.
#![cfg(feature = "store")]

#[path = "store/damage.rs"]
mod damage;
#[path = "store/exchange.rs"]
mod exchange;

use std::fs;
use std::path::{Path, PathBuf};

use shapewise::device::Fingerprint;
use shapewise::ops::WorkloadKey;
use shapewise::store::{
    Evidence, EvidenceId, MemoryStore, Pinned, Refused, SqliteStore, Store, open_or_memory,
};

/// A folder that goes away with its test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("shapewise-evidence-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("evidence.sqlite")
    }

    fn set_aside(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        entries
            .filter(|p| {
                name(p).contains(".damaged-") && !name(p).ends_with("-wal") && !name(p).ends_with("-shm")
            })
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn device(name: &str) -> Fingerprint {
    serde_json::from_value(name.into()).unwrap()
}

fn row(id: u128) -> Evidence {
    Evidence {
        id: EvidenceId::from_bits(id),
        device: device(if id.is_multiple_of(3) { "cpu-other" } else { "cpu-this" }),
        operation: "matmul".into(),
        workload: WorkloadKey::from_bits(id * 7 + (1 << 100)),
        description: format!("matmul(f32 {id}×3, f32 3×4) → f32 {id}×4"),
        kernel: "cpu::matmul::avx2_small".into(),
        source: 0xffff_0000_0000_0001 + id as u64,
        parameters: "threads=1".into(),
        seconds: 1e-6 / (id as f64 + 3.0),
        samples: 3,
        spread: id.is_multiple_of(2).then_some(0.1),
        busy: id.is_multiple_of(5),
        baseline: (!id.is_multiple_of(4)).then_some(1e-7),
        features: (0..id % 9).map(|i| i as f32 / 3.0).collect(),
        features_version: 2,
        measured_at: 1_000 * id as i64,
    }
}

fn rows(ids: impl IntoIterator<Item = u128>) -> Vec<Evidence> {
    ids.into_iter().map(row).collect()
}

/// Every row, by id.
fn all(store: &dyn Store) -> Vec<Evidence> {
    let mut rows = Vec::new();
    store.visit(None, &mut |row| rows.push(row)).unwrap();
    rows.sort_by_key(|row| row.id);
    rows
}

/// Runs a test on every kind of store.
fn each(name: &str, test: impl Fn(&dyn Store)) {
    let folder = Folder::new(name);
    test(&MemoryStore::new());
    test(&SqliteStore::open(folder.file()).unwrap());
    let (store, warning) = open_or_memory(&folder.0.join("made/on/the/way/evidence.sqlite"));
    assert!(warning.is_none(), "{warning:?}");
    test(store.as_ref());
}

#[test]
fn what_is_added_comes_back_whole_and_once() {
    each("append", |store| {
        assert_eq!(store.append(&rows(1..2500)).unwrap(), 2499);
        assert_eq!(store.append(&rows(2490..2510)).unwrap(), 10);
        assert_eq!(store.append(&[]).unwrap(), 0);
        assert_eq!(all(store), rows(1..2510));
        assert_eq!(store.count().unwrap(), 2509);
        let mut other = store.load(&device("cpu-other")).unwrap();
        other.sort_by_key(|row| row.id);
        assert_eq!(other, rows((3..2510).step_by(3)));
        assert!(store.load(&device("cpu-unknown")).unwrap().is_empty());
    });
}

#[test]
fn one_workload_is_found_among_all() {
    each("workload", |store| {
        assert!(store.is_empty().unwrap());
        store.append(&rows(1..2500)).unwrap();
        let again = Evidence { id: EvidenceId::from_bits(5000), ..row(40) };
        let elsewhere = Evidence { id: EvidenceId::from_bits(5001), device: device("cpu-other"), ..row(40) };
        store.append(&[again.clone(), elsewhere.clone()]).unwrap();
        assert!(!store.is_empty().unwrap());
        let (this, other) = (device("cpu-this"), device("cpu-other"));
        let find = |device: &Fingerprint, workload| store.load_workload(device, workload).unwrap();
        assert_eq!(find(&this, row(40).workload), [row(40), again.clone()]);
        assert_eq!(find(&other, row(40).workload), [elsewhere]);
        assert_eq!(find(&this, WorkloadKey::from_bits(1)), []);
        store.prune(41_000).unwrap();
        assert_eq!(find(&this, row(40).workload), []);
        assert_eq!(find(&this, row(41).workload), rows([41]));
    });
}

#[test]
fn files_of_the_first_schema_are_read_as_they_are_and_brought_up_to_date_when_written() {
    let folder = Folder::new("schema-1");
    let connection = rusqlite::Connection::open(folder.file()).unwrap();
    connection.execute_batch(include_str!("store/schema-1.sql")).unwrap();
    drop(connection);
    let version = || -> i64 {
        let connection = rusqlite::Connection::open(folder.file()).unwrap();
        connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    };
    let (here, workload) = (device("cpu-0123456789abcdef"), WorkloadKey::from_bits(7));
    let read = SqliteStore::open_read_only(folder.file()).unwrap();
    assert_eq!(read.load_workload(&here, workload).unwrap().len(), 2);
    assert_eq!(read.refused(&here, workload).unwrap(), [], "it had no such table");
    drop(read);
    assert_eq!(version(), 1);
    let store = SqliteStore::open(folder.file()).unwrap();
    assert_eq!((version(), store.schema()), (3, 3));
    assert_eq!(store.load_workload(&here, workload).unwrap(), all(&store));
}

#[test]
fn what_was_refused_is_kept_for_its_workload_until_it_is_old() {
    each("refused", |store| {
        let (this, other) = (device("cpu-this"), device("cpu-other"));
        let workload = WorkloadKey::from_bits(5);
        let refused = |parameters: &str, reason: &str, at: i64| Refused {
            workload,
            kernel: "cpu::matmul::mine".into(),
            source: u64::MAX,
            parameters: parameters.into(),
            reason: reason.into(),
            at,
        };
        store.refuse(&this, &refused("threads=1", "not today", 10)).unwrap();
        store.refuse(&this, &refused("threads=2", "wrong answer", 20)).unwrap();
        store.refuse(&this, &refused("threads=1", "did not return", 30)).unwrap();
        let mut known = store.refused(&this, workload).unwrap();
        known.sort_by_key(|r| r.at);
        assert_eq!(
            known,
            [refused("threads=2", "wrong answer", 20), refused("threads=1", "did not return", 30)]
        );
        assert_eq!(store.refused(&other, workload).unwrap(), []);
        assert_eq!(store.refused(&this, WorkloadKey::from_bits(6)).unwrap(), []);
        assert_eq!(store.prune(25).unwrap(), 0, "rows of evidence are counted");
        assert_eq!(store.refused(&this, workload).unwrap().len(), 1);
        let long = "é".repeat(5000);
        store.refuse(&this, &refused("threads=3", &long, 40)).unwrap();
        assert!(store.refused(&this, workload).unwrap().iter().any(|r| r.reason.starts_with("éé")));
    });
}

#[test]
fn rows_that_cannot_be_right_are_left_out() {
    each("invalid", |store| {
        let mut wrong = row(1);
        wrong.seconds = f64::NAN;
        assert_eq!(store.append(&[wrong, row(2)]).unwrap(), 1);
        assert_eq!(all(store), rows([2]));
    });
}

#[test]
fn the_first_pin_stays() {
    each("pins", |store| {
        let (here, there) = (device("cpu-this"), device("cpu-other"));
        let pin = |workload: u128, kernel: &str| Pinned {
            workload: WorkloadKey::from_bits(workload),
            kernel: kernel.into(),
            source: u64::MAX - 1,
            parameters: "threads=2".into(),
        };
        assert_eq!(store.pin(&here, &pin(1, "first")).unwrap(), pin(1, "first"));
        assert_eq!(store.pin(&here, &pin(1, "second")).unwrap(), pin(1, "first"));
        assert_eq!(store.pin(&there, &pin(1, "second")).unwrap(), pin(1, "second"));
        store.pin(&here, &pin(2, "other")).unwrap();
        assert_eq!(store.pinned(&here).unwrap(), [pin(1, "first"), pin(2, "other")]);
        assert_eq!(store.unpin(&here).unwrap(), 2);
        assert_eq!(store.pinned(&here).unwrap(), []);
        assert_eq!(store.pinned(&there).unwrap(), [pin(1, "second")]);
    });
}

#[test]
fn old_rows_are_pruned() {
    each("prune", |store| {
        store.append(&rows(1..101)).unwrap();
        assert_eq!(store.prune(51_000).unwrap(), 50);
        assert_eq!(store.prune(51_000).unwrap(), 0);
        assert_eq!(all(store), rows(51..101));
    });
}

#[test]
fn a_visitor_may_use_the_store() {
    each("visitor", |store| {
        store.append(&rows(1..20)).unwrap();
        store.visit(None, &mut |seen| assert_eq!(store.append(&[seen]).unwrap(), 0)).unwrap();
    });
}

#[test]
fn rows_outlive_their_process_and_are_seen_by_others() {
    let folder = Folder::new("reopen");
    let (one, other) = (SqliteStore::open(folder.file()).unwrap(), SqliteStore::open(folder.file()).unwrap());
    std::thread::scope(|scope| {
        for (store, from) in [(&one, 0), (&other, 1000), (&one, 2000), (&other, 3000)] {
            scope.spawn(move || {
                for first in (from..from + 100).step_by(5) {
                    assert_eq!(store.append(&rows(first..first + 5)).unwrap(), 5);
                }
            });
        }
    });
    assert_eq!((one.count().unwrap(), other.count().unwrap()), (400, 400));
    drop((one, other));
    let again = SqliteStore::open(folder.file()).unwrap();
    assert_eq!(again.count().unwrap(), 400);
    again.check().unwrap();
}

#[test]
fn pruning_gives_the_room_back() {
    let folder = Folder::new("vacuum");
    let store = SqliteStore::open(folder.file()).unwrap();
    store.append(&rows(1..5000)).unwrap();
    let pages = || -> i64 {
        let connection = rusqlite::Connection::open(folder.file()).unwrap();
        connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap()
    };
    let full = pages();
    store.prune(4_990_000).unwrap();
    assert!(pages() < full / 4, "{full} pages before, {} after", pages());
}
