//! Evidence in an `SQLite` file: many processes, safe against kills, readable with any tool for such files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, TransactionBehavior, params};

use super::schema::{self, Found};
use super::{
    Evidence, EvidenceId, MAX_FEATURES, MAX_TEXT, Pinned, Refused, Result, Store, StoreError, valid,
};
use crate::device::Fingerprint;
use crate::ops::WorkloadKey;

/// How long to wait for other writers. Writers are background threads and a batch takes milliseconds, so this is met only
/// where a process is stopped in the middle of one.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rows read at once, between which writers and visitors may use the store.
const PAGE: i64 = 1024;

const COLUMNS: &str = "id, device, operation, workload, description, kernel, source, parameters, seconds, samples, \
                       spread, busy, baseline, features, features_version, measured_at";

/// Neighbouring rows, and the id of the last.
struct Page {
    rows: Vec<Result<Evidence>>,
    last: Option<Vec<u8>>,
}

/// A store in a file.
pub struct SqliteStore {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// Short questions that wait for the connection; whoever reads page after page lets them go first.
    waiting: AtomicUsize,
}

impl SqliteStore {
    /// Opens a file, which is made with its folder when it is not there; brings older schemas up to date.
    ///
    /// A file that may not be written is opened for reading; adding to it is an error.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let fail =
            |error: std::io::Error| StoreError::Unusable { path: path.clone(), reason: error.to_string() };
        if let Some(folder) = path.parent().filter(|_| !path.exists()) {
            std::fs::create_dir_all(folder).map_err(fail)?;
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let mut connection = match connect(&path, flags) {
            Ok(connection) if connection.is_readonly("main").unwrap_or(false) => {
                return Self::open_read_only(path);
            }
            Ok(connection) => connection,
            Err(error) => {
                let told = failure(&path, &error);
                let readable =
                    matches!(told, StoreError::Unusable { .. }) && !is_busy(&error) && path.is_file();
                return if readable { Self::open_read_only(path).map_err(|_| told) } else { Err(told) };
            }
        };
        let version = known_version(&connection, &path)?;
        write_ahead(&connection, version).map_err(|e| failure(&path, &e))?;
        schema::migrate(&mut connection).map_err(|e| failure(&path, &e))?;
        Self::checked(path, connection)
    }

    /// Opens a file that is there and leaves it as it is.
    pub fn open_read_only(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let plain = connect(&path, OpenFlags::SQLITE_OPEN_READ_ONLY)
            .map_err(|e| failure(&path, &e))
            .and_then(|connection| known_version(&connection, &path).map(|version| (connection, version)));
        let (connection, version) = match plain {
            // Where nothing can be written the log of changes has no place either; without one the file is complete.
            Err(StoreError::Unusable { .. }) if path.is_file() && !has_log(&path) => {
                let connection = connect_immutable(&path).map_err(|e| failure(&path, &e))?;
                let version = known_version(&connection, &path)?;
                (connection, version)
            }
            other => other?,
        };
        if version < schema::READABLE {
            let reason =
                format!("it has schema {version} and may not be written to bring it to {}", schema::CURRENT);
            return Err(StoreError::Unusable { path, reason });
        }
        Self::checked(path, connection)
    }

    /// Opens a damaged file to save what can be read.
    pub(super) fn open_damaged(path: &Path) -> Result<Self> {
        let open = || {
            let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            // SQLite then reads the pages that are there of a file that was cut off.
            connection.pragma_update(None, "writable_schema", true)?;
            settled(connection)
        };
        let connection = open().map_err(|e| failure(path, &e))?;
        Ok(Self { path: path.into(), connection: Mutex::new(connection), waiting: AtomicUsize::new(0) })
    }

    /// A store whose tables answer.
    fn checked(path: PathBuf, connection: Connection) -> Result<Self> {
        let store = Self { path, connection: Mutex::new(connection), waiting: AtomicUsize::new(0) };
        for query in [
            format!("SELECT {COLUMNS} FROM evidence LIMIT 1"),
            format!("SELECT {PINNED} FROM pinned LIMIT 1"),
        ] {
            let answer = store.lock().prepare_cached(&query).and_then(|mut q| q.exists([]));
            answer.map_err(|e| match failure(&store.path, &e) {
                // With the right mark and version, tables that do not answer can only be broken.
                StoreError::Unusable { path, reason } if is_missing(&e) => {
                    StoreError::Damaged { path, reason }
                }
                other => other,
            })?;
        }
        Ok(store)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version of its tables.
    pub fn schema(&self) -> i64 {
        schema::CURRENT
    }

    /// Reads every page and index of the file; the error says what is broken.
    pub fn check(&self) -> Result<()> {
        let query = "PRAGMA integrity_check(1)";
        let answer = self.lock().query_row(query, [], |row| row.get::<_, String>(0));
        match answer.map_err(|e| failure(&self.path, &e))?.as_str() {
            "ok" => Ok(()),
            reason => Err(StoreError::Damaged { path: self.path.clone(), reason: reason.to_owned() }),
        }
    }

    /// Lets the file grow no further, as on a full disk.
    #[cfg(test)]
    pub(super) fn limit_pages(&self, pages: Option<u32>) {
        let limit = pages.unwrap_or(u32::MAX - 1);
        self.lock().pragma_update_and_check(None, "max_page_count", limit, |_| Ok(())).unwrap();
    }

    // A panic while the lock was held rolled its transaction back, so poisoning carries no news.
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let mut connection = self.lock();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        work(&mut connection).map_err(|e| failure(&self.path, &e))
    }

