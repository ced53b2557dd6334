// The largest element so far, and the sum of e to the distance of each from it.
struct Acc { most: f32, sum: f32 }

// e^(x - most), one where they are equal even if both are infinite.
fn weight(x: f32, most: f32) -> f32 { return select(exp(x - most), 1.0, x == most); }

fn start() -> Acc { return Acc(from_bits(0xff800000u), 0.0); }

fn add(a: Acc, x: f32) -> Acc {
    let most = select(a.most, x, x > a.most);
    return Acc(most, a.sum * weight(a.most, most) + weight(x, most));
}

fn join(a: Acc, b: Acc) -> Acc {
    let most = select(a.most, b.most, b.most > a.most);
    return Acc(most, a.sum * weight(a.most, most) + b.sum * weight(b.most, most));
}

// An infinite element leaves no weights.
fn settled(a: Acc) -> Acc {
    let lost = abs(a.most) == from_bits(0x7f800000u);
    return Acc(a.most, select(a.sum, from_bits(0x7fc00000u), lost));
}
