//! Plain loops for stretches, which the compiler turns into whatever vectors the baseline has.
#![allow(unsafe_code)]

use super::QuantType;
use super::cpu_linear::Scales;

/// 1.5 · 2²³: added and taken away again it rounds numbers below 2²² to whole ones, halves to even.
const ROUND: f32 = 12_582_912.0;

/// # Safety
/// `x` has `n` numbers, `y` room for `n` integers, and `scales` one for each.
pub(super) unsafe fn quantise(kind: QuantType, x: *const f32, n: usize, scales: Scales, y: *mut u8) {
    let (low, high) = kind.range();
    let one = |i: usize| {
        // SAFETY: the caller asks for elements below n.
        let (x, (scale, zero)) = unsafe { (*x.add(i), scales.of(i)) };
        // The borders are whole numbers, so it makes no difference that they come before the rounding; NaN is `low`.
        let x = (x / scale).max((low.wrapping_sub(zero)) as f32).min((high.wrapping_sub(zero)) as f32);
        ((x + ROUND - ROUND) as i32).wrapping_add(zero)
    };
    // SAFETY: the caller has room for n integers.
    unsafe {
        match kind {
            QuantType::I8 | QuantType::U8 => (0..n).for_each(|i| y.add(i).write(one(i) as u8)),
            QuantType::I16 => (0..n).for_each(|i| y.cast::<i16>().add(i).write(one(i) as i16)),
            QuantType::I32 => (0..n).for_each(|i| y.cast::<i32>().add(i).write(one(i))),
            QuantType::I4 | QuantType::U4 => {
                for i in (0..n).step_by(2) {
                    let second = if i + 1 < n { one(i + 1) } else { 0 };
                    y.add(i / 2).write((one(i) & 15 | (second & 15) << 4) as u8);
                }
            }
        }
    }
}

/// # Safety
/// `q` has `n` integers, `y` room for `n` numbers, and `scales` one for each.
pub(super) unsafe fn dequantise(kind: QuantType, q: *const u8, n: usize, scales: Scales, y: *mut f32) {
    let put = |i: usize, q: i32| {
        // SAFETY: the caller has room for n numbers and a scale for each.
        unsafe {
            let (scale, zero) = scales.of(i);
            y.add(i).write(q.wrapping_sub(zero) as f32 * scale);
        }
    };
    // SAFETY: the caller has n integers.
    unsafe {
        match kind {
            QuantType::I8 => (0..n).for_each(|i| put(i, q.cast::<i8>().add(i).read().into())),
            QuantType::U8 => (0..n).for_each(|i| put(i, q.add(i).read().into())),
            QuantType::I16 => (0..n).for_each(|i| put(i, q.cast::<i16>().add(i).read().into())),
            QuantType::I32 => (0..n).for_each(|i| put(i, q.cast::<i32>().add(i).read())),
            QuantType::I4 => (0..n).for_each(|i| {
                let half = i32::from(q.add(i / 2).read() >> (i % 2 * 4) & 15);
                put(i, (half ^ 8) - 8);
            }),
            QuantType::U4 => (0..n).for_each(|i| put(i, i32::from(q.add(i / 2).read() >> (i % 2 * 4) & 15))),
        }
    }
}