    /// A row that may be used; what is wrong with another one is a warning.
    fn sound(&self, row: Result<Evidence>) -> Option<Evidence> {
        if let Err(error) = &row {
            tracing::warn!(path = %self.path.display(), %error, "a row of evidence is left out");
        }
        row.ok().filter(valid)
    }

    /// The next rows after an id.
    fn page(&self, device: Option<&Fingerprint>, after: &[u8]) -> Result<Page> {
        let query = match device {
            // The plus keeps the index out: its order is not that of pages, so each page would sort the whole table.
            Some(_) => format!(
                "SELECT {COLUMNS} FROM evidence WHERE id > ?1 AND +device = ?2 ORDER BY id LIMIT {PAGE}"
            ),
            None => format!(
                "SELECT {COLUMNS} FROM evidence WHERE id > ?1 AND ?2 IS NULL ORDER BY id LIMIT {PAGE}"
            ),
        };
        // A lock alone would be taken again before who waits for it has woken up.
        while self.waiting.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        self.run(|connection| {
            let mut statement = connection.prepare_cached(&query)?;
            let mut rows = statement.query(params![after, device.map(Fingerprint::as_str)])?;
            let (mut list, mut last) = (Vec::new(), None::<Vec<u8>>);
            while let Some(row) = match rows.next() {
                // The next page begins at the broken place and tells.
                Err(_) if !list.is_empty() => None,
                other => other?,
            } {
                let id = row.get_ref(0)?.as_blob()?;
                // A broken tree may show rows twice; the order is what pages follow each other by.
                if id <= last.as_deref().unwrap_or(after) {
                    return Err(rusqlite::Error::InvalidQuery);
                }
                last = Some(id.to_vec());
                list.push(evidence(row));
            }
            Ok(Page { rows: list, last })
        })
    }
}

