//! The compute-bound kernels: one algorithm on one instruction set each.
#![allow(unsafe_code)]

use super::cpu_batch::Products;
use super::cpu_micro::wide_shape;
use super::cpu_problem::{Epilogue, Gemm, Real, Shared, Split};
use super::cpu_short::ShortProduct;
use super::plan::{Algorithm, Blocks, Plan, Sizes, blocks_around};
use super::{cost, cpu_batch, cpu_packed, cpu_panel, cpu_short, cpu_small, cpu_split_k};
use crate::backends::cpu::ThreadPool;
use crate::backends::cpu::simd::Isa;
use crate::device::{Device, DeviceInfo};
use crate::hash::source_hash;
use crate::ops::{
    Activation, Bound, Call, Constraint, Cost, Kernel, KernelError, Knob, OperationKind, ParameterSpace,
    Parameters, Variant, Workload,
};
use crate::tensor::{DType, Element};

/// One algorithm on one instruction set.
pub(super) struct Compute {
    name: &'static str,
    isa: Isa,
    algorithm: Algorithm,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($small:ident $panel:ident $packed:ident $split:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $small: Compute = Compute {
            name: concat!("cpu::matmul::", $name, "_small"),
            isa: Isa::$isa,
            algorithm: Algorithm::Small,
            constraints: &[REAL, Constraint::Isa(Isa::$isa), NOT_EMPTY, RIGHT_ROWS, RIGHT_NEAR],
        };
        pub(super) static $panel: Compute = Compute {
            name: concat!("cpu::matmul::", $name, "_panel"),
            isa: Isa::$isa,
            algorithm: Algorithm::Panel,
            constraints: &[REAL, Constraint::Isa(Isa::$isa), NOT_EMPTY],
        };
        pub(super) static $packed: Compute = Compute {
            name: concat!("cpu::matmul::", $name, "_packed"),
            isa: Isa::$isa,
            algorithm: Algorithm::Packed,
            constraints: &[REAL, Constraint::Isa(Isa::$isa), NOT_EMPTY],
        };
        pub(super) static $split: Compute = Compute {
            name: concat!("cpu::matmul::", $name, "_split_k"),
            isa: Isa::$isa,
            algorithm: Algorithm::SplitK,
            constraints: &[REAL, Constraint::Isa(Isa::$isa), NOT_EMPTY, DEEP],
        };
    )*};
}
kernels! {
    AVX512_SMALL AVX512_PANEL AVX512_PACKED AVX512_SPLIT_K Avx512 "avx512";
    AVX2_SMALL AVX2_PANEL AVX2_PACKED AVX2_SPLIT_K Avx2 "avx2";
    NEON_SMALL NEON_PANEL NEON_PACKED NEON_SPLIT_K Neon "neon";
    PORTABLE_SMALL PORTABLE_PANEL PORTABLE_PACKED PORTABLE_SPLIT_K Portable "portable";
}

pub(super) const REAL: Constraint = Constraint::DTypes(&[DType::F32, DType::F64]);
pub(super) const NOT_EMPTY: Constraint = Constraint::Shape("at least one element in every operand", |w| {
    let products = Products::describe(w);
    let g = products.first();
    products.count * g.m * g.n * g.k > 0
});
const DEEP: Constraint =
    Constraint::Shape("more steps than the result has elements, or 64 times its longer side", |w| {
        let products = Products::describe(w);
        let g = products.first();
        products.count == 1 && (g.k >= g.m.saturating_mul(g.n) || g.k >= 64 * g.m.max(g.n))
    });
const RIGHT_ROWS: Constraint = Constraint::Shape(
    "rows of the right operand (or columns of the left, for a transposed result) without gaps, or all of them in 16 KiB",
    |w| {
        let products = Products::describe(w);
        cpu_small::reads(&products.first().with_contiguous_rows(), w.inputs()[0].dtype.size())
    },
);
const RIGHT_NEAR: Constraint = Constraint::Shape(
    "a right operand of at most 128 KiB, 4 MiB beside up to 16 rows, or with rows at most 1 KiB apart",
    |w| {
        let products = Products::describe(w);
        cpu_small::takes(&products.first().with_contiguous_rows(), w.inputs()[0].dtype.size())
    },
);

