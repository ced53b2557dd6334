//! Winograd's forms on each instruction set.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use half::{bf16, f16};

use super::KeptForm;
use super::cost;
use super::cpu_ground::{Ground, Memory, Pieces, Share, line, thread_space};
use super::cpu_winograd::{Inputs, Outputs, Plain, Products, read_plain, transform_weights};
use super::cpu_winograd_forms::{Form, Four, Two};
use super::cpu_winograd_tiles::Tiles;
use super::geometry::{Geometry, attributes};
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::matmul::cpu_problem::Real as _;
use crate::ops::{
    Call, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters, Variant, Workload,
};
use crate::tensor::DType;

/// One form on one instruction set.
pub(super) struct Winograd {
    name: &'static str,
    isa: Isa,
    /// Outputs of a tile along an axis: 2 or 4.
    outputs: usize,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($two:ident $four:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $two: Winograd = Winograd {
            name: concat!("cpu::conv::", $name, "_winograd_f2"),
            isa: Isa::$isa,
            outputs: 2,
            constraints: &[Constraint::Isa(Isa::$isa), SINGLE, THREE],
        };
        pub(super) static $four: Winograd = Winograd {
            name: concat!("cpu::conv::", $name, "_winograd_f4"),
            isa: Isa::$isa,
            outputs: 4,
            constraints: &[Constraint::Isa(Isa::$isa), SINGLE, THREE],
        };
    )*};
}
kernels! {
    AVX512_F2 AVX512_F4 Avx512 "avx512";
    AVX2_F2 AVX2_F4 Avx2 "avx2";
    NEON_F2 NEON_F4 Neon "neon";
    PORTABLE_F2 PORTABLE_F4 Portable "portable";
}

/// Whoever asks for f64 wants its precision, which the transforms would spend.
const SINGLE: Constraint = Constraint::DTypes(&[DType::F32, DType::F16, DType::BF16]);
const THREE: Constraint = Constraint::Shape("a kernel of 3×3 at stride and dilation 1 on a plane", |w| {
    let (g, attributes) = (Geometry::of(w), attributes(w));
    let plane = g.input[0] == 1 && g.output[0] == 1 && g.before[0] == 0;
    plane && g.kernel == [1, 3, 3] && g.stride == [1; 3] && g.dilation == [1; 3] && !attributes.transposed
});

impl Kernel for Winograd {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn source(&self) -> u64 {
        source_hash!(
            "cpu_winograd_kernels.rs",
            "cpu_winograd.rs",
            "cpu_winograd_forms.rs",
            "cpu_winograd_tiles.rs",
            "cpu_interleave.rs",
            "cpu_ground.rs",
            "cpu_image.rs",
            "geometry.rs",
            "../matmul/cpu_micro.rs"
        )
    }

    fn variant(&self) -> Variant {
        Variant::Optimised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        thread_space(workload, device)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        cost::winograd(workload, parameters, device, self.isa, self.outputs)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => self.convolve::<f32>(call),
            DType::F16 => self.convolve::<f16>(call),
            DType::BF16 => self.convolve::<bf16>(call),
            other => Err(KernelError(format!("{other} is not computed by this kernel").into())),
        }
    }
}

/// How a launch is cut, and elements of the parts of the scratch memory.
pub(super) struct Plan {
    pub tiles: Tiles,
    pub share: Share,
    weights: usize,
    /// Whether the threads share the panels of an image, because there are few.
    pub few: bool,
    inputs: usize,
    /// Of each thread: weights on their way, and then products.
    own: usize,
}

impl Plan {
    pub fn new<T: Real>(g: &Geometry, isa: Isa, outputs: usize, bias: bool, threads: usize) -> Self {
        let tiles = Tiles::new::<T::Wide>(g, isa, outputs);
        let share = Share::new::<T>(g, tiles.frame(g), bias, threads);
        let few = share.inner > 1 && tiles.panels() * g.groups < 4 * share.inner;
        Self {
            weights: line(g.groups * tiles.weights()),
            few,
            inputs: line(tiles.panel()),
            own: line(tiles.results().max(2 * tiles.turned())),
            tiles,
            share,
        }
    }

    /// Transformed panels that are kept at once.
    fn kept(&self, g: &Geometry) -> usize {
        if self.few { g.groups * self.tiles.panels() } else { self.share.threads() }
    }

    /// Elements of scratch memory.
    pub fn scratch(&self, g: &Geometry) -> usize {
        let panels = self.kept(g) * self.inputs + self.share.threads() * self.own;
        self.weights + self.share.scratch() + panels
    }
}

