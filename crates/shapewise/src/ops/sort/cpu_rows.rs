//! Sorts of many rows by any method, and the kernels that sort all keys of a row.
#![allow(unsafe_code)]

use super::Wanted;
use super::cpu_buckets::{BUCKET, Buckets, partition, room};
use super::cpu_keys::{Item, Key};
use super::cpu_radix::{LazyCounters, sort_digits, sort_parts};
use super::cpu_sources::{Alone, Placed, Plan, Row, Source, attributes, plan};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters,
    Traffic, Variant, Workload,
};
use crate::tensor::DType;

/// How a row is sorted.
pub(super) trait Method<S: Source>: Sync {
    /// Items of scratch that a row of `n` needs that so many threads sort together.
    fn scratch(&self, n: usize, threads: usize) -> usize;
    /// Sorts a row; `scratch` has as many items as were asked for.
    fn sort(&self, row: S, length: Length, scratch: &mut [S::Item], team: &mut Team<'_>);
}

/// Length of a row, and of what is wanted of it.
#[derive(Clone, Copy)]
pub(super) struct Length {
    pub n: usize,
    pub k: usize,
}

/// Who sorts.
pub(super) struct Team<'a> {
    pub pool: &'a crate::backends::cpu::ThreadPool,
    pub threads: usize,
    pub counters: &'a mut LazyCounters,
}

/// A method for keys of every size, alone or with their places.
pub(super) trait AnyMethod:
    Method<Alone<u8>>
    + Method<Alone<u16>>
    + Method<Alone<u32>>
    + Method<Alone<u64>>
    + Method<Placed<u8>>
    + Method<Placed<u16>>
    + Method<Placed<u32>>
    + Method<Placed<u64>>
{
}

impl AnyMethod for Radix {}
impl AnyMethod for Comparisons {}

/// Sorts every row of a call.
pub(super) fn launch(call: &Call<'_>, method: &impl AnyMethod) -> Result<(), KernelError> {
    match call.workload.inputs()[0].dtype {
        DType::Bool | DType::U8 | DType::I8 => launch_as::<u8>(call, method),
        DType::F16 | DType::BF16 => launch_as::<u16>(call, method),
        DType::F32 | DType::I32 | DType::U32 => launch_as::<u32>(call, method),
        DType::F64 | DType::I64 => launch_as::<u64>(call, method),
        other => Err(KernelError(format!("{other} has no order").into())),
    }
}

fn launch_as<K: Key + Item<Key = K>>(
    call: &Call<'_>,
    method: &(impl Method<Alone<K>> + Method<Placed<K>>),
) -> Result<(), KernelError> {
    let plan = plan(call.workload);
    if attributes(call.workload).wanted == Wanted::Values {
        rows(call, &plan, method, |row| Alone(Row::<K>::of(call, &plan, row)))
    } else {
        rows(call, &plan, method, |row| Placed(Row::<K>::of(call, &plan, row)))
    }
}

/// Many rows are shared between threads; a few are sorted one after the other, by all threads together.
pub(super) fn rows<S: Source>(
    call: &Call<'_>,
    plan: &Plan,
    method: &impl Method<S>,
    row: impl Fn(usize) -> S + Sync,
) -> Result<(), KernelError> {
    let (rows, threads, pool) = (plan.rows(), call.parameters.threads(), call.cpu().threads());
    let length = Length { n: plan.n, k: plan.k };
    let together = rows < threads && plan.n > 2 * BUCKET;
    let tasks = if together || threads == 1 { 1 } else { (4 * threads).min(rows) };
    let each = method.scratch(plan.n, if together { threads } else { 1 });
    let bytes = each.saturating_mul(size_of::<S::Item>()).next_multiple_of(64);
    let mut scratch = call.cpu().scratch(bytes.saturating_mul(tasks))?;
    let memory = Memory(scratch.as_mut_ptr());
    let sort = |task: usize, threads: usize| {
        // SAFETY: each task has a part of its own, aligned, of initialised bytes; items are plain numbers.
        let part = unsafe { std::slice::from_raw_parts_mut(memory.at(bytes * task).cast::<S::Item>(), each) };
        let mut counters = LazyCounters::default();
        for i in rows * task / tasks..rows * (task + 1) / tasks {
            let mut team = Team { pool, threads, counters: &mut counters };
            method.sort(row(i), length, part, &mut team);
        }
    };
    if together {
        sort(0, threads);
    } else {
        pool.run(threads, tasks, &|task| sort(task, 1));
    }
    Ok(())
}

/// Scratch that tasks share by parts of their own.
struct Memory(*mut u8);

// SAFETY: each task uses a part of its own.
unsafe impl Sync for Memory {}

impl Memory {
    fn at(&self, offset: usize) -> *mut u8 {
        self.0.wrapping_add(offset)
    }
}

/// Buckets, digit by digit.
pub(super) struct Radix;

impl<S: Source> Method<S> for Radix {
    fn scratch(&self, n: usize, threads: usize) -> usize {
        if n > 2 * BUCKET { room(n, threads) } else { 2 * n }
    }

