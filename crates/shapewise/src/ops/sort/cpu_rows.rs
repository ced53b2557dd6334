//! Rows that are sorted: where they lie, and the kernels that sort all of their keys.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;

use super::cpu_buckets::{BUCKET, partition, room};
use super::cpu_keys::{Coding, Item, Key, Pair};
use super::cpu_radix::{Counters, counters, sort_digits, sort_parts};
use super::{SortAttributes, Wanted};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Operation, OperationKind, ParameterSpace,
    Parameters, Traffic, Variant, Workload,
};
use crate::tensor::{DType, MAX_RANK};

/// The attributes of a sort's workload.
pub(super) fn attributes(workload: &Workload) -> SortAttributes {
    match workload.operation() {
        Operation::Sort(attributes) => *attributes,
        other => unreachable!("the registry gives sorts only, not {other}"),
    }
}

/// Rows of a workload; strides in elements.
pub(super) struct Plan {
    /// Size, stride in the input, strides in the outputs.
    outer: ArrayVec<(usize, isize, [isize; 2]), MAX_RANK>,
    /// Length of a row, and of what is written of it.
    pub n: usize,
    pub k: usize,
    pub from_step: isize,
    pub to_step: [isize; 2],
}

/// Where a row begins, in elements.
pub(super) struct Places {
    pub from: isize,
    pub to: [isize; 2],
}

pub(super) fn plan(workload: &Workload) -> Plan {
    let (x, outputs) = (&workload.inputs()[0], workload.outputs());
    let last = x.shape.len() - 1;
    let to = |i: usize| std::array::from_fn(|o| outputs.get(o).map_or(0, |y| y.strides[i]));
    let outer = (0..last).map(|i| (x.shape[i], x.strides[i], to(i))).collect();
    let k = outputs[0].shape[last];
    Plan { outer, n: x.shape[last], k, from_step: x.strides[last], to_step: to(last) }
}

impl Plan {
    pub fn rows(&self) -> usize {
        self.outer.iter().map(|a| a.0).product()
    }

    pub fn row(&self, mut row: usize) -> Places {
        let mut places = Places { from: 0, to: [0; 2] };
        for &(size, from, to) in self.outer.iter().rev() {
            let i = (row % size) as isize;
            row /= size;
            places.from += i * from;
            places.to[0] += i * to[0];
            places.to[1] += i * to[1];
        }
        places
    }
}

/// One row of keys `K`.
#[derive(Clone, Copy)]
pub(super) struct Row<K> {
    x: *const K,
    step: isize,
    coding: Coding<K>,
    values: Option<(*mut K, isize)>,
    indices: Option<(*mut i64, isize)>,
    k: usize,
}

// SAFETY: the memory outlives the call; tasks read the input and write disjoint places of the outputs.
unsafe impl<K: Send> Send for Row<K> {}
// SAFETY: as above.
unsafe impl<K: Sync> Sync for Row<K> {}

impl<K: Key> Row<K> {
    fn of(call: &Call<'_>, plan: &Plan, row: usize) -> Self {
        let attributes = attributes(call.workload);
        let places = plan.row(row);
        let at = |o: usize| call.outputs[o].address();
        let values = (attributes.wanted != Wanted::Indices)
            .then(|| (at(0).cast::<K>().wrapping_offset(places.to[0]), plan.to_step[0]));
        let which = usize::from(attributes.wanted == Wanted::Both);
        let indices = (attributes.wanted != Wanted::Values)
            .then(|| (at(which).cast::<i64>().wrapping_offset(places.to[which]), plan.to_step[which]));
        Self {
            x: call.inputs[0].address().cast::<K>().wrapping_offset(places.from),
            step: plan.from_step,
            coding: K::coding(call.workload.inputs()[0].dtype, attributes.order),
            values,
            indices,
            k: plan.k,
        }
    }

    #[inline(always)]
    fn bits(&self, i: usize) -> K {
        // SAFETY: rows are only asked for elements below their length.
        unsafe { self.x.offset(i as isize * self.step).read_unaligned() }
    }
}

/// What is sorted of a row, and what becomes of it.
pub(super) trait Source: Send + Sync + Copy {
    type Item: Item;
    /// The item of element `i`, which is below the row's length.
    fn item(&self, i: usize) -> Self::Item;
    /// Whether any of the `N` elements from `i` on has at most this key.
    fn reaches<const N: usize>(&self, i: usize, key: <Self::Item as Item>::Key) -> bool;
    /// Writes items that belong to `start..` in order.
    fn emit(&self, start: usize, items: &[Self::Item]);
}

/// Keys alone.
#[derive(Clone, Copy)]
struct Alone<K>(Row<K>);
/// Keys with their places.
#[derive(Clone, Copy)]
struct Placed<K>(Row<K>);

impl<K: Key + Item<Key = K>> Source for Alone<K> {
    type Item = K;

    #[inline(always)]
    fn item(&self, i: usize) -> K {
        self.0.bits(i).encode(&self.0.coding)
    }

    #[inline(always)]
    fn reaches<const N: usize>(&self, i: usize, key: K) -> bool {
        (0..N).fold(false, |any, j| any | (self.item(i + j) <= key))
    }

    fn emit(&self, start: usize, items: &[K]) {
        let Some((to, step)) = self.0.values else { return };
        for (i, item) in items.iter().enumerate().take(self.0.k.saturating_sub(start)) {
            // SAFETY: start + i < k, the length of the output's row.
            unsafe { to.offset((start + i) as isize * step).write_unaligned(item.decode(&self.0.coding)) };
        }
    }
}

