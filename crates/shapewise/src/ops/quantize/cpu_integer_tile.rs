//! The innermost loops of integer products: a group of rows times a panel of columns, on each instruction set.
#![allow(unsafe_code)]
#![allow(clippy::wildcard_imports)] // the instructions

use super::cpu_integer_pack::{Place, Source, Steps, pack};

/// What a tile works on: packed rows and columns, and their sums, `pitch` apart from row to row.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub rows: usize,
    pub left: *const u8,
    pub right: *const u8,
    pub steps: usize,
    pub sums: *mut i32,
    pub pitch: usize,
    /// Whether the sums begin here, or go on.
    pub first: bool,
}

/// How one instruction set goes about it.
#[derive(Clone, Copy)]
pub(super) struct Form {
    /// The most rows of a group: their sums and the operands fill the registers.
    pub rows: usize,
    /// Columns of a panel.
    pub columns: usize,
    pub steps: Steps,
    /// Multiplies; `rows` is from 1 to the form's.
    pub tile: unsafe fn(&Tile),
    pub pack: unsafe fn(Steps, &Source, &Place),
}

/// Plain loops that the compiler turns into multiplications of 16-bit pairs.
pub(super) static PORTABLE: Form = Form { rows: 4, columns: 16, steps: Steps::Pairs, tile: portable, pack };

/// Pairs of 16 bits: exact whatever the signs. `cpu_integer_bytes` is for those whose sums of two products fit 16 bits.
#[cfg(target_arch = "x86_64")]
pub(super) static AVX2: Form = Form {
    rows: 6,
    columns: 16,
    steps: Steps::Pairs,
    tile: avx2::tile,
    pack: super::cpu_integer_pack::pack_avx2,
};

/// Four products of bytes added up in one instruction.
#[cfg(target_arch = "x86_64")]
pub(super) static VNNI: Form = Form {
    rows: 8,
    columns: 48,
    steps: Steps::Quads,
    tile: vnni::tile,
    pack: super::cpu_integer_quads::pack_quads,
};

/// # Safety
/// The operands are packed in pairs for `rows` and 16 columns, and there is room for the sums.
unsafe fn portable(t: &Tile) {
    let (left, right) = (t.left.cast::<[i16; 2]>(), t.right.cast::<[[i16; 2]; 16]>());
    for row in 0..t.rows {
        let mut sums = [0i32; 16];
        for step in 0..t.steps {
            // SAFETY: the caller has packed these steps.
            let ([a, b], columns) = unsafe { (left.add(step * t.rows + row).read(), &*right.add(step)) };
            for (sum, &[c, d]) in sums.iter_mut().zip(columns) {
                let both =
                    i32::from(a).wrapping_mul(c.into()).wrapping_add(i32::from(b).wrapping_mul(d.into()));
                *sum = sum.wrapping_add(both);
            }
        }
        // SAFETY: the caller has room for the sums.
        let out = unsafe { std::slice::from_raw_parts_mut(t.sums.add(row * t.pitch), 16) };
        for (out, sum) in out.iter_mut().zip(sums) {
            *out = if t.first { sum } else { out.wrapping_add(sum) };
        }
    }
}

