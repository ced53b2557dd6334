//! Tensors, views and layouts.

use shapewise::tensor::{Layout, Shape};
use shapewise::{DType, Error, Tensor, TensorView, TensorViewMut};

use crate::data::Random;
use crate::{never_panics, wild};

/// Whether a tensor of this shape may be asked for: small, or so large that no machine has it.
fn may_be_asked_for(shape: &[usize]) -> bool {
    let elements = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).unwrap_or(usize::MAX);
    shape.contains(&0) || elements <= 1 << 16 || elements >= 1 << 60
}

/// Reads everything that can be asked of a tensor.
fn inspect(t: &Tensor) {
    let _ = (t.len(), t.is_empty(), t.is_contiguous(), t.layout().overlaps_itself(), format!("{t:?}"));
    let _ = t.layout().merged();
    if may_be_asked_for(t.shape()) {
        let _ =
            (t.to_vec::<f32>(), t.to_vec::<bool>(), t.as_slice::<f32>().map(<[f32]>::len), t.item::<f32>());
        let _ = t.to_contiguous().map(|c| assert!(c.is_contiguous()));
        let _ = t.deep_clone();
    }
}

#[test]
fn making_tensors() {
    never_panics(20_000, |r| {
        let shape = wild::shape(r);
        if may_be_asked_for(&shape) {
            for made in [
                Tensor::zeros(&shape, wild::dtype(r)),
                Tensor::full(1.5f32, &shape),
                Tensor::from_vec(vec![1u8; r.below(30)], &shape),
                Tensor::from_slice(&[1i64; 30][..r.below(30)], &shape),
            ] {
                let _ = made.map(|t| inspect(&t));
            }
        }
        let _ = TensorView::from_slice(&[0.5f64; 16], &shape).map(|v| v.to_vec::<f64>());
        let _ = TensorViewMut::from_slice(&mut [0i32; 16], &shape).map(|v| v.len());
    });
}

#[test]
fn looking_at_tensors_in_other_ways() {
    never_panics(20_000, |r| {
        let storage = wild::storage(r);
        let layout = wild::layout(r);
        let _ = (Layout::new(&layout.shape, &layout.strides, layout.offset, 512), layout.check(r.below(999)));
        let Ok(view) = storage.view().with_layout(layout) else { return };
        let _ = (view.len(), view.is_empty(), view.transpose(), view.layout().is_contiguous());
        let order: Vec<usize> = (0..r.below(10)).map(|_| r.below(9)).collect();
        let _ = view.permute(&order).map(|v| v.len());
        let ends = [0, 1, 3, 5, usize::MAX, isize::MAX as usize];
        let step = wild::axis(r);
        let _ = view.slice(r.below(9), ends[r.below(6)], ends[r.below(6)], step).map(|v| v.len());
        let _ = view.broadcast_to(&wild::shape(r)).map(|v| v.len());
        let _ = view.layout().reshape(&wild::shape(r));
    });
}

#[test]
fn chains_of_views_stay_inside_their_memory() {
    never_panics(20_000, |r| {
        let mut t = wild::storage(r);
        for _ in 0..6 {
            let next = match r.below(6) {
                0 => Ok(t.transpose()),
                1 => t.permute(&(0..t.rank()).rev().collect::<Vec<_>>()),
                2 if t.rank() > 0 => {
                    let axis = r.below(t.rank());
                    let n = t.shape()[axis];
                    let start = if n == 0 { 0 } else { r.below(n.min(64)) };
                    t.slice(axis, start, n.min(start.saturating_add(9)), [1, -1, 2, -3][r.below(4)])
                }
                3 => t.broadcast_to(&wild::shape(r)),
                4 => t.reshape(&halves(&t)),
                _ if may_be_asked_for(t.shape()) => t.reshape(&wild::shape(r)),
                _ => continue,
            };
            if let Ok(next) = next {
                t = next;
                inspect(&t);
            }
        }
    });
}

/// The same elements with the first even axis cut in two.
fn halves(t: &Tensor) -> Vec<usize> {
    let mut shape = t.shape().to_vec();
    if let Some(at) = shape.iter().position(|&n| n % 2 == 0 && n > 0) {
        shape[at] /= 2;
        shape.insert(at, 2);
    }
    shape
}

#[test]
fn shapes_broadcast_or_do_not() {
    never_panics(20_000, |r| {
        let (a, b) = (Shape::new(&wild::shape(r)), Shape::new(&wild::shape(r)));
        if let (Ok(a), Ok(b)) = (a, b) {
            let (one, other) = (a.broadcast(&b, "test"), b.broadcast(&a, "test"));
            assert_eq!(one.ok(), other.ok());
            let _ = (a.elements(), a.contiguous_strides(), a.to_string());
        }
    });
}

#[test]
fn names_are_parsed_or_refused() {
    never_panics(2_000, |r: &mut Random| {
        let text: String = (0..r.below(9)).map(|_| char::from(b'0' + r.below(80) as u8)).collect();
        let _ = text.parse::<DType>();
        let _ = text.parse::<shapewise::ops::OperationKind>();
        let _ = text.parse::<shapewise::backends::cpu::simd::Isa>();
    });
    assert!(matches!("f33".parse::<DType>(), Err(Error::InvalidArgument { .. })));
}
