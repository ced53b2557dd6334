//! The kernels bound by memory: matrix × vector, vector × matrix, and a few rows or columns.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::cpu_batch::{self, Products, Unplaced};
use super::cpu_problem::{Gemm, Shared, Split};
use super::cpu_reference::FLOATS;
use super::cpu_stored::Stored;
use super::cpu_stream::{self as stream, MAX_ROWS, Plan, Walk};
use super::cpu_stream_cost as cost;
use crate::backends::cpu::simd::Isa;
use crate::backends::cpu::{OnStack, ThreadPool};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Bound, Call, Constraint, Cost, Kernel, KernelError, Knob, OperationKind, ParameterSpace, Parameters,
    Variant, Workload,
};
use crate::tensor::{DType, Element};

/// Streams the larger operand once, on one instruction set.
pub(super) struct Bandwidth {
    name: &'static str,
    isa: Isa,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($vector:ident $skinny:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $vector: Bandwidth = Bandwidth {
            name: concat!("cpu::matmul::", $name, "_vector"),
            isa: Isa::$isa,
            constraints: &[Constraint::DTypes(FLOATS), Constraint::Isa(Isa::$isa), VECTOR],
        };
        pub(super) static $skinny: Bandwidth = Bandwidth {
            name: concat!("cpu::matmul::", $name, "_skinny"),
            isa: Isa::$isa,
            constraints: &[Constraint::DTypes(FLOATS), Constraint::Isa(Isa::$isa), SKINNY],
        };
    )*};
}
kernels! {
    AVX512_VECTOR AVX512_SKINNY Avx512 "avx512";
    AVX2_VECTOR AVX2_SKINNY Avx2 "avx2";
    NEON_VECTOR NEON_SKINNY Neon "neon";
    PORTABLE_VECTOR PORTABLE_SKINNY Portable "portable";
}

const VECTOR: Constraint = Constraint::Shape("a single row or column", |w| few(w) <= 1);
const SKINNY: Constraint =
    Constraint::Shape("between 2 and 16 rows or columns", |w| (2..=MAX_ROWS).contains(&few(w)));

/// The value of [`Knob::Ahead`] by which a matrix that no near cache holds is asked for as far ahead as the second-level cache allows.
const FAR: u32 = 2;

fn is_far(parameters: &Parameters) -> bool {
    parameters.get(Knob::Ahead) == Some(FAR)
}

/// The smaller side of the result.
fn few(workload: &Workload) -> usize {
    let products = Products::describe(workload);
    products.first().m.min(products.first().n)
}

impl Kernel for Bandwidth {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Matmul
    }

    fn source(&self) -> u64 {
        source_hash!(
            "cpu_bandwidth.rs",
            "cpu_stream.rs",
            "cpu_stream_dot.rs",
            "cpu_stream_outer.rs",
            "cpu_stored.rs"
        )
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let space = ParameterSpace::threads(device.threads);
        let g = stream::few_rows_left(*Products::describe(workload).first());
        let distant = device.caches.l2.is_some_and(|l2| workload.bytes() > l2);
        if !distant || g.b_cs != 1 || stream::walk(&g) == Walk::Dot {
            return space;
        }
        space.axis(Knob::Ahead, if g.m == 1 { &[0, FAR] } else { &[1, FAR] })
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        cost::streamed(workload, parameters, device, self.isa)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => self.products::<f32>(call),
            DType::F64 => self.products::<f64>(call),
            DType::F16 => self.products::<f16>(call),
            DType::BF16 => self.products::<bf16>(call),
            other => Err(KernelError(format!("{other} is not computed by this kernel").into())),
        }
    }

    fn bind(&self, workload: &Workload, parameters: &Parameters) -> Option<Bound> {
        if parameters.threads() > 1 {
            return None;
        }
        match workload.outputs()[0].dtype {
            DType::F32 => bind::<f32>(self.isa, workload, parameters),
            DType::F64 => bind::<f64>(self.isa, workload, parameters),
            DType::F16 => bind::<f16>(self.isa, workload, parameters),
            DType::BF16 => bind::<bf16>(self.isa, workload, parameters),
            _ => None,
        }
    }
}

