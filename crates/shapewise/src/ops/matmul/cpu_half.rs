//! Products of 16-bit floats: widened while they are packed, summed in `f32`, rounded once.
#![allow(unsafe_code)]
#![allow(clippy::inline_always)] // everything here must melt into a function compiled for the instruction set

use std::sync::atomic::{AtomicUsize, Ordering};

use half::{bf16, f16};

use super::cpu_batch::Products;
use super::cpu_panels::{self as panels, Left, Part};
use super::cpu_problem::{Gemm, Shared, Split};
use super::cpu_stored::{Reads, Stored, StoredTask};
use super::cpu_stream::Out;
use crate::backends::cpu::ThreadPool;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters,
    Traffic, Variant, Workload,
};
use crate::tensor::{DType, Element};

/// Bytes of panels that a thread packs before it multiplies: about half a second-level cache.
const BATCH_BYTES: usize = 256 << 10;

/// Widens both operands into panels, on one instruction set.
pub(super) struct Half {
    name: &'static str,
    isa: Isa,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($kernel:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $kernel: Half = Half {
            name: concat!("cpu::matmul::", $name, "_half"),
            isa: Isa::$isa,
            constraints: &[Constraint::DTypes(&[DType::F16, DType::BF16]), Constraint::Isa(Isa::$isa)],
        };
    )*};
}
kernels! {
    AVX512_HALF Avx512 "avx512";
    AVX2_HALF Avx2 "avx2";
    NEON_HALF Neon "neon";
    PORTABLE_HALF Portable "portable";
}

impl Kernel for Half {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Matmul
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_half.rs", "cpu_panels.rs", "cpu_stream_outer.rs", "cpu_stored.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Tiled
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, _: &Workload, device: &DeviceInfo) -> ParameterSpace {
        ParameterSpace::threads(device.threads)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        cost(workload, parameters.threads(), device, self.isa)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F16 => self.products::<f16>(call),
            DType::BF16 => self.products::<bf16>(call),
            other => Err(KernelError(format!("{other} is not computed by this kernel").into())),
        }
    }
}

/// How one product is cut.
#[derive(Clone, Copy)]
struct Plan {
    groups: Split,
    width: usize,
    /// Panels packed at once by a thread.
    batch: usize,
    threads: usize,
    /// Elements for the left operand, and for a thread's panels and sums.
    left: usize,
    own: usize,
}

impl Plan {
    fn new<T>(g: &Gemm<T>, isa: Isa, threads: usize) -> Self {
        let width = panels::width::<f32>(isa);
        let groups = Split::at_most(g.m, panels::group_rows(isa.register_bytes()));
        let count = g.n.div_ceil(width);
        let panel = (g.k * width).max(1);
        let batch = (BATCH_BYTES / size_of::<f32>() / panel).clamp(1, count.div_ceil(threads).max(1));
        let own = (batch * g.k * width + panels::sums::<f32>(isa)).next_multiple_of(16);
        Self { groups, width, batch, threads, left: (g.m * g.k).next_multiple_of(16), own }
    }

    fn scratch(&self) -> usize {
        self.left + self.threads * self.own
    }
}

impl Half {
    fn products<T: Stored<Wide = f32> + Element>(&self, call: &Call<'_>) -> Result<(), KernelError> {
        let products = Products::<T>::of(call);
        let g = products.first().with_contiguous_rows();
        if products.count == 0 || g.m == 0 || g.n == 0 {
            return Ok(());
        }
        let pool = call.cpu().threads();
        let plan = Plan::new(&g, self.isa, call.parameters.threads().min(pool.threads()));
        let memory = call.cpu().scratch(plan.scratch() * size_of::<f32>())?;
        #[allow(clippy::cast_ptr_alignment)] // memory of the pool starts a line
        let memory = Shared(memory.as_ptr().cast_mut().cast::<f32>());
        for i in 0..products.count {
            // SAFETY: the call's operands are valid, and the scratch memory is as large as planned.
            unsafe { product(&products.get(i).with_contiguous_rows(), self.isa, &plan, pool, memory) };
        }
        Ok(())
    }
}

unsafe fn product<T: Stored<Wide = f32>>(
    g: &Gemm<T>,
    isa: Isa,
    plan: &Plan,
    pool: &ThreadPool,
    memory: Shared<f32>,
) {
    let groups = plan.groups;
    let shares = Split::into(groups.blocks, plan.threads);
    pool.run(plan.threads, shares.blocks, &|share| {
        let (start, count) = shares.piece(share);
        T::run(isa, PackLeft { g: *g, groups, from: start, to: start + count, packed: memory.at(0) });
    });
    let next = AtomicUsize::new(0);
    pool.run(plan.threads, plan.threads, &|worker| {
        let scratch = memory.at(plan.left + worker * plan.own);
        let left = Left { at: memory.at(0).cast_const(), k: g.k, groups };
        T::run(isa, Columns { g: *g, left, plan, next: &next, scratch });
    });
}

