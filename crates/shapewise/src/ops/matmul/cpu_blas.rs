//! A BLAS library of the system as a member of the portfolio; bias and activation follow in a second pass.
#![allow(unsafe_code)]

use super::cost;
use super::cpu_batch::Products;
use super::cpu_problem::{Gemm, Split};
use super::cpu_stored::{Reads, Stored, StoredTask};
use super::cpu_stream::{MAX_ROWS, activate};
use super::plan::Algorithm;
use crate::backends::cpu::blas::{Blas, BlasElement, Side};
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Activation, Call, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters,
    Refusal, Refusals, Variant, Workload,
};
use crate::tensor::{DType, Element};

/// `cblas_sgemm` and `cblas_dgemm` of whatever library the system has.
pub(super) struct SystemBlas;

const CONSTRAINTS: &[Constraint] = &[
    Constraint::DTypes(&[DType::F32, DType::F64]),
    Constraint::Shape(
        "more than 16 rows and columns: fewer are bound by memory, which libraries read to pack",
        |w| {
            let products = Products::describe(w);
            products.first().m.min(products.first().n) > MAX_ROWS
        },
    ),
    Constraint::Shape("operands with one contiguous direction, and sizes that fit 32 bits", |w| {
        let g = Products::describe(w).first().with_contiguous_rows();
        g.c_cs == 1 && g.k > 0 && sides(&g).is_some()
    }),
];

impl Kernel for SystemBlas {
    fn name(&self) -> &'static str {
        "cpu::matmul::blas"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Matmul
    }

    fn source(&self) -> u64 {
        // Another library is another kernel under the same name.
        let library = Blas::find().map_or(0, |blas| crate::hash::fnv1a(blas.name().as_bytes()));
        source_hash!("cpu_blas.rs") ^ library
    }

    fn variant(&self) -> Variant {
        Variant::HardwareSpecific
    }

    fn constraints(&self) -> &[Constraint] {
        CONSTRAINTS
    }

    fn supports(&self, workload: &Workload, device: &DeviceInfo) -> Result<(), Refusals> {
        let missing = Blas::find().err().map(|reason| Refusal::Missing(reason.into()));
        Refusals::collect(CONSTRAINTS.iter().filter_map(|c| c.check(workload, device)).chain(missing))
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        match Blas::find() {
            Ok(blas) if blas.sets_threads() => ParameterSpace::threads(device.threads),
            _ => ParameterSpace::single(),
        }
    }

    /// What our own kernel executes that packs both operands, as every library does.
    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let isa = device.isas.last().copied().unwrap_or(Isa::Portable);
        cost::compute(workload, parameters, device, isa, Algorithm::Packed)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => products::<f32>(call),
            DType::F64 => products::<f64>(call),
            other => Err(KernelError(format!("{other} is not computed by this kernel").into())),
        }
    }
}

/// Both operands as the library wants them, if they have a contiguous direction.
fn sides<T>(g: &Gemm<T>) -> Option<(Side<T>, Side<T>)> {
    let side = |at: *const T, rows: usize, columns: usize, rs: isize, cs: isize| {
        let leading = |stride: isize, least: usize, count: usize| {
            let stride = if count == 1 { least.max(1) } else { usize::try_from(stride).ok()? };
            (stride >= least.max(1)).then_some(stride)
        };
        let by_rows = if cs == 1 || columns == 1 { leading(rs, columns, rows) } else { None };
        let by_columns = || if rs == 1 || rows == 1 { leading(cs, rows, columns) } else { None };
        match by_rows {
            Some(leading) => Some(Side { at, leading, transposed: false }),
            None => by_columns().map(|leading| Side { at, leading, transposed: true }),
        }
    };
    let a = side(g.a, g.m, g.k, g.a_rs, g.a_cs)?;
    let b = side(g.b, g.k, g.n, g.b_rs, g.b_cs)?;
    let c = usize::try_from(g.c_rs).ok()?;
    (c >= g.n && Blas::fits(&[g.m, g.n, g.k, a.leading, b.leading, c])).then_some((a, b))
}

fn products<T: BlasElement + Stored + Element>(call: &Call<'_>) -> Result<(), KernelError> {
    let blas = Blas::find().map_err(|reason| KernelError(reason.into()))?;
    let products = Products::<T>::of(call);
    let (pool, threads) = (call.cpu().threads(), call.parameters.threads());
    let isa = Isa::best();
    for i in 0..products.count {
        let g = products.get(i).with_contiguous_rows();
        let Some((a, b)) = sides(&g) else {
            return Err(KernelError("an operand has no contiguous direction".into()));
        };
        // SAFETY: the call's operands are valid for these sizes, which fit.
        unsafe { blas.gemm(threads, [g.m, g.n, g.k], a, b, g.c, g.c_rs as usize) };
        if !g.epilogue.bias.is_null() || g.epilogue.activation != Activation::None {
            let rows = Split::into(g.m, threads);
            pool.run(threads, rows.blocks, &|share| {
                let (first, count) = rows.piece(share);
                T::run(isa, Finish { g: g.part(first, count, 0, g.n) });
            });
        }
    }
    Ok(())
}

/// Bias and activation of some rows.
struct Finish<T> {
    g: Gemm<T>,
}

impl<T: Stored> StoredTask<T> for Finish<T> {
    #[inline(always)]
    fn run<S: Reads<T> + Reads<T::Wide>>(self, s: S) {
        let g = &self.g;
        let lanes = <S as crate::backends::cpu::simd::Lanes<T::Wide>>::LANES;
        for i in 0..g.m {
            for j in (0..g.n).step_by(lanes) {
                let count = lanes.min(g.n - j);
                // SAFETY: so many elements are left in the row, and the bias has an element for each.
                unsafe {
                    let at = g.c_at(i, j);
                    let mut x = s.read_first(at, count);
                    if !g.epilogue.bias.is_null() {
                        let bias =
                            super::cpu_stream::read_strided(s, g.bias_at(i, j), g.epilogue.bias_cs, count);
                        x = s.add(x, bias);
                    }
                    s.write_first(at, activate(s, x, g.epilogue.activation), count);
                }
            }
        }
    }
}