    fn sort(&self, row: S, length: Length, scratch: &mut [S::Item], team: &mut Team<'_>) {
        let n = length.n;
        if n > 2 * BUCKET {
            let cut = partition(n, move |i| row.item(i), scratch, team.pool, team.threads);
            return sort_buckets(row, length, &cut, team, sort_parts);
        }
        let (a, b) = scratch.split_at_mut(n);
        a.iter_mut().enumerate().for_each(|(i, slot)| *slot = row.item(i));
        let swapped = sort_digits(a, b, team.counters);
        row.emit(0, if swapped { b } else { a });
    }
}

/// Sorts the items of all parts in memory that grows as needed; none if they are in order as they are.
pub(super) type SortParts<I> = for<'a> fn(&[&[I]], &'a mut Vec<I>, &mut LazyCounters) -> Option<&'a [I]>;

/// Sorts each bucket of a long row by itself; those past what is wanted are left alone.
pub(super) fn sort_buckets<S: Source>(
    row: S,
    length: Length,
    cut: &Buckets<'_, S::Item>,
    team: &mut Team<'_>,
    sort_parts: SortParts<S::Item>,
) {
    let Length { n, k } = length;
    let starts = &cut.starts;
    let wanted = starts.partition_point(|&start| start < k).min(starts.len() - 1);
    let groups = if team.threads == 1 { 1 } else { (4 * team.threads).min(wanted) };
    // Groups of buckets that hold about as many items each.
    let border = |group: usize| match group {
        0 => 0,
        _ if group == groups => wanted,
        _ => starts.partition_point(|&start| start < k.min(n) * group / groups).min(wanted),
    };
    let sort = |group: usize, counters: &mut LazyCounters| {
        let buckets = border(group)..border(group + 1);
        let (mut parts, mut spare) = (Vec::new(), Vec::new());
        for bucket in buckets {
            cut.parts(bucket, &mut parts);
            if let Some(sorted) = sort_parts(&parts, &mut spare, counters) {
                row.emit(starts[bucket], sorted);
                continue;
            }
            let mut start = starts[bucket];
            for part in &parts {
                row.emit(start, part);
                start += part.len();
            }
        }
    };
    if team.threads == 1 {
        return sort(0, team.counters);
    }
    team.pool.run(team.threads, groups, &|group| sort(group, &mut LazyCounters::default()));
}

/// The standard library's sort of keys.
struct Comparisons;

impl<S: Source> Method<S> for Comparisons {
    fn scratch(&self, n: usize, _: usize) -> usize {
        n
    }

    fn sort(&self, row: S, length: Length, scratch: &mut [S::Item], _: &mut Team<'_>) {
        let all = &mut scratch[..length.n];
        all.iter_mut().enumerate().for_each(|(i, slot)| *slot = row.item(i));
        // Pairs compare their places too, so equal keys keep their order.
        all.sort_unstable();
        row.emit(0, all);
    }
}

/// A sort of whole rows.
pub(super) struct Whole {
    name: &'static str,
    radix: bool,
}

pub(super) static RADIX: Whole = Whole { name: "cpu::sort::radix", radix: true };
pub(super) static COMPARISONS: Whole = Whole { name: "cpu::sort::comparisons", radix: false };

/// What keys can be made of.
pub(super) const SORTABLE: Constraint =
    Constraint::Shape("numbers that have an order, at most 2³² − 1 in a row", |w| {
        !w.inputs()[0].dtype.is_complex() && u32::try_from(plan(w).n).is_ok()
    });

impl Kernel for Whole {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Sort
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_rows.rs", "cpu_sources.rs", "cpu_buckets.rs", "cpu_radix.rs", "cpu_keys.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn constraints(&self) -> &[Constraint] {
        &[SORTABLE]
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let plan = plan(workload);
        let (rows, threads) = (plan.rows(), parameters.threads());
        let (elements, size) = ((rows * plan.n) as f64, item_size(workload));
        let bits = 8.0 * workload.inputs()[0].dtype.size() as f64;
        let depth = f64::from(plan.n.max(2).ilog2());
        // Passes of digits, each counted and moved; or comparisons that are foreseen half of the time.
        let work = if self.radix { 8.0 * (bits / 11.0).ceil() } else { 6.0 * depth };
        let row = plan.n as f64 * size;
        let passes = if self.radix { 3.0 } else { depth };
        let traffic = Traffic::pass(elements * size * passes, 2.0 * row, &device.caches)
            + Traffic::pass(workload.bytes() as f64, workload.bytes() as f64, &device.caches);
        let unit = ComputeUnit { dtype: DType::F64, isa: None };
        let together = self.radix && rows < threads && plan.n > 2 * BUCKET;
        let tasks = if together { 4 * threads } else { rows };
        let cost = Cost::new(elements * work, unit, traffic).split(threads, tasks.max(1));
        let scratch = 2.0 * row * if together { 1.0 } else { (4 * threads) as f64 };
        Cost { scratch: scratch as usize, ..cost }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        if self.radix { launch(call, &Radix) } else { launch(call, &Comparisons) }
    }
}

/// Bytes of what is sorted for an element.
pub(super) fn item_size(workload: &Workload) -> f64 {
    let size = workload.inputs()[0].dtype.size();
    match attributes(workload).wanted {
        Wanted::Values => size as f64,
        _ if size == 8 => 16.0,
        _ => 8.0,
    }
}
