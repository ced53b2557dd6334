//! A convolution of single weights is a matrix product: pixels by input channels, times input by output channels.

use super::{Geometry, checks};
use crate::backends::webgpu::{Place, Plan, WebGpuCost, WebGpuKernel, WebGpuLimits};
use crate::hash::source_hash;
use crate::ops::matmul::MatmulAttributes;
use crate::ops::matmul::webgpu::{WEBGPU_KERNELS as PRODUCTS, plan_of, points_of};
use crate::ops::{
    Operation, OperationKind, ParameterSpace, Parameters, Refusals, TensorDesc, Variant, Workload,
};
use crate::tensor::{Shape, Strides};

/// `webgpu::conv::pointwise`
pub(super) struct Pointwise;

/// The product of a convolution, in whose operands' order the convolution's stand.
fn product(g: &Geometry) -> Option<Workload> {
    let [d, h, w] = g.output;
    // One stride serves all pixels where they lie without gaps.
    let line = |s: &[usize; 5]| (h == 1 || s[3] == s[4] * w) && (d == 1 || s[2] == s[4] * w * h);
    if !(line(&g.x) && line(&g.y)) {
        return None;
    }
    let desc = |shape: [usize; 3], strides: [usize; 3]| {
        Some(TensorDesc {
            dtype: g.dtype,
            aligned: true,
            shape: Shape::new(&shape).ok()?,
            strides: Strides::new(&strides.map(|s| s as isize)).ok()?,
        })
    };
    let pixels = d * h * w;
    let x = desc([g.n, pixels, g.c], [g.x[0], g.x[4], g.x[1]])?;
    let weights = desc([g.n, g.c, g.o], [0, g.w[2], g.w[1]])?;
    let y = desc([g.n, pixels, g.o], [g.y[0], g.y[4], g.y[1]])?;
    let bias =
        TensorDesc { shape: Shape::new(&[g.o]).ok()?, strides: Strides::new(&[g.bias as isize]).ok()?, ..x };
    let attributes = MatmulAttributes { bias: g.attributes.bias, activation: g.attributes.activation };
    let inputs = [x, weights, bias];
    let inputs = if attributes.bias { &inputs[..] } else { &inputs[..2] };
    Some(Workload::new(Operation::Matmul(attributes), inputs, &[y]))
}

impl WebGpuKernel for Pointwise {
    fn name(&self) -> &'static str {
        "webgpu::conv::pointwise"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn source(&self) -> u64 {
        PRODUCTS.iter().fold(source_hash!("webgpu_pointwise.rs", "webgpu.rs"), |hash, kernel| {
            hash.rotate_left(7) ^ kernel.source()
        })
    }

    fn supports(&self, workload: &Workload, limits: &WebGpuLimits) -> Result<(), Refusals> {
        let g = Geometry::of(workload);
        let plain = g.taps() == 1 && g.is_dense() && g.attributes.before == [0; 3] && g.input == g.output;
        let product = product(&g);
        let taken = product.as_ref().is_some_and(|p| PRODUCTS.iter().any(|k| k.supports(p, limits).is_ok()));
        checks(workload, limits)
            .needs(plain && g.groups == 1, "single weights, one group, no padding and no stride")
            .needs(taken, "pixels without gaps")
            .done()
    }

    fn space(&self, workload: &Workload, limits: &WebGpuLimits) -> ParameterSpace {
        let Some(product) = product(&Geometry::of(workload)) else { return ParameterSpace::default() };
        points_of(&product, limits, PRODUCTS.len(), 3)
    }

    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        Geometry::of(workload).cost(workload, 8.0)
    }

    fn plan(&self, workload: &Workload, parameters: &Parameters, limits: &WebGpuLimits) -> Plan {
        let g = Geometry::of(workload);
        let Some(product) = product(&g).filter(|_| !g.is_empty()) else { return Plan::default() };
        let Some(mut plan) = plan_of(&product, parameters, limits) else { return Plan::default() };
        // Kept weights stand between the bias and the output, and are not needed.
        let (output, last) = (product.inputs().len(), workload.inputs().len());
        for place in plan.dispatches.iter_mut().flat_map(|d| &mut d.places) {
            if *place == Place::Operand(output) {
                *place = Place::Operand(last);
            }
        }
        plan
    }
}
