//! Networks that sort a few registers of keys: columns first, then columns that stand side by side are merged, two by two.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop)] // pairs of rows, and loops that own no array of vectors

use crate::backends::cpu::simd::{KeyLanes, LaneKey};

/// Registers of the largest network.
pub(super) const ROWS: usize = 16;

/// Lanes of the second half of each 2, 4, 8 and 16.
const HALVES: [u32; 4] = [0xaaaa, 0xcccc, 0xf0f0, 0xff00];

/// Writes `n` keys in order to `to`, which may be where they are; at most [`ROWS`] registers.
///
/// # Safety
/// The keys can be read and the results written.
#[inline(always)]
pub(super) unsafe fn sort_few<K: LaneKey, S: KeyLanes<K>>(s: S, from: *const K, to: *mut K, n: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match n.div_ceil(const { S::LANES }) {
            0 => {}
            1 => sort_rows::<K, S, 1>(s, from, to, n),
            2 => sort_rows::<K, S, 2>(s, from, to, n),
            3..=4 => sort_rows::<K, S, 4>(s, from, to, n),
            5..=8 => sort_rows::<K, S, 8>(s, from, to, n),
            _ => sort_rows::<K, S, ROWS>(s, from, to, n),
        }
    }
}

/// # Safety
/// As for [`sort_few`].
#[inline(always)]
unsafe fn sort_rows<K: LaneKey, S: KeyLanes<K>, const R: usize>(s: S, from: *const K, to: *mut K, n: usize) {
    let last = s.splat(K::LAST);
    let mut rows = [last; R];
    for i in 0..R {
        let before = i * S::LANES;
        // SAFETY: the caller lets us read n keys; none is read from a row that has none.
        rows[i] = unsafe { s.load_first(from.wrapping_add(before), n.saturating_sub(before), last) };
    }
    sort_columns(s, &mut rows);
    // Levels are written out: the loops above them would not be, and then registers live in memory.
    merge_columns(s, &mut rows, 0);
    merge_columns(s, &mut rows, 1);
    merge_columns(s, &mut rows, 2);
    if S::LANES > 8 {
        merge_columns(s, &mut rows, 3);
    }
    read_down(s, &mut rows);
    for i in 0..R {
        let before = i * S::LANES;
        // SAFETY: the caller lets us write n keys.
        unsafe { s.store_first(to.wrapping_add(before), rows[i], n.saturating_sub(before)) };
    }
}

/// Batcher's odd-even merge sort of every column.
#[inline(always)]
fn sort_columns<K: LaneKey, S: KeyLanes<K>, const R: usize>(s: S, rows: &mut [S::V; R]) {
    let mut sorted = 1;
    while sorted < R {
        let mut distance = sorted;
        while distance > 0 {
            let mut start = distance % sorted;
            while start + distance < R {
                for i in start..start + distance {
                    // Pairs lie within what is merged.
                    if i + distance < R && i / (2 * sorted) == (i + distance) / (2 * sorted) {
                        (rows[i], rows[i + distance]) = s.sort(rows[i], rows[i + distance]);
                    }
                }
                start += 2 * distance;
            }
            distance /= 2;
        }
        sorted *= 2;
    }
}

/// Merges runs of 2^level columns, each read down column after column, two by two.
#[inline(always)]
fn merge_columns<K: LaneKey, S: KeyLanes<K>, const R: usize>(s: S, rows: &mut [S::V; R], level: usize) {
    let (mirror, larger) = ((2 << level) - 1, HALVES[level]);
    if R == 1 {
        rows[0] = s.choose(rows[0], s.exchange(rows[0], mirror), larger);
    }
    // The first of one run meets the last of the other.
    for i in 0..R / 2 {
        let (a, b) = (rows[i], s.exchange(rows[R - 1 - i], mirror));
        rows[i] = s.choose(a, b, larger);
        rows[R - 1 - i] = s.exchange(s.choose(a, b, !larger), mirror);
    }
    // Then halves meet, and halves of those: across lanes while they are longer than a column.
    if level > 2 {
        halve_across(s, rows, 2);
    }
    if level > 1 {
        halve_across(s, rows, 1);
    }
    if level > 0 {
        halve_across(s, rows, 0);
    }
    if R > 8 {
        halve_along(s, rows, 8);
    }
    if R > 4 {
        halve_along(s, rows, 4);
    }
    if R > 2 {
        halve_along(s, rows, 2);
    }
    if R > 1 {
        halve_along(s, rows, 1);
    }
}

/// Lanes that are 2^level apart are put in order.
#[inline(always)]
fn halve_across<K: LaneKey, S: KeyLanes<K>, const R: usize>(s: S, rows: &mut [S::V; R], level: usize) {
    for i in 0..R {
        rows[i] = s.choose(rows[i], s.exchange(rows[i], 1 << level), HALVES[level]);
    }
}

/// Rows that far apart are put in order.
#[inline(always)]
fn halve_along<K: LaneKey, S: KeyLanes<K>, const R: usize>(s: S, rows: &mut [S::V; R], distance: usize) {
    for i in 0..R {
        if i & distance == 0 {
            (rows[i], rows[i + distance]) = s.sort(rows[i], rows[i + distance]);
        }
    }
}

/// Turns columns, one after the other, into rows: each round moves the highest bit of a key's place to the lowest.
#[inline(always)]
fn read_down<K: LaneKey, S: KeyLanes<K>, const R: usize>(s: S, rows: &mut [S::V; R]) {
    for _ in 0..R.ilog2() {
        let before = *rows;
        for i in 0..R / 2 {
            (rows[2 * i], rows[2 * i + 1]) = s.interleave(before[i], before[i + R / 2]);
        }
    }
}
