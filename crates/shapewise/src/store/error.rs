//! What can go wrong with a store, and what to do about it.

use std::path::PathBuf;

/// An error of the store; none of them stops a runtime, which goes on in memory.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file is not a store or parts of it are broken.
    #[error("the store {} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A newer release of this library wrote the file; it is left alone.
    #[error(
        "the store {} has schema {found}, this release reads up to {known}; update, or choose another file",
        path.display()
    )]
    Future {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: i64,
        /// The newest schema this release knows.
        known: i64,
    },
    /// The file is a database of another program; it is left alone.
    #[error("{} is a database of another program; choose another file for the store", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be opened, read or written: permissions, a full disk, a lock that is never given up.
    #[error("the store {} cannot be used: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A file to import is not an export of this library.
    #[error("not an export that this release reads: {reason}")]
    NotAnExport {
        /// What is wrong with its first line.
        reason: String,
    },
    /// A file of rows could not be read or written.
    #[error("reading or writing rows failed: {0}")]
    Io(#[from] std::io::Error),
    /// A row that cannot have been measured.
    #[error("evidence that cannot be right: {reason}")]
    Invalid {
        /// Which value, and what is wrong with it.
        reason: String,
    },
}
