//! Transpositions block by block: square tiles are turned in registers, so that whole lines are read and written.
#![allow(unsafe_code)]

use super::cpu_plan::{Plan, Shared};
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::hash::source_hash;
use crate::ops::walk::{Axis, AxisList, offset};
use crate::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, Knob, OperationKind, ParameterSpace,
    Parameters, Variant, Workload,
};
use crate::tensor::DType;

/// Blocks of tiles on one instruction set.
pub(super) struct Tiles {
    name: &'static str,
    isa: Isa,
    constraints: &'static [Constraint],
}

const TURNED: Constraint =
    Constraint::Shape("an output run along one axis and an input run along another", |w| {
        Plan::of(w).turned().is_some()
    });

pub(super) static AVX2_TILES: Tiles = Tiles {
    name: "cpu::copy::avx2_tiles",
    isa: Isa::Avx2,
    constraints: &[Constraint::Isa(Isa::Avx2), TURNED],
};
pub(super) static PORTABLE_TILES: Tiles =
    Tiles { name: "cpu::copy::portable_tiles", isa: Isa::Portable, constraints: &[TURNED] };

impl Kernel for Tiles {
    fn name(&self) -> &str {
        self.name
    }

    fn operation(&self) -> OperationKind {
        OperationKind::Copy
    }

    fn source(&self) -> u64 {
        source_hash!("cpu_tiles.rs", "cpu_tile_avx2.rs", "cpu_plan.rs")
    }

    fn variant(&self) -> Variant {
        Variant::Tiled
    }

    fn constraints(&self) -> &[Constraint] {
        self.constraints
    }

    fn space(&self, workload: &Workload, device: &DeviceInfo) -> ParameterSpace {
        let space = ParameterSpace::threads(device.threads);
        let plan = Plan::of(workload);
        let Some(turned) = plan.turned() else { return space };
        if self.isa == Isa::Portable {
            return space.axis(Knob::BlockM, &[32]).axis(Knob::BlockN, &[32]);
        }
        // Blocks wide along the input keep its prefetchers running; square ones touch fewer pages.
        let space = space.axis(Knob::BlockM, &[32]).axis(Knob::BlockN, &[512, 128]);
        let aligned = workload.outputs()[0].aligned
            && plan.axes.iter().rev().skip(1).all(|a| a.output % 32 == 0)
            && plan.axes[turned].size >= 16;
        if aligned && plan.size >= 4 { space.streamed(workload, device) } else { space }
    }

    fn cost(&self, workload: &Workload, parameters: &Parameters, device: &DeviceInfo) -> Cost {
        let plan = Plan::of(workload);
        let (rows, columns) = blocks(&plan, parameters);
        let stream = parameters.get(Knob::Stream) == Some(1);
        let lanes = if self.isa == Isa::Avx2 { 32.0 / plan.size as f64 } else { 1.0 };
        // Loads, stores and as many rounds of shuffles as the lanes have bits.
        let turned = plan.elements() as f64 / lanes * (2.0 + lanes.log2());
        let grid = plan.turned().map(|turned| Grid::new(&plan, turned, rows, columns));
        let plain = grid.as_ref().filter(|_| self.isa == Isa::Avx2).map_or(0.0, |grid| grid.plain(plan.size));
        let moves = turned + plain * plan.elements() as f64 * PLAIN;
        let unit = ComputeUnit { dtype: DType::F32, isa: Some(self.isa) };
        let cost = Cost::new(moves, unit, plan.traffic(1.0, stream, device));
        cost.split(parameters.threads(), grid.map_or(1, |grid| grid.tasks()))
    }

    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let plan = Plan::of(call.workload);
        let Some(turned) = plan.turned().filter(|_| self.isa.is_available()) else {
            return Err(KernelError("nothing to turn with these instructions".into()));
        };
        let (rows, columns) = blocks(&plan, call.parameters);
        let grid = Grid::new(&plan, turned, rows, columns);
        let stream = call.parameters.get(Knob::Stream) == Some(1);
        let all = Shared::of(call);
        call.cpu().threads().run(call.parameters.threads(), grid.tasks(), &|task| {
            let block = grid.block(task, all, plan.size, stream);
            // SAFETY: the block is a part of the operands, written by this task alone.
            unsafe { turn(self.isa, block) };
        });
        Ok(())
    }
}

/// Operations that could have run while an element is moved by itself: on one Zen 5 core it takes 1 to 2 cycles, in tiles of floats a quarter of one.
const PLAIN: f64 = 6.0;

fn blocks(plan: &Plan, parameters: &Parameters) -> (usize, usize) {
    let get = |knob| parameters.get(knob).map_or(32, |n| n as usize);
    // A block is so many elements of 4 bytes; larger elements make it smaller.
    let scale = |n: usize| if plan.size > 4 { (n * 4 / plan.size).max(8) } else { n };
    (scale(get(Knob::BlockM)), scale(get(Knob::BlockN)))
}