impl Kernel for Compute {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Matmul
    }

    fn source(&self) -> u64 {
        match self.algorithm {
            Algorithm::Small => {
                source_hash!(
                    "cpu_small.rs",
                    "cpu_short.rs",
                    "cpu_pack.rs",
                    "cpu_kernels.rs",
                    "cpu_problem.rs",
                    "cpu_micro.rs",
                    "cpu_tile.rs",
                    "plan.rs"
                )
            }
            Algorithm::Panel => source_hash!(
                "cpu_panel.rs",
                "cpu_pack.rs",
                "cpu_kernels.rs",
                "cpu_problem.rs",
                "cpu_micro.rs",
                "cpu_tile.rs",
                "plan.rs"
            ),
            Algorithm::Packed => source_hash!(
                "cpu_packed.rs",
                "cpu_pack.rs",
                "cpu_kernels.rs",
                "cpu_problem.rs",
                "cpu_micro.rs",
                "cpu_tile.rs",
                "plan.rs"
            ),
            Algorithm::SplitK => source_hash!(
                "cpu_split_k.rs",
                "cpu_packed.rs",
                "cpu_pack.rs",
                "cpu_kernels.rs",
                "cpu_problem.rs",
                "cpu_micro.rs",
                "cpu_tile.rs",
                "plan.rs"
            ),
        }
    }

    fn variant(&self) -> Variant {
        if self.algorithm == Algorithm::Small { Variant::Vectorised } else { Variant::Tiled }
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let threads = thread_space(workload, device);
        if self.algorithm == Algorithm::Small || !can_stream(workload, device) {
            return threads;
        }
        threads.axis(Knob::Stream, &[0, 1])
    }

    fn tuning_space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let usual = self.space(workload, device);
        if self.algorithm == Algorithm::Small {
            return usual;
        }
        let products = Products::describe(workload);
        let g = products.first().with_contiguous_rows();
        let size = workload.outputs()[0].dtype.size();
        let (sizes, none) = (Sizes::of(device), Blocks::default());
        let plan = Plan::new(&g, self.algorithm, self.isa, size, 1, false, &sizes, none);
        let (rows, vectors) = wide_shape(self.isa.register_bytes());
        let width = vectors * self.isa.register_bytes() / size;
        let columns = if self.algorithm == Algorithm::Panel { plan.chunk * width } else { plan.nc };
        let blocks = blocks_around((plan.mc, columns, plan.kc), (g.m, g.n, g.k), (rows, width));
        let mut wide = ParameterSpace::default();
        for point in usual.points() {
            wide = wide.and(blocks.clone().with(point));
        }
        usual.and(wide)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        cost::compute(workload, parameters, device, self.isa, self.algorithm)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => self.products::<f32>(call),
            DType::F64 => self.products::<f64>(call),
            other => Err(KernelError(format!("{other} is not computed by this kernel").into())),
        }
    }

    fn bind(&self, workload: &Workload, parameters: &Parameters) -> Option<Bound> {
        if self.algorithm != Algorithm::Small || parameters.threads() > 1 {
            return None;
        }
        match workload.outputs()[0].dtype {
            DType::F32 => bind::<f32>(self.isa, workload),
            DType::F64 => bind::<f64>(self.isa, workload),
            _ => None,
        }
    }
}

/// A small product on one thread that needs no preparation.
fn bind<T: ShortProduct + Element>(isa: Isa, workload: &Workload) -> Option<Bound> {
    let product = cpu_batch::Unplaced::<T>::of(workload).filter(|product| product.first().is_ready())?;
    if let Some(short) = cpu_short::bind(product.first(), isa) {
        return Some(short);
    }
    let run = cpu_small::Alone::new(product.first(), isa);
    Some(Bound::new(move |pointers| {
        // SAFETY: the call's operands are valid, and the constraints let no empty product through.
        unsafe { run.run(&product.at(pointers)) };
    }))
}

/// All threads first where each gets tiles enough to be worth a hand-over, one thread first where not.
pub(super) fn thread_space(workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
    let products = Products::describe(workload);
    let g = products.first();
    let steps = products.count.saturating_mul(g.m).saturating_mul(g.n).saturating_mul(g.k);
    let few = steps / device.threads.max(1) < 1 << 14;
    let mut values = [1, device.threads.max(1) as u32];
    if !few {
        values.reverse();
    }
    ParameterSpace::single().axis(Knob::Threads, if device.threads > 1 { &values } else { &values[..1] })
}

/// Whether the result may be too large for the caches and every row of it starts a line.
fn can_stream(workload: &Workload, device: &DeviceInfo) -> bool {
    let c = &workload.outputs()[0];
    let size = c.dtype.size();
    let lines = c.strides.iter().rev().skip(1).all(|s| (s.unsigned_abs() * size).is_multiple_of(64));
    let products = Products::describe(workload);
    let g = products.first();
    let late =
        !matches!(g.epilogue.activation, Activation::None | Activation::Relu | Activation::LeakyRelu { .. });
    c.aligned && lines && g.c_cs == 1 && !late && c.bytes() > device.caches.far()
}

/// What all products of a call have in common.
struct Run<'a> {
    algorithm: Algorithm,
    isa: Isa,
    sizes: Sizes,
    stream: bool,
    blocks: Blocks,
    pool: &'a ThreadPool,
}

