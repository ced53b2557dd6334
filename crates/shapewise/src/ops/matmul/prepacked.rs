//! Weights packed once and kept: `let w = rt.pack_rhs(&weights)?; rt.matmul_packed(&x, &w)?`.
//!
//! Packing costs about one reading and writing of the matrix; every product after that reads the panels in order. On request the
//! panels keep 16-bit floats of `f32` weights, which halves what comes from memory and rounds the weights.

use super::api::Fused;
use super::cpu_prepacked::{self, pack_panels};
use super::{MatmulAttributes, cpu_panels};
use crate::backends::cpu::simd::Isa;
use crate::error::{Error, Result};
use crate::ops::{Kernel, Operation, Request};
use crate::runtime::Runtime;
use crate::tensor::{DType, Layout, Output, Shape, Tensor, TensorView, TensorViewMut};

/// Every kernel, reference last.
pub static PACKED_KERNELS: &[&dyn Kernel] = &[
    &cpu_prepacked::AVX512_PREPACKED,
    &cpu_prepacked::AVX2_PREPACKED,
    &cpu_prepacked::NEON_PREPACKED,
    &cpu_prepacked::PORTABLE_PREPACKED,
    &cpu_prepacked::PackedReference,
];

const OPERATION: &str = "matmul_packed";

/// A right operand in the order in which products read it. Cheap to clone; clones share the memory.
#[derive(Clone, Debug)]
pub struct PackedRhs {
    /// Panels × steps × columns of a panel.
    panels: Tensor,
    k: usize,
    n: usize,
    dtype: DType,
}

impl PackedRhs {
    /// Rows and columns of the matrix.
    pub fn shape(&self) -> [usize; 2] {
        [self.k, self.n]
    }

    /// Element type of the products: that of the matrix it was packed from.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Element type of the panels.
    pub fn stored(&self) -> DType {
        self.panels.dtype()
    }

    /// Bytes of the panels, padding included.
    pub fn bytes(&self) -> usize {
        self.panels.len() * self.stored().size()
    }
}

impl Runtime {
    /// Packs a matrix for many products with it on the right.
    ///
    /// ```
    /// # use shapewise::{Runtime, Tensor};
    /// # let rt = Runtime::builder().without_calibration().build()?;
    /// let weights = Tensor::from_vec(vec![1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
    /// let packed = rt.pack_rhs(&weights)?;
    /// let x = Tensor::from_vec(vec![1.0f32, 1.0], &[1, 2])?;
    /// assert_eq!(rt.matmul_packed(&x, &packed)?.to_vec::<f32>()?, [4.0, 6.0]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn pack_rhs<'a>(&self, b: impl Into<TensorView<'a>>) -> Result<PackedRhs> {
        let b = b.into();
        self.pack_rhs_as(b, b.dtype())
    }

    /// Packs a matrix of `f32` and keeps it as `f16` or `bf16`, rounded: products are still `f32`, and half as
    /// much comes from memory. Any type may be kept as itself.
    pub fn pack_rhs_as<'a>(&self, b: impl Into<TensorView<'a>>, stored: DType) -> Result<PackedRhs> {
        let b = b.into();
        let dtype = b.dtype();
        if !matches!(dtype, DType::F32 | DType::F64 | DType::F16 | DType::BF16) {
            let hint = "cast to f32, f64, f16 or bf16".into();
            return Err(Error::UnsupportedDType { operation: "pack_rhs", dtype, hint });
        }
        let &[k, n] = b.shape() else {
            let reason = format!("a matrix is needed, not {}", b.layout().shape);
            return Err(Error::ShapeMismatch { operation: "pack_rhs", reason });
        };
        if stored != dtype && !(dtype == DType::F32 && matches!(stored, DType::F16 | DType::BF16)) {
            let reason = format!("{dtype} cannot be kept as {stored}; f32 can be kept as f16 or bf16");
            return Err(Error::InvalidArgument { operation: "pack_rhs", reason });
        }
        let isa = self.device_info().isas.last().copied().unwrap_or(Isa::Portable);
        let width =
            if dtype == DType::F64 { cpu_panels::width::<f64>(isa) } else { cpu_panels::width::<f32>(isa) };
        let shape = Shape::new(&[n.div_ceil(width), k, width])?;
        shape.elements()?;
        let mut panels = self.allocate(&shape, stored)?;
        pack_panels(&b, panels.view_mut()?, isa, self.device().threads());
        Ok(PackedRhs { panels, k, n, dtype })
    }

    /// The product of `a` (a row, a matrix, or a batch of matrices) and a packed matrix.
    pub fn matmul_packed<'a>(&self, a: impl Into<TensorView<'a>>, rhs: &PackedRhs) -> Result<Tensor> {
        self.matmul_packed_fused(a, rhs, Fused::new())
    }

    /// The same with bias and activation in the same pass.
    pub fn matmul_packed_fused<'a>(
        &self,
        a: impl Into<TensorView<'a>>,
        rhs: &PackedRhs,
        fused: Fused<'_>,
    ) -> Result<Tensor> {
        let a = a.into();
        let mut out = self.allocate(&result_shape(&a, rhs)?, rhs.dtype)?;
        self.matmul_packed_into(a, rhs, fused, &mut out)?;
        Ok(out)
    }

    /// The same into a given output whose axes before the last can be seen as one.
    pub fn matmul_packed_into<'a>(
        &self,
        a: impl Into<TensorView<'a>>,
        rhs: &PackedRhs,
        fused: Fused<'_>,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (a, out) = (a.into(), out.into_view_mut()?);
        let shape = result_shape(&a, rhs)?;
        if out.shape() != &*shape {
            return Err(mismatch(format!("the result is {shape}, the output {}", out.layout().shape)));
        }
        for dtype in [a.dtype(), out.dtype()] {
            if dtype != rhs.dtype {
                return Err(Error::DTypeMismatch { operation: OPERATION, left: rhs.dtype, right: dtype });
            }
        }
        check_bias(rhs, &fused)?;
        let target = rows_of(out.layout())
            .ok_or_else(|| mismatch("the output's axes before the last do not follow one another".into()))?;
        if let Some(layout) = rows_of(a.layout()) {
            return self.execute(&request(a.with_layout(layout)?, rhs, fused, out.with_layout(target)?));
        }
        let mut copy = self.allocate(&a.layout().shape, a.dtype())?;
        a.copy_bytes(copy.bytes_mut()?);
        let rows = copy.view();
        let layout = rows_of(rows.layout()).ok_or_else(|| mismatch("the rows have no order".into()))?;
        self.execute(&request(rows.with_layout(layout)?, rhs, fused, out.with_layout(target)?))
    }
}

