//! Both walks against plain loops in `f64`.
use half::{bf16, f16};

use super::*;
use crate::backends::cpu::simd::Float;

/// A matrix somewhere inside a larger piece of memory.
struct Held<T> {
    data: Vec<T>,
    first: usize,
    rs: isize,
    cs: isize,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }
    fn value(&mut self) -> f64 {
        (self.next() % 2001) as f64 / 1000.0 - 1.0
    }

    /// A matrix with rows or columns contiguous, gaps, reversed or repeated rows, at an odd address.
    fn matrix<T: Stored>(&mut self, rows: usize, columns: usize, input: bool) -> Held<T> {
        let gap = self.below(3) as isize;
        let (mut rs, mut cs) = match self.below(4) {
            0 | 1 => (columns as isize + gap, 1),
            2 => (1, rows as isize + gap),
            _ => (2 * columns as isize + 3, 2),
        };
        match self.below(6) {
            0 => rs = -rs,
            1 => cs = -cs,
            2 if input => rs = 0,
            3 if input => cs = 0,
            _ => {}
        }
        let reach = |n: usize, stride: isize| (n.max(1) - 1) as isize * stride;
        let (low, high) = (
            reach(rows, rs).min(0) + reach(columns, cs).min(0),
            reach(rows, rs).max(0) + reach(columns, cs).max(0),
        );
        let offset = self.below(5);
        let data = (0..(high - low) as usize + 1 + offset).map(|_| narrow(self.value())).collect();
        Held { data, first: (-low) as usize + offset, rs, cs }
    }
}

fn narrow<T: Stored>(x: f64) -> T {
    T::narrow(T::Wide::from_f64(x))
}

impl<T: Stored> Held<T> {
    fn at(&self, i: usize, j: usize) -> f64 {
        let at = self.first as isize + i as isize * self.rs + j as isize * self.cs;
        self.data[at as usize].widen().to_f64()
    }
}

/// `rounding` is that of storing a result; sums add half an ulp of their type per step. Gives the plan.
fn check<T: Stored>(isa: Isa, random: &mut Random, (m, n, k): (usize, usize, usize), rounding: f64) -> Plan {
    let tolerance = rounding + (k + 2) as f64 * 0.5_f64.powi(T::Wide::MANTISSA_BITS as i32 + 1);
    let (a, b) = (random.matrix::<T>(m, k, true), random.matrix::<T>(k, n, true));
    let mut c = random.matrix::<T>(m, n, false);
    let bias = random.matrix::<T>(m, n, true);
    let activation =
        [Activation::None, Activation::Relu, Activation::LeakyRelu { slope: 0.25 }][random.below(3)];
    let with_bias = random.below(2) == 0;
    let g = Gemm {
        m,
        n,
        k,
        a: a.data[a.first..].as_ptr(),
        a_rs: a.rs,
        a_cs: a.cs,
        b: b.data[b.first..].as_ptr(),
        b_rs: b.rs,
        b_cs: b.cs,
        c: c.data[c.first..].as_mut_ptr(),
        c_rs: c.rs,
        c_cs: c.cs,
        epilogue: Epilogue {
            bias: if with_bias { bias.data[bias.first..].as_ptr() } else { std::ptr::null() },
            bias_rs: bias.rs,
            bias_cs: bias.cs,
            activation,
        },
    };
    let pool = ThreadPool::new(2);
    let few = few_rows_left(g);
    let plan = plan(&few, isa, 1 + random.below(3));
    let mut scratch = vec![T::Wide::ZERO; plan.scratch() + 16];
    let aligned = scratch.as_ptr().align_offset(64);
    // SAFETY: the operands cover their shapes, and the scratch has the planned size.
    unsafe { stream(&few, isa, &plan, &pool, scratch[aligned..].as_mut_ptr()) };
    for i in 0..m {
        for j in 0..n {
            let terms: Vec<f64> = (0..k).map(|p| a.at(i, p) * b.at(p, j)).collect();
            let mut want = terms.iter().sum::<f64>() + if with_bias { bias.at(i, j) } else { 0.0 };
            let size = 1.0 + terms.iter().map(|t| t.abs()).sum::<f64>();
            want = match activation {
                Activation::Relu => want.max(0.0),
                Activation::LeakyRelu { slope } if want < 0.0 => want * f64::from(slope),
                _ => want,
            };
            let got = c.at(i, j);
            assert!(
                (got - want).abs() <= tolerance * size,
                "{isa} {m}×{k}×{n} {:?} ({i}, {j}): {got}, not {want}",
                plan.walk
            );
        }
    }
    plan
}

