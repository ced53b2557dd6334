//! What can go wrong on a GPU, and what to do about it.

use std::time::Duration;

/// An error of the WebGPU backend.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum WebGpuError {
    /// No adapter is what was asked for.
    #[error("no WebGPU adapter {asked}; found: {}", if found.is_empty() { "none".into() } else { found.join(", ") })]
    NoAdapter {
        /// What was asked for.
        asked: String,
        /// Names of the adapters there are.
        found: Vec<String>,
    },
    /// The adapter did not give a device.
    #[error("the adapter {adapter} could not be opened: {reason}")]
    Open {
        /// Its name.
        adapter: String,
        /// What it said.
        reason: String,
    },
    /// The backend is shut down or was never started.
    #[error("the WebGPU backend is not initialised; call `initialise` first")]
    NotInitialised,
    /// The device is gone with all that was in its memory.
    #[error("the device was lost ({reason}); call `initialise` again and upload the data anew")]
    Lost {
        /// What happened to it.
        reason: String,
    },
    /// The device did not finish in time; it may be busy for ever.
    #[error(
        "the device is still busy after {waited:?}; if a shader never ends, call `initialise` for a fresh device"
    )]
    Timeout {
        /// How long was waited.
        waited: Duration,
    },
    /// Memory could not be had, even after what was kept for reuse was given back.
    #[error("out of memory on the device: {requested} bytes asked for, {reserved} reserved{}; drop buffers or raise the limit",
        limit.map_or_else(String::new, |limit| format!(", {limit} allowed")))]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes that live buffers hold.
        reserved: u64,
        /// Bytes allowed at most, if the user set a limit.
        limit: Option<u64>,
    },
    /// A buffer larger than the device or the user allows.
    #[error("a buffer of {bytes} bytes is larger than the {limit} allowed; split the data")]
    BufferTooLarge {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// Bytes outside a buffer.
    #[error("{what}: bytes {offset}..{offset}+{len} lie outside a buffer of {size} bytes")]
    OutOfBounds {
        /// What was asked for.
        what: &'static str,
        /// The first byte.
        offset: u64,
        /// How many.
        len: u64,
        /// What there is.
        size: u64,
    },
    /// WGSL that does not compile.
    #[error("{label}, line {line}, column {column}: {message}\n  {text}")]
    Wgsl {
        /// Name of the kernel.
        label: String,
        /// Line of the source, from 1; 0 where the compiler does not say.
        line: u32,
        /// Column, from 1; 0 where the compiler does not say.
        column: u32,
        /// What is wrong.
        message: String,
        /// That line of the source.
        text: String,
    },
    /// A kernel that asks for more than the device has.
    #[error("{label}: {reason}")]
    Limit {
        /// Name of the kernel.
        label: String,
        /// What is too much, and what is allowed.
        reason: String,
    },
    /// Buffers or uniforms that do not fit a kernel's bindings; nothing was submitted.
    #[error("{label}: {reason}")]
    Binding {
        /// Name of the kernel.
        label: String,
        /// Which binding, and what it needs.
        reason: String,
    },
    /// Something the device or this build cannot do.
    #[error("{what} is not possible here: {reason}")]
    Unsupported {
        /// What was asked for.
        what: &'static str,
        /// Why not.
        reason: String,
    },
    /// The driver refused a command.
    #[error("the device refused {what}: {reason}")]
    Refused {
        /// What was being done.
        what: String,
        /// What it said.
        reason: String,
    },
}

/// A result of the WebGPU backend.
pub type Result<T, E = WebGpuError> = std::result::Result<T, E>;

impl From<WebGpuError> for crate::Error {
    fn from(error: WebGpuError) -> Self {
        Self::Unsupported { what: "this on WebGPU".into(), reason: error.to_string() }
    }
}
