//! Evidence between stores: files of JSON lines, and the union of two stores.

use std::io::{BufRead, Read, Write};

use serde::{Deserialize, Serialize};

use super::{Evidence, MAX_FEATURES, MAX_TEXT, Result, Store, StoreError};

/// The layout of export files; rises when it changes.
const FORMAT: u32 = 1;
/// What stands in the first line of every export.
const MARK: &str = "evidence";
/// Rows that are added in one transaction.
const BATCH: usize = 1024;
/// No line of an export is longer: five texts with every byte escaped to six, the features, and room for the numbers.
const LONGEST: usize = 5 * 6 * MAX_TEXT + 32 * MAX_FEATURES + 1024;
/// Reasons for refused lines that are kept to be shown.
const REASONS: usize = 5;

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    shapewise: String,
    format: u32,
}

/// What came of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// Rows that were new.
    pub added: usize,
    /// Rows that were there already.
    pub known: usize,
    /// Lines that are not sound evidence.
    pub refused: usize,
    /// Why, for the first of them.
    pub reasons: Vec<String>,
}

/// Writes every row as a line of JSON after a header and says how many there are.
pub fn export(store: &dyn Store, out: &mut dyn Write) -> Result<usize> {
    let header = Header { shapewise: MARK.into(), format: FORMAT };
    line(out, &header)?;
    let (mut count, mut written) = (0, Ok(()));
    store.visit(None, &mut |row| {
        if written.is_ok() {
            written = line(out, &row);
            count += 1;
        }
    })?;
    written?;
    out.flush()?;
    Ok(count)
}

fn line(out: &mut dyn Write, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_vec(value).map_err(std::io::Error::from)?;
    text.push(b'\n');
    Ok(out.write_all(&text)?)
}

/// Adds the rows of an export. Lines that are not sound are counted and left out; a wrong first line is an error.
pub fn import(store: &dyn Store, from: &mut dyn BufRead) -> Result<Imported> {
    let mut text = Vec::new();
    let reason = match read_line(from, &mut text)? {
        Line::End => "it is empty".into(),
        Line::TooLong => "its first line is too long".into(),
        Line::Whole => match serde_json::from_slice::<Header>(&text) {
            Ok(header) if header.shapewise == MARK && header.format == FORMAT => String::new(),
            Ok(header) => format!("it says `{}`, format {}", header.shapewise.escape_debug(), header.format),
            Err(error) => error.to_string(),
        },
    };
    if !reason.is_empty() {
        return Err(StoreError::NotAnExport { reason });
    }
    let mut imported = Imported::default();
    let mut batch = Vec::new();
    for number in 2_usize.. {
        let row = match read_line(from, &mut text)? {
            Line::End => break,
            Line::TooLong => Err("it is too long".to_owned()),
            Line::Whole if text.trim_ascii().is_empty() => continue,
            Line::Whole => parse(&text),
        };
        match row {
            Ok(row) => batch.push(row),
            Err(reason) => {
                imported.refused += 1;
                if imported.reasons.len() < REASONS {
                    imported.reasons.push(format!("line {number}: {reason}"));
                }
            }
        }
        if batch.len() >= BATCH {
            add(store, &mut batch, &mut imported)?;
        }
    }
    add(store, &mut batch, &mut imported)?;
    Ok(imported)
}

fn parse(text: &[u8]) -> std::result::Result<Evidence, String> {
    let row: Evidence = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    row.validate().map_err(|error| error.to_string())?;
    Ok(row)
}

fn add(store: &dyn Store, batch: &mut Vec<Evidence>, imported: &mut Imported) -> Result<()> {
    let added = store.append(batch)?;
    imported.added += added;
    imported.known += batch.len() - added;
    batch.clear();
    Ok(())
}

/// Adds every row of one store to another and says how many were new. Pinned decisions stay where they are.
pub fn merge(into: &dyn Store, from: &dyn Store) -> Result<usize> {
    let (mut added, mut batch) = (Ok(0), Vec::new());
    let mut flush = |batch: &mut Vec<Evidence>| {
        added = std::mem::replace(&mut added, Ok(0)).and_then(|sum| into.append(batch).map(|new| sum + new));
        batch.clear();
    };
    let visited = from.visit(None, &mut |row| {
        batch.push(row);
        if batch.len() >= BATCH {
            flush(&mut batch);
        }
    });
    // What was read before a damaged place is kept all the same.
    flush(&mut batch);
    visited.and(added)
}

enum Line {
    End,
    Whole,
    TooLong,
}

/// Reads a line without its end; of one that is too long only the beginning is held in memory.
fn read_line(from: &mut dyn BufRead, text: &mut Vec<u8>) -> Result<Line> {
    text.clear();
    let read = from.take(LONGEST as u64).read_until(b'\n', text)?;
    if read == 0 {
        return Ok(Line::End);
    }
    if text.pop_if(|last| *last == b'\n').is_some() || read < LONGEST {
        return Ok(Line::Whole);
    }
    from.skip_until(b'\n')?;
    Ok(Line::TooLong)
}