impl Winograd {
    fn convolve<T: Real<Wide = f32>>(&self, call: &Call<'_>) -> Result<(), KernelError> {
        let g = Geometry::of(call.workload);
        if g.is_empty() {
            return Ok(());
        }
        if self.outputs == 2 { self.run::<T, Two>(call, &g) } else { self.run::<T, Four>(call, &g) }
    }

    fn run<T: Real<Wide = f32>, F: Form>(&self, call: &Call<'_>, g: &Geometry) -> Result<(), KernelError> {
        let (isa, device, memory) = (self.isa, call.cpu(), Memory::<T>::of(call));
        let threads = call.parameters.threads().min(device.threads().threads());
        let plan = Plan::new::<T>(g, isa, F::OUTPUTS, !memory.bias.is_null(), threads);
        let (tiles, form) = (&plan.tiles, PhantomData::<F>);
        let mut scratch = device.scratch(plan.scratch(g) * size_of::<f32>())?;
        let mut pieces = Pieces::<f32>::new(scratch.as_mut_ptr());
        let form_kept = if F::OUTPUTS == 2 { KeptForm::WinogradTwo } else { KeptForm::WinogradFour };
        let kept = memory.kept(call, form_kept, isa);
        let transformed = pieces.take(plan.weights);
        let weights = kept.unwrap_or(transformed);
        let inputs = pieces.take(plan.kept(g) * plan.inputs);
        let own = pieces.take(plan.share.threads() * plan.own);
        let activation = attributes(call.workload).activation;
        let ground = Ground::new(g, (isa, device), memory, plan.share, &mut pieces);
        let frame = &plan.share.frame;
        let groups = tiles.groups.blocks;
        let plain = |group: usize| Plain { at: ground.weights(group).cast::<u8>(), read: read_plain::<T> };
        let to_do = if kept.is_some() { 0 } else { g.groups * groups };
        ground.share(plan.share.threads(), to_do, |worker, i| {
            let (of, group) = (i / groups, i % groups);
            let (own, to) = (own.at(worker * plan.own), weights.at(of * tiles.weights()));
            // SAFETY: the call's weights are valid, and the scratch memory is as large as planned.
            unsafe { transform_weights::<T, F>(g, tiles, isa, group, ground.weights(of), own, to) };
        });
        let (panels, blocks, inner) = (tiles.panels(), tiles.blocks.blocks, plan.share.inner);
        ground.images(|image| {
            let transform = |group: usize, panel: usize, channels, to: *mut f32| {
                let image = image.frame.at(group * g.c * frame.channel()).cast_const();
                f32::run(isa, Inputs { tiles, frame, image, panel, channels, to, form });
            };
            let multiply = |worker: usize, group: usize, panel: usize, block: usize, inputs: *const f32| {
                let results = own.at(worker * plan.own);
                let weights = weights.at(group * tiles.weights()).cast_const();
                f32::run(isa, Products { tiles, weights, inputs, results, panel, block });
                let task = Outputs {
                    isa,
                    g,
                    tiles,
                    frame,
                    image: image.frame.at(group * g.c * frame.channel()).cast_const(),
                    plain: plain(group),
                    results: results.cast_const(),
                    bias: ground.bias(group * g.o),
                    to: image.to.at(0).wrapping_offset((group * g.o) as isize * image.apart),
                    apart: image.apart,
                    activation,
                    panel,
                    block,
                    form,
                };
                f32::run(isa, task);
            };
            if !plan.few {
                ground.share(inner, g.groups * panels, |worker, i| {
                    let worker = image.slot + worker;
                    let to = inputs.at(worker * plan.inputs);
                    let (group, panel) = (i / panels, i % panels);
                    transform(group, panel, 0..g.c, to);
                    (0..blocks).for_each(|block| multiply(worker, group, panel, block, to));
                });
                return;
            }
            let pieces = (4 * inner).min(g.c).max(1);
            ground.share(inner, g.groups * panels * pieces, |_, i| {
                let (which, piece) = (i / pieces, i % pieces);
                let channels = g.c * piece / pieces..g.c * (piece + 1) / pieces;
                transform(which / panels, which % panels, channels, inputs.at(which * plan.inputs));
            });
            ground.share(inner, g.groups * panels * blocks, |worker, i| {
                let (which, block) = (i / blocks, i % blocks);
                let from = inputs.at(which * plan.inputs).cast_const();
                multiply(worker, which / panels, which % panels, block, from);
            });
        });
        Ok(())
    }
}
