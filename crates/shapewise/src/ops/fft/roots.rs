//! Roots of unity to the last bit.

/// The real and imaginary part of e^(−2πi k/n).
///
/// Angles are brought below π/4 by whole numbers first, where sine and cosine are exact to a rounding.
pub(super) fn root(k: usize, n: usize) -> (f64, f64) {
    let (k, n) = ((k % n) as u128, n as u128);
    // Eighths of a turn that are done, and the share of an eighth that is left.
    let eighth = (8 * k / n) as u32;
    let left = 8 * k - u128::from(eighth) * n;
    let angle = |part: u128| std::f64::consts::FRAC_PI_4 * (part as f64 / n as f64);
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

#[cfg(test)]
mod tests {
    use super::root;

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
