//! Roots of unity to the last bit, and tables of them.

use crate::backends::cpu::ALIGNMENT;
use crate::backends::cpu::simd::Float;

/// The real and imaginary part of e^(−2πi k/n).
///
/// Angles are brought below π/4 by whole numbers first, where sine and cosine are exact to a rounding.
pub(super) fn root(k: usize, n: usize) -> (f64, f64) {
    // No memory holds lines of 2⁶¹ numbers, so eight times as many fit.
    let (k, n) = ((k % n) as u64, n as u64);
    // Eighths of a turn that are done, and the share of an eighth that is left.
    let eighth = (8 * k / n) as u32;
    let left = 8 * k - u64::from(eighth) * n;
    let angle = |part: u64| std::f64::consts::FRAC_PI_4 * (part as f64 / n as f64);
    let (cos, sin) = if eighth.is_multiple_of(2) {
        let a = angle(left);
        (a.cos(), a.sin())
    } else {
        // Measured back from the next quarter, so that the angle stays below π/4.
        let a = angle(n - left);
        (a.sin(), a.cos())
    };
    match eighth / 2 {
        0 => (cos, -sin),
        1 => (-sin, -cos),
        2 => (-cos, sin),
        _ => (sin, cos),
    }
}

/// Numbers that start at a cache line, so that no vector of them lies in two.
pub(super) struct Table<T> {
    numbers: Vec<T>,
    first: usize,
}

impl<T: Float> Table<T> {
    pub fn new(numbers: &[T]) -> Self {
        let line = ALIGNMENT / size_of::<T>();
        let mut all = Vec::<T>::with_capacity(numbers.len() + line);
        let first = all.as_ptr().align_offset(ALIGNMENT).min(line);
        all.resize(first, T::ZERO);
        all.extend_from_slice(numbers);
        Self { numbers: all, first }
    }

    /// The first number.
    pub fn as_ptr(&self) -> *const T {
        self.numbers[self.first..].as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_start_at_cache_lines() {
        for n in [0, 1, 5, 100, 5000] {
            let numbers: Vec<f32> = (0..n).map(|i| i as f32).collect();
            let table = Table::new(&numbers);
            assert_eq!(table.as_ptr().addr() % ALIGNMENT, 0);
            assert_eq!(table.numbers[table.first..], numbers);
        }
    }

    #[test]
    fn roots_are_on_their_angles() {
        for n in [1, 2, 3, 4, 5, 7, 8, 12, 16, 100, 10_007] {
            for k in 0..n {
                let angle = -std::f64::consts::TAU * k as f64 / n as f64;
                let (re, im) = root(k, n);
                assert!((re - angle.cos()).abs() < 1e-12 && (im - angle.sin()).abs() < 1e-12, "{k}/{n}");
            }
        }
        assert_eq!((root(1, 4), root(1, 2), root(7, 7)), ((0.0, -1.0), (-1.0, 0.0), (1.0, 0.0)));
    }
}
