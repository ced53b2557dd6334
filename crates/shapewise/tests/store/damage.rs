//! Damaged and hostile files: a warning, the file kept aside, and work goes on.

use std::fs::{self, File};
use std::path::Path;

use proptest::prelude::*;
use shapewise::store::{SqliteStore, Store, StoreError, open_or_memory};

use crate::{Folder, all, name, row, rows};

fn filled(folder: &Folder, count: u128) -> Vec<u8> {
    let store = SqliteStore::open(folder.file()).unwrap();
    store.append(&rows(1..=count)).unwrap();
    drop(store);
    fs::read(folder.file()).unwrap()
}

/// The store works, whatever happened before, and says what happened.
fn works(path: &Path) -> Option<StoreError> {
    let (store, warning) = open_or_memory(path);
    let before = store.count().unwrap();
    assert_eq!(store.append(&rows([1_000_000])).unwrap(), 1);
    assert_eq!(store.count().unwrap(), before + 1);
    assert!(all(store.as_ref()).contains(&row(1_000_000)));
    warning
}

#[test]
fn files_that_are_no_database_are_set_aside() {
    for (what, bytes) in [
        ("text", b"a shopping list, longer than the header of a database would be: bread, milk, a new bicycle; and eggs".to_vec()),
        ("magic", {
            let folder = Folder::new("whole");
            let mut bytes = filled(&folder, 5);
            bytes[..6].copy_from_slice(b"sqlite");
            bytes
        }),
    ] {
        let folder = Folder::new(what);
        fs::write(folder.file(), &bytes).unwrap();
        let warning = works(&folder.file());
        assert!(matches!(warning, Some(StoreError::Damaged { .. })), "{what}: {warning:?}");
        let aside = folder.set_aside();
        assert_eq!(aside.len(), 1, "{what}");
        assert_eq!(fs::read(&aside[0]).unwrap(), bytes, "the damaged file is kept as it was");
        assert!(works(&folder.file().with_extension("second")).is_none());
        let (store, warning) = open_or_memory(&folder.file());
        assert!(warning.is_none(), "a new file has taken its place");
        assert_eq!(all(store.as_ref()), rows([1_000_000]));
    }
}

#[test]
fn a_truncated_file_gives_up_what_can_be_read() {
    let folder = Folder::new("truncated");
    let bytes = filled(&folder, 3000);
    for part in [3, 2] {
        let folder = Folder::new(&format!("truncated-{part}"));
        fs::write(folder.file(), &bytes[..bytes.len() * (part - 1) / part]).unwrap();
        let (store, _) = open_or_memory(&folder.file());
        let read = all(store.as_ref());
        assert!(!read.is_empty(), "the rows before the cut are saved");
        assert!(read.iter().all(|r| *r == row(r.id.bits())), "only sound rows");
        assert_eq!(folder.set_aside().len(), 1);
        assert_eq!(store.append(&rows([1_000_000])).unwrap(), 1);
        drop(store);
        SqliteStore::open(folder.file()).unwrap().check().unwrap();
        assert!(all(open_or_memory(&folder.file()).0.as_ref()).contains(&row(1_000_000)));
    }
    fs::write(folder.file(), b"").unwrap();
    assert!(works(&folder.file()).is_none(), "an empty file is a store that was never written");
}

#[test]
fn files_of_newer_releases_and_other_programs_are_left_alone() {
    let folder = Folder::new("future");
    filled(&folder, 3);
    let change = |sql: &str| rusqlite::Connection::open(folder.file()).unwrap().execute_batch(sql).unwrap();
    change("PRAGMA user_version = 99");
    let bytes = fs::read(folder.file()).unwrap();
    let warning = works(&folder.file()).unwrap();
    assert!(matches!(warning, StoreError::Future { found: 99, .. }), "{warning}");
    assert!(warning.to_string().contains("update"), "{warning}");
    change("PRAGMA application_id = 7");
    assert!(matches!(works(&folder.file()), Some(StoreError::Foreign { .. })));
    change("PRAGMA application_id = 1397249875");
    assert_eq!(fs::read(folder.file()).unwrap()[100..], bytes[100..], "nothing was written");
    assert!(folder.set_aside().is_empty());
}

#[test]
fn missing_tables_are_damage() {
    let folder = Folder::new("tables");
    filled(&folder, 3);
    rusqlite::Connection::open(folder.file()).unwrap().execute_batch("DROP TABLE pinned").unwrap();
    assert!(matches!(works(&folder.file()), Some(StoreError::Damaged { .. })));
    assert_eq!(folder.set_aside().len(), 1);
}

