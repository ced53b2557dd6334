//! Winograd's forms on each instruction set.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;

use half::{bf16, f16};

use super::KeptForm;
use super::cost;
use super::cpu_ground::{Ground, Image, Memory, Pieces, Share, line, thread_space};
use super::cpu_winograd::{Inputs, Outputs, Plain, Products, read_plain, transform_weights};
use super::cpu_winograd_forms::{Form, Four, Two};
use super::cpu_winograd_tiles::Tiles;
use super::geometry::{Geometry, attributes};
use crate::backends::cpu::real::Real;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::matmul::cpu_problem::{Real as _, Shared};
use crate::ops::{
    Activation, Call, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters,
    Variant, Workload,
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
            "../matmul/cpu_micro.rs",
            "../matmul/cpu_tile.rs"
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
    /// Whether weights are transformed by the thread that multiplies with them, because they are used once.
    pub fused: bool,
    inputs: usize,
    /// Of each thread: weights on their way, and then products; before them, weights that are used once.
    own: usize,
    once: usize,
    /// Groups of output channels that are transformed and used at once.
    together: usize,
}

impl Plan {
    pub fn new<T: Real>(
        g: &Geometry,
        isa: Isa,
        outputs: usize,
        (bias, kept): (bool, bool),
        threads: usize,
    ) -> Self {
        let tiles = Tiles::new::<T::Wide>(g, isa, outputs);
        let share = Share::new::<T>(g, tiles.frame(g), bias, threads);
        let few = share.outer == 1 && tiles.panels() * g.groups < 4 * share.inner;
        let fused = few && g.n == 1 && !kept;
        let together = tiles.used_at_once(share.inner);
        let once =
            if fused { line(tiles.points * tiles.plane_of(together * tiles.groups.longest())) } else { 0 };
        Self {
            weights: if fused { 0 } else { line(g.groups * tiles.weights()) },
            few,
            fused,
            inputs: line(tiles.panel()),
            own: once + line(tiles.results().max(2 * tiles.turned())),
            once,
            together,
            tiles,
            share,
        }
    }

    /// Parts of the output channels, each of groups that are transformed together.
    pub fn parts(&self) -> usize {
        self.tiles.groups.blocks.div_ceil(self.together)
    }

    /// The groups of a part: the first, and how many.
    fn part(&self, part: usize) -> (usize, usize) {
        let first = part * self.together;
        (first, self.together.min(self.tiles.groups.blocks - first))
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
        let form = if F::OUTPUTS == 2 { KeptForm::WinogradTwo } else { KeptForm::WinogradFour };
        let kept = memory.kept(call, form, isa);
        let what = (!memory.bias.is_null(), kept.is_some());
        let plan = Plan::new::<T>(g, isa, F::OUTPUTS, what, threads);
        let mut scratch = device.scratch(plan.scratch(g) * size_of::<f32>())?;
        let mut pieces = Pieces::<f32>::new(scratch.as_mut_ptr());
        let transformed = pieces.take(plan.weights);
        let inputs = pieces.take(plan.kept(g) * plan.inputs);
        let own = pieces.take(plan.share.threads() * plan.own);
        let job = Job::<T, F> {
            isa,
            g,
            plan: &plan,
            ground: Ground::new(g, (isa, device), memory, plan.share, &mut pieces),
            activation: attributes(call.workload).activation,
            weights: kept.unwrap_or(transformed),
            inputs,
            own,
            form: PhantomData,
        };
        if kept.is_none() && !plan.fused {
            job.all_weights();
        }
        if plan.few {
            job.ground.empty_images(|image| job.few_panels(image));
        } else {
            job.ground.images(|image| job.panels(image));
        }
        Ok(())
    }
}

/// What the threads of a launch share.
struct Job<'a, T: Real, F> {
    isa: Isa,
    g: &'a Geometry,
    plan: &'a Plan,
    ground: Ground<'a, T>,
    activation: Activation,
    /// Transformed, all of them; none where they are used once.
    weights: Shared<f32>,
    inputs: Shared<f32>,
    own: Shared<f32>,
    form: PhantomData<F>,
}

/// Some groups of output channels and their transformed weights: the first one, and the distance of points.
#[derive(Clone, Copy)]
struct Groups {
    /// The convolution's group.
    of: usize,
    /// The first, and how many.
    which: (usize, usize),
    weights: (*const f32, usize),
}

