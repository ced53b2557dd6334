//! Products with a right operand that was packed before, and the packing.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicUsize, Ordering};

use half::{bf16, f16};

use super::cpu_panels::{self as panels, Left, Part};
use super::cpu_problem::{Epilogue, Shared, Split};
use super::cpu_reference::apply;
use super::cpu_stored::{Reads, Stored, StoredTask};
use super::cpu_stream::Out;
use crate::backends::cpu::simd::Isa;
use crate::backends::cpu::{Operand, ThreadPool};
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::{
    Activation, Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Operation, OperationKind,
    ParameterSpace, Parameters, Traffic, Variant, Workload,
};
use crate::tensor::{DType, Element, TensorView, TensorViewMut};

/// Streams panels past groups of rows, on one instruction set.
pub(super) struct Prepacked {
    name: &'static str,
    isa: Isa,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($kernel:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $kernel: Prepacked = Prepacked {
            name: concat!("cpu::packed_matmul::", $name, "_panels"),
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), Constraint::Shape(
                concat!("panels packed for ", $name),
                |w| panel_fits(w, Isa::$isa),
            )],
        };
    )*};
}
kernels! {
    AVX512_PREPACKED Avx512 "avx512";
    AVX2_PREPACKED Avx2 "avx2";
    NEON_PREPACKED Neon "neon";
    PORTABLE_PREPACKED Portable "portable";
}

fn panel_fits(workload: &Workload, isa: Isa) -> bool {
    let width = if workload.outputs()[0].dtype == DType::F64 {
        panels::width::<f64>(isa)
    } else {
        panels::width::<f32>(isa)
    };
    workload.inputs()[1].shape[2] == width
}

/// Sizes of a packed product.
#[derive(Clone, Copy)]
struct Sizes {
    m: usize,
    n: usize,
    k: usize,
    width: usize,
    activation: Activation,
}

impl Sizes {
    fn of(workload: &Workload) -> Self {
        let (a, panels, c) = (&workload.inputs()[0], &workload.inputs()[1], &workload.outputs()[0]);
        let activation = match *workload.operation() {
            Operation::PackedMatmul(attributes) => attributes.activation,
            _ => Activation::None,
        };
        Self { m: a.shape[0], n: c.shape[1], k: a.shape[1], width: panels.shape[2], activation }
    }

    fn groups(&self, isa: Isa) -> Split {
        Split::at_most(self.m, panels::group_rows(isa.register_bytes()))
    }

    /// Elements of scratch: the packed rows, and sums for every thread.
    fn scratch<T>(&self, isa: Isa, threads: usize) -> usize {
        (self.m * self.k).next_multiple_of(16) + threads * panels::sums::<T>(isa)
    }
}

impl Kernel for Prepacked {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::PackedMatmul
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_prepacked.rs", "cpu_panels.rs", "cpu_stream_outer.rs", "cpu_stored.rs")
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
        let sizes = Sizes::of(workload);
        let wide = if workload.outputs()[0].dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let size = wide.size() as f64;
        let count = sizes.n.div_ceil(sizes.width);
        let groups = sizes.groups(self.isa).blocks as f64;
        let (m, k, columns) = (sizes.m as f64, sizes.k as f64, (count * sizes.width) as f64);
        let stored = workload.inputs()[1].dtype.size() as f64;
        // Sums, packing of the rows, and a widening and a shift for every vector of 16-bit panels.
        let lanes = self.isa.register_bytes() as f64 / size;
        let converting = if stored < size { 2.0 * groups * k * columns / lanes } else { 0.0 };
        let vectors = m * columns * k / lanes + 2.0 * m * k + converting;
        let panels = stored * k * columns;
        let beyond = |bytes: f64, level: Option<usize>| level.is_some_and(|l| bytes > l as f64);
        let bytes = workload.bytes() as f64;
        let traffic = Traffic {
            l1: groups * panels + size * m * k * count as f64,
            l2: panels + size * m * k * count as f64,
            l3: if beyond(bytes, device.caches.l2) { panels } else { 0.0 },
            memory: if beyond(bytes, device.caches.l3) { bytes } else { 0.0 },
        };
        let unit = ComputeUnit { dtype: wide, isa: Some(self.isa) };
        let threads = parameters.threads();
        let scratch = if wide == DType::F64 {
            sizes.scratch::<f64>(self.isa, threads)
        } else {
            sizes.scratch::<f32>(self.isa, threads)
        };
        let scratch = scratch * wide.size();
        Cost { scratch, ..Cost::new(vectors * 2.0 * lanes, unit, traffic) }.split(threads, count)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match (call.workload.outputs()[0].dtype, call.workload.inputs()[1].dtype) {
            (DType::F32, DType::F32) => self.product::<f32, f32>(call, |isa, c| f32::run(isa, Same(c))),
            (DType::F64, DType::F64) => self.product::<f64, f64>(call, |isa, c| f64::run(isa, Same(c))),
            (DType::F16, DType::F16) => self.product::<f16, f16>(call, |isa, c| f16::run(isa, Same(c))),
            (DType::BF16, DType::BF16) => self.product::<bf16, bf16>(call, |isa, c| bf16::run(isa, Same(c))),
            (DType::F32, DType::F16) => self.product::<f16, f32>(call, |isa, c| f16::run(isa, Widened(c))),
            (DType::F32, DType::BF16) => self.product::<bf16, f32>(call, |isa, c| bf16::run(isa, Widened(c))),
            (c, w) => Err(KernelError(format!("products of {c} with panels of {w} are not computed").into())),
        }
    }
}

