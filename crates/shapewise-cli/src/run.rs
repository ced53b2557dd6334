//! `shapewise run`: an operation on tensors from files.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;
use shapewise::{DType, Runtime};

use crate::question::{self, Window};
use crate::{files, output};

/// Which operation on which files.
#[derive(Args)]
pub struct RunQuestion {
    /// matmul, add, relu … (`shapewise bench --help` lists them)
    operation: String,
    /// Operands: FILE.npy, FILE.safetensors or FILE.safetensors:NAME
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Where the result goes: FILE.npy or FILE.safetensors
    #[arg(long, short, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    window: Window,
}

/// What was done.
#[derive(Serialize)]
struct Done<'a> {
    operation: &'a str,
    kernel: String,
    dtype: DType,
    shape: Vec<usize>,
    seconds: f64,
    out: &'a PathBuf,
}

/// Reads, computes, writes.
pub fn run(run: &RunQuestion, runtime: &Runtime, json: bool) -> Result<()> {
    let name = &*run.operation;
    let (inputs, ask) = question::operation(name)?;
    ensure!(
        !matches!(name, "quantize" | "dequantize" | "qmatmul"),
        "{name} takes scales, which files do not carry; call it from Rust or Python"
    );
    let given = run.files.len();
    ensure!(given == inputs, "{name} takes {inputs} files, {given} were given");
    files::check_output(&run.out)?;
    let operands = run.files.iter().map(|file| files::read(file)).collect::<Result<Vec<_>>>()?;
    let with = run.window.attributes();
    let workload = question::workload_of(runtime, name, &operands, &with)?;
    let kernel = runtime.explain_workload(&workload)?.chosen;
    let start = Instant::now();
    let result = ask(runtime, &operands, &with).with_context(|| format!("{name} on these files"))?;
    let seconds = start.elapsed().as_secs_f64();
    files::write(&run.out, &result)?;
    let shape = result.shape().to_vec();
    let sizes: Vec<String> = shape.iter().map(ToString::to_string).collect();
    let text = format!(
        "{name} by {kernel}: {} {} in {:.3} ms, written to {}",
        result.dtype(),
        if sizes.is_empty() { "scalar".to_owned() } else { sizes.join("×") },
        seconds * 1e3,
        run.out.display()
    );
    let done = Done { operation: name, kernel, dtype: result.dtype(), shape, seconds, out: &run.out };
    output::print(json, &done, &text)
}
