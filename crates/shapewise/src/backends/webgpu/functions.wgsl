fn is_nan(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }

// 1 - erf(|x|) by formula 7.1.26 of Abramowitz and Stegun: off by at most 1.5e-7.
fn erfc_of(x: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.3275911 * x);
    return t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) * exp(-x * x);
}

fn gelu(x: f32) -> f32 {
    let half_tail = 0.5 * erfc_of(min(abs(x), 12.0) * 0.70710678);
    let weight = select(1.0 - half_tail, half_tail, x < 0.0);
    // Beyond 12 the tail is below the smallest f32, and infinity times zero would be NaN.
    return select(x * weight, 0.0, x < -12.0);
}

fn silu(x: f32) -> f32 {
    // Beyond -100 the result is below the smallest f32.
    return select(x / (1.0 + exp(-x)), 0.0, x < -100.0);
}

fn hyperbolic_tangent(x: f32) -> f32 {
    let e = exp(-2.0 * abs(x));
    let far = sign(x) * (1.0 - e) / (1.0 + e);
    let y = x * x;
    // The series up to the seventh power: the difference above cancels near zero.
    let near = x * (1.0 + y * (-0.33333333 + y * (0.13333333 + y * -0.053968254)));
    return select(far, near, abs(x) < 0.25);
}