impl Prepacked {
    /// Panels of `W`; rows and results of `C`.
    fn product<W, C>(
        &self,
        call: &Call<'_>,
        run: impl Fn(Isa, Columns<'_, W, C>) + Sync,
    ) -> Result<(), KernelError>
    where
        W: Stored + Element,
        C: Stored<Wide = W::Wide> + Element,
    {
        let sizes = Sizes::of(call.workload);
        if sizes.m == 0 || sizes.n == 0 {
            return Ok(());
        }
        let pool = call.cpu().threads();
        let threads = call.parameters.threads().min(pool.threads());
        let memory =
            call.cpu().scratch(sizes.scratch::<W::Wide>(self.isa, threads) * size_of::<W::Wide>())?;
        let memory = Shared(memory.as_ptr().cast_mut().cast::<W::Wide>());
        let (a, c) = (&call.inputs[0], &call.outputs[0]);
        let groups = sizes.groups(self.isa);
        for g in 0..groups.blocks {
            let (row, size) = groups.piece(g);
            let at = a.ptr::<C>().wrapping_offset(row as isize * a.strides()[0]);
            let part = Part { at, across: a.strides()[0], along: a.strides()[1], size, k: sizes.k };
            C::run(self.isa, PackRows { part, to: memory.at(row * sizes.k) });
        }
        let bias = call.inputs.get(2);
        let epilogue = Epilogue {
            bias: bias.map_or(std::ptr::null(), Operand::ptr::<C>),
            bias_rs: 0,
            bias_cs: bias.map_or(0, |b| b.strides()[0]),
            activation: sizes.activation,
        };
        let out = Out { c: c.ptr_mut::<C>(), rs: c.strides()[0], cs: c.strides()[1], epilogue };
        let count = sizes.n.div_ceil(sizes.width);
        let job = Job {
            panels: call.inputs[1].ptr::<W>(),
            left: Left { at: memory.at(0).cast_const(), k: sizes.k, groups },
            out,
            sizes,
            // What is left in the end is taken one by one, so that every thread has its part of it.
            together: if sizes.m == 1 { count - count % (panels::BESIDE * threads) } else { 0 },
        };
        let (next, together) = (AtomicUsize::new(job.together), AtomicUsize::new(0));
        let own = (sizes.m * sizes.k).next_multiple_of(16);
        pool.run(threads, threads, &|worker| {
            let sums = memory.at(own + worker * panels::sums::<W::Wide>(self.isa));
            run(self.isa, Columns { job: &job, together: &together, next: &next, sums });
        });
        Ok(())
    }
}

/// What the threads of a product share.
struct Job<W: Stored, C> {
    panels: *const W,
    left: Left<W::Wide>,
    out: Out<C>,
    sizes: Sizes,
    /// Panels of which a few are taken at once.
    together: usize,
}
// SAFETY: panels and rows are only read, and every panel's columns of the result are written by one thread.
unsafe impl<W: Stored, C: Send> Sync for Job<W, C> {}

/// Panels taken by one thread.
struct Columns<'a, W: Stored, C> {
    job: &'a Job<W, C>,
    /// The next few that are taken at once.
    together: &'a AtomicUsize,
    /// The next one that is taken by itself.
    next: &'a AtomicUsize,
    sums: *mut W::Wide,
}

