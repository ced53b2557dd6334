//! Kernels of one element: a matrix product of pixels and channels, by matmul's own kernels.
#![allow(unsafe_code)]

use arrayvec::ArrayVec;

use super::geometry::{Geometry, attributes};
use crate::backends::cpu::Operand;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::matmul::{self, MatmulAttributes};
use crate::ops::{
    Call, Cost, Kernel, KernelError, MAX_OPERANDS, Operation, OperationKind, ParameterSpace, Parameters,
    Refusal, Refusals, TensorDesc, Variant, Workload,
};
use crate::tensor::{Shape, Strides};

/// One of matmul's kernels.
pub(super) struct Pointwise {
    name: &'static str,
    product: &'static str,
}

macro_rules! kernels {
    ($($kernel:ident $name:literal;)*) => {$(
        pub(super) static $kernel: Pointwise = Pointwise {
            name: concat!("cpu::conv::pointwise_", $name),
            product: concat!("cpu::matmul::", $name),
        };
    )*};
}
kernels! {
    AVX512_PACKED "avx512_packed";
    AVX512_PANEL "avx512_panel";
    AVX512_HALF "avx512_half";
    AVX2_PACKED "avx2_packed";
    AVX2_PANEL "avx2_panel";
    AVX2_HALF "avx2_half";
    NEON_PACKED "neon_packed";
    NEON_PANEL "neon_panel";
    NEON_HALF "neon_half";
    PORTABLE_PACKED "portable_packed";
    PORTABLE_PANEL "portable_panel";
    PORTABLE_HALF "portable_half";
}

const NEEDS: &str =
    "a kernel of one element without stride, padding or groups, and pixels that are evenly apart";

/// One of matmul's kernels.
pub(super) fn product_named(name: &str) -> &'static dyn Kernel {
    let reference = matmul::KERNELS.len() - 1;
    let found = matmul::KERNELS.iter().find(|kernel| kernel.name() == name);
    *found.unwrap_or(&matmul::KERNELS[reference])
}

impl Kernel for Pointwise {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_pointwise.rs", "geometry.rs") ^ product_named(self.product).source()
    }

    fn variant(&self) -> Variant {
        Variant::Tiled
    }

    fn supports(&self, workload: &Workload, device: &DeviceInfo) -> Result<(), Refusals> {
        match product_of(workload) {
            Some(product) => product_named(self.product).supports(&product, device),
            None => Err(Refusals::one(Refusal::Shape(NEEDS.into()))),
        }
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        product_of(workload)
            .map_or_else(ParameterSpace::single, |w| product_named(self.product).space(&w, device))
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        // Asked for what it supports; anything else would cost what the plain loops do.
        match product_of(workload) {
            Some(product) => product_named(self.product).cost(&product, parameters, device),
            None => super::cpu_reference::REFERENCE.cost(workload, parameters, device),
        }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let product =
            product_of(call.workload).ok_or_else(|| KernelError(format!("needs {NEEDS}").into()))?;
        let inputs = call.inputs.iter().take(product.inputs().len());
        let operands = inputs.chain(&call.outputs);
        let pointers: ArrayVec<*mut u8, MAX_OPERANDS> = operands.map(Operand::address).collect();
        // Operands are the same memory, only seen as matrices.
        product_named(self.product).launch(&mut Call::new(&product, call.parameters, &pointers, call.cpu()))
    }
}

/// The product of N matrices of pixels × input channels with the same weights.
fn product_of(workload: &Workload) -> Option<Workload> {
    let (g, attributes) = (Geometry::of(workload), attributes(workload));
    let plain = g.kernel == [1; 3] && g.stride == [1; 3] && g.before == [0; 3] && g.input == g.output;
    if !plain || g.groups != 1 || attributes.transposed {
        return None;
    }
    let (x, y) = (apart(&g.input, &g.x[2..])?, apart(&g.output, &g.y[2..])?);
    let (inputs, output) = (workload.inputs(), &workload.outputs()[0]);
    let desc = |of: &TensorDesc, shape: [usize; 3], strides: [isize; 3]| {
        let (shape, strides) = (Shape::new(&shape).ok()?, Strides::new(&strides).ok()?);
        Some(TensorDesc { shape, strides, ..*of })
    };
    let pixels = g.pixels();
    let mut operands: ArrayVec<TensorDesc, 3> = ArrayVec::new();
    operands.push(desc(&inputs[0], [g.n, pixels, g.c], [g.x[0], x, g.x[1]])?);
    operands.push(desc(&inputs[1], [g.n, g.c, g.o], [0, g.w[2], g.w[1]])?);
    if attributes.bias {
        operands.push(inputs[2]);
    }
    let to = desc(output, [g.n, pixels, g.o], [g.y[0], y, g.y[1]])?;
    let fused = MatmulAttributes { bias: attributes.bias, activation: attributes.activation };
    Some(Workload::new(Operation::Matmul(fused), &operands, &[to]))
}

/// The one distance between neighbours in row-major order, where there is one.
pub(super) fn apart(sizes: &[usize], strides: &[isize]) -> Option<isize> {
    let (mut distance, mut next) = (1, None);
    for axis in (0..sizes.len()).rev().filter(|&axis| sizes[axis] != 1) {
        let stride = strides[axis];
        match next {
            None => distance = stride,
            Some(wanted) if wanted != stride => return None,
            Some(_) => {}
        }
        next = Some(stride.checked_mul(sizes[axis] as isize)?);
    }
    Some(distance)
}
