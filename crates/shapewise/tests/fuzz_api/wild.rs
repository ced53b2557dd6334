//! Arguments that nobody would give on purpose.

use shapewise::ops::elementwise::{Expr, Program};
use shapewise::tensor::{Layout, Shape, Strides};
use shapewise::{DType, Tensor, TensorView};

use crate::data::{Grade, Random, line};

/// Elements of storage behind wild views.
const STORED: usize = 512;
/// Views up to this size are computed on.
const AFFORDABLE: usize = 1 << 14;

pub fn dtype(r: &mut Random) -> DType {
    // Mostly f32, so that operands often agree.
    if r.below(2) == 0 { DType::F32 } else { DType::ALL[r.below(DType::ALL.len())] }
}

fn size(r: &mut Random) -> usize {
    match r.below(40) {
        0 => 0,
        1 => usize::MAX,
        2 => usize::MAX / 2,
        3 => isize::MAX as usize,
        4 => 1 << 62,
        5 => usize::MAX / 3 + 1,
        6..12 => 1,
        _ => 2 + r.below(6),
    }
}

/// Zero to ten axes; a few are near the end of the address space.
pub fn shape(r: &mut Random) -> Vec<usize> {
    let rank = if r.below(20) == 0 { r.below(11) } else { r.below(5) };
    (0..rank).map(|_| size(r)).collect()
}

fn stride(r: &mut Random) -> isize {
    match r.below(30) {
        0 => isize::MAX,
        1 => isize::MIN,
        2 => isize::MAX / 2 + 1,
        3..8 => 0,
        8..14 => -(r.below(9) as isize),
        _ => r.below(40) as isize,
    }
}

pub fn axis(r: &mut Random) -> isize {
    match r.below(12) {
        0 => isize::MIN,
        1 => isize::MAX,
        _ => r.below(9) as isize - 4,
    }
}

pub fn axes(r: &mut Random) -> Vec<isize> {
    let most = if r.below(9) == 0 { 12 } else { 4 };
    (0..r.below(most)).map(|_| axis(r)).collect()
}

/// Any number at all.
pub fn number(r: &mut Random) -> f64 {
    match r.below(8) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        3 => f64::from_bits(r.next()),
        4 => -0.0,
        _ => r.below(9) as f64 - 4.0,
    }
}

pub fn storage(r: &mut Random) -> Tensor {
    let (dtype, pooled) = (dtype(r), r.below(2) == 0);
    line(dtype, STORED, Grade::ALL[r.below(6)], r, pooled)
}

/// A layout that may or may not lie inside the storage.
pub fn layout(r: &mut Random) -> Layout {
    let shape: Vec<_> = shape(r).into_iter().take(8).collect();
    let strides: Vec<_> = shape.iter().map(|_| stride(r)).collect();
    let offset = match r.below(10) {
        0 => usize::MAX,
        1 => STORED,
        _ => r.below(STORED),
    };
    Layout { shape: Shape::new(&shape).unwrap(), strides: Strides::new(&strides).unwrap(), offset }
}

/// A valid view of the storage, found by trying; small enough to compute on.
pub fn view<'a>(r: &mut Random, storage: &'a Tensor) -> TensorView<'a> {
    for _ in 0..20 {
        let found = match r.below(3) {
            0 => storage.view().with_layout(layout(r)),
            1 => TensorView::broadcast_to(&storage.view().slice(0, 0, 1, 1).unwrap(), &shape(r)),
            _ => {
                let small: Vec<_> = shape(r).into_iter().take(4).map(|n| n.min(5)).collect();
                Shape::new(&small).and_then(|s| storage.view().with_layout(Layout::contiguous(s)))
            }
        };
        match found {
            Ok(view) if view.is_empty() || view.len() <= AFFORDABLE => return view,
            _ => {}
        }
    }
    storage.view()
}

/// A program of up to twenty functions, which may be too many.
pub fn program(r: &mut Random) -> shapewise::Result<Program> {
    let (inputs, steps) = (r.below(10), if r.below(9) == 0 { r.below(20) } else { 1 + r.below(4) });
    Program::build(inputs, |x| (0..steps).fold(x[0], |e, _| step(r, e, x)))
}

fn step<'b>(r: &mut Random, e: Expr<'b>, x: &[Expr<'b>]) -> Expr<'b> {
    let other = x[r.below(x.len())];
    match r.below(28) {
        0 => e + other,
        1 => e - other,
        2 => e * other,
        3 => e / other,
        4 => e.min(other),
        5 => e.max(other),
        6 => e.pow(other),
        7 => e.equal(other),
        8 => e.less(other),
        9 => e.less(other).choose(e, other),
        10 => e.choose(other, x[0]),
        11 => -e,
        12 => e.abs(),
        13 => e.exp(),
        14 => e.log(),
        15 => e.sqrt(),
        16 => e.rsqrt(),
        17 => e.sin(),
        18 => e.tanh(),
        19 => e.sigmoid(),
        20 => e.relu(),
        21 => e.leaky_relu(number(r)),
        22 => e.gelu(),
        23 => e.silu(),
        24 => e.clamp(number(r), number(r)),
        25 => e.cast(dtype(r)),
        26 => e + number(r),
        _ => e * number(r),
    }
}
