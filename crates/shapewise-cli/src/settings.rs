//! Settings that commands on a runtime share.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use shapewise::device::BackendKind;
use shapewise::{Placement, Runtime, RuntimeBuilder, StoreLocation};

/// How the runtime is made.
#[derive(Args)]
pub struct Settings {
    /// Threads to use, the caller included [default: all cores]
    #[arg(long)]
    pub threads: Option<usize>,
    /// Do not measure the machine's peaks (about two seconds, once)
    #[arg(long)]
    pub no_calibration: bool,
    /// Keep what is measured in this file, or only in `memory` [default: `SHAPEWISE_STORE`, or the platform's cache directory]
    #[arg(long, value_name = "PATH")]
    pub store: Option<PathBuf>,
    /// Only kernels of this backend: cpu or webgpu [default: any, GPUs that are only software left out]
    #[arg(long, value_name = "BACKEND", value_parser = backend)]
    pub on: Option<BackendKind>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// The backend of this name.
pub fn backend(name: &str) -> Result<BackendKind, String> {
    match name {
        "cpu" => Ok(BackendKind::Cpu),
        "webgpu" => Ok(BackendKind::WebGpu),
        _ => Err(format!("`{name}` has no kernels; use cpu or webgpu")),
    }
}

impl Settings {
    /// Where evidence is kept.
    pub fn location(&self) -> StoreLocation {
        match &self.store {
            Some(path) if path.as_os_str() == "memory" => StoreLocation::Memory,
            Some(path) => StoreLocation::File(path.clone()),
            None => StoreLocation::Default,
        }
    }

    /// A runtime with everything but its store.
    pub fn builder(&self) -> RuntimeBuilder {
        let mut builder = Runtime::builder();
        if let Some(threads) = self.threads {
            builder = builder.threads(threads);
        }
        if let Some(kind) = self.on {
            builder = builder.placement(Placement::On(kind));
        }
        if self.no_calibration { builder.without_calibration() } else { builder }
    }

    /// A runtime that knows what the store has.
    pub fn runtime(&self) -> Result<Runtime> {
        Ok(self.builder().store(self.location()).build()?)
    }
}

/// Ends the use of a runtime that was only asked. Dropping it would wait until its models are trained, which takes seconds
/// with a large store; it has measured nothing that could be lost.
pub fn leave(runtime: Runtime) {
    std::mem::forget(runtime);
}
