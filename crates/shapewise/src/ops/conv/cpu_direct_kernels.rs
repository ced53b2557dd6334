//! The direct convolution on each instruction set.
#![allow(unsafe_code)]

use super::KeptForm;
use super::cost;
use super::cpu_direct::{Cut, Task};
use super::cpu_ground::{Memory, Pieces, line, thread_space};
use super::geometry::{Geometry, attributes};
use crate::backends::cpu::real::Real as Element;
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::matmul::cpu_problem::{Real as Computed, Shared};
use crate::ops::{
    Call, Constraint, Cost, Kernel, KernelError, OperationKind, ParameterSpace, Parameters, Variant, Workload,
};
use crate::tensor::DType;

/// Vectors of output channels on one instruction set.
pub(super) struct Direct {
    name: &'static str,
    isa: Isa,
    constraints: &'static [Constraint],
}

macro_rules! kernels {
    ($($direct:ident $isa:ident $name:literal;)*) => {$(
        pub(super) static $direct: Direct = Direct {
            name: concat!("cpu::conv::", $name, "_direct"),
            isa: Isa::$isa,
            constraints: &[Constraint::Isa(Isa::$isa), AS_COMPUTED, PLAIN],
        };
    )*};
}
kernels! {
    AVX512 Avx512 "avx512";
    AVX2 Avx2 "avx2";
    NEON Neon "neon";
    PORTABLE Portable "portable";
}

/// Inputs are read one at a time, and 16-bit ones would be widened again and again.
const AS_COMPUTED: Constraint = Constraint::DTypes(&[DType::F32, DType::F64]);
const PLAIN: Constraint =
    Constraint::Shape("a convolution that is not transposed, of less than 2³² outputs", |w| {
        !attributes(w).transposed && u32::try_from(Geometry::of(w).pixels()).is_ok()
    });

impl Kernel for Direct {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Conv
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_direct_kernels.rs", "cpu_direct.rs", "geometry.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Vectorised
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        thread_space(workload, device)
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        cost::direct(workload, parameters, device, self.isa)
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        match call.workload.outputs()[0].dtype {
            DType::F32 => self.convolve::<f32>(call),
            DType::F64 => self.convolve::<f64>(call),
            other => Err(KernelError(format!("{other} is not computed by this kernel").into())),
        }
    }
}

/// How a launch is cut, and elements of the parts of the scratch memory.
pub(super) struct Plan {
    pub cut: Cut,
    order: usize,
    offsets: usize,
    weights: usize,
    bias: usize,
    /// Of each task.
    own: usize,
    /// Parts of the tiles and of the blocks that tasks take.
    pub parts: [usize; 2],
}

impl Plan {
    pub fn new<W>(g: &Geometry, isa: Isa, bias: bool, threads: usize) -> Self {
        let cut = Cut::new::<W>(g, isa);
        let elements = |bytes: usize| line(bytes.div_ceil(size_of::<W>()));
        let tiles: usize = cut.tiles(g).iter().sum();
        // A few tasks for each thread; channels are only cut where there are too few outputs.
        let wanted = (4 * threads).div_ceil((g.n * g.groups).max(1));
        let first = tiles.min(wanted).max(1);
        let parts =
            if threads == 1 { [1, 1] } else { [first, wanted.div_ceil(first).min(cut.blocks).max(1)] };
        Self {
            order: elements(g.pixels() * size_of::<u32>()),
            offsets: elements(cut.k * size_of::<isize>()),
            weights: line(g.groups * cut.weights()),
            bias: if bias { line(g.groups * g.o) } else { 0 },
            own: line(cut.width * cut.k),
            cut,
            parts,
        }
    }

    pub fn tasks(&self, g: &Geometry) -> usize {
        g.n * g.groups * self.parts[0] * self.parts[1]
    }

    /// Elements of scratch memory.
    pub fn scratch(&self, g: &Geometry) -> usize {
        self.order + self.offsets + self.weights + self.bias + self.tasks(g) * self.own
    }
}

impl Direct {
    fn convolve<W: Computed + Element>(&self, call: &Call<'_>) -> Result<(), KernelError> {
        let (g, device, memory) = (Geometry::of(call.workload), call.cpu(), Memory::<W>::of(call));
        if g.is_empty() {
            return Ok(());
        }
        let threads = call.parameters.threads().min(device.threads().threads());
        let plan = Plan::new::<W>(&g, self.isa, !memory.bias.is_null(), threads);
        let cut = &plan.cut;
        let mut scratch = device.scratch(plan.scratch(&g) * size_of::<W>())?;
        let mut pieces = Pieces::<W>::new(scratch.as_mut_ptr());
        let (order, offsets) = (pieces.take(plan.order), pieces.take(plan.offsets));
        // SAFETY: there is room for a number per output and an offset per step, and pieces start a line.
        let (order, offsets) = unsafe {
            (
                std::slice::from_raw_parts_mut(order.at(0).cast::<u32>(), g.pixels()),
                std::slice::from_raw_parts_mut(offsets.at(0).cast::<isize>(), cut.k),
            )
        };
        cut.order(&g, order);
        Cut::offsets(&g, offsets);
        let (order, offsets) = (&*order, &*offsets);
        let packed = pieces.take(plan.weights);
        let kept = memory.kept(call, KeptForm::Blocks, self.isa).map(|kept| Shared(kept.at(0).cast::<W>()));
        let weights = kept.unwrap_or(packed);
        let biases = pieces.take(plan.bias);
        let own = pieces.take(plan.tasks(&g) * plan.own);
        if !memory.bias.is_null() {
            for channel in 0..g.groups * g.o {
                // SAFETY: the bias has an element for every channel, and so has the scratch memory.
                unsafe { biases.at(channel).write(*memory.bias.offset(channel as isize * g.bias)) };
            }
        }
        let first = Shared(memory.w.cast_mut());
        let to_pack = if kept.is_some() { 0 } else { g.groups * cut.blocks };
        device.threads().run(threads, to_pack, &|i| {
            let (group, block) = (i / cut.blocks, i % cut.blocks);
            let w = first.at(0).wrapping_offset(group as isize * g.w[0]).cast_const();
            // SAFETY: the call's weights are valid, and there is room for all blocks.
            unsafe { cut.pack(&g, block, w, weights.at(i * cut.block * cut.k)) };
        });
        let (activation, memory) = (attributes(call.workload).activation, &memory);
        let (tiles, [across, down]) = (cut.tiles(&g).iter().sum::<usize>(), plan.parts);
        device.threads().run(threads, plan.tasks(&g), &|i| {
            let (image, part) = (i / (across * down), i % (across * down));
            let (n, group) = ((image / g.groups) as isize, image % g.groups);
            let (tile, block) = (part / down, part % down);
            let channels = (group * g.o) as isize;
            let task = Task {
                g: &g,
                cut,
                order,
                offsets,
                x: memory.x.wrapping_offset(n * g.x[0] + (group * g.c) as isize * g.x[1]),
                weights: weights.at(group * cut.weights()).cast_const(),
                bias: if memory.bias.is_null() { memory.bias } else { biases.at(group * g.o).cast_const() },
                y: memory.y.wrapping_offset(n * g.y[0] + channels * g.y[1]),
                activation,
                tiles: tiles * tile / across..tiles * (tile + 1) / across,
                blocks: cut.blocks * block / down..cut.blocks * (block + 1) / down,
                own: own.at(i * plan.own),
            };
            <W as Computed>::run(self.isa, task);
        });
        Ok(())
    }
}
