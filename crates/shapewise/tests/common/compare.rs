//! Whether two answers agree.

use shapewise::DType;

use super::numbers::Numbers;

/// The distance from one to the next number of a float type, and its smallest positive number.
pub fn precision(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::F32 | DType::C32 => (f64::from(f32::EPSILON), f64::from(f32::from_bits(1))),
        DType::F16 => (2f64.powi(-10), 2f64.powi(-24)),
        DType::BF16 => (2f64.powi(-7), 2f64.powi(-133)),
        _ => (f64::EPSILON, f64::from_bits(1)),
    }
}

/// What is allowed for one number: so many units in the last place, plus an absolute part.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tolerance {
    pub ulps: f64,
    pub absolute: f64,
}

impl Tolerance {
    fn allows(self, found: f64, wanted: f64, dtype: DType) -> bool {
        if found == wanted || (found.is_nan() && wanted.is_nan()) {
            return true;
        }
        let (epsilon, tiny) = precision(dtype);
        // The spacing at `wanted` is at most epsilon times it, and at least the smallest number.
        let unit = (epsilon * wanted.abs()).max(tiny);
        (found - wanted).abs() <= self.ulps * unit + self.absolute
    }
}

/// The first disagreement, in words; `tolerance` is asked for each number by its index.
pub fn differs(
    found: &Numbers,
    wanted: &Numbers,
    dtype: DType,
    tolerance: impl Fn(usize) -> Tolerance,
) -> Option<String> {
    match (found, wanted) {
        (Numbers::Integer(f), Numbers::Integer(w)) => {
            if f.len() != w.len() {
                return Some(format!("{} numbers instead of {}", f.len(), w.len()));
            }
            let at = f.iter().zip(w).position(|(f, w)| f != w)?;
            Some(format!("{} instead of {} at {at}", f[at], w[at]))
        }
        (Numbers::Real(f), Numbers::Real(w)) | (Numbers::Complex(f), Numbers::Complex(w)) => {
            if f.len() != w.len() {
                return Some(format!("{} numbers instead of {}", f.len(), w.len()));
            }
            let at = (0..f.len()).find(|&i| !tolerance(i).allows(f[i], w[i], dtype))?;
            Some(format!("{:e} instead of {:e} at {at}, {:?} allowed", f[at], w[at], tolerance(at)))
        }
        _ => Some("another kind of numbers".into()),
    }
}