/// Results of the panels' own type.
struct Same<'a, W: Stored>(Columns<'a, W, W>);
/// Results of the type that the panels are computed in.
struct Widened<'a, W: Stored>(Columns<'a, W, W::Wide>);

impl<W: Stored> StoredTask<W> for Same<'_, W> {
    #[inline(always)]
    fn run<S: Reads<W> + Reads<W::Wide>>(self, s: S) {
        columns::<W, W, S>(s, &self.0);
    }
}

impl<W: Stored> StoredTask<W> for Widened<'_, W> {
    #[inline(always)]
    fn run<S: Reads<W> + Reads<W::Wide>>(self, s: S) {
        columns::<W, W::Wide, S>(s, &self.0);
    }
}

#[inline(always)]
fn columns<W: Stored, C: Stored<Wide = W::Wide>, S: Reads<W> + Reads<C>>(s: S, task: &Columns<'_, W, C>) {
    let Job { panels, left, out, sizes, together } = task.job;
    loop {
        let panel = task.together.fetch_add(panels::BESIDE, Ordering::Relaxed);
        if panel >= *together {
            break;
        }
        let first = panel * sizes.width;
        let (out, columns) = (out.from(0, first), (panels::BESIDE * sizes.width).min(sizes.n - first));
        let at = panels.wrapping_add(first * sizes.k);
        // SAFETY: as below, for all of these panels.
        unsafe { panels::multiply_row::<W, C, S>(s, at, left, &out, columns, task.sums) };
    }
    loop {
        let panel = task.next.fetch_add(1, Ordering::Relaxed);
        let first = panel * sizes.width;
        if first >= sizes.n {
            break;
        }
        let at = panels.wrapping_add(first * sizes.k);
        let (out, columns) = (out.from(0, first), sizes.width.min(sizes.n - first));
        for block in 0..left.blocks::<S>().blocks {
            // SAFETY: the panel and the packed rows exist, the results are this thread's, and so are the sums.
            unsafe { panels::multiply::<W, C, S>(s, at, left, block, &out, columns, task.sums) };
        }
    }
}

/// One group of rows, packed.
struct PackRows<C: Stored> {
    part: Part<C>,
    to: *mut C::Wide,
}

impl<C: Stored> StoredTask<C> for PackRows<C> {
    #[inline(always)]
    fn run<S: Reads<C> + Reads<C::Wide>>(self, s: S) {
        // SAFETY: the rows exist, and the scratch memory has room for them.
        unsafe { panels::pack::<C, C::Wide, S>(s, &self.part, self.to, self.part.size) };
    }
}

/// Packs a matrix into panels of the output's type; the output is panels × steps × columns.
pub(super) fn pack_panels(b: &TensorView<'_>, mut out: TensorViewMut<'_>, isa: Isa, pool: &ThreadPool) {
    let &[k, n] = b.shape() else { return };
    let (strides, width) = ((b.strides()[0], b.strides()[1]), out.shape()[2]);
    let (from, to) = (b.first(), out.first());
    macro_rules! pack {
        ($w:ident, $p:ident, $task:ident) => {{
            let job = PanelJob::<$w, $p> { from: from.cast(), to: to.cast(), strides, k, n, width };
            let count = n.div_ceil(width);
            let shares = Split::into(count, pool.threads());
            pool.run(pool.threads(), shares.blocks, &|share| {
                let (first, panels) = shares.piece(share);
                for panel in first..first + panels {
                    $w::run(isa, $task(job.panel(panel)));
                }
            });
        }};
    }
    match (b.dtype(), out.dtype()) {
        (DType::F32, DType::F32) => pack!(f32, f32, KeepAsIs),
        (DType::F64, DType::F64) => pack!(f64, f64, KeepAsIs),
        (DType::F16, DType::F16) => pack!(f16, f16, KeepAsIs),
        (DType::BF16, DType::BF16) => pack!(bf16, bf16, KeepAsIs),
        (DType::F32, DType::F16) => round_panels::<f16>(from.cast(), to.cast(), strides, [k, n, width]),
        (DType::F32, DType::BF16) => round_panels::<bf16>(from.cast(), to.cast(), strides, [k, n, width]),
        _ => {}
    }
}

/// A matrix and its panels.
struct PanelJob<W, P> {
    from: *const W,
    to: *mut P,
    strides: (isize, isize),
    k: usize,
    n: usize,
    width: usize,
}
// SAFETY: the matrix is only read, and every panel is written by one thread.
unsafe impl<W: Sync, P: Send> Sync for PanelJob<W, P> {}

