//! The products of one call: matrices along broadcast batch axes.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;

use super::MatmulAttributes;
use super::cpu_problem::{Epilogue, Gemm};
use crate::backends::cpu::Operand;
use crate::ops::{Call, Operation, TensorDesc, Workload};
use crate::tensor::{Element, MAX_RANK};

/// One product, and how far apart the others are.
#[derive(Clone, Debug)]
pub(super) struct Products<T> {
    first: Gemm<T>,
    axes: ArrayVec<BatchAxis, MAX_RANK>,
    /// Number of products.
    pub count: usize,
}

#[derive(Clone, Copy, Debug)]
struct BatchAxis {
    size: usize,
    a: isize,
    b: isize,
    c: isize,
}

/// Addresses of the operands; null where a product is only described.
struct Addresses<T> {
    a: *const T,
    b: *const T,
    bias: *const T,
    c: *mut T,
}

impl Products<()> {
    /// The sizes and strides of a workload, without memory.
    pub fn describe(workload: &Workload) -> Self {
        let null = std::ptr::null();
        // Only whether there is a bias matters here, and any address but null says so.
        let bias = if attributes(workload).bias { std::ptr::dangling() } else { null };
        Self::new(workload, &Addresses { a: null, b: null, bias, c: std::ptr::null_mut() })
    }
}

impl<T: Element> Products<T> {
    /// The products of a call whose operands are all of type `T`.
    pub fn of(call: &Call<'_>) -> Self {
        Self::new(call.workload, &Addresses::of(call))
    }
}

/// The product of a call of plain matrices, without the batch axes that small products would feel; `None` for batches.
#[inline]
pub(super) fn single<T: Element>(call: &Call<'_>) -> Option<Gemm<T>> {
    (call.workload.outputs()[0].shape.len() == 2).then(|| {
        let mut g = matrices(call.workload, &Addresses::of(call));
        like_best(&mut g);
        g
    })
}

/// A product of plain matrices whose memory is not known yet.
pub(super) struct Unplaced<T> {
    first: Gemm<T>,
    bias: bool,
}

impl<T: Element> Unplaced<T> {
    /// The product of a workload; `None` for batches.
    pub fn of(workload: &Workload) -> Option<Self> {
        let bias = attributes(workload).bias;
        let null = std::ptr::null();
        // Only whether there is a bias matters yet, and any address but null says so.
        let at = Addresses {
            a: null,
            b: null,
            bias: if bias { std::ptr::dangling() } else { null },
            c: std::ptr::null_mut(),
        };
        (workload.outputs()[0].shape.len() == 2).then(|| {
            let mut first = matrices(workload, &at);
            like_best(&mut first);
            Self { first, bias }
        })
    }

    /// Sizes and strides.
    pub fn first(&self) -> &Gemm<T> {
        &self.first
    }

    /// The product of these operands, in the workload's order.
    #[inline]
    pub fn at(&self, pointers: &[*mut u8]) -> Gemm<T> {
        let mut g = self.first;
        g.a = pointers[0].cast();
        g.b = pointers[1].cast();
        if self.bias {
            g.epilogue.bias = pointers[2].cast();
        }
        g.c = pointers[2 + usize::from(self.bias)].cast();
        g
    }
}

impl<T: Element> Addresses<T> {
    #[inline]
    fn of(call: &Call<'_>) -> Self {
        let input = |i: usize| call.inputs.get(i).map_or(std::ptr::null(), Operand::ptr::<T>);
        Self { a: input(0), b: input(1), bias: input(2), c: call.outputs[0].ptr_mut::<T>() }
    }
}