impl<K: Key> Source for Placed<K> {
    type Item = Pair<K::Wide>;

    #[inline(always)]
    fn item(&self, i: usize) -> Pair<K::Wide> {
        Pair { key: self.0.coding.encode_equal(self.0.bits(i)).widen(), at: i as u32 }
    }

    #[inline(always)]
    fn reaches<const N: usize>(&self, i: usize, key: K::Wide) -> bool {
        let key = K::narrow(key);
        if self.0.step == 1 {
            // SAFETY: i + N elements are below the row's length, side by side.
            let bits = |j: usize| unsafe { self.0.x.add(i + j).read_unaligned() };
            return (0..N).fold(false, |any, j| any | (self.0.coding.encode_equal(bits(j)) <= key));
        }
        (0..N).fold(false, |any, j| any | (self.0.coding.encode_equal(self.0.bits(i + j)) <= key))
    }

    fn emit(&self, start: usize, items: &[Self::Item]) {
        let row = &self.0;
        let items = &items[..items.len().min(row.k.saturating_sub(start))];
        if let Some((to, step)) = row.indices {
            for (i, item) in items.iter().enumerate() {
                // SAFETY: start + i < k, the length of the output's row.
                unsafe { to.offset((start + i) as isize * step).write_unaligned(i64::from(item.at)) };
            }
        }
        let zero = K::ZERO.encode(&row.coding);
        if let Some((to, step)) = row.values {
            for (i, item) in items.iter().enumerate() {
                let key = K::narrow(item.key);
                // The key of zero does not tell its sign.
                let bits = if key == zero { row.bits(item.at as usize) } else { key.decode(&row.coding) };
                // SAFETY: as above.
                unsafe { to.offset((start + i) as isize * step).write_unaligned(bits) };
            }
        }
    }
}

/// How a row is sorted.
pub(super) trait Method: Sync {
    /// Items of scratch that a row of `n` needs that so many threads sort together.
    fn scratch(&self, n: usize, threads: usize) -> usize;
    /// Sorts a row; `scratch` has as many items as were asked for.
    fn sort<S: Source>(&self, row: S, length: Length, scratch: &mut [S::Item], team: &mut Team<'_>);
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
    pub counters: &'a mut Counters,
}

/// Sorts every row of a call.
pub(super) fn launch(call: &Call<'_>, method: &impl Method) -> Result<(), KernelError> {
    match call.workload.inputs()[0].dtype {
        DType::Bool | DType::U8 | DType::I8 => launch_as::<u8>(call, method),
        DType::F16 | DType::BF16 => launch_as::<u16>(call, method),
        DType::F32 | DType::I32 | DType::U32 => launch_as::<u32>(call, method),
        DType::F64 | DType::I64 => launch_as::<u64>(call, method),
        other => Err(KernelError(format!("{other} has no order").into())),
    }
}

fn launch_as<K: Key + Item<Key = K>>(call: &Call<'_>, method: &impl Method) -> Result<(), KernelError> {
    let plan = plan(call.workload);
    if attributes(call.workload).wanted == Wanted::Values {
        rows(call, &plan, method, |row| Alone(Row::<K>::of(call, &plan, row)))
    } else {
        rows(call, &plan, method, |row| Placed(Row::<K>::of(call, &plan, row)))
    }
}

/// Many rows are shared between threads; a few are sorted one after the other, by all threads together.
fn rows<S: Source>(
    call: &Call<'_>,
    plan: &Plan,
    method: &impl Method,
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
        let mut counters = counters();
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

impl Method for Radix {
    fn scratch(&self, n: usize, threads: usize) -> usize {
        if n > 2 * BUCKET { room(n, threads) } else { 2 * n }
    }

    fn sort<S: Source>(&self, row: S, length: Length, scratch: &mut [S::Item], team: &mut Team<'_>) {
        let n = length.n;
        if n > 2 * BUCKET {
            return sort_long(row, length, scratch, team);
        }
        let (a, b) = scratch.split_at_mut(n);
        a.iter_mut().enumerate().for_each(|(i, slot)| *slot = row.item(i));
        let swapped = sort_digits(a, b, team.counters);
        row.emit(0, if swapped { b } else { a });
    }
}

/// Sorts a long row: buckets first, then each by itself; those past what is wanted are left alone.
pub(super) fn sort_long<S: Source>(row: S, length: Length, scratch: &mut [S::Item], team: &mut Team<'_>) {
    let Length { n, k } = length;
    let cut = partition(n, move |i| row.item(i), scratch, team.pool, team.threads);
    let starts = &cut.starts;
    let wanted = starts.partition_point(|&start| start < k).min(starts.len() - 1);
    let groups = if team.threads == 1 { 1 } else { (4 * team.threads).min(wanted) };
    // Groups of buckets that hold about as many items each.
    let border = |group: usize| match group {
        0 => 0,
        _ if group == groups => wanted,
        _ => starts.partition_point(|&start| start < k.min(n) * group / groups).min(wanted),
    };
    let sort = |group: usize, counters: &mut Counters| {
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
    team.pool.run(team.threads, groups, &|group| sort(group, &mut counters()));
}

/// The standard library's sort of keys.
struct Comparisons;

impl Method for Comparisons {
    fn scratch(&self, n: usize, _: usize) -> usize {
        n
    }

    fn sort<S: Source>(&self, row: S, length: Length, scratch: &mut [S::Item], _: &mut Team<'_>) {
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
        source_hash!("cpu_rows.rs", "cpu_buckets.rs", "cpu_radix.rs", "cpu_keys.rs")
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
