//! The CPU: instruction sets, threads, memory.
#![allow(unsafe_code)]

pub mod pool;
pub mod simd;
pub mod threads;
