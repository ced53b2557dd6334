fn smaller(a: f32, b: f32) -> f32 { return select(b, a, is_nan(a) || a < b); }
fn larger(a: f32, b: f32) -> f32 { return select(b, a, is_nan(a) || a > b); }

fn divided(a: i32, b: i32) -> i32 { return select(a / b, 0, b == 0); }
fn divided_unsigned(a: u32, b: u32) -> u32 { return select(a / b, 0u, b == 0u); }

fn logarithm(x: f32) -> f32 {
    // Zero and the numbers below it are left to the driver by WGSL.
    return select(select(log(x), from_bits(0xff800000u), x == 0.0), from_bits(0x7fc00000u), x < 0.0);
}

// sin(x + quarters · π/2) after taking whole quarter turns off x in three parts of π/2: drivers are exact only between -π and π.
fn sine_and(x: f32, quarters: f32) -> f32 {
    let turns = round(x * 0.63661977);
    let rest = ((x - turns * 1.5703125) - turns * 0.00048351288) - turns * 0.00000031385569;
    let quadrant = u32(i32(turns - 4.0 * floor(turns * 0.25)) + i32(quarters)) & 3u;
    let swap = (quadrant & 1u) == 1u;
    let value = select(sin(rest), cos(rest), swap);
    return select(value, -value, quadrant >= 2u);
}

fn sine(x: f32) -> f32 { return sine_and(x, 0.0); }

fn power(a: f32, b: f32) -> f32 {
    let negative = (bitcast<u32>(a) >> 31u) == 1u;
    let whole = trunc(b) == b;
    let odd = whole && abs(b) < 16777216.0 && (i32(b) & 1) == 1;
    var size = pow(abs(a), b);
    if (a == 0.0) { size = select(0.0, from_bits(0x7f800000u), b < 0.0); }
    if (abs(a) == 1.0) { size = 1.0; }
    var result = select(size, -size, negative && odd);
    // A root of a finite negative number; infinite ones have none either, but their size is all that is asked.
    if (negative && !whole && a != 0.0 && abs(a) < from_bits(0x7f800000u)) { result = from_bits(0x7fc00000u); }
    if (is_nan(a) || is_nan(b)) { result = from_bits(0x7fc00000u); }
    if (b == 0.0 || a == 1.0) { result = 1.0; }
    return result;
}

// Truncated, at the ends of the range beyond it, zero for NaN.
fn to_i32(x: f32) -> i32 {
    let inside = i32(clamp(x, -2147483648.0, 2147483520.0));
    return select(select(inside, 2147483647, x >= 2147483648.0), 0, is_nan(x));
}

fn to_u32(x: f32) -> u32 {
    let inside = u32(clamp(x, 0.0, 4294967040.0));
    return select(select(inside, 4294967295u, x >= 4294967296.0), 0u, is_nan(x));
}
