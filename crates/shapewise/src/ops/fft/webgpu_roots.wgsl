// e^(2πi k/n) for k below n: the octant by whole numbers, the rest by the series of sine and cosine below π/4, whose first terms
// left out are under 4e-9.
fn root(k: u32, n: u32) -> vec2<f32> {
    let octant = k * 8u / n;
    let rest = f32(k * 8u - octant * n) / f32(n);
    // Odd octants count down from their end.
    let odd = (octant & 1u) == 1u;
    let x = select(rest, 1.0 - rest, odd) * 0.78539816;
    let y = x * x;
    let sine = x * (1.0 + y * (-0.16666667 + y * (0.0083333333 + y * (-0.00019841270 + y * 0.0000027557319))));
    let cosine = 1.0 + y * (-0.5 + y * (0.041666667 + y * (-0.0013888889 + y * 0.000024801587)));
    let swap = octant == 1u || octant == 2u || octant == 5u || octant == 6u;
    let a = select(cosine, sine, swap);
    let b = select(sine, cosine, swap);
    return vec2<f32>(select(a, -a, octant >= 2u && octant <= 5u), select(b, -b, octant >= 4u));
}

fn times(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> { return vec2<f32>(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x); }
