//! What a buffer from the pool costs, against one from the system's allocator.

use std::hint::black_box;
use std::time::Instant;

use shapewise::backends::cpu::MemoryPool;

const SAMPLES: usize = 51;
const BATCH: usize = 1000;

/// Nanoseconds of one call.
fn timed(mut call: impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..BATCH).for_each(|_| call());
    start.elapsed().as_secs_f64() * 1e9 / BATCH as f64
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    println!("{:>10} {:>10} {:>10} {:>8}", "bytes", "pool ns", "system ns", "ratio");
    for bytes in [64, 4096, 1 << 20, 16 << 20] {
        let pool = MemoryPool::new(None);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..SAMPLES {
            ours.push(timed(|| drop(black_box(pool.take(black_box(bytes))))));
            theirs.push(timed(|| drop(black_box(Vec::<u8>::with_capacity(black_box(bytes))))));
        }
        assert_eq!(pool.stats().allocations, 1, "the steady state allocates nothing");
        let (ours, theirs) = (median(ours), median(theirs));
        println!("{bytes:>10} {ours:>10.1} {theirs:>10.1} {:>8.2}", ours / theirs);
    }
}
