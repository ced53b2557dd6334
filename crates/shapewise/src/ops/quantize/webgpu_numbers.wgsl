// Arithmetic that the CPU rounds exactly and WGSL leaves to the driver.

fn not_a_number(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }

// The 24 bits of a positive number, and the power of two of the last of them.
struct Parts { bits: u32, power: i32 }

fn parts(x: u32) -> Parts {
    let low = x & 0x7fffffu;
    let exponent = i32(x >> 23u);
    if (exponent > 0) { return Parts(low | 0x800000u, exponent - 150); }
    let up = countLeadingZeros(low) - 8u;
    return Parts(low << up, -149 - i32(up));
}

// x / y, rounded to the nearest, halves to even: WGSL lets divisions be off by 2.5 units in the last place.
fn divide(x: f32, y: f32) -> f32 {
    let plain = x / y;
    let sign = (bitcast<u32>(x) ^ bitcast<u32>(y)) & 0x80000000u;
    let a = bitcast<u32>(x) & 0x7fffffffu;
    let b = bitcast<u32>(y) & 0x7fffffffu;
    if (a == 0u || b == 0u || a >= 0x7f800000u || b >= 0x7f800000u) { return plain; }
    let u = parts(a);
    let v = parts(b);
    let shift = select(24u, 23u, u.bits >= v.bits);
    var q = u32(f32(u.bits) / f32(v.bits) * f32(1u << shift));
    // The rest of a quotient that is nearly right fits into 32 bits, so the products may lose what is above them.
    var rest = i32((u.bits << shift) - q * v.bits);
    let d = i32(v.bits);
    for (var i = 0; i < 4 && rest < 0; i++) { q -= 1u; rest += d; }
    for (var i = 0; i < 4 && rest >= d; i++) { q += 1u; rest -= d; }
    if (2 * rest > d || (2 * rest == d && (q & 1u) == 1u)) { q += 1u; }
    let power = u.power - v.power - i32(shift);
    // Beyond the normal numbers nothing that follows depends on the last bit.
    if (power < -149 || power > 104) { return plain; }
    return bitcast<f32>(sign | ((u32(power + 150) << 23u) + (q - 0x800000u)));
}

// An integer, rounded once: both parts are exact.
fn real_of(x: i32) -> f32 { return f32(x & -256) + f32(x & 255); }

// Rounded with halves to even, moved by the zero point, kept in the range; NaN is the smallest.
fn nearest(x: f32, zero: i32, low: i32, high: i32) -> i32 {
    if (not_a_number(x)) { return low; }
    return clamp(i32(clamp(round(x), -1e9, 1e9)) + zero, low, high);
}

// 16-bit floats by their bits: not every device has them, and how they are rounded is left to it.
fn from_half(x: u32) -> f32 {
    let sign = (x & 0x8000u) << 16u;
    let exponent = (x >> 10u) & 31u;
    if (exponent == 0u) { return bitcast<f32>(bitcast<u32>(f32(x & 1023u) * 5.9604645e-8) | sign); }
    return bitcast<f32>(sign | (select(exponent + 112u, 255u, exponent == 31u) << 23u) | ((x & 1023u) << 13u));
}

fn to_half(x: f32) -> u32 {
    let sign = (bitcast<u32>(x) >> 16u) & 0x8000u;
    let a = bitcast<u32>(x) & 0x7fffffffu;
    if (a >= 0x47800000u) { return sign | select(0x7c00u, 0x7e00u, a > 0x7f800000u); }
    if (a < 0x38800000u) { return sign | u32(round(bitcast<f32>(a) * 16777216.0)); }
    return sign | ((a - 0x38000000u + 0xfffu + ((a >> 13u) & 1u)) >> 13u);
}

fn to_short(x: f32) -> u32 {
    let a = bitcast<u32>(x);
    if (not_a_number(x)) { return 0x7fc0u; }
    return (a + 0x7fffu + ((a >> 16u) & 1u)) >> 16u;
}
