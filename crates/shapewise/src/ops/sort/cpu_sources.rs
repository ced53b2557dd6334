//! Where rows lie, and what is sorted of them: keys alone or with their places.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;

use super::cpu_keys::{Coding, Item, Key, Pair};
use super::{SortAttributes, Wanted};
use crate::backends::cpu::simd::{Isa, Lanes, Simd, SimdTask};
use crate::ops::{Call, Operation, Workload};
use crate::tensor::MAX_RANK;

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
    /// Whether values go past the caches to memory.
    stream: bool,
}

// SAFETY: the memory outlives the call; tasks read the input and write disjoint places of the outputs.
unsafe impl<K: Send> Send for Row<K> {}
// SAFETY: as above.
unsafe impl<K: Sync> Sync for Row<K> {}

impl<K: Key> Row<K> {
    pub fn of(call: &Call<'_>, plan: &Plan, row: usize) -> Self {
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
            stream: false,
        }
    }

    /// With values that go past the caches to memory, or not.
    pub fn streaming(self, stream: bool) -> Self {
        Self { stream, ..self }
    }

    #[inline(always)]
    fn bits(&self, i: usize) -> K {
        // SAFETY: rows are only asked for elements below their length.
        unsafe { self.x.offset(i as isize * self.step).read_unaligned() }
    }

    /// What `make` makes of the elements from `start` on and of their places.
    #[inline(always)]
    fn read<I>(&self, start: usize, items: &mut [I], make: impl Fn(K, usize) -> I) {
        // Neighbours in a loop of their own, which the compiler writes over vectors.
        if self.step == 1 {
            for (i, item) in (start..).zip(items) {
                // SAFETY: as above.
                *item = make(unsafe { self.x.add(i).read_unaligned() }, i);
            }
            return;
        }
        for (i, item) in (start..).zip(items) {
            *item = make(self.bits(i), i);
        }
    }

    /// Writes items that belong to `start..` and where they were.
    #[inline(always)]
    fn emit_placed<I: Copy>(&self, start: usize, items: &[I], split: impl Fn(I) -> (K, u32)) {
        let items = &items[..items.len().min(self.k.saturating_sub(start))];
        if let Some((to, step)) = self.indices {
            for (i, &item) in items.iter().enumerate() {
                // SAFETY: start + i < k, the length of the output's row.
                unsafe { to.offset((start + i) as isize * step).write_unaligned(i64::from(split(item).1)) };
            }
        }
        let zero = K::ZERO.encode(&self.coding);
        if let Some((to, step)) = self.values {
            for (i, &item) in items.iter().enumerate() {
                let (key, at) = split(item);
                // The key of zero does not tell its sign.
                let bits = if key == zero { self.bits(at as usize) } else { key.decode(&self.coding) };
                // SAFETY: as above.
                unsafe { to.offset((start + i) as isize * step).write_unaligned(bits) };
            }
        }
    }
}

/// What is sorted of a row, and what becomes of it.
pub(super) trait Source: Send + Sync + Copy {
    type Item: Item;
    /// The item of element `i`, which is below the row's length.
    fn item(&self, i: usize) -> Self::Item;
    /// The items of the elements from `start` on, all below the row's length.
    #[inline(always)]
    fn read(&self, start: usize, items: &mut [Self::Item]) {
        for (i, item) in items.iter_mut().enumerate() {
            *item = self.item(start + i);
        }
    }
    /// Whether any of the `N` elements from `i` on has at most this key.
    fn reaches<const N: usize>(&self, i: usize, key: <Self::Item as Item>::Key) -> bool;
    /// Writes items that belong to `start..` in order.
    fn emit(&self, start: usize, items: &[Self::Item]);
}

/// Keys alone.
#[derive(Clone, Copy)]
pub(super) struct Alone<K>(pub Row<K>);
/// Keys with their places.
#[derive(Clone, Copy)]
pub(super) struct Placed<K>(pub Row<K>);
/// Keys with their places in one number, of types up to 32 bits.
#[derive(Clone, Copy)]
pub(super) struct Packed<K>(pub Row<K>);

impl<K: Key + Item<Key = K>> Source for Alone<K> {
    type Item = K;

