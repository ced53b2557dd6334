//! The crate `gemm` as a member of the portfolio: its kernels, our threads.
#![allow(unsafe_code)]

use gemm::Parallelism;

use super::cost;
use super::cpu_batch::Products;
use super::cpu_finish::Finish;
use super::cpu_kernels::{NOT_EMPTY, REAL, thread_space};
use super::cpu_problem::{Gemm, Real, Split};
use super::cpu_stream_cost::streamed;
use super::plan::Algorithm;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters, Variant, Workload,
};
use crate::tensor::{DType, Element};

/// Columns of the result that a thread's share is a multiple of, so that no two write the same line.
const GRAIN: usize = 16;

/// The crate, each thread on its own part of the result.
pub(super) struct GemmCrate;

impl Kernel for GemmCrate {
    fn name(&self) -> &'static str {
        "cpu::matmul::gemm_crate"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Matmul
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_gemm_crate.rs", "cpu_finish.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn constraints(&self) -> &[Constraint] {
        &[REAL, NOT_EMPTY]
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        thread_space(workload, device)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let (products, threads) = (Products::describe(workload), parameters.threads());
        // Vectors are not packed.
        let one = if products.first().m == 1 || products.first().n == 1 {
            streamed(workload, &Parameters::new(), device, Isa::best())
        } else {
            cost::compute(workload, &Parameters::new(), device, Isa::best(), Algorithm::Packed)
        };
        if threads == 1 || products.count >= threads {
            return one.split(threads, products.count);
        }
        let g = products.first();
        let cost = one.split(threads, g.n.max(g.m).div_ceil(GRAIN));
        Cost { forks: cost.forks * products.count as u32, ..cost }
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => products::<f32>(call),
            DType::F64 => products::<f64>(call),
            other => return Err(KernelError(format!("{other} is not computed by this kernel").into())),
        }
        Ok(())
    }
}

fn products<T: Real + Element>(call: &Call<'_>) {
    let products = Products::<T>::of(call);
    let pool = call.cpu().threads();
    let threads = call.parameters.threads().min(pool.threads());
    if threads > 1 && products.count >= threads {
        pool.run(threads, products.count, &|i| one(&products.get(i)));
        return;
    }
    for i in 0..products.count {
        let g = products.get(i);
        let g = if g.n < g.m && threads > 1 { g.transposed() } else { g };
        let columns = Split::into(g.n.div_ceil(GRAIN), threads);
        pool.run(threads, columns.blocks, &|i| {
            let (first, count) = columns.piece(i);
            let first = (first * GRAIN).min(g.n);
            one(&g.part(0, g.m, first, (count * GRAIN).min(g.n - first)));
        });
    }
}

fn one<T: Real>(g: &Gemm<T>) {
    if g.n == 0 {
        return;
    }
    // SAFETY: the call's operands are valid for these sizes and strides, and the result overlaps none of them.
    unsafe {
        gemm::gemm(
            g.m,
            g.n,
            g.k,
            g.c,
            g.c_cs,
            g.c_rs,
            false,
            g.a,
            g.a_cs,
            g.a_rs,
            g.b,
            g.b_cs,
            g.b_rs,
            T::ZERO,
            T::ONE,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
    T::run(Isa::best(), Finish(*g));
}