impl Store for SqliteStore {
    fn append(&self, rows: &[Evidence]) -> Result<usize> {
        let rows: Vec<&Evidence> = rows.iter().filter(|row| valid(row)).collect();
        if rows.is_empty() {
            return Ok(0);
        }
        self.run(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let mut insert = transaction.prepare_cached(&format!(
                "INSERT INTO evidence ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, \
                 ?15, ?16) ON CONFLICT (id) DO NOTHING"
            ))?;
            let mut new = 0;
            for row in rows {
                let features: Vec<u8> = row.features.iter().flat_map(|x| x.to_le_bytes()).collect();
                new += insert.execute(params![
                    row.id.bits().to_be_bytes(),
                    row.device.as_str(),
                    row.operation,
                    row.workload.bits().to_be_bytes(),
                    row.description,
                    row.kernel,
                    row.source.cast_signed(),
                    row.parameters,
                    row.seconds,
                    row.samples,
                    row.spread,
                    row.busy,
                    row.baseline,
                    features,
                    row.features_version,
                    row.measured_at,
                ])?;
            }
            drop(insert);
            transaction.commit()?;
            Ok(new)
        })
    }

    fn visit(&self, device: Option<&Fingerprint>, visit: &mut dyn FnMut(Evidence)) -> Result<()> {
        let mut after = Vec::new();
        loop {
            let Page { rows, last } = self.page(device, &after)?;
            rows.into_iter().filter_map(|row| self.sound(row)).for_each(&mut *visit);
            match last {
                Some(id) => after = id,
                None => return Ok(()),
            }
        }
    }

    fn load_workload(&self, device: &Fingerprint, workload: WorkloadKey) -> Result<Vec<Evidence>> {
        let query = format!("SELECT {COLUMNS} FROM evidence WHERE device = ?1 AND workload = ?2 ORDER BY id");
        let key = workload.bits().to_be_bytes();
        let rows: Vec<Result<Evidence>> = self.run(|connection| {
            let mut statement = connection.prepare_cached(&query)?;
            statement.query_map(params![device.as_str(), key], |row| Ok(evidence(row)))?.collect()
        })?;
        Ok(rows.into_iter().filter_map(|row| self.sound(row)).collect())
    }

    fn is_empty(&self) -> Result<bool> {
        self.run(|c| c.prepare_cached("SELECT 1 FROM evidence LIMIT 1")?.exists([]).map(|any| !any))
    }

    fn count(&self) -> Result<u64> {
        let query = "SELECT count(*) FROM evidence";
        self.run(|c| c.prepare_cached(query)?.query_row([], |row| row.get::<_, i64>(0)))
            .map(i64::cast_unsigned)
    }

    fn pin(&self, device: &Fingerprint, wanted: &Pinned) -> Result<Pinned> {
        self.run(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let key = wanted.workload.bits().to_be_bytes();
            let insert = format!(
                "INSERT INTO pinned (device, {PINNED}) VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING"
            );
            let values =
                params![device.as_str(), key, wanted.kernel, wanted.source.cast_signed(), wanted.parameters];
            transaction.prepare_cached(&insert)?.execute(values)?;
            let query = format!("SELECT {PINNED} FROM pinned WHERE device = ?1 AND workload = ?2");
            let found =
                transaction.prepare_cached(&query)?.query_row(params![device.as_str(), key], pinned)?;
            transaction.commit()?;
            Ok(found)
        })
    }

    fn pinned(&self, device: &Fingerprint) -> Result<Vec<Pinned>> {
        let query = format!("SELECT {PINNED} FROM pinned WHERE device = ?1 ORDER BY workload");
        self.run(|c| c.prepare_cached(&query)?.query_map([device.as_str()], pinned)?.collect())
    }

    fn unpin(&self, device: &Fingerprint) -> Result<usize> {
        self.run(|c| c.execute("DELETE FROM pinned WHERE device = ?1", [device.as_str()]))
    }

    fn refuse(&self, device: &Fingerprint, refused: &Refused) -> Result<()> {
        let insert =
            format!("INSERT OR REPLACE INTO refused (device, {REFUSED}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)");
        let cut = |text: &str| text[..text.floor_char_boundary(MAX_TEXT)].to_owned();
        let values = params![
            device.as_str(),
            refused.workload.bits().to_be_bytes(),
            refused.kernel,
            refused.source.cast_signed(),
            refused.parameters,
            cut(&refused.reason),
            refused.at,
        ];
        self.run(|c| c.prepare_cached(&insert)?.execute(values).map(drop))
    }

    fn refused(&self, device: &Fingerprint, workload: WorkloadKey) -> Result<Vec<Refused>> {
        let query = format!("SELECT {REFUSED} FROM refused WHERE device = ?1 AND workload = ?2");
        let of = params![device.as_str(), workload.bits().to_be_bytes()];
        self.run(|c| match c.prepare_cached(&query) {
            // An older file that may only be read has no such table.
            Err(error) if is_missing(&error) => Ok(Vec::new()),
            statement => statement?.query_map(of, refused)?.collect(),
        })
    }

    fn prune(&self, before: i64) -> Result<usize> {
        self.run(|connection| {
            connection.execute("DELETE FROM refused WHERE refused_at < ?1", [before])?;
            let gone = connection.execute("DELETE FROM evidence WHERE measured_at < ?1", [before])?;
            // Every step gives one page back.
            let mut vacuum = connection.prepare_cached("PRAGMA incremental_vacuum")?;
            let mut steps = vacuum.query([])?;
            while steps.next()?.is_some() {}
            Ok(gone)
        })
    }
}

const PINNED: &str = "workload, kernel, source, parameters";

fn pinned(row: &Row<'_>) -> rusqlite::Result<Pinned> {
    Ok(Pinned {
        workload: WorkloadKey::from_bits(u128::from_be_bytes(row.get(0)?)),
        kernel: row.get(1)?,
        source: row.get::<_, i64>(2)?.cast_unsigned(),
        parameters: row.get(3)?,
    })
}

const REFUSED: &str = "workload, kernel, source, parameters, reason, refused_at";

fn refused(row: &Row<'_>) -> rusqlite::Result<Refused> {
    let Pinned { workload, kernel, source, parameters } = pinned(row)?;
    Ok(Refused { workload, kernel, source, parameters, reason: row.get(4)?, at: row.get(5)? })
}