fn request<'a>(
    a: TensorView<'a>,
    rhs: &'a PackedRhs,
    fused: Fused<'a>,
    out: TensorViewMut<'a>,
) -> Request<'a> {
    let attributes = MatmulAttributes { bias: fused.bias.is_some(), activation: fused.activation };
    let mut request = Request::new(Operation::PackedMatmul(attributes));
    request.input(&a);
    request.input(&rhs.panels.view());
    if let Some(bias) = fused.bias {
        request.input(&bias);
    }
    request.output(out);
    request
}

fn mismatch(reason: String) -> Error {
    Error::ShapeMismatch { operation: OPERATION, reason }
}

fn result_shape(a: &TensorView<'_>, rhs: &PackedRhs) -> Result<Shape> {
    let Some((&k, leading)) = a.shape().split_last() else {
        return Err(mismatch("a scalar has no columns; use mul".into()));
    };
    if k != rhs.k {
        let [rows, columns] = rhs.shape();
        return Err(mismatch(format!(
            "the left operand {} has {k} columns, the packed one {rows}×{columns} has {rows} rows",
            a.layout().shape
        )));
    }
    let mut shape = Shape::new(leading)?;
    shape.append(rhs.n);
    shape.elements()?;
    Ok(shape)
}

fn check_bias(rhs: &PackedRhs, fused: &Fused<'_>) -> Result<()> {
    let Some(bias) = fused.bias else { return Ok(()) };
    if bias.dtype() != rhs.dtype {
        return Err(Error::DTypeMismatch { operation: OPERATION, left: rhs.dtype, right: bias.dtype() });
    }
    if bias.shape() != [rhs.n] {
        return Err(mismatch(format!(
            "the bias is {}, a vector of {} columns is needed",
            bias.layout().shape,
            rhs.n
        )));
    }
    Ok(())
}

/// All axes before the last as one axis of rows, where their strides allow it.
fn rows_of(layout: &Layout) -> Option<Layout> {
    let last = layout.shape.len() - 1;
    let (mut rows, mut stride) = (1_usize, None::<isize>);
    for axis in (0..last).rev() {
        let size = layout.shape[axis];
        match stride {
            _ if size == 1 => {}
            None => (rows, stride) = (size, Some(layout.strides[axis])),
            Some(inner) if inner.saturating_mul(rows as isize) == layout.strides[axis] => rows *= size,
            Some(_) => return None,
        }
    }
    let shape = Shape::new(&[rows, layout.shape[last]]).ok()?;
    let mut strides = shape.contiguous_strides();
    (strides[0], strides[1]) = (stride.unwrap_or(layout.shape[last] as isize), layout.strides[last]);
    Some(Layout { shape, strides, offset: layout.offset })
}

#[cfg(test)]
mod tests;