#[test]
fn hostile_values_are_left_out() {
    let folder = Folder::new("hostile");
    filled(&folder, 9);
    let connection = rusqlite::Connection::open(folder.file()).unwrap();
    // A table of the same columns that takes any kind of value, as somebody else's file may have.
    let columns = "id BLOB PRIMARY KEY, device, operation, workload, description, kernel, source, parameters, seconds, \
                   samples, spread, busy, baseline, features, features_version, measured_at";
    let statement = format!(
        "ALTER TABLE evidence RENAME TO old; CREATE TABLE evidence ({columns}) WITHOUT ROWID;
         INSERT INTO evidence SELECT * FROM old; DROP TABLE old;
         UPDATE evidence SET seconds = NULL WHERE id = x'00000000000000000000000000000001';
         UPDATE evidence SET seconds = 9e999 WHERE id = x'00000000000000000000000000000002';
         UPDATE evidence SET seconds = 'quick' WHERE id = x'00000000000000000000000000000003';
         UPDATE evidence SET description = zeroblob(10000000) WHERE id = x'00000000000000000000000000000004';
         UPDATE evidence SET kernel = hex(zeroblob(1000000)) WHERE id = x'00000000000000000000000000000005';
         UPDATE evidence SET samples = -1 WHERE id = x'00000000000000000000000000000006';
         UPDATE evidence SET features = x'0000c0' WHERE id = x'00000000000000000000000000000007';
         UPDATE evidence SET features = x'0000c07f' WHERE id = x'00000000000000000000000000000008';"
    );
    connection.execute_batch(&statement).unwrap();
    drop(connection);
    let store = SqliteStore::open(folder.file()).unwrap();
    assert_eq!(store.count().unwrap(), 9);
    assert_eq!(all(&store), rows([9]));
}

#[test]
fn places_where_nothing_can_be_written_are_a_warning() {
    let folder = Folder::new("places");
    let file = folder.0.join("file");
    fs::write(&file, "not a folder").unwrap();
    assert!(matches!(works(&file.join("below.sqlite")), Some(StoreError::Unusable { .. })));
    assert!(matches!(works(&folder.0), Some(StoreError::Unusable { .. })), "a folder is no file");
    assert_eq!(fs::read_to_string(&file).unwrap(), "not a folder");
}

#[test]
fn a_file_for_reading_only_is_read_and_the_rest_kept_in_memory() {
    let folder = Folder::new("read-only");
    filled(&folder, 5);
    let read = SqliteStore::open_read_only(folder.file()).unwrap();
    assert!(matches!(read.append(&rows([6])), Err(StoreError::Unusable { .. })));
    assert_eq!(all(&read), rows(1..6));
    drop(read);
    let mut permissions = fs::metadata(folder.file()).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(folder.file(), permissions).unwrap();
    // The superuser may write all the same; then the rows are in the file instead.
    let privileged = File::options().append(true).open(folder.file()).is_ok();
    let (store, _) = open_or_memory(&folder.file());
    assert_eq!(store.append(&rows([6])).unwrap(), 1);
    assert_eq!(all(store.as_ref()), rows(1..7));
    drop(store);
    let kept = all(&SqliteStore::open_read_only(folder.file()).unwrap()).len();
    assert_eq!(kept, if privileged { 6 } else { 5 }, "{}", name(&folder.file()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn any_change_to_a_file_is_survived(changes in prop::collection::vec((any::<u32>(), any::<u8>()), 1..40), cut in any::<u32>()) {
        let folder = Folder::new("fuzz");
        let mut bytes = filled(&folder, 60);
        for (at, byte) in changes {
            let at = at as usize % bytes.len();
            bytes[at] = byte;
        }
        if cut % 4 == 0 {
            bytes.truncate(cut as usize % bytes.len());
        }
        fs::write(folder.file(), &bytes).unwrap();
        let sound = SqliteStore::open(folder.file()).and_then(|store| store.check()).is_ok();
        let (store, _) = open_or_memory(&folder.file());
        prop_assert!(all(store.as_ref()).iter().all(|row| row.validate().is_ok()));
        store.append(&rows([1_000_000])).unwrap();
        let seen = all(store.as_ref()).iter().filter(|row| row.id.bits() == 1_000_000).count();
        // Only in a file that SQLite itself finds broken may a new row end up out of reach.
        prop_assert!(seen == 1 || !sound && seen == 0, "seen {} times", seen);
    }
}