#[test]
fn any_shape_and_stride_agrees_with_plain_loops() {
    let mut random = Random(7);
    let rounds = if cfg!(miri) { 4 } else { 150 };
    for &isa in Isa::available() {
        let mut by_steps = 0;
        for _ in 0..rounds {
            let few = 1 + random.below(MAX_ROWS);
            let many = 1 + random.below(if cfg!(miri) { 20 } else { 150 });
            let k = random.below(if cfg!(miri) { 20 } else { 700 });
            let few = if random.below(3) == 0 { 1 } else { few };
            let size = if random.below(2) == 0 { (few, many, k) } else { (many, few, k) };
            let plans = [
                check::<f32>(isa, &mut random, size, 0.0),
                check::<f64>(isa, &mut random, size, 0.0),
                check::<f16>(isa, &mut random, size, 0.5_f64.powi(11)),
                check::<bf16>(isa, &mut random, size, 0.5_f64.powi(8)),
            ];
            by_steps += plans.iter().filter(|plan| plan.by_steps).count();
        }
        assert!(cfg!(miri) || by_steps > 10, "{by_steps} products shared their steps");
    }
}

#[test]
fn several_passes_over_wide_matrices_agree() {
    for &isa in Isa::available() {
        check::<f32>(isa, &mut Random(3), (MAX_ROWS, 4500, 9), 0.0);
        check::<f64>(isa, &mut Random(4), (9, 4700, 3), 0.0);
    }
}

#[test]
fn columns_deeper_than_a_block_agree() {
    // Two blocks of f32 and a part of one.
    let k = if cfg!(miri) { 20 } else { 2 * dot::BLOCK / 4 + 5 };
    for &isa in Isa::available() {
        let mut random = Random(5);
        for rows in 1..=MAX_ROWS {
            for _ in 0..4 {
                check::<f32>(isa, &mut random, (rows, 11, k), 0.0);
                check::<f64>(isa, &mut random, (13, rows, k), 0.0);
            }
        }
    }
}

/// One row of ones times a 3×n matrix with `w` in the middle of column 1.
fn column_sum(isa: Isa, w: f32, contiguous_columns: bool) -> [f32; 2] {
    let (k, n) = (3, 2);
    let (rs, cs) = if contiguous_columns { (1, k as isize) } else { (n as isize, 1) };
    let mut b = vec![1.0_f32; k * n];
    b[(rs + cs) as usize] = w;
    let a = [1.0_f32; 3];
    let mut c = [0.0_f32; 2];
    let g = Gemm {
        m: 1,
        n,
        k,
        a: a.as_ptr(),
        a_rs: 3,
        a_cs: 1,
        b: b.as_ptr(),
        b_rs: rs,
        b_cs: cs,
        c: c.as_mut_ptr(),
        c_rs: 2,
        c_cs: 1,
        epilogue: Epilogue { bias: std::ptr::null(), bias_rs: 0, bias_cs: 0, activation: Activation::Relu },
    };
    let plan = plan(&g, isa, 1);
    let mut scratch = vec![0.0; plan.scratch() + 16];
    let aligned = scratch.as_ptr().align_offset(64);
    // SAFETY: the operands cover their shapes, and the scratch has the planned size.
    unsafe { stream(&g, isa, &plan, &ThreadPool::new(1), scratch[aligned..].as_mut_ptr()) };
    c
}

#[test]
fn nan_and_infinity_stay_in_their_column() {
    for &isa in Isa::available() {
        for contiguous_columns in [false, true] {
            let [clean, nan] = column_sum(isa, f32::NAN, contiguous_columns);
            assert!(clean == 3.0 && nan.is_nan(), "{isa}");
            assert_eq!(column_sum(isa, f32::INFINITY, contiguous_columns), [3.0, f32::INFINITY]);
            assert_eq!(column_sum(isa, f32::NEG_INFINITY, contiguous_columns), [3.0, 0.0]);
        }
    }
}