impl<W, P> PanelJob<W, P> {
    fn panel(&self, panel: usize) -> (Part<W>, *mut P, usize) {
        let first = panel * self.width;
        let part = Part {
            at: self.from.wrapping_offset(first as isize * self.strides.1),
            across: self.strides.1,
            along: self.strides.0,
            size: self.width.min(self.n - first),
            k: self.k,
        };
        (part, self.to.wrapping_add(first * self.k), self.width)
    }
}

struct KeepAsIs<W>((Part<W>, *mut W, usize));

impl<W: Stored> StoredTask<W> for KeepAsIs<W> {
    #[inline(always)]
    fn run<S: Reads<W> + Reads<W::Wide>>(self, s: S) {
        let (part, to, width) = self.0;
        // SAFETY: the columns exist, and the panel has room for them.
        unsafe { panels::pack::<W, W, S>(s, &part, to, width) };
    }
}

/// Rounds `f32` while packing: once per matrix, so plain loops will do.
fn round_panels<P: Stored<Wide = f32>>(
    from: *const f32,
    to: *mut P,
    strides: (isize, isize),
    [k, n, width]: [usize; 3],
) {
    let job = PanelJob { from, to, strides, k, n, width };
    for panel in 0..n.div_ceil(width) {
        let (part, to, width) = job.panel(panel);
        for p in 0..k {
            for i in 0..width {
                let at = part.at.wrapping_offset(p as isize * part.along + i as isize * part.across);
                // SAFETY: the column exists where it is read, and the panel has room for every element.
                unsafe { to.add(p * width + i).write(if i < part.size { P::narrow(*at) } else { P::NIL }) };
            }
        }
    }
}

/// The plain product with panels, in double precision.
pub(super) struct PackedReference;

impl Kernel for PackedReference {
    fn name(&self) -> &'static str {
        "cpu::packed_matmul::reference"
    }

    fn operation(&self) -> OperationKind {
        OperationKind::PackedMatmul
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_prepacked.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Naive
    }

    fn cost(&self, workload: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let sizes = Sizes::of(workload);
        let steps = (sizes.m * sizes.n * sizes.k) as f64;
        let size = workload.outputs()[0].dtype.size() as f64;
        let traffic = Traffic::pass(2.0 * steps * size, workload.bytes() as f64, &device.caches);
        Cost::new(2.0 * steps, ComputeUnit { dtype: DType::F64, isa: None }, traffic)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let sizes = Sizes::of(call.workload);
        for i in 0..sizes.m {
            for j in 0..sizes.n {
                let panel = (j / sizes.width) * sizes.k * sizes.width + j % sizes.width;
                let mut sum = 0.0;
                for p in 0..sizes.k {
                    sum += number(&call.inputs[0], &[i, p])
                        * number_at(&call.inputs[1], (panel + p * sizes.width) as isize);
                }
                if let Some(bias) = call.inputs.get(2) {
                    sum += number(bias, &[j]);
                }
                write_number(&call.outputs[0], &[i, j], apply(sizes.activation, sum));
            }
        }
        Ok(())
    }
}

fn place(operand: &Operand<'_>, index: &[usize]) -> isize {
    operand.strides().iter().zip(index).map(|(stride, &i)| stride * i as isize).sum()
}

fn number(operand: &Operand<'_>, index: &[usize]) -> f64 {
    number_at(operand, place(operand, index))
}

fn number_at(operand: &Operand<'_>, at: isize) -> f64 {
    // SAFETY: callers stay inside the operand's shape.
    unsafe {
        match operand.desc().dtype {
            DType::F64 => *operand.ptr::<f64>().offset(at),
            DType::F16 => (*operand.ptr::<f16>().offset(at)).to_f64(),
            DType::BF16 => (*operand.ptr::<bf16>().offset(at)).to_f64(),
            _ => f64::from(*operand.ptr::<f32>().offset(at)),
        }
    }
}

fn write_number(operand: &Operand<'_>, index: &[usize], x: f64) {
    let at = place(operand, index);
    // SAFETY: the caller names an element of the output.
    unsafe {
        match operand.desc().dtype {
            DType::F64 => operand.ptr_mut::<f64>().offset(at).write(x),
            DType::F16 => operand.ptr_mut::<f16>().offset(at).write(f16::from_f64(x)),
            DType::BF16 => operand.ptr_mut::<bf16>().offset(at).write(bf16::from_f64(x)),
            _ => operand.ptr_mut::<f32>().offset(at).write(x as f32),
        }
    }
}
