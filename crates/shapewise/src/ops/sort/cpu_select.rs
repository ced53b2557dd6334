//! The first few of a row: a threshold from a sample, one pass that keeps what passes it, a sort of what was kept.
#![allow(unsafe_code)]

use std::sync::{Mutex, PoisonError};

use super::cpu_keys::Item;
use super::cpu_radix::sort_digits;
use super::cpu_rows::{AnyMethod, Length, Method, Radix, SORTABLE, Team, item_size, launch};
use super::cpu_sources::{Source, plan};
use crate::backends::cpu::simd::{Isa, Simd, SimdTask};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters,
    Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Keys that are looked at for the threshold.
const SAMPLES: usize = 8 << 10;
/// Elements that are looked at before any is kept: most groups have none.
const GROUP: usize = 16;

/// A selection of far fewer elements than there are.
pub(super) struct Select;

pub(super) static SELECT: Select = Select;

impl Kernel for Select {
    fn name(&self) -> &'static str {
        "cpu::sort::select"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Sort
    }

    fn source(&self) -> u64 {
        source_hash!(
            "cpu_select.rs",
            "cpu_rows.rs",
            "cpu_sources.rs",
            "cpu_buckets.rs",
            "cpu_radix.rs",
            "cpu_keys.rs"
        )
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn constraints(&self) -> &[Constraint] {
        const FEW: Constraint = Constraint::Shape("at most an eighth of rows of 1024 or more", |w| {
            let plan = plan(w);
            plan.n >= 1024 && plan.k <= plan.n / 8
        });
        &[SORTABLE, FEW]
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let plan = plan(workload);
        let (rows, threads) = (plan.rows(), parameters.threads());
        let sample = Sample::new(Length { n: plan.n, k: plan.k });
        let elements = (rows * plan.n) as f64;
        let kept = rows as f64 * sample.expected();
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        // Groups without a keeper cost little; keepers are tested one by one and sorted.
        let work = elements * 0.5 + kept * (GROUP as f64 + 32.0) + (rows * sample.count * 40) as f64;
        let bytes = workload.bytes() as f64;
        let traffic = Traffic::pass(bytes, bytes, &device.caches)
            + Traffic::pass(4.0 * kept * item_size(workload), kept * item_size(workload), &device.caches);
        let cost = Cost::new(work, unit, traffic).split(threads, rows.max(4 * threads));
        Cost { scratch: elements as usize * item_size(workload) as usize, ..cost }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        launch(call, self)
    }
}

/// How a row is sampled.
struct Sample {
    count: usize,
    step: usize,
    /// Which of the sorted samples is the threshold.
    rank: usize,
    n: usize,
}

impl Sample {
    fn new(length: Length) -> Self {
        let step = (length.n / SAMPLES).max(2);
        let count = length.n.div_ceil(step);
        let below = length.k as f64 * count as f64 / length.n as f64;
        // Four deviations above what is expected: too few pass once in thirty thousand times.
        let rank = (below + 4.0 * below.sqrt() + 8.0) as usize;
        Self { count, step, rank: rank.min(count - 1), n: length.n }
    }

    /// Elements that pass, about.
    fn expected(&self) -> f64 {
        (self.rank + 1) as f64 * self.step as f64
    }
}

impl AnyMethod for Select {}

impl<S: Source> Method<S> for Select {
    fn scratch(&self, n: usize, threads: usize) -> usize {
        // A row that has too many equal elements is sorted whole.
        Method::<S>::scratch(&Radix, n, threads)
    }

    fn sort(&self, row: S, length: Length, scratch: &mut [S::Item], team: &mut Team<'_>) {
        let done = select(row, length, scratch, team);
        if !done {
            Radix.sort(row, length, scratch, team);
        }
    }
}

/// What one part of a row keeps; `None` if there was no room.
struct Piece<'a, I> {
    room: &'a mut [I],
    kept: Option<usize>,
}

/// Whether it was done: not if too few or far too many elements pass the threshold.
fn select<S: Source>(row: S, length: Length, scratch: &mut [S::Item], team: &mut Team<'_>) -> bool {
    let sample = Sample::new(length);
    let mut keys: Vec<_> = (0..sample.n).step_by(sample.step).map(|i| row.item(i).key()).collect();
    let (_, &mut threshold, _) = keys.select_nth_unstable(sample.rank);
    // Parts of the row, each with a part of the first half of the scratch.
    let parts = if team.threads == 1 { 1 } else { 4 * team.threads };
    let (half, spare) = scratch.split_at_mut(scratch.len() / 2);
    let room = half.len() / parts;
    let pieces: Vec<_> =
        half.chunks_mut(room.max(1)).take(parts).map(|room| Mutex::new(Piece { room, kept: None })).collect();
    team.pool.run(team.threads, parts, &|part| {
        let (start, end) = (length.n * part / parts, length.n * (part + 1) / parts);
        let mut piece = pieces[part].lock().unwrap_or_else(PoisonError::into_inner);
        let kept = Isa::best().run_narrow(Keep { row, start, end, threshold, out: &mut *piece.room });
        piece.kept = kept;
    });
    let mut kept = 0;
    for piece in &pieces {
        let piece = piece.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(items) = piece.kept.map(|count| &piece.room[..count]) else { return false };
        if kept + items.len() > spare.len() {
            return false;
        }
        spare[kept..kept + items.len()].copy_from_slice(items);
        kept += items.len();
    }
    if kept < length.k {
        return false;
    }
    drop(pieces);
    let (a, b) = (&mut spare[..kept], &mut half[..kept]);
    let swapped = sort_digits(a, b, team.counters);
    row.emit(0, if swapped { &b[..length.k] } else { &a[..length.k] });
    true
}

/// Copies what has at most the threshold's key; plain code that the compiler writes over vectors.
struct Keep<'a, S: Source> {
    row: S,
    start: usize,
    end: usize,
    threshold: <S::Item as Item>::Key,
    out: &'a mut [S::Item],
}

impl<S: Source> SimdTask for Keep<'_, S> {
    /// How many; `None` if there is no room for them.
    type Output = Option<usize>;

    #[inline(always)]
    fn run<V: Simd>(self, _: V) -> Option<usize> {
        let mut kept = 0;
        let mut i = self.start;
        while i < self.end {
            let group = if i + GROUP <= self.end { GROUP } else { 1 };
            let any = group == 1 || self.row.reaches::<GROUP>(i, self.threshold);
            if any {
                if kept + group > self.out.len() {
                    return None;
                }
                for j in i..i + group {
                    let item = self.row.item(j);
                    self.out[kept] = item;
                    kept += usize::from(item.key() <= self.threshold);
                }
            }
            i += group;
        }
        Some(kept)
    }
}
