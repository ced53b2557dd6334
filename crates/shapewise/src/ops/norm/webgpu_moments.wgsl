// How many elements, their mean, and the sum of their squared distances from it.
struct Acc { many: f32, mean: f32, squares: f32 }

fn start() -> Acc { return Acc(0.0, 0.0, 0.0); }

fn add(a: Acc, x: f32) -> Acc {
    let many = a.many + 1.0;
    let apart = x - a.mean;
    let mean = a.mean + apart / many;
    return Acc(many, mean, a.squares + apart * (x - mean));
}

// The distance from zero instead.
fn add_square(a: Acc, x: f32) -> Acc { return Acc(a.many + 1.0, 0.0, a.squares + x * x); }

fn join(a: Acc, b: Acc) -> Acc {
    if (a.many == 0.0) { return b; }
    if (b.many == 0.0) { return a; }
    let many = a.many + b.many;
    let apart = b.mean - a.mean;
    let share = b.many / many;
    return Acc(many, a.mean + apart * share, a.squares + b.squares + apart * apart * a.many * share);
}
