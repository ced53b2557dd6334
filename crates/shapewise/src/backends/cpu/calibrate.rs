//! Measures what this CPU can do at most: arithmetic, bandwidth, hand-over to other threads.
//!
//! All trials take turns, round after round, for about two seconds; the best sample of each counts, because
//! whatever disturbs a trial only makes it slower.

mod arithmetic;
mod bandwidth;
mod scalar;
mod trial;
mod wake;

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::{Duration, Instant};

use super::ThreadPool;
use crate::device::{ArithmeticPeak, DeviceInfo, Peaks};
use crate::ops::ComputeUnit;
use crate::sensors::{Machine, Sensors, SystemState};
use arithmetic::Load;
use bandwidth::{Arena, LevelTrials};
use trial::Trial;
use wake::Wake;

/// The share of all cores' time that other processes may have while the peaks are measured.
const OTHERS: f64 = 0.1;

/// How long to measure, and how many rounds at least and at most.
struct Budget {
    time: Duration,
    rounds: RangeInclusive<usize>,
}

/// Measures the peaks of the CPU that `info` describes, in about two seconds.
pub fn measure(info: &DeviceInfo, pool: &ThreadPool) -> Peaks {
    measure_within(info, pool, &Budget { time: Duration::from_millis(1700), rounds: 3..=40 })
}

fn measure_within(info: &DeviceInfo, pool: &ThreadPool, budget: &Budget) -> Peaks {
    let start = Instant::now();
    let mut machine = Machine::at(Path::new("/"));
    machine.sample();
    tracing::info!(device = info.name, threads = info.threads, "measuring the peaks, once for this machine");
    let plan = bandwidth::plan(info);
    let arena = Arena::new(&plan);
    if arena.is_none() {
        tracing::warn!("there is no memory to measure the bandwidth with");
    }
    let units: Vec<Load> = arithmetic::units(&info.isas).into_iter().chain(scalar::units()).collect();
    let mut arithmetic: Vec<(ComputeUnit, usize, Trial)> = Vec::new();
    for unit in &units {
        for threads in thread_counts(info.threads) {
            let trial = Trial::new(threads, unit.operations, |_, repeats| (unit.run)(repeats));
            arithmetic.push((unit.unit, threads, trial));
        }
    }
    let mut levels: Vec<LevelTrials> = match &arena {
        Some(arena) => {
            plan.iter().map(|&(level, threads, bytes)| arena.trials(level, threads, bytes)).collect()
        }
        None => Vec::new(),
    };
    let mut wake = Wake::default();
    let rounds = {
        let arithmetic = arithmetic.iter_mut().map(|(_, _, trial)| trial);
        let mut trials: Vec<&mut Trial> =
            arithmetic.chain(levels.iter_mut().flat_map(LevelTrials::all)).collect();
        take_samples(&mut trials, &mut wake, pool, budget, start)
    };
    let peaks = peaks(&arithmetic, &levels, &wake, &machine.sample());
    tracing::info!(
        rounds,
        seconds = start.elapsed().as_secs_f64(),
        busy = peaks.busy,
        "the peaks are measured"
    );
    peaks
}

/// Lets all trials take turns until the time is over; gives the number of rounds.
fn take_samples(
    trials: &mut [&mut Trial],
    wake: &mut Wake,
    pool: &ThreadPool,
    budget: &Budget,
    start: Instant,
) -> usize {
    for trial in &mut *trials {
        trial.prepare(pool);
    }
    tracing::debug!(trials = trials.len(), "all trials are warm");
    let mut rounds = 0;
    while rounds < *budget.rounds.start() || (rounds < *budget.rounds.end() && start.elapsed() < budget.time)
    {
        for trial in &mut *trials {
            trial.sample(pool);
        }
        if pool.threads() > 1 {
            wake.sample(pool);
        }
        rounds += 1;
        tracing::debug!(rounds, seconds = start.elapsed().as_secs_f64(), "a round is done");
    }
    rounds
}

/// The best of all samples.
fn peaks(
    arithmetic: &[(ComputeUnit, usize, Trial)],
    levels: &[LevelTrials],
    wake: &Wake,
    state: &SystemState,
) -> Peaks {
    let disturbed = arithmetic.iter().filter(|(_, _, trial)| trial.was_disturbed()).count();
    let peak = |(unit, threads, trial): &(ComputeUnit, usize, Trial)| {
        let operations_per_second = trial.rate()?;
        Some(ArithmeticPeak { unit: *unit, threads: *threads, operations_per_second })
    };
    Peaks {
        arithmetic: arithmetic.iter().filter_map(peak).collect(),
        bandwidth: levels.iter().filter_map(LevelTrials::peak).collect(),
        hand_off: wake.hand_off(),
        wake: wake.wake(),
        // Arithmetic takes the same time whenever it is left alone. A neighbour that never rests makes all samples of several
        // threads equally slow, so its share of the cores is looked at as well.
        busy: 2 * disturbed > arithmetic.len() || others(state) > OTHERS,
    }
}

/// The share of all cores' time that other processes had.
fn others(state: &SystemState) -> f64 {
    state.load.map_or(0.0, |load| load - state.own_load.unwrap_or(0.0))
}

/// One thread and all of them.
fn thread_counts(threads: usize) -> impl Iterator<Item = usize> {
    [1, threads].into_iter().take(if threads > 1 { 2 } else { 1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::cpu::CpuBackend;
    use crate::backends::cpu::simd::Isa;
    use crate::device::{Backend, Level};
    use crate::tensor::DType;

    #[test]
    fn a_neighbour_that_never_rests_is_noticed() {
        let state = |load, own| SystemState { load, own_load: own, ..SystemState::default() };
        let busy = |state: &SystemState| peaks(&[], &[], &Wake::default(), state).busy;
        assert!(busy(&state(Some(0.9), Some(0.45))));
        assert!(!busy(&state(Some(0.5), Some(0.45))) && !busy(&state(None, Some(0.9))));
    }

    #[test]
    #[cfg_attr(miri, ignore = "measures time")]
    fn everything_that_exists_is_measured() {
        for threads in [1, 2] {
            let mut info = CpuBackend.find().remove(0);
            info.threads = threads;
            let pool = ThreadPool::new(threads);
            let peaks = measure_within(&info, &pool, &Budget { time: Duration::ZERO, rounds: 1..=1 });
            assert!(peaks.is_plausible());
            for dtype in DType::ALL {
                assert!(peaks.arithmetic(ComputeUnit { dtype, isa: None }, threads).is_some());
            }
            for &isa in Isa::available() {
                let unit = |dtype| ComputeUnit { dtype, isa: Some(isa) };
                let [single, double] = [DType::F32, DType::F64].map(|dtype| peaks.arithmetic(unit(dtype), 1));
                assert!(single.unwrap() > 1e8 && double.unwrap() > 1e8, "{isa}");
            }
            assert!(peaks.bandwidth(Level::Memory, threads).is_some());
            assert_eq!(peaks.bandwidth(Level::L1, threads).is_some(), info.caches.l1d.is_some());
            assert_eq!((peaks.hand_off.is_some(), peaks.wake.is_some()), (threads > 1, threads > 1));
        }
    }
}
