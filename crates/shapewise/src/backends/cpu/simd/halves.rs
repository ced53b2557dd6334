//! 16-bit floats without instructions for them, in steps that vectorise on every CPU.
//!
//! The crate `half` asks for each number whether the CPU converts, which costs more than converting.
use half::f16;

/// The infinity of `f16`, its sign left out.
const INFINITY: u32 = 0x7c00;
/// Places by which the mantissa of `f32` is longer.
const LONGER: u32 = 13;
/// Bit pattern of 2¹¹²: the exponents of `f16` are biased by 15, those of `f32` by 127.
const REBIAS: u32 = (127 + 112) << 23;
/// The least normal `f16`, 2⁻¹⁴, as an `f32`.
const LEAST_NORMAL: u32 = (127 - 14) << 23;
/// 2¹⁶ as an `f32`: nothing from here on can round to a finite `f16`.
const BEYOND: u32 = (127 + 16) << 23;
/// One half as an `f32`, whose last place is that of the subnormal `f16`s.
const ONE_HALF: u32 = (127 - 1) << 23;

/// All bits where `a < b`, none elsewhere, for numbers below 2³¹: the compiler turns choices into jumps, but not this.
#[inline(always)]
fn below(a: u32, b: u32) -> u32 {
    ((a as i32 - b as i32) >> 31) as u32
}

/// The bits of `a` where `mask` has ones, those of `b` elsewhere.
#[inline(always)]
fn choose(mask: u32, a: u32, b: u32) -> u32 {
    b ^ ((a ^ b) & mask)
}

/// The same number, exactly; NaN becomes quiet.
#[inline(always)]
pub fn widen(x: f16) -> f32 {
    let bits = u32::from(x.to_bits());
    let (sign, rest) = ((bits & 0x8000) << 16, bits & 0x7fff);
    // Multiplying moves the exponent and makes subnormal numbers normal.
    let finite = (f32::from_bits(rest << LONGER) * f32::from_bits(REBIAS)).to_bits();
    let quiet = below(INFINITY, rest) & 0x40_0000;
    f32::from_bits(sign | choose(below(rest, INFINITY), finite, rest << LONGER | 0x7f80_0000 | quiet))
}

/// The nearest number, ties to even; NaN becomes quiet.
#[inline(always)]
pub fn narrow(x: f32) -> f16 {
    let bits = x.to_bits();
    let (sign, rest) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    let odd = rest >> LONGER & 1;
    // Rounding may carry into the exponent, and there into infinity, as it should.
    let normal = rest.wrapping_sub(112 << 23).wrapping_add((1 << (LONGER - 1)) - 1 + odd) >> LONGER;
    // The sum rounds where the last place of a subnormal number is.
    let subnormal = (f32::from_bits(rest) + f32::from_bits(ONE_HALF)).to_bits().wrapping_sub(ONE_HALF);
    let finite = choose(below(rest, LEAST_NORMAL), subnormal, normal);
    let nan = below(0x7f80_0000, rest) & (0x200 | rest >> LONGER & 0x3ff);
    f16::from_bits((sign | choose(below(rest, BEYOND), finite, INFINITY | nan)) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn same(a: f16, b: f16) -> bool {
        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan() && a.is_sign_positive() == b.is_sign_positive()
    }

    #[test]
    fn every_half_is_widened_exactly_and_comes_back() {
        for bits in 0..=u16::MAX {
            let half = f16::from_bits(bits);
            let wide = widen(half);
            assert!(wide.to_bits() == half.to_f32().to_bits(), "{bits:#06x} became {wide}");
            assert!(same(narrow(wide), half), "{bits:#06x} came back as {:?}", narrow(wide));
        }
    }

    #[test]
    fn narrowing_rounds_to_even_around_every_half() {
        for bits in 0..=u16::MAX {
            let wide = f16::from_bits(bits).to_f32().to_bits();
            // On both sides of the number and of the middle to the next, in each place that decides.
            for step in [1, 0x7ff, 0xfff, 0x1000, 0x1001, 0x1fff] {
                for near in [wide.wrapping_add(step), wide.wrapping_sub(step)].map(f32::from_bits) {
                    assert!(
                        same(narrow(near), f16::from_f32_const(near)),
                        "{near:e} became {:?}",
                        narrow(near)
                    );
                }
            }
        }
    }

    #[test]
    fn narrowing_far_numbers() {
        for x in [
            65504.0,
            65519.99,
            65520.0,
            1e9,
            f32::MAX,
            f32::INFINITY,
            f32::NAN,
            0.0,
            2.98e-8,
            2.99e-8,
            1e-30,
            1e-45,
        ] {
            for x in [x, -x] {
                assert!(same(narrow(x), f16::from_f32_const(x)), "{x:e} became {:?}", narrow(x));
            }
        }
    }
}
