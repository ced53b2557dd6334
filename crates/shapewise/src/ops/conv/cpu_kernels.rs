//! The implicit product on each instruction set.
#![allow(unsafe_code)]

use half::{bf16, f16};

use super::KeptForm;
use super::cost;
use super::cpu_gemm::{self, Chunk, Cut};
use super::cpu_ground::{Ground, Memory, Pieces, Share, line, thread_space};
use super::cpu_image::Frame;
use super::geometry::{Geometry, attributes};
use crate::backends::cpu::CpuDevice;
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::Isa;
use crate::device::{Device, DeviceInfo};
use crate::hash::source_hash;
use crate::ops::matmul::cpu_micro::wide_shape;
use crate::ops::matmul::cpu_problem::{Real as Computed, Shared};
use crate::ops::matmul::plan::{Blocks, blocks_around};
use crate::ops::{
    Activation, Call, Constraint, Cost, Kernel, KernelError, Knob, OperationKind, ParameterSpace, Parameters,
    Variant, Workload,
};
use crate::tensor::DType;

/// Every type, layout and attribute, on one instruction set.
pub(super) struct ImplicitGemm {
    name: &'static str,
    isa: Isa,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($gemm:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $gemm: ImplicitGemm = ImplicitGemm {
            name: concat!("cpu::conv::", $name, "_implicit_gemm"),
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), Constraint::DTypes(DType::FLOATS)],
        };
    )*};
}
kernels! {
    AVX512_GEMM Avx512 "avx512";
    AVX2_GEMM Avx2 "avx2";
    NEON_GEMM Neon "neon";
    PORTABLE_GEMM Portable "portable";
}

impl Kernel for ImplicitGemm {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn source(&self) -> u64 {
        source_hash!(
            "cpu_kernels.rs",
            "cpu_gemm.rs",
            "cpu_ground.rs",
            "cpu_image.rs",
            "geometry.rs",
            "../matmul/cpu_micro.rs",
            "../matmul/cpu_tile.rs",
            "../matmul/cpu_pack.rs"
        )
    }

    fn variant(&self) -> Variant {
        Variant::Tiled
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        thread_space(workload, device)
    }

    fn tuning_space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let (usual, g) = (self.space(workload, device), Geometry::of(workload));
        // A transposed convolution is several smaller ones, each with a cut of its own.
        if g.is_empty() || attributes(workload).transposed {
            return usual;
        }
        let none = Blocks::default();
        let cut = match workload.outputs()[0].dtype {
            DType::F64 => Cut::new::<f64>(&g, self.isa, 1, device, none),
            _ => Cut::new::<f32>(&g, self.isa, 1, device, none),
        };
        let own = (cut.rows.longest(), cut.chunks.longest() * cut.width, cut.depths.longest());
        let tile = (wide_shape(self.isa.register_bytes()).0, cut.width);
        let mut blocks = blocks_around(own, (g.o, g.pixels(), cut.k), tile);
        if attributes(workload).kept.is_some() {
            // Kept weights were packed with the cut's own blocks of rows and steps.
            blocks = blocks.constrained(|p| {
                p.get(Knob::BlockM) == Some(own.0.next_multiple_of(tile.0) as u32)
                    && p.get(Knob::BlockK) == Some(own.2.next_multiple_of(16) as u32)
            });
        }
        let mut wide = ParameterSpace::default();
        for point in usual.points() {
            wide = wide.and(blocks.clone().with(point));
        }
        usual.and(wide)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        cost::implicit_gemm(workload, parameters, device, self.isa)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => self.convolve::<f32>(call),
            DType::F64 => self.convolve::<f64>(call),
            DType::F16 => self.convolve::<f16>(call),
            DType::BF16 => self.convolve::<bf16>(call),
            other => Err(KernelError(format!("{other} has no convolution").into())),
        }
    }
}