    #[inline(always)]
    fn item(&self, i: usize) -> K {
        self.0.bits(i).encode(&self.0.coding)
    }

    #[inline(always)]
    fn read(&self, start: usize, items: &mut [K]) {
        self.0.read(start, items, |bits, _| bits.encode(&self.0.coding));
    }

    #[inline(always)]
    fn reaches<const N: usize>(&self, i: usize, key: K) -> bool {
        (0..N).fold(false, |any, j| any | (self.item(i + j) <= key))
    }

    fn emit(&self, start: usize, items: &[K]) {
        let Some((to, step)) = self.0.values else { return };
        let items = &items[..items.len().min(self.0.k.saturating_sub(start))];
        // SAFETY: the items end at k, the length of the output's row.
        unsafe {
            if step == 1 {
                let Row { coding, stream, .. } = &self.0;
                return Isa::best().run_narrow(Decode { items, to: to.add(start), coding, stream: *stream });
            }
            for (i, item) in (start..).zip(items) {
                to.offset(i as isize * step).write_unaligned(item.decode(&self.0.coding));
            }
        }
    }
}

/// Elements that are made of keys before they go past the caches: whole lines of any type.
const TOGETHER: usize = 128;

/// Writes the elements of keys side by side; plain code that the compiler writes over vectors.
struct Decode<'a, K> {
    items: &'a [K],
    to: *mut K,
    coding: &'a Coding<K>,
    stream: bool,
}

impl<K: Key> SimdTask for Decode<'_, K> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.items.len();
        let mut at = if self.stream { self.to.align_offset(64).min(n) } else { n };
        self.write(0..at);
        let mut some = [K::ZERO; TOGETHER];
        while at + TOGETHER <= n {
            for (x, item) in some.iter_mut().zip(&self.items[at..]) {
                *x = item.decode(self.coding);
            }
            // SAFETY: there is room for all items, and from here on it begins at a line.
            unsafe { stream_all(s, &some, self.to.add(at)) };
            at += TOGETHER;
        }
        self.write(at..n);
        if self.stream {
            Lanes::<f32>::fence(s);
        }
    }
}

impl<K: Key> Decode<'_, K> {
    #[inline(always)]
    fn write(&self, range: std::ops::Range<usize>) {
        for (i, item) in range.clone().zip(&self.items[range]) {
            // SAFETY: whoever makes the task has room for all items.
            unsafe { self.to.add(i).write_unaligned(item.decode(self.coding)) };
        }
    }
}

/// Writes whole lines past the caches.
///
/// # Safety
/// There is room for them at `to`, which is aligned to a line.
#[inline(always)]
unsafe fn stream_all<K, S: Lanes<f32>>(s: S, from: &[K; TOGETHER], to: *mut K) {
    let (from, to) = (from.as_ptr().cast::<f32>(), to.cast::<f32>());
    for i in (0..TOGETHER * size_of::<K>() / size_of::<f32>()).step_by(S::LANES) {
        // SAFETY: the caller's promise; the bits stay as they are.
        unsafe { s.stream(to.add(i), s.load(from.add(i))) };
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
        self.0.emit_placed(start, items, |item| (K::narrow(item.key), item.at));
    }
}

impl<K: Key<Wide = u32>> Source for Packed<K> {
    type Item = u64;

    #[inline(always)]
    fn item(&self, i: usize) -> u64 {
        pack(self.0.coding.encode_equal(self.0.bits(i)).widen(), i)
    }

    #[inline(always)]
    fn read(&self, start: usize, items: &mut [u64]) {
        self.0.read(start, items, |bits, i| pack(self.0.coding.encode_equal(bits).widen(), i));
    }

    #[inline(always)]
    fn reaches<const N: usize>(&self, i: usize, key: u64) -> bool {
        (0..N).fold(false, |any, j| any | (self.item(i + j) <= key))
    }

    fn emit(&self, start: usize, items: &[u64]) {
        self.0.emit_placed(start, items, |item| (K::narrow((item >> u32::BITS) as u32), item as u32));
    }
}

/// A key above its place, so that equal keys are in the order of their places.
#[inline(always)]
fn pack(key: u32, at: usize) -> u64 {
    u64::from(key) << u32::BITS | u64::from(at as u32)
}
