//! Indices: which shapes fit, whether all of them exist, and the common layout of indexed operations.

use crate::backends::cpu::simd::{Isa, Simd, SimdTask};
use crate::error::{Error, Result};
use crate::ops::elementwise::canonical::{Operands, canonical};
use crate::ops::walk::{Axis, AxisList, layout, tidy};
use crate::tensor::{DType, Element, Layout, Shape, Strides, TensorView};

/// How indices and elements belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Every index stands for all of the other axes.
    Rows,
    /// Every element has an index of its own.
    Along,
}

/// The shape of what is picked from (or put into) axis `axis` of `far`.
pub(crate) fn near_shape(
    operation: &'static str,
    far: &[usize],
    axis: usize,
    index: &[usize],
    form: Form,
) -> Result<Shape> {
    let shape = match form {
        Form::Rows => {
            let sizes: Vec<usize> = [&far[..axis], index, &far[axis + 1..]].concat();
            Shape::new(&sizes)?
        }
        Form::Along => {
            let fits = index.len() == far.len() && (0..far.len()).all(|i| i == axis || index[i] <= far[i]);
            if !fits {
                let (index, far) = (Shape::new(index)?, Shape::new(far)?);
                let reason = format!(
                    "the index is {index}, the tensor {far}: as many axes are needed, none but axis {axis} longer"
                );
                return Err(Error::ShapeMismatch { operation, reason });
            }
            Shape::new(index)?
        }
    };
    shape.elements()?;
    Ok(shape)
}

/// Checks that every index exists in an axis of size `n`, from the front or from the end.
pub(crate) fn check(operation: &'static str, index: &TensorView<'_>, n: usize) -> Result<()> {
    match index.dtype() {
        DType::I32 => check_as::<i32>(operation, index, n),
        DType::U32 => check_as::<u32>(operation, index, n),
        DType::I64 => check_as::<i64>(operation, index, n),
        dtype => {
            let hint = "indices are i32, u32 or i64; cast them first".into();
            Err(Error::UnsupportedDType { operation, dtype, hint })
        }
    }
}

fn check_as<T: Element + Into<i64>>(operation: &'static str, index: &TensorView<'_>, n: usize) -> Result<()> {
    let copied;
    let values: &[T] = if let Ok(values) = index.as_slice::<T>() {
        values
    } else {
        // Repeated indices are looked at once.
        copied = distinct(index)?.to_vec::<T>()?;
        &copied
    };
    if Isa::best().run_narrow(AllInside { values, n: n as i64 }) {
        return Ok(());
    }
    let n = n as i64;
    let wrong = values.iter().map(|&v| v.into()).find(|v| !(-n..n).contains(v)).unwrap_or_default();
    let reason = if n == 0 {
        format!("the axis has no elements, so index {wrong} does not exist")
    } else {
        format!("index {wrong} does not exist in an axis of size {n}; use -{n}..{n}")
    };
    Err(Error::InvalidArgument { operation, reason })
}

/// The view with repeated axes (stride zero) taken once.
fn distinct<'a>(index: &TensorView<'a>) -> Result<TensorView<'a>> {
    let mut layout = *index.layout();
    for (size, &stride) in layout.shape.iter_mut().zip(layout.strides.iter()) {
        if stride == 0 {
            *size = (*size).min(1);
        }
    }
    index.with_layout(layout)
}

/// Whether all values are in `-n..n`; plain code that the compiler writes over vectors.
struct AllInside<'a, T> {
    values: &'a [T],
    n: i64,
}

impl<T: Element + Into<i64>> SimdTask for AllInside<'_, T> {
    type Output = bool;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> bool {
        let (low, high) = self
            .values
            .iter()
            .fold((0i64, i64::MIN), |(low, high), &v| (low.min(v.into()), high.max(v.into())));
        self.values.is_empty() || low >= -self.n && high < self.n
    }
}

/// The layouts of an indexed operation in their common form: kept axes sorted and merged, the indexed axis last.
pub(crate) struct Places {
    /// What is picked from or put into: kept axes, then the indexed one.
    pub far: Layout,
    pub index: Layout,
    /// What is picked or put: kept axes, then those of the index.
    pub near: Layout,
}

impl Places {
    /// `ordered` keeps the order of the indices: what is put later may replace what was put before.
    pub fn new(
        far: &Layout,
        index: &Layout,
        near: &Layout,
        axis: usize,
        form: Form,
        ordered: bool,
    ) -> Result<Self> {
        let width = if form == Form::Rows { index.shape.len() } else { 1 };
        let without = |layout: &Layout, at: usize, count: usize, offset: usize| {
            let axes = (0..layout.shape.len()).filter(|i| !(at..at + count).contains(i));
            part(layout, axes, offset)
        };
        let mut kept: Operands = Operands::new();
        // The kept axes of `far` may be longer than what is moved.
        let mut far_kept = without(far, axis, 1, far.offset);
        let near_kept = without(near, axis, width, near.offset);
        far_kept.shape = near_kept.shape;
        kept.push(far_kept);
        if form == Form::Along {
            kept.push(without(index, axis, 1, index.offset));
        }
        kept.push(near_kept);
        let mut kept = few(kept)?;
        let mut places = Self { far: kept[0], index: *index, near: kept.pop().unwrap_or(*near) };
        append(&mut places.far, far.shape[axis], far.strides[axis]);
        match form {
            Form::Rows => {
                let own = part(near, axis..axis + width, 0);
                let list =
                    if ordered { in_order(index, &own) } else { few([*index, own].into_iter().collect())? };
                places.index = list[0];
                for (&size, &stride) in list[1].shape.iter().zip(list[1].strides.iter()) {
                    append(&mut places.near, size, stride);
                }
                places.near.offset = places.near.offset.wrapping_add(list[1].offset);
            }
            Form::Along => {
                places.index = kept[1];
                append(&mut places.index, index.shape[axis], index.strides[axis]);
                append(&mut places.near, near.shape[axis], near.strides[axis]);
            }
        }
        Ok(places)
    }
}

/// The axes of a list of indices and of what belongs to them, merged in their order.
fn in_order(index: &Layout, near: &Layout) -> Operands {
    let axis = |i: usize| Axis { size: index.shape[i], input: index.strides[i], output: near.strides[i] };
    let axes = tidy(&(0..index.shape.len()).map(axis).collect::<AxisList>(), true);
    let of = |stride: fn(&Axis) -> isize, offset| layout(axes.iter().map(|a| (a.size, stride(a))), offset);
    [of(|a| a.input, index.offset), of(|a| a.output, near.offset)].into_iter().collect()
}

/// Some axes of a layout.
pub(crate) fn part(layout: &Layout, axes: impl Iterator<Item = usize>, offset: usize) -> Layout {
    let mut out = Layout { shape: Shape::filled(0, 0), strides: Strides::filled(0, 0), offset };
    for i in axes {
        append(&mut out, layout.shape[i], layout.strides[i]);
    }
    out
}

/// One more axis at the end.
pub(crate) fn append(layout: &mut Layout, size: usize, stride: isize) {
    layout.shape.append(size);
    layout.strides.append(stride);
}

/// The common form without the single axis that stands for none.
pub(crate) fn few(mut operands: Operands) -> Result<Operands> {
    canonical(&mut operands)?;
    for operand in &mut operands {
        if *operand.shape == [1] {
            (operand.shape, operand.strides) = (Shape::filled(0, 0), Strides::filled(0, 0));
        }
    }
    Ok(operands)
}
