//! Zeros at random places, the same for the same seed.

use crate::backends::cpu::simd::Float;
use crate::error::Result;
use crate::tensor::{DType, Element, Tensor};

/// 2⁶⁴ over the golden ratio: steps of this size spread over all numbers evenly.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// The output function of `SplitMix64`: a number without pattern from a counter.
fn mix(counter: u64) -> u64 {
    let z = (counter ^ (counter >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Drops elements of a layer's contiguous results.
pub(super) fn drop_out(x: &mut Tensor, layer: usize, (probability, seed): (f64, u64)) -> Result<()> {
    let start = mix(seed.wrapping_add(STEP.wrapping_mul(layer as u64 + 1)));
    if x.dtype() == DType::F64 {
        each::<f64>(x, probability, start)
    } else {
        each::<f32>(x, probability, start)
    }
}

fn each<T: Element + Float + bytemuck::AnyBitPattern>(
    x: &mut Tensor,
    probability: f64,
    start: u64,
) -> Result<()> {
    // As many of the 2⁵³ numbers that a float tells apart as are below the probability.
    let threshold = (probability * (1u64 << 53) as f64) as u64;
    let scale = T::from_f64(1.0 / (1.0 - probability));
    for (i, x) in x.as_mut_slice::<T>()?.iter_mut().enumerate() {
        let dropped = mix(start.wrapping_add(STEP.wrapping_mul(i as u64 + 1))) >> 11 < threshold;
        *x = if dropped { T::ZERO } else { *x * scale };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dropped(layer: usize, how: (f64, u64)) -> Vec<f32> {
        let mut x = Tensor::full(1.0f32, &[10_000]).unwrap();
        drop_out(&mut x, layer, how).unwrap();
        x.to_vec().unwrap()
    }

    #[test]
    fn as_many_are_dropped_as_asked_for_and_the_mean_stays() {
        for p in [0.0, 0.1, 0.5, 0.9] {
            let found = dropped(0, (p, 7));
            let zeros = found.iter().filter(|x| **x == 0.0).count() as f64 / 1e4;
            assert!((zeros - p).abs() < 0.02, "{zeros} {p}");
            assert!(found.iter().all(|x| *x == 0.0 || (f64::from(*x) - 1.0 / (1.0 - p)).abs() < 1e-6));
        }
        assert!(dropped(0, (1.0, 7)).iter().all(|x| *x == 0.0));
    }

    #[test]
    fn seeds_and_layers_differ_and_repeat() {
        assert_eq!(dropped(1, (0.5, 3)), dropped(1, (0.5, 3)));
        assert_ne!(dropped(1, (0.5, 3)), dropped(1, (0.5, 4)));
        assert_ne!(dropped(1, (0.5, 3)), dropped(2, (0.5, 3)));
    }
}
