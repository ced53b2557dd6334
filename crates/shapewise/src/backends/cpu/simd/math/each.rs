//! Functions of every number of a slice, on the best instructions there are.
use super::super::{Isa, Lanes, Simd, SimdTask};
use super::{exp, log};

/// Replaces every number by its natural logarithm.
pub fn log_each(numbers: &mut [f32]) {
    Isa::best().run(Each { numbers, of: Of::Log });
}

/// Replaces every number by its exponential.
pub fn exp_each(numbers: &mut [f32]) {
    Isa::best().run(Each { numbers, of: Of::Exp });
}

#[derive(Clone, Copy)]
enum Of {
    Log,
    Exp,
}

struct Each<'a> {
    numbers: &'a mut [f32],
    of: Of,
}

impl SimdTask for Each<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        each::<S>(s, self.numbers, self.of);
    }
}

#[inline(always)]
fn each<S: Lanes<f32>>(s: S, numbers: &mut [f32], of: Of) {
    for some in numbers.chunks_mut(S::LANES) {
        // SAFETY: the chunk has as many elements as are read and written.
        unsafe {
            let x = s.load_first(some.as_ptr(), some.len());
            let y = match of {
                Of::Log => log(s, x),
                Of::Exp => exp(s, x),
            };
            s.store_first(some.as_mut_ptr(), y, some.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_of_any_length_are_replaced() {
        for len in [0usize, 1, 7, 16, 37] {
            let before: Vec<f32> = (0..len).map(|i| 0.25 + i as f32).collect();
            let mut numbers = before.clone();
            log_each(&mut numbers);
            for (x, y) in before.iter().zip(&numbers) {
                assert!((x.ln() - y).abs() < 1e-6, "ln {x}: {y}");
            }
            exp_each(&mut numbers);
            for (x, y) in before.iter().zip(&numbers) {
                assert!((y / x - 1.0).abs() < 1e-5, "{x}: {y}");
            }
        }
    }
}
