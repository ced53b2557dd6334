//! Blocks from and to memory: any strides, half-width floats widened and narrowed.
#![allow(unsafe_code)]

use half::{bf16, f16};
use num_complex::Complex;

use super::plan::BLOCK;
use super::value::Value;
use crate::backends::cpu::simd::{HalfLanes, Isa, Simd, SimdTask};
use crate::tensor::DType;

/// Stride from row to row, stride in a row, rows, elements in a row.
pub(super) type Rows = (isize, isize, usize, usize);

/// Fills a whole block with a constant.
///
/// # Safety
/// `to` has room for a block of the type that `dtype` is computed in.
pub(super) unsafe fn fill(to: *mut u8, value: f64, dtype: DType) {
    // SAFETY: the caller's; each arm writes the type that its values are computed in.
    unsafe {
        match Value::constant(value, dtype) {
            Value::F32(x) => repeat(to, x),
            Value::F64(x) => repeat(to, x),
            Value::Bool(x) => repeat(to, u8::from(x)),
            Value::C32(x) => repeat(to, x),
            Value::C64(x) => repeat::<Complex<f64>>(to, x),
            Value::Int(x) => match dtype {
                DType::I8 | DType::U8 => repeat(to, x as u8),
                DType::I16 => repeat(to, x as u16),
                DType::I32 | DType::U32 => repeat(to, x as u32),
                _ => repeat(to, x),
            },
        }
    }
}

/// # Safety
/// `to` has room for a block of `T`.
unsafe fn repeat<T: Copy>(to: *mut u8, value: T) {
    // SAFETY: the caller's.
    unsafe { std::slice::from_raw_parts_mut(to.cast::<T>(), BLOCK) }.fill(value);
}

/// Brings rows of an operand into a block, widened to the type that they are computed in.
///
/// # Safety
/// The rows may be read, and `to` has room for them.
pub(super) unsafe fn load(isa: Isa, from: *const u8, dtype: DType, rows: Rows, to: *mut u8) {
    // SAFETY: the caller's; elements are moved by their size alone.
    unsafe {
        match dtype.size() {
            1 => gather::<u8>(from, rows, to),
            2 if dtype == DType::I16 => gather::<u16>(from, rows, to),
            2 => {
                let mut narrow = [0_u16; BLOCK];
                gather::<u16>(from, rows, narrow.as_mut_ptr().cast());
                isa.run(Widen(dtype, narrow.as_ptr(), to.cast(), rows.2 * rows.3));
            }
            4 => gather::<u32>(from, rows, to),
            8 => gather::<u64>(from, rows, to),
            _ => gather::<[u64; 2]>(from, rows, to),
        }
    }
}

/// Writes a block to rows of an operand, narrowed to its type.
///
/// # Safety
/// The rows may be written, and `from` holds that many values of the type that `dtype` is computed in.
pub(super) unsafe fn store(isa: Isa, from: *const u8, to: *mut u8, dtype: DType, rows: Rows) {
    // SAFETY: the caller's; elements are moved by their size alone.
    unsafe {
        match dtype.size() {
            1 => scatter::<u8>(from, to, rows),
            2 if dtype == DType::I16 => scatter::<u16>(from, to, rows),
            2 => {
                let mut narrow = [0_u16; BLOCK];
                isa.run(Narrow(dtype, from.cast(), narrow.as_mut_ptr(), rows.2 * rows.3));
                scatter::<u16>(narrow.as_ptr().cast(), to, rows);
            }
            4 => scatter::<u32>(from, to, rows),
            8 => scatter::<u64>(from, to, rows),
            _ => scatter::<[u64; 2]>(from, to, rows),
        }
    }
}

/// # Safety
/// As for [`load`], for elements of the size of `T`.
unsafe fn gather<T: Copy>(from: *const u8, (row_step, step, rows, n): Rows, to: *mut u8) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    for row in 0..rows {
        let from = from.wrapping_offset(row as isize * row_step);
        // SAFETY: n elements from here on, a step apart, may be read at any address; the block has room.
        unsafe {
            let to = to.add(row * n);
            match step {
                1 => std::ptr::copy_nonoverlapping(from.cast::<u8>(), to.cast(), n * size_of::<T>()),
                0 => std::slice::from_raw_parts_mut(to, n).fill(from.read_unaligned()),
                _ => {
                    for i in 0..n {
                        to.add(i).write(from.offset(i as isize * step).read_unaligned());
                    }
                }
            }
        }
    }
}

/// # Safety
/// As for [`store`], for elements of the size of `T`.
unsafe fn scatter<T: Copy>(from: *const u8, to: *mut u8, (row_step, step, rows, n): Rows) {
    let (from, to) = (from.cast::<T>(), to.cast::<T>());
    for row in 0..rows {
        let to = to.wrapping_offset(row as isize * row_step);
        // SAFETY: n elements from here on, a step apart, may be written at any address; the block has them all.
        unsafe {
            let from = from.add(row * n);
            if step == 1 {
                std::ptr::copy(from.cast::<u8>(), to.cast(), n * size_of::<T>());
            } else {
                for i in 0..n {
                    to.offset(i as isize * step).write_unaligned(from.add(i).read());
                }
            }
        }
    }
}

/// 16-bit floats to `f32`.
struct Widen(DType, *const u16, *mut f32, usize);
/// `f32` to 16-bit floats.
struct Narrow(DType, *const f32, *mut u16, usize);

impl SimdTask for Widen {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `load` gave a buffer of that many halves and room for them.
        unsafe { widen(s, &self) }
    }
}

impl SimdTask for Narrow {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // SAFETY: `store` gave a block of that many numbers and room for them.
        unsafe { narrow(s, &self) }
    }
}

/// # Safety
/// The source may be read and the target written.
#[inline(always)]
unsafe fn widen<S: HalfLanes>(s: S, &Widen(dtype, from, to, n): &Widen) {
    let (half, brain) = (from.cast::<f16>(), from.cast::<bf16>());
    let mut i = 0;
    // SAFETY: all indices are below n.
    unsafe {
        while i < n {
            let count = (n - i).min(S::LANES);
            let v = match (dtype, count == S::LANES) {
                (DType::F16, true) => s.load_f16(half.add(i)),
                (DType::F16, false) => s.load_f16_first(half.add(i), count),
                (_, true) => s.load_bf16(brain.add(i)),
                (_, false) => s.load_bf16_first(brain.add(i), count),
            };
            s.store_first(to.add(i), v, count);
            i += count;
        }
    }
}

/// # Safety
/// The source may be read and the target written.
#[inline(always)]
unsafe fn narrow<S: HalfLanes>(s: S, &Narrow(dtype, from, to, n): &Narrow) {
    let (half, brain) = (to.cast::<f16>(), to.cast::<bf16>());
    let mut i = 0;
    // SAFETY: all indices are below n.
    unsafe {
        while i < n {
            let count = (n - i).min(S::LANES);
            let v = s.load_first(from.add(i), count);
            match (dtype, count == S::LANES) {
                (DType::F16, true) => s.store_f16(half.add(i), v),
                (DType::F16, false) => s.store_f16_first(half.add(i), v, count),
                (_, true) => s.store_bf16(brain.add(i), v),
                (_, false) => s.store_bf16_first(brain.add(i), v, count),
            }
            i += count;
        }
    }
}
