//! Export, import and merge: a set union, whatever the order and however often, and no bytes that break it.

use std::io::Cursor;

use proptest::prelude::*;
use shapewise::store::{MemoryStore, SqliteStore, Store, StoreError, export, import, merge};

use crate::{Folder, all, row, rows};

fn exported(ids: impl IntoIterator<Item = u128>) -> Vec<u8> {
    let store = MemoryStore::new();
    store.append(&rows(ids)).unwrap();
    let mut bytes = Vec::new();
    export(&store, &mut bytes).unwrap();
    bytes
}

#[test]
fn an_export_is_imported_to_the_last_bit() {
    let folder = Folder::new("export");
    let store = SqliteStore::open(folder.file()).unwrap();
    let text = exported(1..3000);
    assert_eq!(text.split(|b| *b == b'\n').count(), 3001);
    assert!(text.starts_with(b"{\"shapewise\":\"evidence\",\"format\":1}\n"));
    let first = import(&store, &mut Cursor::new(&text)).unwrap();
    assert_eq!((first.added, first.known, first.refused), (2999, 0, 0));
    let second = import(&store, &mut Cursor::new(&text)).unwrap();
    assert_eq!((second.added, second.known, second.refused), (0, 2999, 0));
    assert_eq!(all(&store), rows(1..3000));
}

#[test]
fn bad_lines_are_counted_and_a_bad_header_is_an_error() {
    let store = MemoryStore::new();
    let mut text = exported(1..4);
    let sound = String::from_utf8(exported([9])).unwrap().lines().nth(1).unwrap().to_owned();
    let wrong = [
        "not json".to_owned(),
        "{}".into(),
        "[".repeat(100_000),
        "x".repeat(1 << 20),
        sound.replace("\"seconds\":", "\"seconds\":-"),
        sound.replace("\"seconds\":", "\"seconds\":1e999,\"s\":"),
        sound.replace("\"seconds\":", "\"seconds\":null,\"s\":"),
        sound.replace("\"samples\":3", "\"samples\":-3"),
        sound.replace("cpu::matmul::avx2_small", &"k".repeat(5000)),
        sound.replace("\"id\":\"", "\"id\":\"+"),
        "\u{0}\u{7f}".into(),
    ];
    for line in &wrong {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    text.extend_from_slice(b"\n\xff\xfe\n");
    text.extend_from_slice(sound.as_bytes());
    let imported = import(&store, &mut Cursor::new(&text)).unwrap();
    assert_eq!((imported.added, imported.refused), (4, wrong.len() + 1), "{imported:?}");
    assert!(imported.reasons[0].starts_with("line 5: "), "{imported:?}");
    assert_eq!(all(&store), rows([1, 2, 3, 9]));

    for header in ["", "\n", "{}", "{\"shapewise\":\"evidence\",\"format\":2}\n", "SQLite format 3\0", "[1]"]
    {
        let error = import(&store, &mut Cursor::new(header)).unwrap_err();
        assert!(matches!(error, StoreError::NotAnExport { .. }), "{header}: {error}");
    }
}

#[test]
fn stores_in_files_merge() {
    let folder = Folder::new("merge");
    let here = SqliteStore::open(folder.file()).unwrap();
    here.append(&rows(1..50)).unwrap();
    let path = folder.0.join("other.sqlite");
    let there = SqliteStore::open(&path).unwrap();
    there.append(&rows(30..3000)).unwrap();
    let read = SqliteStore::open_read_only(&path).unwrap();
    assert_eq!(merge(&here, &read).unwrap(), 2950);
    assert_eq!(merge(&here, &read).unwrap(), 0);
    assert_eq!(all(&here), rows(1..3000));
}

proptest! {
    #[test]
    fn merging_is_a_union(sets in prop::collection::vec(prop::collection::vec(0_u128..40, 0..20), 1..5), order in any::<u64>()) {
        let stores: Vec<MemoryStore> = sets.iter().map(|set| {
            let store = MemoryStore::new();
            store.append(&rows(set.iter().copied())).unwrap();
            store
        }).collect();
        let mut expected: Vec<u128> = sets.concat();
        expected.sort_unstable();
        expected.dedup();

        let forwards = MemoryStore::new();
        for store in &stores {
            merge(&forwards, store).unwrap();
        }
        // Another order, every store twice, by way of files, and in two steps.
        let (other, between) = (MemoryStore::new(), MemoryStore::new());
        for i in 0..2 * stores.len() {
            let store = &stores[(i + order as usize % 7) % stores.len()];
            if order >> i & 1 == 0 {
                let mut text = Vec::new();
                export(store, &mut text).unwrap();
                import(&other, &mut Cursor::new(text)).unwrap();
            } else {
                merge(&between, store).unwrap();
            }
        }
        merge(&other, &between).unwrap();
        prop_assert_eq!(all(&forwards), rows(expected));
        // Each store came by at least once: positions i and i + n are the same store.
        for store in &stores {
            merge(&other, store).unwrap();
        }
        prop_assert_eq!(all(&other), all(&forwards));
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400), headed in any::<bool>()) {
        let mut text = if headed { exported([]) } else { Vec::new() };
        text.extend(bytes);
        let store = MemoryStore::new();
        if let Ok(imported) = import(&store, &mut Cursor::new(text)) {
            prop_assert!(headed);
            prop_assert_eq!(imported.added, 0);
        }
    }

    #[test]
    fn changed_exports_give_only_sound_rows(changes in prop::collection::vec((0_usize..2000, any::<u8>()), 1..6), cut in 0_usize..3000) {
        let mut text = exported(1..5);
        for (at, byte) in changes {
            let at = at % text.len();
            text[at] = byte;
        }
        text.truncate(cut.max(40));
        let store = MemoryStore::new();
        if let Ok(imported) = import(&store, &mut Cursor::new(text)) {
            prop_assert_eq!(imported.added, all(&store).len());
        }
        prop_assert!(all(&store).iter().all(|row| row.validate().is_ok()));
        prop_assert_eq!(store.append(&[row(1000)]).unwrap(), 1);
    }
}
