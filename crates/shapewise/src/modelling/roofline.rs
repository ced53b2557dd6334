//! Time from what a kernel executes and what the device can do at most.

use crate::device::{Level, Peaks};
use crate::ops::{ComputeUnit, Cost};

/// What a unit and the memory reach at most on a number of threads.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Roof {
    unit: ComputeUnit,
    threads: usize,
    arithmetic: Option<f64>,
    levels: [Option<f64>; 4],
}

/// Bytes per second of each level.
fn rates(peaks: &Peaks, threads: usize) -> [Option<f64>; 4] {
    [Level::L1, Level::L2, Level::L3, Level::Memory].map(|level| peaks.bandwidth(level, threads))
}

/// Roofs that memory is taken for at once: those of three instruction sets and scalar code on one and on all threads.
const USUAL: usize = 8;

/// The roofs of a device, each looked up once: the candidates of a workload share a few.
pub struct Roofs<'a> {
    peaks: Option<&'a Peaks>,
    known: Vec<Roof>,
}

impl<'a> Roofs<'a> {
    /// The roofs below measured peaks, if there are any.
    pub fn new(peaks: Option<&'a Peaks>) -> Self {
        Self { peaks, known: Vec::with_capacity(USUAL) }
    }

    /// The times of a cost's resources; `None` where a peak that it needs was not measured.
    pub fn terms(&mut self, cost: &Cost) -> Option<Terms> {
        let peaks = self.peaks?;
        let (unit, threads) = (cost.unit, cost.threads);
        let alike = |roof: &&Roof| roof.threads == threads;
        if let Some(roof) = self.known.iter().find(|roof| roof.unit == unit && alike(roof)) {
            return Terms::below(roof, cost, peaks.hand_off);
        }
        // All units share the memory.
        let levels = self.known.iter().find(alike).map_or_else(|| rates(peaks, threads), |roof| roof.levels);
        let roof = Roof { unit, threads, arithmetic: peaks.arithmetic(unit, threads), levels };
        self.known.push(roof);
        Terms::below(&roof, cost, peaks.hand_off)
    }
}

/// Seconds that each resource would take by itself, the imbalance of the split included.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    /// Arithmetic.
    pub arithmetic: f64,
    /// Traffic of the first, second and third cache level and of memory.
    pub levels: [f64; 4],
    /// Handing work to the other threads, or to another device, which then works alone.
    pub hand_over: f64,
}

impl Terms {
    /// The resources' times; `None` where a peak that the cost needs was not measured.
    pub fn of(cost: &Cost, peaks: &Peaks) -> Option<Self> {
        Roofs::new(Some(peaks)).terms(cost)
    }

    fn below(roof: &Roof, cost: &Cost, hand_off: Option<f64>) -> Option<Self> {
        let mut terms = Self::default();
        if cost.operations > 0.0 {
            terms.arithmetic = cost.operations / roof.arithmetic? * cost.imbalance;
        }
        let traffic = &cost.traffic;
        let bytes = [traffic.l1, traffic.l2, traffic.l3, traffic.memory];
        for ((term, rate), bytes) in terms.levels.iter_mut().zip(roof.levels).zip(bytes) {
            // A machine without this level moves the bytes at the next one that was measured.
            if let Some(rate) = rate.filter(|_| bytes > 0.0) {
                *term = bytes / rate * cost.imbalance;
            }
        }
        let forked = if cost.forks > 0 { f64::from(cost.forks) * hand_off? } else { 0.0 };
        terms.hand_over = forked + cost.elsewhere;
        Some(terms)
    }

    /// The root of the sum of squares of the resources, plus the hand-overs: close to the slowest one where the others have time to
    /// spare, above it where several are busy, because they get into each other's way. Of two candidates with the same slowest
    /// resource, the one that uses the others less is the faster one.
    pub fn seconds(&self) -> f64 {
        let squares = self.levels.iter().fold(self.arithmetic.powi(2), |sum, level| sum + level.powi(2));
        squares.sqrt() + self.hand_over
    }
}

/// Seconds: arithmetic and each memory level as the root of the sum of their squares, times the imbalance, plus the hand-overs.
///
/// `None` where a peak that the cost needs was not measured.
pub fn predict(cost: &Cost, peaks: &Peaks) -> Option<f64> {
    Terms::of(cost, peaks).map(|terms| terms.seconds())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{ArithmeticPeak, BandwidthPeak};
    use crate::ops::{ComputeUnit, Traffic};
    use crate::tensor::DType;

    const UNIT: ComputeUnit = ComputeUnit { dtype: DType::F32, isa: None };

    fn peaks() -> Peaks {
        let arithmetic = |threads, rate| ArithmeticPeak { unit: UNIT, threads, operations_per_second: rate };
        let bandwidth =
            |level, rate| BandwidthPeak { level, threads: 1, read: rate, copy: rate, stream: rate };
        Peaks {
            arithmetic: vec![arithmetic(1, 1e9), arithmetic(2, 2e9)],
            bandwidth: vec![bandwidth(Level::L1, 1e10), bandwidth(Level::Memory, 1e9)],
            hand_off: Some(1e-6),
            ..Peaks::default()
        }
    }

    #[test]
    fn the_slowest_resource_decides_and_the_others_tell_ties_apart() {
        let compute = Cost::new(1e9, UNIT, Traffic { l1: 1e9, ..Traffic::default() });
        assert!((predict(&compute, &peaks()).unwrap() - 1.01_f64.sqrt()).abs() < 1e-9);
        let memory = |operations| Cost::new(operations, UNIT, Traffic { memory: 2e9, ..Traffic::default() });
        let [little, more] = [1e6, 1e9].map(|operations| predict(&memory(operations), &peaks()).unwrap());
        assert!((little - 2.0).abs() < 1e-6, "{little}");
        assert!((more - 5.0_f64.sqrt()).abs() < 1e-9, "{more}");
    }

    #[test]
    fn threads_cost_a_hand_over_and_their_imbalance() {
        let cost = Cost::new(1e9, UNIT, Traffic::default()).split(2, 3);
        let expected = 0.5 * 4.0 / 3.0 + 1e-6;
        assert!((predict(&cost, &peaks()).unwrap() - expected).abs() < 1e-9);
    }

    #[test]
    fn another_device_works_while_this_one_waits() {
        let cost =
            Cost { elsewhere: 0.25, ..Cost::new(0.0, UNIT, Traffic { memory: 1e9, ..Traffic::default() }) };
        assert!((predict(&cost, &peaks()).unwrap() - 1.25).abs() < 1e-9);
    }

    #[test]
    fn an_unmeasured_unit_has_no_prediction() {
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        assert_eq!(predict(&Cost::new(1.0, unit, Traffic::default()), &peaks()), None);
    }
}