impl Compute {
    fn products<T: Real + Element>(&self, call: &Call<'_>) -> Result<(), KernelError> {
        let device = call.cpu();
        let pool = device.threads();
        let threads = call.parameters.threads().min(pool.threads());
        if self.algorithm == Algorithm::Small
            && let Some(g) = cpu_batch::single::<T>(call).filter(Gemm::is_ready)
        {
            // SAFETY: the call's operands are valid, and the constraints let no empty product through.
            unsafe { cpu_small::run(&g, self.isa, threads, pool) };
            return Ok(());
        }
        let products = Products::<T>::of(call);
        let stream = call.parameters.get(Knob::Stream) == Some(1);
        let (sizes, blocks) = (Sizes::of(device.info()), Blocks::of(call.parameters));
        let run = Run { algorithm: self.algorithm, isa: self.isa, sizes, stream, blocks, pool };
        let together = threads > 1 && products.count >= threads;
        let (inside, beside) = if together { (1, threads) } else { (threads, 1) };
        let size = run.scratch(products.first(), inside);
        // Nothing is taken from the pool where nothing is needed: small products are over before that.
        let scratch = if size > 0 { Some(device.scratch(size * beside * size_of::<T>())?) } else { None };
        let memory =
            Shared(scratch.as_ref().map_or(std::ptr::null_mut(), |s| s.as_ptr().cast::<T>().cast_mut()));
        if !together {
            for i in 0..products.count {
                // SAFETY: the call's operands are valid, and the scratch memory is as large as was asked for.
                unsafe { run.product(&products.get(i), inside, memory.at(0)) };
            }
            return Ok(());
        }
        let shares = Split::into(products.count, threads);
        pool.run(threads, shares.blocks, &|share| {
            let (first, count) = shares.piece(share);
            for i in first..first + count {
                // SAFETY: as above, and every share has its own part of the scratch memory and of the result.
                unsafe { run.product(&products.get(i), inside, memory.at(share * size)) };
            }
        });
        Ok(())
    }
}

impl Run<'_> {
    fn plan<T>(&self, g: &Gemm<T>, threads: usize) -> Plan {
        let Self { algorithm, isa, stream, ref sizes, blocks, .. } = *self;
        Plan::new(g, algorithm, isa, size_of::<T>(), threads, stream, sizes, blocks)
    }

    /// Elements of scratch memory for one product.
    fn scratch<T: Real>(&self, g: &Gemm<T>, threads: usize) -> usize {
        let g = g.with_contiguous_rows();
        let own = match self.algorithm {
            Algorithm::Small => 0,
            Algorithm::Panel => cpu_panel::scratch(&g, self.isa, &self.plan(&g, threads).panel()),
            Algorithm::Packed => cpu_packed::scratch(&g, self.isa, &self.plan(&g, threads).packed()),
            Algorithm::SplitK => {
                cpu_split_k::scratch(&g, self.isa, &self.plan(&g, threads).packed(), threads)
            }
        };
        own + gathered(&g) + bias(&g)
    }

    /// # Safety
    /// The operands are valid and `scratch` has [`Run::scratch`] elements.
    unsafe fn product<T: Real>(&self, g: &Gemm<T>, threads: usize, scratch: *mut T) {
        let g = g.with_contiguous_rows();
        // Results with gaps in their rows are computed in one piece and then spread.
        let gathered = gathered(&g);
        let mut inner = if gathered > 0 { Gemm { c: scratch, c_rs: g.n as isize, c_cs: 1, ..g } } else { g };
        let own = scratch.wrapping_add(gathered + bias(&g));
        if bias(&g) > 0 {
            let copy = scratch.wrapping_add(gathered);
            for j in 0..g.n {
                // SAFETY: the bias has an element for every column, and the scratch memory room for them.
                unsafe { copy.add(j).write(*g.bias_at(0, j)) };
            }
            inner.epilogue = Epilogue { bias: copy, bias_cs: 1, ..g.epilogue };
        }
        // SAFETY: the caller's promise; rows of the inner result are contiguous, and the constraints let no empty
        // product through. Streaming is chosen only for results that allow it.
        unsafe {
            match self.algorithm {
                Algorithm::Small => cpu_small::run(&inner, self.isa, threads, self.pool),
                Algorithm::Panel => {
                    cpu_panel::run(&inner, self.isa, &self.plan(&g, threads).panel(), self.pool, own);
                }
                Algorithm::Packed => {
                    cpu_packed::run(&inner, self.isa, &self.plan(&g, threads).packed(), self.pool, own);
                }
                Algorithm::SplitK => {
                    let blocking = self.plan(&g, threads).packed();
                    cpu_split_k::run(&inner, self.isa, &blocking, threads, self.pool, own);
                }
            }
        }
        if gathered > 0 {
            for i in 0..g.m {
                for j in 0..g.n {
                    // SAFETY: both results have this element.
                    unsafe { g.c_at(i, j).write(*inner.c_at(i, j)) };
                }
            }
        }
    }
}

/// Elements of a result whose rows have gaps; none where they have not.
fn gathered<T>(g: &Gemm<T>) -> usize {
    if g.c_cs == 1 { 0 } else { (g.m * g.n).next_multiple_of(64) }
}

/// Elements of a bias that has gaps; none where it has not.
fn bias<T>(g: &Gemm<T>) -> usize {
    if matches!(g.epilogue.bias_cs, 0 | 1) { 0 } else { g.n.next_multiple_of(64) }
}
