//! What it costs to hand tasks to the thread pool, against doing the same empty tasks in a loop.

use std::hint::black_box;
use std::time::{Duration, Instant};

use shapewise::backends::cpu::threads::ThreadPool;

const SAMPLES: usize = 101;
const BATCH: usize = 200;

/// The median of a sorted list of times per call, in nanoseconds.
fn median(mut times: Vec<Duration>, calls: usize) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e9 / calls as f64
}

fn timed(calls: usize, mut call: impl FnMut()) -> Duration {
    let start = Instant::now();
    (0..calls).for_each(|_| call());
    start.elapsed()
}

fn main() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    println!(
        "{:>8} {:>6} {:>12} {:>12} {:>10} {:>12}",
        "threads", "tasks", "loop ns", "warm ns", "ratio", "parked ns"
    );
    for threads in [1, 2, 4, 8, 16, 32, 64, 128].into_iter().filter(|&threads| threads <= cores) {
        let pool = ThreadPool::new(threads);
        for tasks in [threads, 4 * threads, 64 * threads] {
            let task = |index: usize| {
                black_box(index);
            };
            let (mut alone, mut warm, mut parked) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..SAMPLES {
                alone.push(timed(BATCH, || (0..tasks).for_each(task)));
                warm.push(timed(BATCH, || pool.run(threads, tasks, black_box(&task))));
            }
            for _ in 0..SAMPLES {
                std::thread::sleep(Duration::from_millis(1));
                // The worker has to come: the caller cannot leave before both have met.
                parked.push(timed(1, || meet(&pool, threads)));
            }
            let (alone, warm) = (median(alone, BATCH), median(warm, BATCH));
            let (ratio, parked) = (warm / alone, median(parked, 1));
            println!("{threads:>8} {tasks:>6} {alone:>12.1} {warm:>12.1} {ratio:>10.1} {parked:>12.0}");
        }
        let (mut met, warm_up) = (Vec::new(), 10);
        for sample in 0..SAMPLES + warm_up {
            let time = timed(BATCH, || meet(&pool, threads));
            if sample >= warm_up {
                met.push(time);
            }
        }
        println!("{threads:>8} threads meet, all of them warm: {:.0} ns", median(met, BATCH));
    }
}

/// A run that ends only after every thread has taken part in it.
fn meet(pool: &ThreadPool, threads: usize) {
    use std::sync::atomic::{AtomicUsize, Ordering};
    let inside = AtomicUsize::new(0);
    pool.run(threads, threads, &|_| {
        inside.fetch_add(1, Ordering::AcqRel);
        while inside.load(Ordering::Acquire) < threads {
            std::hint::spin_loop();
        }
    });
}