/// Some groups of rows, widened and packed.
struct PackLeft<T> {
    g: Gemm<T>,
    groups: Split,
    from: usize,
    to: usize,
    packed: *mut f32,
}

impl<T: Stored<Wide = f32>> StoredTask<T> for PackLeft<T> {
    #[inline(always)]
    fn run<S: Reads<T> + Reads<f32>>(self, s: S) {
        let g = &self.g;
        for group in self.from..self.to {
            let (row, size) = self.groups.piece(group);
            let at = g.a.wrapping_offset(row as isize * g.a_rs);
            let part = Part { at, across: g.a_rs, along: g.a_cs, size, k: g.k };
            // SAFETY: the rows exist and have their place.
            unsafe { panels::pack::<T, f32, S>(s, &part, self.packed.wrapping_add(row * g.k), size) };
        }
    }
}

/// Columns of the result, taken a batch of panels at a time.
struct Columns<'a, T> {
    g: Gemm<T>,
    left: Left<f32>,
    plan: &'a Plan,
    next: &'a AtomicUsize,
    scratch: *mut f32,
}

impl<T: Stored<Wide = f32>> StoredTask<T> for Columns<'_, T> {
    #[inline(always)]
    fn run<S: Reads<T> + Reads<f32>>(self, s: S) {
        let (g, plan) = (&self.g, self.plan);
        let sums = self.scratch.wrapping_add(plan.batch * g.k * plan.width);
        let out = Out::of(g);
        loop {
            let first = self.next.fetch_add(plan.batch, Ordering::Relaxed) * plan.width;
            if first >= g.n {
                break;
            }
            let panels = (g.n - first).div_ceil(plan.width).min(plan.batch);
            let columns = |panel: usize| plan.width.min(g.n - first - panel * plan.width);
            let place = |panel: usize| self.scratch.wrapping_add(panel * g.k * plan.width);
            for panel in 0..panels {
                let at = g.b.wrapping_offset((first + panel * plan.width) as isize * g.b_cs);
                let part = Part { at, across: g.b_cs, along: g.b_rs, size: columns(panel), k: g.k };
                // SAFETY: the columns exist, and the scratch has room for a batch of panels.
                unsafe { panels::pack::<T, f32, S>(s, &part, place(panel), plan.width) };
            }
            for block in 0..self.left.blocks::<S>().blocks {
                for panel in 0..panels {
                    let out = out.from(0, first + panel * plan.width);
                    // SAFETY: the panel was packed, and the results exist.
                    unsafe {
                        panels::multiply::<f32, T, S>(
                            s,
                            place(panel),
                            &self.left,
                            block,
                            &out,
                            columns(panel),
                            sums,
                        );
                    }
                }
            }
        }
    }
}

fn cost(workload: &Workload, threads: usize, device: &DeviceInfo, isa: Isa) -> Cost {
    let products = Products::describe(workload);
    let g = products.first().with_contiguous_rows();
    let plan = Plan::new(&g, isa, threads);
    let many = products.count as f64;
    let (m, n, k) = (g.m as f64, g.n as f64, g.k as f64);
    let lanes = (isa.register_bytes() / size_of::<f32>()) as f64;
    let panels = g.n.div_ceil(plan.width);
    let columns = (panels * plan.width) as f64;
    // Sums, then what widening and packing take: a vector in and out where elements of a step are neighbours, one
    // instruction per element where they are not.
    let packing = |elements: f64, neighbours: bool| elements * if neighbours { 3.0 / lanes } else { 1.5 };
    let left_packed = packing(m * k, g.a_rs == 1);
    let vectors =
        m * columns * k / lanes + packing(k * columns, g.b_cs == 1) + left_packed + 3.0 * m * columns / lanes;
    let groups = plan.groups.blocks as f64;
    let l1 = 4.0 * k * columns * (groups + m / plan.width as f64);
    let left = 4.0 * m * k * panels as f64;
    let caches = &device.caches;
    let beyond = |bytes: f64, level: Option<usize>| level.is_some_and(|size| bytes > size as f64);
    let batches = panels.div_ceil(plan.batch) as f64;
    let traffic = Traffic {
        l1: l1 * many,
        l2: (left + 4.0 * k * columns) * many,
        l3: if beyond(4.0 * m * k, caches.l2) {
            (4.0 * m * k * batches + 2.0 * k * n) * many
        } else {
            2.0 * k * n * many
        },
        memory: if beyond(workload.bytes() as f64, caches.l3) { workload.bytes() as f64 } else { 0.0 },
    };
    let unit = ComputeUnit { dtype: DType::F32, isa: Some(isa) };
    let cost = Cost {
        scratch: plan.scratch() * 4,
        ..Cost::new(vectors * 2.0 * lanes * many, unit, traffic).converting(workload)
    };
    let forks = if threads > 1 { 2 * products.count as u32 } else { 0 };
    Cost { forks, ..cost.split_after(left_packed / vectors, threads, panels.div_ceil(plan.batch)) }
}