/// The blocks of a transposition.
struct Grid {
    outer: AxisList,
    /// Along the output's memory: rows of the input.
    rows: Axis,
    /// Along the input's memory: rows of the output.
    columns: Axis,
    block: (usize, usize),
}

impl Grid {
    fn new(plan: &Plan, turned: usize, rows: usize, columns: usize) -> Self {
        let mut outer = plan.axes.clone();
        let along = outer.pop().unwrap_or(Axis { size: 1, input: 0, output: 0 });
        let across = outer.remove(turned);
        Self { outer, rows: along, columns: across, block: (rows, columns) }
    }

    fn across(&self) -> (usize, usize) {
        (self.rows.size.div_ceil(self.block.0), self.columns.size.div_ceil(self.block.1))
    }

    fn tasks(&self) -> usize {
        let (down, across) = self.across();
        self.outer.iter().map(|a| a.size).product::<usize>() * down * across
    }

    /// The share of elements in blocks that are narrower than a tile, whose elements of so many bytes move one by one.
    fn plain(&self, size: usize) -> f64 {
        let edge = tile_edge(size);
        let narrow = |n: usize, block: usize| {
            let rest = n % block;
            let alone = if block < edge {
                n
            } else if rest < edge {
                rest
            } else {
                0
            };
            alone as f64 / n.max(1) as f64
        };
        let whole =
            (1.0 - narrow(self.rows.size, self.block.0)) * (1.0 - narrow(self.columns.size, self.block.1));
        1.0 - whole
    }

    fn block(&self, task: usize, all: Shared, size: usize, stream: bool) -> Turn {
        let (down, across) = self.across();
        let (plane, inside) = (task / (down * across), task % (down * across));
        let (i, j) = (inside / across * self.block.0, inside % across * self.block.1);
        let step = |n: usize, stride: isize| n as isize * stride;
        let from = offset(&self.outer, plane, |a| a.input);
        let to = offset(&self.outer, plane, |a| a.output);
        let from = from + step(i, self.rows.input) + step(j, self.columns.input);
        let to = to + step(i, self.rows.output) + step(j, self.columns.output);
        Turn {
            place: all.at(from, to),
            from_step: self.rows.input,
            to_step: self.columns.output,
            rows: self.block.0.min(self.rows.size - i),
            columns: self.block.1.min(self.columns.size - j),
            size,
            stream,
        }
    }
}

/// A block of `rows × columns` elements to be turned: rows lie along the input's memory, columns along the output's.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    pub place: Shared,
    /// Bytes from one row of the input to the next.
    pub from_step: isize,
    /// Bytes from one row of the output, a column of the input, to the next.
    pub to_step: isize,
    pub rows: usize,
    pub columns: usize,
    /// Bytes of an element.
    pub size: usize,
    /// Past the caches: every row of the output is aligned to a register.
    pub stream: bool,
}

impl Turn {
    /// The part that begins at a row and a column.
    #[inline]
    pub fn part(&self, row: usize, column: usize, rows: usize, columns: usize) -> Self {
        let step = |n: usize, stride: isize| n as isize * stride;
        let from = step(row, self.from_step) + (column * self.size) as isize;
        let to = step(column, self.to_step) + (row * self.size) as isize;
        Self { place: self.place.at(from, to), rows, columns, ..*self }
    }
}

/// Rows and columns of a tile of elements of so many bytes.
pub(super) const fn tile_edge(size: usize) -> usize {
    match size {
        1 | 4 => 16,
        2 | 8 => 8,
        _ => 4,
    }
}

/// Turns a block.
///
/// # Safety
/// Every element of the block is valid for reading and writing, the two do not overlap, and the instructions are there.
pub(crate) unsafe fn turn(isa: Isa, block: Turn) {
    #[cfg(target_arch = "x86_64")]
    if isa == Isa::Avx2 {
        // SAFETY: the caller's promise.
        return unsafe { super::cpu_tile_avx2::turn(block) };
    }
    let _ = isa;
    // SAFETY: the caller's promise.
    unsafe { turn_plain(block) }
}

/// Turns a block element by element.
///
/// # Safety
/// As [`turn`].
pub(super) unsafe fn turn_plain(block: Turn) {
    // SAFETY: the caller's promise.
    unsafe {
        match block.size {
            1 => each::<u8>(block),
            2 => each::<u16>(block),
            4 => each::<u32>(block),
            8 => each::<u64>(block),
            _ => each::<u128>(block),
        }
    }
}

/// # Safety
/// As [`turn`].
unsafe fn each<T: Copy>(block: Turn) {
    for column in 0..block.columns {
        let part = block.part(0, column, block.rows, 1).place;
        for row in 0..block.rows {
            // SAFETY: the element lies inside the block.
            unsafe {
                let x: T = part.from.offset(row as isize * block.from_step).cast::<T>().read_unaligned();
                part.to.cast::<T>().add(row).write_unaligned(x);
            }
        }
    }
}
