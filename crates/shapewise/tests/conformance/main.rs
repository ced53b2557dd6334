//! Every kernel against the reference of its operation, on random workloads.
//!
//! `SHAPEWISE_ISA` caps the instructions, so that the paths of lesser machines are tested too; `PROPTEST_CASES`
//! sets how many workloads each test makes up.

mod attention;
#[path = "../common/mod.rs"]
mod common;
mod conv;
mod copy;
mod elementwise;
mod fft;
mod gather;
mod matmul;
mod norm;
mod packed;
mod pad;
mod pool;
mod quantize;
mod reduce;
mod rnn;
mod runner;
mod softmax;
mod sort;
mod sparse;
#[cfg(feature = "webgpu")]
mod webgpu;