/// The product of the last two axes.
#[inline]
fn matrices<T>(workload: &Workload, at: &Addresses<T>) -> Gemm<T> {
    let (inputs, c) = (workload.inputs(), &workload.outputs()[0]);
    let (a, b) = (&inputs[0], &inputs[1]);
    let rank = c.shape.len();
    let (row, column) = (rank - 2, rank - 1);
    let bias_cs = inputs.get(2).map_or(0, |bias| bias.strides[0]);
    Gemm {
        m: c.shape[row],
        n: c.shape[column],
        k: a.shape[column],
        a: at.a,
        a_rs: a.strides[row],
        a_cs: a.strides[column],
        b: at.b,
        b_rs: b.strides[row],
        b_cs: b.strides[column],
        c: at.c,
        c_rs: c.strides[row],
        c_cs: c.strides[column],
        epilogue: Epilogue {
            bias: at.bias,
            bias_rs: 0,
            bias_cs,
            activation: attributes(workload).activation,
        },
    }
}

/// Along an axis of size one every stride is as good as the one that kernels like best.
#[inline]
fn like_best<T>(g: &mut Gemm<T>) {
    if g.n == 1 {
        (g.b_cs, g.c_cs) = (1, 1);
    }
    if g.m == 1 {
        g.c_rs = if g.c_cs == 1 { g.n as isize } else { 1 };
    }
    if g.k == 1 {
        g.a_cs = 1;
    }
}

impl<T: Copy> Products<T> {
    fn new(workload: &Workload, at: &Addresses<T>) -> Self {
        let (inputs, c) = (workload.inputs(), &workload.outputs()[0]);
        let mut first = matrices(workload, at);
        let axes = batch_axes(&mut first, &inputs[0], &inputs[1], c);
        like_best(&mut first);
        let count = c.shape[..c.shape.len() - 2].iter().product::<usize>();
        let count = if axes.is_empty() && count > 0 { 1 } else { axes.iter().map(|x| x.size).product() };
        Self { first, axes, count }
    }

    /// Product `i` of [`Products::count`].
    #[inline]
    pub fn get(&self, mut i: usize) -> Gemm<T> {
        let mut g = self.first;
        for axis in self.axes.iter().rev() {
            let at = (i % axis.size) as isize;
            i /= axis.size;
            g.a = g.a.wrapping_offset(at * axis.a);
            g.b = g.b.wrapping_offset(at * axis.b);
            g.c = g.c.wrapping_offset(at * axis.c);
        }
        g
    }

    /// Sizes and strides of every product.
    pub fn first(&self) -> &Gemm<T> {
        &self.first
    }
}

/// The attributes of a matmul workload.
pub(super) fn attributes(workload: &Workload) -> MatmulAttributes {
    match *workload.operation() {
        Operation::Matmul(attributes) => attributes,
        #[allow(unreachable_patterns)] // other operations never reach these kernels
        _ => MatmulAttributes::default(),
    }
}

/// The batch axes, merged; those that only lengthen the left operand become rows.
fn batch_axes<T>(
    g: &mut Gemm<T>,
    a: &TensorDesc,
    b: &TensorDesc,
    c: &TensorDesc,
) -> ArrayVec<BatchAxis, MAX_RANK> {
    let mut axes: ArrayVec<BatchAxis, MAX_RANK> = ArrayVec::new();
    for i in (0..c.shape.len() - 2).rev() {
        let axis = BatchAxis { size: c.shape[i], a: a.strides[i], b: b.strides[i], c: c.strides[i] };
        let follows = |inner: isize, size: usize, outer: isize| inner * size as isize == outer;
        if axis.size == 1 {
            continue;
        }
        if axes.is_empty() && axis.b == 0 && follows(g.a_rs, g.m, axis.a) && follows(g.c_rs, g.m, axis.c) {
            g.m *= axis.size;
            continue;
        }
        match axes.first_mut() {
            Some(inner)
                if follows(inner.a, inner.size, axis.a)
                    && follows(inner.b, inner.size, axis.b)
                    && follows(inner.c, inner.size, axis.c) =>
            {
                inner.size *= axis.size;
            }
            _ => axes.insert(0, axis),
        }
    }
    axes
}
