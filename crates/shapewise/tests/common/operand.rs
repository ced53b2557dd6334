//! Operands under random layouts: any order of axes, gaps, backwards, repeated, unaligned.

use proptest::prelude::*;
use shapewise::tensor::{Layout, MAX_RANK, Shape, Strides};
use shapewise::{DType, Tensor, TensorView, TensorViewMut};

use super::data::{Grade, Random, line};
use super::numbers::{Numbers, numbers};

/// How an operand lies in memory, apart from its shape.
#[derive(Clone, Copy, Debug)]
pub struct Arrangement {
    order: Order,
    /// Elements left out after each axis, in memory.
    gaps: [u8; MAX_RANK],
    backwards: [bool; MAX_RANK],
    /// Axes whose elements are all the same memory, as after a broadcast.
    repeated: [bool; MAX_RANK],
    /// Elements before the first: more than none makes it unaligned.
    offset: usize,
    /// Memory from the pool, which is aligned.
    pooled: bool,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    RowMajor,
    LastTwoSwapped,
    /// Axes with larger keys lie further in.
    ByKeys([u8; MAX_RANK]),
}

/// Any arrangement; most are row-major or transposed, because that is what most kernels take.
pub fn arrangement() -> impl Strategy<Value = Arrangement> {
    let plain = |order| {
        (0usize..2, any::<bool>()).prop_map(move |(offset, pooled)| Arrangement {
            order,
            gaps: [0; MAX_RANK],
            backwards: [false; MAX_RANK],
            repeated: [false; MAX_RANK],
            offset,
            pooled,
        })
    };
    let keys = any::<[u8; MAX_RANK]>().prop_map(Order::ByKeys);
    let order = prop_oneof![Just(Order::RowMajor), Just(Order::LastTwoSwapped), keys];
    let bytes = any::<[u8; MAX_RANK]>();
    let any = (order, bytes, bytes, bytes, 0usize..4, any::<bool>()).prop_map(
        |(order, gaps, backwards, repeated, offset, pooled)| Arrangement {
            order,
            gaps: gaps.map(|g| g.saturating_sub(150) / 35),
            backwards: backwards.map(|b| b > 200),
            repeated: repeated.map(|r| r > 225),
            offset,
            pooled,
        },
    );
    prop_oneof![3 => plain(Order::RowMajor), 1 => plain(Order::LastTwoSwapped), 3 => any]
}

impl Arrangement {
    /// Row-major without gaps, aligned.
    pub const PLAIN: Self = Self {
        order: Order::RowMajor,
        gaps: [0; MAX_RANK],
        backwards: [false; MAX_RANK],
        repeated: [false; MAX_RANK],
        offset: 0,
        pooled: true,
    };

    /// The same without repeated axes, for outputs.
    pub fn writable(mut self) -> Self {
        self.repeated = [false; MAX_RANK];
        self
    }

    /// The layout of a shape, and how many elements of memory it spans.
    fn layout(&self, shape: &[usize]) -> (Layout, usize) {
        let mut axes: Vec<usize> = (0..shape.len()).collect();
        match self.order {
            Order::LastTwoSwapped if axes.len() > 1 => axes.swap(shape.len() - 2, shape.len() - 1),
            Order::RowMajor | Order::LastTwoSwapped => {}
            Order::ByKeys(keys) => axes.sort_by_key(|&a| keys[a]),
        }
        let mut strides = vec![0isize; shape.len()];
        let (mut step, mut first, mut last) = (1, self.offset, self.offset);
        for &axis in axes.iter().rev() {
            step += usize::from(self.gaps[axis]);
            if self.repeated[axis] {
                continue;
            }
            let reach = shape[axis].saturating_sub(1) * step;
            if self.backwards[axis] {
                strides[axis] = -(step as isize);
                first += reach;
            } else {
                strides[axis] = step as isize;
            }
            last += reach;
            step *= shape[axis].max(1);
        }
        let span = if shape.contains(&0) { self.offset } else { last + 1 };
        let (shape, strides) = (Shape::new(shape).unwrap(), Strides::new(&strides).unwrap());
        (Layout { shape, strides, offset: first }, span)
    }
}

/// A tensor somewhere in a stretch of memory.
#[derive(Debug)]
pub struct Operand {
    storage: Tensor,
    layout: Layout,
}

impl Operand {
    pub fn new(dtype: DType, shape: &[usize], arrangement: &Arrangement, grade: Grade, seed: u64) -> Self {
        let fill = |span| line(dtype, span, grade, &mut Random::new(seed), arrangement.pooled);
        Self::filled(shape, arrangement, fill)
    }

    /// With memory made by `fill`, which is told how many elements of it there are.
    pub fn filled(shape: &[usize], arrangement: &Arrangement, fill: impl FnOnce(usize) -> Tensor) -> Self {
        let (layout, span) = arrangement.layout(shape);
        Self { storage: fill(span), layout }
    }

    pub fn view(&self) -> TensorView<'_> {
        self.storage.view().with_layout(self.layout).unwrap()
    }

    pub fn view_mut(&mut self) -> TensorViewMut<'_> {
        self.storage.view_mut().unwrap().with_layout(self.layout).unwrap()
    }

    /// Takes over a tensor that was computed.
    pub fn replace(&mut self, tensor: Tensor) {
        *self = Self { layout: *tensor.layout(), storage: tensor };
    }

    pub fn numbers(&self) -> Numbers {
        numbers(&self.view())
    }

    /// The numbers in the memory around the elements, which nobody may write.
    pub fn surroundings(&self) -> Vec<u64> {
        let mut mine = vec![false; self.storage.len()];
        for at in places(&self.layout) {
            mine[at] = true;
        }
        let bits = |x: f64| x.to_bits();
        let all: Vec<u64> = match numbers(&self.storage.view()) {
            Numbers::Real(v) => v.into_iter().map(bits).collect(),
            Numbers::Integer(v) => v.into_iter().map(|x| x as u64).collect(),
            Numbers::Complex(v) => v.chunks(2).map(|z| bits(z[0]) ^ bits(z[1]).rotate_left(1)).collect(),
        };
        all.into_iter().zip(mine).filter(|(_, mine)| !mine).map(|(x, _)| x).collect()
    }
}

/// Where the elements of a layout lie, in row-major order.
pub fn places(layout: &Layout) -> Vec<usize> {
    let mut all = vec![layout.offset];
    for (&size, &stride) in layout.shape.iter().zip(layout.strides.iter()) {
        let along = |at: usize| (0..size as isize).map(move |i| at.wrapping_add_signed(i * stride));
        all = all.into_iter().flat_map(along).collect();
    }
    all
}