/// A row as it lies in the file; nothing is copied before its size is known to be sound.
fn evidence(row: &Row<'_>) -> Result<Evidence> {
    let wrong = |i: usize| StoreError::Invalid {
        reason: format!(
            "column `{}` holds a value of the wrong kind or size",
            COLUMNS.split(", ").nth(i).unwrap_or("?")
        ),
    };
    let bytes = |i: usize, limit: usize| match row.get_ref(i) {
        Ok(ValueRef::Blob(bytes)) if bytes.len() <= limit => Ok(bytes),
        _ => Err(wrong(i)),
    };
    let key = |i: usize| bytes(i, 16)?.try_into().map(u128::from_be_bytes).map_err(|_| wrong(i));
    let text = |i: usize| match row.get_ref(i) {
        Ok(ValueRef::Text(text)) if text.len() <= MAX_TEXT => {
            String::from_utf8(text.to_vec()).map_err(|_| wrong(i))
        }
        _ => Err(wrong(i)),
    };
    let number = |i: usize| row.get::<_, f64>(i).map_err(|_| wrong(i));
    let maybe = |i: usize| row.get::<_, Option<f64>>(i).map_err(|_| wrong(i));
    let small = |i: usize| row.get::<_, u32>(i).map_err(|_| wrong(i));
    let (features, odd) = bytes(13, 4 * MAX_FEATURES)?.as_chunks::<4>();
    if !odd.is_empty() {
        return Err(wrong(13));
    }
    Ok(Evidence {
        id: EvidenceId::from_bits(key(0)?),
        device: Fingerprint::from_text(text(1)?),
        operation: text(2)?,
        workload: WorkloadKey::from_bits(key(3)?),
        description: text(4)?,
        kernel: text(5)?,
        source: row.get::<_, i64>(6).map_err(|_| wrong(6))?.cast_unsigned(),
        parameters: text(7)?,
        seconds: number(8)?,
        samples: small(9)?,
        spread: maybe(10)?,
        busy: row.get::<_, bool>(11).map_err(|_| wrong(11))?,
        baseline: maybe(12)?,
        features: features.iter().map(|x| f32::from_le_bytes(*x)).collect(),
        features_version: small(14)?,
        measured_at: row.get(15).map_err(|_| wrong(15))?,
    })
}

fn connect(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    settled(Connection::open_with_flags(path, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?)
}

/// A connection that trusts nothing else to change the file and leaves no trace beside it.
fn connect_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let hex = |digit: u8| char::from(b"0123456789abcdef"[usize::from(digit)]);
    let mut address = String::from("file:");
    for byte in path.to_string_lossy().bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                address.push(char::from(byte));
            }
            other => address.extend(['%', hex(other >> 4), hex(other & 15)]),
        }
    }
    address.push_str("?immutable=1");
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    settled(Connection::open_with_flags(address, flags)?)
}

fn settled(connection: Connection) -> rusqlite::Result<Connection> {
    connection.busy_timeout(PATIENCE)?;
    // A file from elsewhere must not run functions of its own.
    connection.pragma_update(None, "trusted_schema", false)?;
    // Enough for a killed process; after a power cut the last batches may be missing, the file stays whole.
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(connection)
}

/// The version of a file that this release may touch.
fn known_version(connection: &Connection, path: &Path) -> Result<i64> {
    match schema::identify(connection).map_err(|e| failure(path, &e))? {
        Found::Foreign => Err(StoreError::Foreign { path: path.into() }),
        Found::Version(found) if found > schema::CURRENT => {
            Err(StoreError::Future { path: path.into(), found, known: schema::CURRENT })
        }
        Found::Version(version) => Ok(version),
    }
}

/// Switches to the write-ahead log, which lets one process write while others read.
fn write_ahead(connection: &Connection, version: i64) -> rusqlite::Result<()> {
    let mode = || connection.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0));
    if mode()? == "wal" {
        return Ok(());
    }
    if version == 0 {
        // Only a file without tables takes this: pruned rows give their room back.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    // SQLite does not wait for other processes at this switch.
    let start = Instant::now();
    loop {
        let switched =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0));
        match switched {
            Err(error) if is_busy(&error) && start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Another answer than `wal` comes from a file system without shared memory; the plain journal works there.
            other => return other.map(drop),
        }
    }
}

fn has_log(path: &Path) -> bool {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).is_ok_and(|meta| meta.len() > 0)
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

/// Whether a query failed for what it asks, such as a table that is not there.
fn is_missing(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::Unknown))
}

fn failure(path: &Path, error: &rusqlite::Error) -> StoreError {
    let (path, reason) = (path.to_path_buf(), error.to_string());
    match error.sqlite_error_code() {
        // No code: what was read without complaint is not what the tables may hold.
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) | None => {
            StoreError::Damaged { path, reason }
        }
        Some(_) => StoreError::Unusable { path, reason },
    }
}
