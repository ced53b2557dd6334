//! The CPU: instruction sets, threads, memory.
#![allow(unsafe_code)]

#[cfg(feature = "blas")]
pub mod blas;
mod buffer;
pub mod calibrate;
mod device;
mod near;
mod operand;
mod pool;
mod probe;
pub mod real;
pub mod schedule;
pub mod simd;
mod stack;
pub mod threads;
pub mod topology;
mod value;

pub use buffer::HostBuffer;
pub use device::{CpuBackend, CpuDevice};
pub(crate) use near::{Loan, Near};
pub use operand::Operand;
pub use pool::{ALIGNMENT, MemoryError, MemoryPlan, MemoryPool, MemoryStats, PooledBytes};
pub use probe::Probe;
pub(crate) use stack::OnStack;
pub use threads::ThreadPool;
pub use value::Value;
