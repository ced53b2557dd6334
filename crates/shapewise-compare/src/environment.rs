//! What must be set before the process starts: thread counts of the peers, and a heap that keeps its pages.
#![allow(unsafe_code)]

use anyhow::{Context, Result};
use std::os::unix::process::CommandExt;
use std::process::Command;

const MARK: &str = "SHAPEWISE_COMPARE_READY";

/// Starts this program again with the environment that the peers read at their start; returns in the second run.
pub fn prepare(threads: usize) -> Result<()> {
    let count = threads.to_string();
    if std::env::var(MARK).is_ok_and(|mark| mark == count) {
        reserve_heap(4 << 30);
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(std::env::args_os().skip(1)).env(MARK, &count);
    for variable in [
        "RAYON_NUM_THREADS",
        "CANDLE_NUM_THREADS",
        "RTEN_NUM_THREADS",
        "MATMUL_NUM_THREADS",
        "OMP_NUM_THREADS",
        "MKL_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
    ] {
        command.env(variable, &count);
    }
    command.env("MKL_DYNAMIC", "FALSE");
    // Workers of OpenMP (MKL: 200 ms) and OpenBLAS (2^26 cycles) spin after a call and would run beside the next
    // contestant. Within a turn calls follow at once, so a shorter wait costs them nothing.
    command.env("KMP_BLOCKTIME", "2").env("OPENBLAS_THREAD_TIMEOUT", "22");
    // malloc keeps freed blocks, so that peers that return new tensors do not pay for page faults.
    command.env("GLIBC_TUNABLES", "glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=68719476736");
    Err(command.exec()).context("cannot start again with the peers' environment")
}

/// Grows the heap once and asks for huge pages in it, as in the shared buffers.
fn reserve_heap(bytes: usize) {
    const HUGE_PAGE: usize = 2 << 20;
    // SAFETY: the block is only given advice on within its bounds, never read or written, and freed.
    unsafe {
        let block = libc::malloc(bytes);
        if block.is_null() {
            return;
        }
        let start = block.map_addr(|a| a.next_multiple_of(HUGE_PAGE));
        let usable = bytes - (start.addr() - block.addr());
        libc::madvise(start, usable & !(HUGE_PAGE - 1), libc::MADV_HUGEPAGE);
        libc::free(block);
    }
}
