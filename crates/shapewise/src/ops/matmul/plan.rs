//! How a product is cut into blocks for the caches of a device.

use super::cpu_micro::{tile_shape, wide_shape};
use super::cpu_problem::Gemm;
use super::{cpu_packed, cpu_panel};
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::ops::{Knob, ParameterSpace, Parameters};

/// How a kernel goes about a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Algorithm {
    /// Both operands where they lie.
    Small,
    /// The right operand packed panel by panel.
    Panel,
    /// Both operands packed in blocks.
    Packed,
    /// The same for each thread's share of the steps.
    SplitK,
}

/// Cache sizes that blocks are cut for. Where the machine does not tell, the smallest that CPUs with vectors have:
/// blocks that are too small cost a little, those that do not fit cost a lot.
pub(in crate::ops) struct Sizes {
    pub l1: usize,
    pub l2: usize,
    pub l3: usize,
}

impl Sizes {
    pub fn of(device: &DeviceInfo) -> Self {
        let caches = &device.caches;
        let l1 = caches.l1d.unwrap_or(16 << 10);
        let l2 = caches.l2.unwrap_or(128 << 10);
        Self { l1, l2, l3: caches.l3.unwrap_or(l2) }
    }

    /// Steps of a right panel. Beside left panels, which are asked for ahead, it may take three quarters of the
    /// first-level cache; beside rows where they lie, half.
    fn depth(&self, panel_bytes: usize, algorithm: Algorithm) -> usize {
        let quarters = match algorithm {
            Algorithm::Packed | Algorithm::SplitK => 3,
            Algorithm::Small | Algorithm::Panel => 2,
        };
        (self.l1 / 4 * quarters / panel_bytes).max(16)
    }
}

/// Tiles below one another in a block of packed rows at most: shallow products write more than they read, and the
/// next panel's lines of the result lie beside those of this one.
const MOST_TILES: usize = 32;

/// The same for wide tiles, which write along the rows of the result, and more than a few steps (2048³ on one Cascade Lake core with
/// 57 of them: 0.965 of the time with 32).
const MOST_WIDE_TILES: usize = 64;

/// Tiles below one another that a block of rows has at least where that is not needed for the caches: each reads all right panels.
const LEAST_TILES: usize = 8;

/// Steps up to which a result beyond the second-level cache is written along its rows: then writing it takes as long as computing
/// it. Measured on Zen 3: twice as fast at 16 steps, 1.04 to 1.19 times at 64, no faster at 128.
const SHALLOW: usize = 64;

/// Panels of wide tiles that are packed at once at most, and their share of the second-level cache besides: longer rows are fetched
/// ahead, more panels come from further away (on one Emerald Rapids core 0.90 to 0.97 of the time of three at 64×64×65536 and
/// 4096×64×4096; 32 of them 1.03).
const WIDE_CHUNK: usize = 8;

/// Sizes of blocks that a tuner asks for; `None` is what the caches suggest.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ops) struct Blocks {
    pub rows: Option<usize>,
    pub columns: Option<usize>,
    pub depth: Option<usize>,
}

impl Blocks {
    pub fn of(parameters: &Parameters) -> Self {
        let size = |knob| parameters.get(knob).map(|size| size as usize);
        Self { rows: size(Knob::BlockM), columns: size(Knob::BlockN), depth: size(Knob::BlockK) }
    }
}

/// Parts and multiples of a block that a tuner tries.
const SHARES: [(usize, usize); 6] = [(1, 4), (1, 2), (3, 4), (1, 1), (3, 2), (2, 1)];
/// The same for blocks of which the exact size matters less.
const FEW_SHARES: [(usize, usize); 5] = [(1, 4), (1, 2), (1, 1), (2, 1), (4, 1)];

