//! Weights prepared once and kept: `let w = rt.pack_conv(&weights, &x, &options)?; rt.conv_packed(&x, &w, &options)?`.
//!
//! The form is that of the kernel that is chosen for the example input when the weights are packed; for kernels of one element
//! that are one of matmul's products, it is the panels of the implicit one. The plain weights are kept too, so that every other
//! kernel remains a candidate.

use super::api::{Plan, Which};
use super::options::ConvOptions;
use super::{Kept, KeptForm, cpu_keep};
use crate::backends::cpu::simd::Isa;
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use crate::tensor::{Output, Tensor, TensorView};

/// Weights of a convolution as they are, and as a kernel reads them. Cheap to clone; clones share the memory.
#[derive(Clone, Debug)]
pub struct PackedConv {
    weights: Tensor,
    /// Forms are made for one number of groups.
    groups: usize,
    kept: Option<(Kept, Tensor)>,
}

impl PackedConv {
    /// The weights as they were given.
    pub fn weights(&self) -> &Tensor {
        &self.weights
    }

    /// The form that is kept beside them; None where the chosen kernel reads plain weights.
    pub fn kept(&self) -> Option<Kept> {
        self.kept.as_ref().map(|kept| kept.0)
    }

    fn kept_for(&self, plan: &Plan) -> Option<&(Kept, Tensor)> {
        self.kept.as_ref().filter(|_| plan.groups == self.groups)
    }
}

impl Runtime {
    /// Prepares weights for many convolutions of inputs like `x`.
    ///
    /// ```
    /// # use shapewise::{DType, Runtime, Tensor, ops::conv::ConvOptions};
    /// # let rt = Runtime::builder().without_calibration().build()?;
    /// let (x, weights) = (Tensor::full(1.0f32, &[1, 2, 8, 8])?, Tensor::full(0.5f32, &[4, 2, 3, 3])?);
    /// let packed = rt.pack_conv(&weights, &x, &ConvOptions::new())?;
    /// assert_eq!(rt.conv_packed(&x, &packed, &ConvOptions::new())?.to_vec::<f32>()?, [9.0; 4 * 36]);
    /// # Ok::<(), shapewise::Error>(())
    /// ```
    pub fn pack_conv<'a>(
        &self,
        weights: impl Into<TensorView<'a>>,
        x: impl Into<TensorView<'a>>,
        options: &ConvOptions<'a>,
    ) -> Result<PackedConv> {
        let (weights, x) = (weights.into(), x.into());
        let plan = Plan::new(which(&weights)?, &x, &weights, options)?;
        let mut copy = self.allocate(&weights.layout().shape, weights.dtype())?;
        weights.copy_bytes(copy.bytes_mut()?);
        let asked = self.workloads(|rt| {
            let mut out = rt.allocate(&plan.shape, x.dtype())?;
            rt.convolve(&plan, &x, &copy.view(), options, None, out.view_mut()?)
        })?;
        let chosen = match asked.first() {
            Some(workload) => self.explain_workload(workload)?.chosen,
            None => String::new(),
        };
        let kept = match kept_by(&chosen) {
            Some(kept) => Some((kept, cpu_keep::keep(self, kept, &plan.weights(&copy.view())?)?)),
            None => None,
        };
        Ok(PackedConv { weights: copy, groups: plan.groups, kept })
    }

    /// The convolution with weights that were packed before.
    pub fn conv_packed<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        packed: &'a PackedConv,
        options: &ConvOptions<'a>,
    ) -> Result<Tensor> {
        let (x, weights) = (x.into(), packed.weights.view());
        let plan = Plan::new(which(&weights)?, &x, &weights, options)?;
        let mut out = self.allocate(&plan.shape, x.dtype())?;
        self.convolve(&plan, &x, &weights, options, packed.kept_for(&plan), out.view_mut()?)?;
        Ok(out)
    }

    /// The same into a given output, which may have any strides.
    pub fn conv_packed_into<'a>(
        &self,
        x: impl Into<TensorView<'a>>,
        packed: &'a PackedConv,
        options: &ConvOptions<'a>,
        out: impl Output<'a>,
    ) -> Result<()> {
        let (x, weights) = (x.into(), packed.weights.view());
        let plan = Plan::new(which(&weights)?, &x, &weights, options)?;
        self.convolve(&plan, &x, &weights, options, packed.kept_for(&plan), out.into_view_mut()?)
    }
}

fn which(weights: &TensorView<'_>) -> Result<Which> {
    let axes = weights.rank().wrapping_sub(2);
    if !(1..=3).contains(&axes) {
        let reason = format!("weights of 3 to 5 axes are needed, not {}", weights.layout().shape);
        return Err(Error::ShapeMismatch { operation: "pack_conv", reason });
    }
    Ok(Which { name: "conv_packed", axes, transposed: false })
}

/// The form that a kernel reads, by its name.
fn kept_by(kernel: &str) -> Option<Kept> {
    let speciality = kernel.strip_prefix("cpu::conv::")?;
    if let Some(product) = speciality.strip_prefix("pointwise_") {
        // The implicit product of kernels of one element is the same product, and reads kept panels.
        let (isa, _) = product.split_once('_')?;
        return Some(Kept { form: KeptForm::Panels, isa: isa.parse().ok()? });
    }
    let (isa, form) = speciality.split_once('_')?;
    let isa: Isa = isa.parse().ok()?;
    let form = match form {
        "direct" => KeptForm::Blocks,
        "implicit_gemm" => KeptForm::Panels,
        "winograd_f2" => KeptForm::WinogradTwo,
        "winograd_f4" => KeptForm::WinogradFour,
        _ => return None,
    };
    Some(Kept { form, isa })
}
