//! Who takes part: Shapewise, the Rust peers, and C libraries opened at run time.
//!
//! A contestant writes into the buffer that all share, or, where its interface returns a new tensor, makes one per
//! call and shows it only when asked for the answer.

mod c_blas;
mod c_fft;
mod fft;
mod ours;
mod quantised;
mod rnn;
mod rust_attention;
mod rust_conv;
mod rust_matmul;
mod rust_moving;
mod rust_norm;
mod rust_pointwise;
mod sparse;

pub use ours::owned;

use crate::problem::Problem;
use crate::workload::Task;
use anyhow::{Context, Result};
use shapewise::Runtime;

/// Something that computes a workload.
pub trait Contestant {
    /// The name in tables and records.
    fn name(&self) -> &str;
    /// Computes the answer once; the timed part.
    fn call(&mut self, out: &mut [f32]);
    /// Computes the answer once and leaves it in `out`.
    fn answer(&mut self, out: &mut [f32]) {
        self.call(out);
    }
}

type Entrants<'a> = Vec<Box<dyn Contestant + 'a>>;

/// A contestant that writes into the given buffer.
struct Writes<F> {
    name: &'static str,
    call: F,
}

impl<F: FnMut(&mut [f32])> Contestant for Writes<F> {
    fn name(&self) -> &str {
        self.name
    }
    fn call(&mut self, out: &mut [f32]) {
        (self.call)(out);
    }
}

/// A contestant that writes into the buffer it is given.
pub fn writes<'a>(name: &'static str, call: impl FnMut(&mut [f32]) + 'a) -> Box<dyn Contestant + 'a> {
    Box::new(Writes { name, call })
}

/// A contestant that returns a tensor of its own.
struct Returns<F, R> {
    name: &'static str,
    call: F,
    read: R,
}

impl<T, F: FnMut() -> T, R: Fn(T) -> Vec<f32>> Contestant for Returns<F, R> {
    fn name(&self) -> &str {
        self.name
    }
    fn call(&mut self, _: &mut [f32]) {
        std::hint::black_box((self.call)());
    }
    fn answer(&mut self, out: &mut [f32]) {
        out.copy_from_slice(&(self.read)((self.call)()));
    }
}

fn returns<'a, T: 'a>(
    name: &'static str,
    call: impl FnMut() -> T + 'a,
    read: impl Fn(T) -> Vec<f32> + 'a,
) -> Box<dyn Contestant + 'a> {
    Box::new(Returns { name, call, read })
}

/// What holds for all workloads of a run.
pub struct Setup {
    /// Threads that each contestant may use.
    pub threads: usize,
    /// What Shapewise's entries are called on.
    pub runtime: Runtime,
    /// Peers that take part; all of them when empty.
    peers: Vec<String>,
}

impl Setup {
    /// A run with this many threads and these peers (all when empty).
    pub fn new(threads: usize, peers: Vec<String>) -> Result<Self> {
        let runtime = Runtime::builder().threads(threads).build().context("cannot make a runtime")?;
        Ok(Self { threads, runtime, peers })
    }

    fn wants(&self, name: &str) -> bool {
        self.peers.is_empty() || self.peers.iter().any(|p| p.trim() == name)
    }
}

/// Why some C libraries do not take part.
pub fn warnings() -> Vec<String> {
    c_blas::warnings().into_iter().chain(c_fft::warning()).collect()
}

/// Everyone who can do this problem, Shapewise first.
pub fn enter<'a>(problem: &'a Problem, setup: &'a Setup) -> Result<Entrants<'a>> {
    let threads = setup.threads;
    let mut all = ours::enter(problem, &setup.runtime)?;
    all.extend(match problem.task {
        Task::Conv(conv) => rust_conv::enter(problem, &conv)?,
        Task::Matmul { .. } => {
            let mut peers = rust_matmul::enter(problem, threads)?;
            peers.extend(c_blas::enter(problem, threads));
            peers
        }
        Task::Elementwise { .. } | Task::Sum { .. } => rust_pointwise::enter(problem, threads)?,
        Task::Attention { .. } => rust_attention::enter(problem)?,
        Task::Transpose { .. } | Task::Gather { .. } | Task::Sort { .. } | Task::TopK { .. } => {
            rust_moving::enter(problem)?
        }
        Task::Fft { .. } => {
            let mut peers = fft::enter(problem, threads);
            peers.extend(c_fft::enter(problem, threads)?);
            peers
        }
        Task::Rnn(sizes) => rnn::enter(problem, &sizes)?,
        Task::Sparse { .. } => sparse::enter(problem, threads)?,
        Task::IntegerMatmul { .. } | Task::Quantize { .. } | Task::Dequantize { .. } => {
            quantised::enter(problem)
        }
        Task::WeightMatmul { .. } => quantised::wide(problem, &setup.runtime)?,
        Task::Softmax { .. } | Task::LayerNorm { .. } | Task::BatchNorm { .. } => rust_norm::enter(problem)?,
    });
    all.retain(|c| c.name().starts_with(OURS) || setup.wants(c.name()));
    Ok(all)
}

/// What the names of Shapewise's own entries start with.
pub const OURS: &str = "shapewise";

/// Whether a peer is a Rust library: the first bar is set by these.
pub fn is_rust(name: &str) -> bool {
    let family = name.split('(').next().unwrap_or(name);
    [
        "gemm",
        "faer",
        "matrixmultiply",
        "ndarray",
        "candle",
        "rten-gemm",
        "rten",
        "rust-loop",
        "std",
        "rustfft",
        "realfft",
        "sprs",
    ]
    .contains(&family)
}