/// Sizes around a block's own, in whole units, none longer than the side that it cuts.
fn around(own: usize, whole: usize, unit: usize, shares: &[(usize, usize)]) -> Vec<u32> {
    let own = own.min(whole);
    let sizes = shares.iter().map(|(times, parts)| (own * times / parts).next_multiple_of(unit).max(unit));
    let mut sizes: Vec<u32> = sizes.map(|size| size.min(whole.next_multiple_of(unit)) as u32).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Every combination of blocks around those of a plan: of `m` rows, `n` columns and `k` steps in tiles of `tile`.
pub(in crate::ops) fn blocks_around(
    (mc, nc, kc): (usize, usize, usize),
    (m, n, k): (usize, usize, usize),
    tile: (usize, usize),
) -> ParameterSpace {
    ParameterSpace::single()
        .axis(Knob::BlockM, &around(mc, m, tile.0, &FEW_SHARES))
        .axis(Knob::BlockN, &around(nc, n, tile.1, &FEW_SHARES))
        .axis(Knob::BlockK, &around(kc, k, 16, &SHARES))
}

/// How the kernel will cut a product, derived from the caches.
pub(in crate::ops) struct Plan {
    pub mc: usize,
    pub kc: usize,
    pub nc: usize,
    /// Panels of the right operand packed at once.
    pub chunk: usize,
    pub threads: usize,
    pub stream: bool,
    /// Whether tiles are as wide as a few rows that stay near allow.
    pub wide: bool,
    /// Whether panels are computed with along the rows of the result.
    pub by_rows: bool,
}

impl Plan {
    #[allow(clippy::too_many_arguments)]
    pub fn new<T>(
        g: &Gemm<T>,
        algorithm: Algorithm,
        isa: Isa,
        size: usize,
        threads: usize,
        stream: bool,
        sizes: &Sizes,
        blocks: Blocks,
    ) -> Self {
        let (rows, vectors) = wide_shape(isa.register_bytes());
        let wide = (rows, vectors) != tile_shape(isa.register_bytes());
        let panel_bytes = vectors * isa.register_bytes();
        let own = if wide { sizes.l1 / 2 / (rows * size) } else { sizes.depth(panel_bytes, algorithm) };
        let kc = blocks.depth.unwrap_or(own).max(16);
        let (k, threads) =
            if algorithm == Algorithm::SplitK { (g.k.div_ceil(threads), 1) } else { (g.k, threads) };
        let depth = k.div_ceil(k.div_ceil(kc));
        let mc = match algorithm {
            Algorithm::Small => g.m,
            // Rows need not stay near: each tile's are read once for all panels of a chunk.
            Algorithm::Panel if wide => blocks.rows.unwrap_or(g.m).max(2 * rows),
            Algorithm::Panel => blocks.rows.unwrap_or(sizes.l2 / 2 / (depth * size)).max(2 * rows),
            Algorithm::Packed | Algorithm::SplitK => {
                // A part of the cache: every block of rows reads all right panels from the next one.
                let own = if wide && depth > SHALLOW {
                    (sizes.l2 / 3 * 2 / (depth * size)).min(MOST_WIDE_TILES * rows)
                } else {
                    (sizes.l2 / 2 / (depth * size)).min(MOST_TILES * rows)
                };
                let most = blocks.rows.unwrap_or(own).max(rows);
                // Several for each thread, so that one on a slower core takes fewer of them.
                let several = if threads > 1 { (4 * threads).min(g.m / (LEAST_TILES * rows)) } else { 1 };
                let count = g.m.div_ceil(most).max(several).next_multiple_of(threads);
                g.m.div_ceil(count).max(rows)
            }
        };
        let width = panel_bytes / size;
        let nc = blocks.columns.unwrap_or(sizes.l3 / 4 / (depth * size)).max(width);
        // An eighth of the second-level cache, twice: the left operand and the result need the rest. Rows of wide tiles need less.
        let own = sizes.l2 / if wide { 4 } else { 8 } / (depth * panel_bytes);
        let most = if wide { WIDE_CHUNK } else { 64 };
        let given = blocks.columns.filter(|_| algorithm == Algorithm::Panel);
        let chunk = given.map_or(own.min(most), |columns| columns / width).clamp(1, 64);
        let stream = stream && k <= kc && algorithm != Algorithm::SplitK;
        let far = g.m.saturating_mul(g.n).saturating_mul(size) > sizes.l2;
        let by_rows = wide || far && k <= SHALLOW.min(kc) && g.epilogue.is_nothing();
        Self { mc, kc, nc, chunk, threads, stream, wide, by_rows }
    }

    pub(super) fn panel(&self) -> cpu_panel::Blocking {
        cpu_panel::Blocking {
            mc: self.mc,
            kc: self.kc,
            chunk: self.chunk,
            threads: self.threads,
            stream: self.stream,
            by_rows: self.by_rows,
        }
    }

    pub fn packed(&self) -> cpu_packed::Blocking {
        cpu_packed::Blocking {
            mc: self.mc,
            kc: self.kc,
            nc: self.nc,
            threads: self.threads,
            stream: self.stream,
            chunk: self.chunk,
        }
    }
}
