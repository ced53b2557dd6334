//! The standard output: JSON for programs, text for people.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};
use serde::Serialize;

/// Prints a value as JSON, or the text.
pub fn print(json: bool, value: &impl Serialize, text: &str) -> Result<()> {
    if json { line(&serde_json::to_string_pretty(value)?) } else { line(text) }
}

/// Prints text and ends its line. A reader that has gone away, such as `head`, is no error.
pub fn line(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    let written = writeln!(out, "{}", text.trim_end_matches('\n')).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("the standard output cannot be written"),
    }
}