/// Calls the loop that was compiled for this number of rows.
#[cfg(target_arch = "x86_64")]
macro_rules! by_rows {
    ($t:ident, $($rows:literal)*) => {
        match $t.rows {
            // SAFETY: the caller's promise.
            $($rows => unsafe { group::<$rows>($t) },)*
            rows => debug_assert!(false, "a group of {rows} rows"),
        }
    };
}
#[cfg(target_arch = "x86_64")]
pub(super) use by_rows;

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::Tile;
    use std::arch::x86_64::*;

    /// # Safety
    /// The CPU has AVX2, the operands are packed in pairs for `rows` and 16 columns, and there is room for the sums.
    pub unsafe fn tile(t: &Tile) {
        by_rows!(t, 1 2 3 4 5 6);
    }

    /// # Safety
    /// As for [`tile`], for `R` rows.
    #[target_feature(enable = "avx2")]
    unsafe fn group<const R: usize>(t: &Tile) {
        let (mut left, mut right) = (t.left.cast::<i32>(), t.right.cast::<__m256i>());
        let mut sums = [[_mm256_setzero_si256(); 2]; R];
        // SAFETY: the caller has packed these steps and has room for the sums.
        unsafe {
            for _ in 0..t.steps {
                let columns = [_mm256_loadu_si256(right), _mm256_loadu_si256(right.add(1))];
                for (row, sums) in sums.iter_mut().enumerate() {
                    let a = _mm256_set1_epi32(left.add(row).read_unaligned());
                    sums[0] = _mm256_add_epi32(sums[0], _mm256_madd_epi16(a, columns[0]));
                    sums[1] = _mm256_add_epi32(sums[1], _mm256_madd_epi16(a, columns[1]));
                }
                left = left.add(R);
                right = right.add(2);
            }
            for (row, sums) in sums.iter().enumerate() {
                let out = t.sums.add(row * t.pitch).cast::<__m256i>();
                for (i, &sum) in sums.iter().enumerate() {
                    let before =
                        if t.first { _mm256_setzero_si256() } else { _mm256_loadu_si256(out.add(i)) };
                    _mm256_storeu_si256(out.add(i), _mm256_add_epi32(before, sum));
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod vnni {
    use super::Tile;
    use std::arch::x86_64::*;

    /// # Safety
    /// The CPU has AVX-512 with VNNI, the operands are packed in quads for `rows` and 48 columns, and there is room for
    /// the sums.
    pub unsafe fn tile(t: &Tile) {
        by_rows!(t, 1 2 3 4 5 6 7 8);
    }

    /// # Safety
    /// As for [`tile`], for `R` rows.
    #[target_feature(enable = "avx512f,avx512vnni")]
    unsafe fn group<const R: usize>(t: &Tile) {
        let (mut left, mut right) = (t.left.cast::<i32>(), t.right.cast::<i32>());
        let mut sums = [[_mm512_setzero_si512(); 3]; R];
        // SAFETY: the caller has packed these steps and has room for the sums.
        unsafe {
            for _ in 0..t.steps {
                let mut columns = [_mm512_setzero_si512(); 3];
                for (i, column) in columns.iter_mut().enumerate() {
                    *column = _mm512_loadu_epi32(right.add(16 * i));
                }
                for (row, sums) in sums.iter_mut().enumerate() {
                    let a = _mm512_set1_epi32(left.add(row).read_unaligned());
                    for (sum, &column) in sums.iter_mut().zip(&columns) {
                        // Unsigned columns times signed rows.
                        *sum = _mm512_dpbusd_epi32(*sum, column, a);
                    }
                }
                left = left.add(R);
                right = right.add(48);
            }
            for (row, sums) in sums.iter().enumerate() {
                let out = t.sums.add(row * t.pitch);
                for (i, &sum) in sums.iter().enumerate() {
                    let out = out.add(16 * i);
                    let before = if t.first { _mm512_setzero_si512() } else { _mm512_loadu_epi32(out) };
                    _mm512_storeu_epi32(out, _mm512_add_epi32(before, sum));
                }
            }
        }
    }
}

/// What the VNNI tile computes, one product at a time: CPUs without the instructions test its packing with it.
#[cfg(test)]
pub(super) static QUADS_BY_HAND: Form =
    Form { rows: 8, columns: 48, steps: Steps::Quads, tile: quads_by_hand, pack };

#[cfg(test)]
unsafe fn quads_by_hand(t: &Tile) {
    let (left, right) = (t.left.cast::<[i8; 4]>(), t.right.cast::<[u8; 4]>());
    for row in 0..t.rows {
        for column in 0..48 {
            let mut sum = 0i32;
            for step in 0..t.steps {
                // SAFETY: the caller has packed these steps.
                let (a, b) = unsafe { (*left.add(step * t.rows + row), *right.add(step * 48 + column)) };
                sum += a.iter().zip(b).map(|(&a, b)| i32::from(a) * i32::from(b)).sum::<i32>();
            }
            // SAFETY: the caller has room for the sums.
            unsafe {
                let out = t.sums.add(row * t.pitch + column);
                out.write(if t.first { sum } else { out.read().wrapping_add(sum) });
            }
        }
    }
}
