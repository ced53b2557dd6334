//! The tables of the file, version by version.

use rusqlite::{Connection, TransactionBehavior};

/// Marks the file as a store of this library: the letters `SHWS`.
pub const APPLICATION_ID: i64 = 0x5348_5753;

/// What brings a file from each version to the next: the first entry makes version 1 from nothing. Entries that were
/// released never change; a change of the tables is a new entry.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE evidence (
        id BLOB PRIMARY KEY NOT NULL CHECK (length(id) = 16),
        device TEXT NOT NULL,
        operation TEXT NOT NULL,
        workload BLOB NOT NULL CHECK (length(workload) = 16),
        description TEXT NOT NULL,
        kernel TEXT NOT NULL,
        source INTEGER NOT NULL,
        parameters TEXT NOT NULL,
        seconds REAL NOT NULL,
        samples INTEGER NOT NULL,
        spread REAL,
        busy INTEGER NOT NULL CHECK (busy IN (0, 1)),
        baseline REAL,
        features BLOB NOT NULL,
        features_version INTEGER NOT NULL,
        measured_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX evidence_by_device ON evidence (device);
    CREATE INDEX evidence_by_age ON evidence (measured_at);
    CREATE TABLE pinned (
        device TEXT NOT NULL,
        workload BLOB NOT NULL CHECK (length(workload) = 16),
        kernel TEXT NOT NULL,
        source INTEGER NOT NULL,
        parameters TEXT NOT NULL,
        PRIMARY KEY (device, workload)
    ) STRICT, WITHOUT ROWID;
",
    "
    DROP INDEX evidence_by_device;
    CREATE INDEX evidence_by_workload ON evidence (device, workload);
",
    "
    CREATE TABLE refused (
        device TEXT NOT NULL,
        workload BLOB NOT NULL CHECK (length(workload) = 16),
        kernel TEXT NOT NULL,
        source INTEGER NOT NULL,
        parameters TEXT NOT NULL,
        reason TEXT NOT NULL,
        refused_at INTEGER NOT NULL,
        PRIMARY KEY (device, workload, kernel, parameters)
    ) STRICT, WITHOUT ROWID;
",
];

/// The oldest version whose tables can be read as they are: an index and a table that may be missing have come since.
pub const READABLE: i64 = 1;

/// The version this release writes.
pub const CURRENT: i64 = MIGRATIONS.len() as i64;

/// What a file is.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A store of this version; 0 for an empty file.
    Version(i64),
    /// A database of another program.
    Foreign,
}

/// Reads what the file is; changes nothing.
pub fn identify(connection: &Connection) -> rusqlite::Result<Found> {
    // One statement, one snapshot: another process may be making the tables right now.
    let query = "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
                 FROM pragma_application_id, pragma_user_version";
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
    let (application, version, tables): (i64, i64, i64) = connection.query_row(query, [], read)?;
    if application == APPLICATION_ID {
        return Ok(Found::Version(version));
    }
    let untouched = application == 0 && version == 0 && tables == 0;
    Ok(if untouched { Found::Version(0) } else { Found::Foreign })
}

/// Brings the file to the current version, all steps or none; the first of several processes does it.
pub fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let from = match identify(&transaction)? {
        Found::Version(version) => usize::try_from(version).unwrap_or(0),
        Found::Foreign => MIGRATIONS.len(),
    };
    for step in MIGRATIONS.iter().skip(from) {
        transaction.execute_batch(step)?;
    }
    if from < MIGRATIONS.len() {
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", CURRENT)?;
    }
    transaction.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(connection: &Connection) -> Vec<String> {
        let mut list =
            connection.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name").unwrap();
        list.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    /// The tables of every released version, as they lie in users' files. A new version adds an entry here; the entries
    /// before it stay as they are.
    const RELEASED: &[&str] = &[
        include_str!("../../tests/store/schema-1.sql"),
        include_str!("../../tests/store/schema-2.sql"),
        include_str!("../../tests/store/schema-3.sql"),
    ];

    #[test]
    fn every_released_version_has_its_fixture() {
        assert_eq!(
            RELEASED.len() as i64,
            CURRENT,
            "write tests/store/schema-{CURRENT}.sql with the new tables"
        );
        let mut fresh = Connection::open_in_memory().unwrap();
        migrate(&mut fresh).unwrap();
        let fixture = Connection::open_in_memory().unwrap();
        fixture.execute_batch(RELEASED[RELEASED.len() - 1]).unwrap();
        let plain = |sql: Vec<String>| -> Vec<String> {
            sql.iter().map(|s| s.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
        };
        assert_eq!(plain(tables(&fresh)), plain(tables(&fixture)), "a released schema was changed in place");
    }

    #[test]
    fn every_released_version_is_brought_up_to_date() {
        let mut fresh = Connection::open_in_memory().unwrap();
        migrate(&mut fresh).unwrap();
        for (i, fixture) in RELEASED.iter().enumerate() {
            let mut old = Connection::open_in_memory().unwrap();
            old.execute_batch(fixture).unwrap();
            assert_eq!(identify(&old).unwrap(), Found::Version(i as i64 + 1));
            let count =
                |c: &Connection| c.query_row("SELECT count(*) FROM evidence", [], |r| r.get::<_, i64>(0));
            assert_eq!(count(&old).unwrap(), 2, "a fixture holds two rows");
            migrate(&mut old).unwrap();
            assert_eq!(identify(&old).unwrap(), Found::Version(CURRENT));
            assert_eq!(count(&old).unwrap(), 2, "rows of version {} were lost", i + 1);
        }
    }

    #[test]
    fn other_programs_files_are_known() {
        let connection = Connection::open_in_memory().unwrap();
        assert_eq!(identify(&connection).unwrap(), Found::Version(0));
        connection.execute_batch("CREATE TABLE bookmarks (url TEXT)").unwrap();
        assert_eq!(identify(&connection).unwrap(), Found::Foreign);
        connection.pragma_update(None, "application_id", 7).unwrap();
        assert_eq!(identify(&connection).unwrap(), Found::Foreign);
    }
}