impl ImplicitGemm {
    fn convolve<T: Real>(&self, call: &Call<'_>) -> Result<(), KernelError>
    where
        T::Wide: Computed,
    {
        let (g, memory) = (Geometry::of(call.workload), Memory::<T>::of(call));
        let attributes = attributes(call.workload);
        let (threads, blocks) = (call.parameters.threads(), blocks_of(call.workload, call.parameters));
        if !attributes.transposed {
            let kept = memory.kept(call, KeptForm::Panels, self.isa);
            return run(&g, self.isa, memory, kept, attributes.activation, (threads, blocks), call.cpu());
        }
        for part in g.parts() {
            let memory = Memory {
                w: memory.w.wrapping_offset(part.weights),
                y: memory.y.wrapping_offset(part.outputs),
                ..memory
            };
            run(&part.g, self.isa, memory, None, attributes.activation, (threads, blocks), call.cpu())?;
        }
        Ok(())
    }
}

/// The blocks that a tuner asked for; kept weights were packed with the cut's own rows and steps.
pub(super) fn blocks_of(workload: &Workload, parameters: &Parameters) -> Blocks {
    let asked = Blocks::of(parameters);
    if attributes(workload).kept.is_some() {
        Blocks { columns: asked.columns, ..Blocks::default() }
    } else {
        asked
    }
}

/// How the product is cut, and elements of the parts of the scratch memory.
pub(super) struct Plan {
    pub cut: Cut,
    pub share: Share,
    offsets: usize,
    weights: usize,
    gathered: usize,
    panels: usize,
}

impl Plan {
    pub fn new<T: Real>(
        g: &Geometry,
        isa: Isa,
        bias: bool,
        (threads, blocks): (usize, Blocks),
        device: &DeviceInfo,
    ) -> Self {
        let share = Share::new::<T>(g, Frame::new(g), bias, threads);
        let cut = Cut::new::<T::Wide>(g, isa, share.inner, device, blocks);
        Self {
            offsets: line((cut.k * size_of::<usize>()).div_ceil(size_of::<T::Wide>())),
            weights: line(cut.weights(g)),
            gathered: line(wide_shape(isa.register_bytes()).0 * cut.k),
            panels: line(cut.panels()),
            cut,
            share,
        }
    }

    /// Elements of scratch memory.
    pub fn scratch(&self) -> usize {
        let each = self.gathered + self.panels;
        self.offsets + self.weights + self.share.scratch() + self.share.threads() * each
    }
}

fn run<T: Real>(
    g: &Geometry,
    isa: Isa,
    memory: Memory<T>,
    kept: Option<Shared<T::Wide>>,
    activation: Activation,
    (threads, blocks): (usize, Blocks),
    device: &CpuDevice,
) -> Result<(), KernelError>
where
    T::Wide: Computed,
{
    if g.is_empty() {
        return Ok(());
    }
    let threads = threads.min(device.threads().threads());
    let plan = Plan::new::<T>(g, isa, !memory.bias.is_null(), (threads, blocks), device.info());
    let (cut, frame) = (&plan.cut, &plan.share.frame);
    let mut scratch = device.scratch(plan.scratch() * size_of::<T::Wide>())?;
    let mut pieces = Pieces::<T::Wide>::new(scratch.as_mut_ptr());
    let offsets = pieces.take(plan.offsets);
    // SAFETY: there is room for an offset per step, and memory of the pool starts a line.
    let offsets = unsafe { std::slice::from_raw_parts_mut(offsets.at(0).cast::<usize>(), cut.k) };
    cpu_gemm::offsets(g, frame, offsets);
    let offsets = &*offsets;
    let packed = pieces.take(plan.weights);
    let weights = kept.unwrap_or(packed);
    let gathered = pieces.take(plan.share.threads() * plan.gathered);
    let panels = pieces.take(plan.share.threads() * plan.panels);
    let ground = Ground::new(g, (isa, device), memory, plan.share, &mut pieces);
    let row_blocks = if kept.is_some() { 0 } else { cut.rows.blocks };
    ground.share(plan.share.threads(), g.groups * row_blocks, |worker, i| {
        let row = gathered.at(worker * plan.gathered);
        let (which, w) = ((i / row_blocks, i % row_blocks), ground.weights(0));
        // SAFETY: the call's weights are valid, and the scratch memory is as large as planned.
        unsafe { cpu_gemm::pack_weights(g, cut, isa, which, w, row, weights.at(0)) };
    });
    let chunks = cut.chunks.blocks;
    ground.images(|image| {
        ground.share(plan.share.inner, g.groups * chunks, |worker, i| {
            let (group, index) = (i / chunks, i % chunks);
            let task = Chunk {
                isa,
                g,
                cut,
                frame,
                offsets,
                image: image.frame.at(group * g.c * frame.channel()).cast_const(),
                weights: weights.at(group * g.o * cut.k).cast_const(),
                bias: ground.bias(group * g.o),
                to: image.to.at(0).wrapping_offset((group * g.o) as isize * image.apart),
                apart: image.apart,
                activation,
                index,
                panels: panels.at((image.slot + worker) * plan.panels),
            };
            T::Wide::run(isa, task);
        });
    });
    Ok(())
}