/// A product on one thread whose scratch memory the stack has room for.
fn bind<T: Stored + Element>(isa: Isa, workload: &Workload, parameters: &Parameters) -> Option<Bound> {
    let product = Unplaced::<T>::of(workload)?;
    let alone = Alone::new(product.first(), isa, is_far(parameters))?;
    Some(Bound::new(move |pointers| alone.run(&product.at(pointers))))
}

/// Bytes of scratch on the stack.
const LITTLE: usize = 16 << 10;

/// How products of one layout run on one thread with little scratch memory.
struct Alone {
    isa: Isa,
    plan: Plan,
}

impl Alone {
    /// `None` for products that are empty or need more memory.
    fn new<T: Stored>(g: &Gemm<T>, isa: Isa, far: bool) -> Option<Self> {
        let g = stream::few_rows_left(*g);
        let plan = Plan { far, ..stream::plan(&g, isa, 1) };
        let fits = plan.scratch() * size_of::<T::Wide>() <= LITTLE;
        (g.m > 0 && g.n > 0 && fits).then_some(Self { isa, plan })
    }

    /// Computes a product of that layout, whose operands are those of a call.
    #[inline]
    fn run<T: Stored>(&self, g: &Gemm<T>) {
        let mut scratch = OnStack::<LITTLE>::new();
        // SAFETY: a call's operands are valid, and the plan was found to need no more than the stack has.
        unsafe { stream::alone(&stream::few_rows_left(*g), self.isa, &self.plan, scratch.at()) };
    }
}

/// Threads inside a product, and products beside one another.
pub(super) fn share(threads: usize, products: usize) -> (usize, usize) {
    if threads > 1 && products >= threads { (1, threads) } else { (threads, 1) }
}

impl Bandwidth {
    fn products<T: Stored + Element>(&self, call: &Call<'_>) -> Result<(), KernelError> {
        if call.parameters.threads() <= 1
            && let Some(g) = cpu_batch::single::<T>(call)
            && let Some(alone) = Alone::new(&g, self.isa, is_far(call.parameters))
        {
            alone.run(&g);
            return Ok(());
        }
        let products = Products::<T>::of(call);
        let first = *products.first();
        if products.count == 0 || first.m == 0 || first.n == 0 {
            return Ok(());
        }
        let pool = call.cpu().threads();
        let (inside, beside) = share(call.parameters.threads().min(pool.threads()), products.count);
        let far = is_far(call.parameters);
        let plan = Plan { far, ..stream::plan(&stream::few_rows_left(first), self.isa, inside) };
        let size = plan.scratch().next_multiple_of(16);
        let memory = call.cpu().scratch(size * beside * size_of::<T::Wide>())?;
        let memory = Shared(memory.as_ptr().cast_mut().cast::<T::Wide>());
        let shares = Split::into(products.count, beside);
        let work = |share: usize, pool: &ThreadPool| {
            let (start, count) = shares.piece(share);
            for i in start..start + count {
                // SAFETY: the call's operands are valid, and every share has its own part of the scratch memory.
                unsafe { self.product(products.get(i), &plan, pool, memory.at(share * size)) };
            }
        };
        if beside == 1 {
            work(0, pool);
        } else {
            pool.run(beside, shares.blocks, &|share| work(share, pool));
        }
        Ok(())
    }

    unsafe fn product<T: Stored>(&self, g: Gemm<T>, plan: &Plan, pool: &ThreadPool, scratch: *mut T::Wide) {
        // SAFETY: the caller's promise; the plan was made for a product of this shape.
        unsafe { stream::stream(&stream::few_rows_left(g), self.isa, plan, pool, scratch) };
    }
}
