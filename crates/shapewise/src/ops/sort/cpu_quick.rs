//! The kernel of vectors: buckets that fit the second cache, each by quicksort over registers.
#![allow(unsafe_code)]

use super::Wanted;
use super::cpu_buckets::{BUCKET, partition_by, room};
use super::cpu_keys::Item;
use super::cpu_lines::Lines;
use super::cpu_network::ROWS;
use super::cpu_radix::LazyCounters;
use super::cpu_rows::{Length, Method, SORTABLE, Team, item_size, rows, sort_buckets};
use super::cpu_sources::{Alone, Packed, Row, Source, attributes, plan};
use super::cpu_split::sort_keys;
use crate::backends::cpu::simd::{Isa, LaneKey};
use crate::device::{Device, DeviceInfo};
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters,
    Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// Bytes of keys up to which a thread alone cuts a row in halves from the start: buckets were faster from twice as many on (Ice Lake,
/// whose second cache has 1.25 MiB).
const UNCUT: usize = 2 << 20;

/// Whether a row is cut into buckets first.
fn cuts<I>(n: usize, threads: usize) -> bool {
    n > 2 * BUCKET && (threads > 1 || n * size_of::<I>() > UNCUT)
}

/// Whether a row of values is written past the caches: not if half of the last one would hold it and what it is made of.
fn streams(workload: &Workload, device: &DeviceInfo) -> bool {
    let last = device.caches.l3.or(device.caches.l2);
    last.is_some_and(|bytes| workload.bytes() >= bytes / 2) && workload.inputs()[0].shape.len() == 1
}

/// A sort of whole rows over vectors.
pub(super) struct Quick;

pub(super) static QUICK: Quick = Quick;

impl Kernel for Quick {
    fn name(&self) -> &'static str {
        "cpu::sort::avx512_quick"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Sort
    }

    fn source(&self) -> u64 {
        source_hash!(
            "cpu_quick.rs",
            "cpu_split.rs",
            "cpu_network.rs",
            "cpu_lines.rs",
            "cpu_rows.rs",
            "cpu_sources.rs",
            "cpu_buckets.rs",
            "cpu_keys.rs"
        )
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn constraints(&self) -> &[Constraint] {
        const LANES: Constraint = Constraint::Shape("32 or 64 bits, with indices at most 32", |w| {
            let size = w.inputs()[0].dtype.size();
            if attributes(w).wanted == Wanted::Values { size >= 4 } else { size <= 4 }
        });
        &[Constraint::Isa(Isa::Avx512), SORTABLE, LANES]
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let plan = plan(workload);
        let (rows, threads, size) = (plan.rows(), parameters.threads(), item_size(workload));
        let elements = (rows * plan.n) as f64;
        let lanes = 64.0 / size;
        let together = rows < threads && plan.n > 2 * BUCKET;
        let team = if together { threads } else { 1 };
        let long = if size > 4.0 { cuts::<u64>(plan.n, team) } else { cuts::<u32>(plan.n, team) };
        let sorted = if long { BUCKET } else { plan.n };
        let halvings = (sorted as f64 / (lanes * ROWS as f64)).log2().max(0.0);
        // Networks have a power of two of registers; what halving leaves fills three quarters of one.
        let registers = plan.n.div_ceil(lanes as usize).next_power_of_two();
        let padding =
            if halvings > 0.0 { 4.0 / 3.0 } else { registers as f64 * lanes / plan.n.max(1) as f64 };
        // Instructions for a register: a full network's, then those of each split, and an element's way to its bucket.
        let network = padding * if size > 4.0 { 54.0 } else { 56.0 };
        let instructions = network + 10.0 * halvings + if long { 8.0 * lanes } else { 0.0 };
        let unit = ComputeUnit { dtype: DType::F32, isa: Some(Isa::Avx512) };
        // What the unit counts are operations of sixteen lanes, two for an instruction.
        let work = 2.0 * 16.0 * instructions * elements / lanes;
        let bytes = workload.bytes() as f64;
        let row = plan.n as f64 * size;
        let traffic = Traffic::pass(bytes, bytes, &device.caches)
            + Traffic::pass(2.0 * elements * size, 2.0 * row, &device.caches);
        let tasks = if together { 4 * threads } else { rows };
        let cost = Cost::new(work, unit, traffic).split(threads, tasks.max(1));
        let scratch = 2.0 * row * if together { 1.0 } else { (4 * threads) as f64 };
        Cost { scratch: scratch as usize, ..cost }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        if !Isa::Avx512.is_available() {
            return Err(KernelError("the CPU has no vectors of keys".into()));
        }
        let plan = plan(call.workload);
        let size = call.workload.inputs()[0].dtype.size();
        let stream = streams(call.workload, call.cpu().info());
        match (attributes(call.workload).wanted, size) {
            (Wanted::Values, 4) => {
                rows(call, &plan, self, |row| Alone(Row::<u32>::of(call, &plan, row).streaming(stream)))
            }
            (Wanted::Values, 8) => {
                rows(call, &plan, self, |row| Alone(Row::<u64>::of(call, &plan, row).streaming(stream)))
            }
            (_, 1) => rows(call, &plan, self, |row| Packed(Row::<u8>::of(call, &plan, row))),
            (_, 2) => rows(call, &plan, self, |row| Packed(Row::<u16>::of(call, &plan, row))),
            (_, 4) => rows(call, &plan, self, |row| Packed(Row::<u32>::of(call, &plan, row))),
            _ => Err(KernelError("its elements do not come in vectors of keys".into())),
        }
    }
}

impl<S: Source<Item: LaneKey>> Method<S> for Quick {
    fn scratch(&self, n: usize, threads: usize) -> usize {
        if cuts::<S::Item>(n, threads) { room(n, threads) } else { 2 * n }
    }

    fn sort(&self, row: S, length: Length, scratch: &mut [S::Item], team: &mut Team<'_>) {
        let n = length.n;
        if cuts::<S::Item>(n, team.threads) {
            let key = |i: usize| row.item(i).key();
            let cut =
                partition_by(n, key, scratch, team.pool, team.threads, |range, scale, chains, region| {
                    let done = S::Item::run(Lines { range, row, scale, chains, region });
                    debug_assert!(done.is_some(), "the constraints ask for the instructions");
                });
            return sort_buckets(row, length, &cut, team, sort_parts);
        }
        let (keys, spare) = scratch.split_at_mut(n);
        row.read(0, keys);
        sort_keys(keys, spare);
        row.emit(0, keys);
    }
}

/// The items of all `parts` sorted, in memory that grows as needed.
#[allow(clippy::unnecessary_wraps)] // others find items that are in order as they are
fn sort_parts<'a, K: LaneKey>(
    parts: &[&[K]],
    memory: &'a mut Vec<K>,
    _: &mut LazyCounters,
) -> Option<&'a [K]> {
    let n = parts.iter().map(|part| part.len()).sum::<usize>();
    if memory.len() < 2 * n {
        memory.resize(2 * n, K::LAST);
    }
    let (keys, spare) = memory.split_at_mut(n);
    let mut at = 0;
    for part in parts {
        keys[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    sort_keys(keys, spare);
    Some(keys)
}
