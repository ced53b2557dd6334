//! Kernels of one element: a matrix product of pixels and channels, by matmul's own kernels.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::sync::LazyLock;
use std::thread::LocalKey;

use arrayvec::ArrayVec;

use super::geometry::{Geometry, attributes};
use crate::backends::cpu::Operand;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::matmul::{self, MatmulAttributes};
use crate::ops::{
    Call, Constraint, Cost, Kernel, KernelError, MAX_OPERANDS, Operation, OperationKind, ParameterSpace,
    Parameters, Refusal, Refusals, TensorDesc, Variant, Workload,
};
use crate::tensor::{Shape, Strides};

/// One of matmul's kernels.
pub(super) struct Pointwise {
    name: &'static str,
    product: Product,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($kernel:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $kernel: Pointwise = Pointwise {
            name: concat!("cpu::conv::pointwise_", $name),
            product: Product::new(|| product_named(concat!("cpu::matmul::", $name))),
            constraints: &[Constraint::Isa(Isa::$isa)],
        };
    )*};
}
kernels! {
    AVX512_PACKED Avx512 "avx512_packed";
    AVX512_PANEL Avx512 "avx512_panel";
    AVX512_HALF Avx512 "avx512_half";
    AVX2_PACKED Avx2 "avx2_packed";
    AVX2_PANEL Avx2 "avx2_panel";
    AVX2_HALF Avx2 "avx2_half";
    NEON_PACKED Neon "neon_packed";
    NEON_PANEL Neon "neon_panel";
    NEON_HALF Neon "neon_half";
    PORTABLE_PACKED Portable "portable_packed";
    PORTABLE_PANEL Portable "portable_panel";
    PORTABLE_HALF Portable "portable_half";
}

const NEEDS: &str =
    "a kernel of one element without stride, padding or groups, and pixels that are evenly apart";

/// One of matmul's kernels, found when it is first asked for.
pub(super) type Product = LazyLock<&'static dyn Kernel>;

/// One of matmul's kernels.
pub(super) fn product_named(name: &str) -> &'static dyn Kernel {
    let reference = matmul::KERNELS.len() - 1;
    let found = matmul::KERNELS.iter().find(|kernel| kernel.name() == name);
    *found.unwrap_or(&matmul::KERNELS[reference])
}

/// A workload and the product that it is, if it is one.
pub(super) type Seen = RefCell<Option<(Workload, Option<Workload>)>>;

thread_local! {
    /// The latest one: a decision asks the same for every candidate.
    static SEEN: Seen = const { RefCell::new(None) };
}

/// Tells of the product that a workload is, found once for the workload that was asked for last.
pub(super) fn seen<R>(
    latest: &'static LocalKey<Seen>,
    workload: &Workload,
    find: fn(&Workload) -> Option<Workload>,
    tell: impl FnOnce(Option<&Workload>) -> R,
) -> R {
    latest.with_borrow_mut(|latest| {
        let latest = match latest {
            Some(known) if known.0 == *workload => known,
            other => other.insert((workload.clone(), find(workload))),
        };
        tell(latest.1.as_ref())
    })
}

impl Kernel for Pointwise {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_pointwise.rs", "geometry.rs") ^ self.product.source()
    }

    fn variant(&self) -> Variant {
        Variant::Tiled
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn supports(&self, workload: &Workload, device: &DeviceInfo) -> Result<(), Refusals> {
        seen(&SEEN, workload, product_of, |product| match product {
            Some(product) => self.product.supports(product, device),
            None => Err(Refusals::one(Refusal::Shape(NEEDS.into()))),
        })
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let space = |product: &Workload| self.product.space(product, device);
        seen(&SEEN, workload, product_of, |product| product.map_or_else(ParameterSpace::single, space))
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        seen(&SEEN, workload, product_of, |product| match product {
            Some(product) => self.product.cost(product, parameters, device),
            // Asked for what it supports; anything else would cost what the plain loops do.
            None => super::cpu_reference::REFERENCE.cost(workload, parameters, device),
        })
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let product =
            product_of(call.workload).ok_or_else(|| KernelError(format!("needs {NEEDS}").into()))?;
        let inputs = call.inputs.iter().take(product.inputs().len());
        let operands = inputs.chain(&call.outputs);
        let pointers: ArrayVec<*mut u8, MAX_OPERANDS> = operands.map(Operand::address).collect();
        // Operands are the same memory, only seen as matrices.
        self.product.launch(&mut Call::new(&product, call.parameters, &pointers, call.cpu()))
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