impl<T: Real<Wide = f32>, F: Form> Job<'_, T, F> {
    /// Scratch of a thread for weights on their way, and for products.
    fn own(&self, worker: usize) -> *mut f32 {
        self.own.at(worker * self.plan.own + self.plan.once)
    }

    fn transform_group(&self, worker: usize, of: usize, group: usize, to: (*mut f32, usize)) {
        let (w, own) = (self.ground.weights(of), self.own(worker));
        // SAFETY: the call's weights are valid, and the scratch memory is as large as planned.
        unsafe { transform_weights::<T, F>(self.g, &self.plan.tiles, self.isa, group, w, own, to) };
    }

    fn all_weights(&self) {
        let tiles = &self.plan.tiles;
        let groups = tiles.groups.blocks;
        self.ground.share(self.plan.share.threads(), self.g.groups * groups, |worker, i| {
            let (of, group) = (i / groups, i % groups);
            let (at, plane) = tiles.weights_of(group);
            self.transform_group(worker, of, group, (self.weights.at(of * tiles.weights() + at), plane));
        });
    }

    /// A block of output channels whose weights were transformed before.
    fn block(&self, of: usize, block: usize) -> Groups {
        let tiles = &self.plan.tiles;
        let first = self.weights.at(of * tiles.weights() + tiles.weights_before(block));
        let weights = (first.cast_const(), tiles.weight_plane(block));
        Groups { of, which: tiles.blocks.piece(block), weights }
    }

    /// A part of the output channels, whose weights are transformed now.
    fn part(&self, worker: usize, of: usize, part: usize) -> Groups {
        let (tiles, groups) = (&self.plan.tiles, self.plan.part(part));
        let to = self.own.at(worker * self.plan.own);
        let (start, rows) = tiles.rows_of(groups);
        let plane = tiles.plane_of(rows);
        for group in groups.0..groups.0 + groups.1 {
            let before = (tiles.groups.piece(group).0 - start) * tiles.channels;
            self.transform_group(worker, of, group, (to.wrapping_add(before), plane));
        }
        Groups { of, which: groups, weights: (to.cast_const(), plane) }
    }

    fn transform(&self, image: &Image<T>, of: usize, panel: usize, channels: Range<usize>, to: *mut f32) {
        let (tiles, frame) = (&self.plan.tiles, &self.plan.share.frame);
        let image = image.frame.at(of * self.g.c * frame.channel()).cast_const();
        f32::run(self.isa, Inputs { tiles, frame, image, panel, channels, to, form: self.form });
    }

    fn multiply(&self, image: &Image<T>, worker: usize, panel: usize, what: Groups, inputs: *const f32) {
        let (g, tiles, frame) = (self.g, &self.plan.tiles, &self.plan.share.frame);
        let Groups { of, which: groups, weights } = what;
        let results = self.own(worker);
        f32::run(self.isa, Products { tiles, weights, inputs, results, panel, groups });
        let task = Outputs {
            isa: self.isa,
            g,
            tiles,
            frame,
            image: image.frame.at(of * g.c * frame.channel()).cast_const(),
            plain: Plain { at: self.ground.weights(of).cast::<u8>(), read: read_plain::<T> },
            results: results.cast_const(),
            bias: self.ground.bias(of * g.o),
            to: image.to.at(0).wrapping_offset((of * g.o) as isize * image.apart),
            apart: image.apart,
            activation: self.activation,
            panel,
            groups,
            form: self.form,
        };
        f32::run(self.isa, task);
    }

    /// An image of many panels: a thread transforms one and multiplies it with all weights.
    fn panels(&self, image: &Image<T>) {
        let (panels, blocks) = (self.plan.tiles.panels(), self.plan.tiles.blocks.blocks);
        self.ground.share(self.plan.share.inner, self.g.groups * panels, |worker, i| {
            let worker = image.slot + worker;
            let to = self.inputs.at(worker * self.plan.inputs);
            let (of, panel) = (i / panels, i % panels);
            self.transform(image, of, panel, 0..self.g.c, to);
            for block in 0..blocks {
                self.multiply(image, worker, panel, self.block(of, block), to);
            }
        });
    }

    /// An image of few panels: threads share its channels first, and then the output channels.
    fn few_panels(&self, image: &Image<T>) {
        let (g, plan) = (self.g, self.plan);
        let (panels, inner) = (plan.tiles.panels(), plan.share.inner);
        let pieces = (4 * inner).min(g.c).max(1);
        self.ground.share(inner, g.groups * pieces, |_, i| {
            let (of, piece) = (i / pieces, i % pieces);
            let channels = g.c * piece / pieces..g.c * (piece + 1) / pieces;
            channels.clone().for_each(|c| self.ground.fill_channel(image, of * g.c + c));
            for panel in 0..panels {
                let to = self.inputs.at((of * panels + panel) * plan.inputs);
                self.transform(image, of, panel, channels.clone(), to);
            }
        });
        let panel_at =
            |of: usize, panel: usize| self.inputs.at((of * panels + panel) * plan.inputs).cast_const();
        if plan.fused {
            let parts = plan.parts();
            self.ground.share(inner, g.groups * parts, |worker, i| {
                let what = self.part(worker, i / parts, i % parts);
                for panel in 0..panels {
                    self.multiply(image, worker, panel, what, panel_at(what.of, panel));
                }
            });
            return;
        }
        let blocks = plan.tiles.blocks.blocks;
        self.ground.share(inner, g.groups * panels * blocks, |worker, i| {
            let (which, what) = (i / blocks, self.block(i / blocks / panels, i % blocks));
            self.multiply(image, worker, which % panels, what, panel_at(what.of, which % panels));
        });
    }
}
