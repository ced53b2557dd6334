//! What the compute-bound kernels execute, counted from how they cut a product.

use super::cpu_batch::Products;
use super::cpu_micro::{tile_shape, wide_shape};
use super::cpu_problem::{Gemm, Split};
use super::plan::{Algorithm, Blocks, Plan, Sizes};
use super::{cpu_panel, cpu_small};
use crate::backends::cpu::simd::Isa;
use crate::device::{DeviceInfo, Level};
use crate::ops::{ComputeUnit, Cost, Knob, Parameters, Traffic, Workload};

/// Sums that must be in flight to keep the multipliers busy: two units with a latency of four cycles, as on all
/// recent CPUs with wide vectors. Tiles with fewer wait for their own results.
pub(super) const IN_FLIGHT: f64 = 8.0;

/// Vector instructions that could have run while a vector is packed: a copy mostly waits for its lines, transposing
/// shuffles as well. Measured on Zen 3 with matrices of 256² to 2048²: 5 to 8, and 8 to 11.
const COPY: f64 = 6.0;
const TRANSPOSE: f64 = 9.0;

/// The same for a vector that tiles copy on their way: a load and a store for which they have slots left, asked for ahead. A pick, not
/// measured by itself: together with asking for the result in turns, 64×64×65536 took 0.81 of the time on one Emerald Rapids core.
const ON_THE_WAY: f64 = 1.0;
/// What of a copy is hidden behind the sums of each row, down to [`ON_THE_WAY`]. A pick as well: with 64 rows that is all of it, with eight
/// next to nothing (8×4096×4096 took as long as with copies between tiles).
const HIDDEN: f64 = 0.125;

/// The same for each row of a tile, if rows of the left operand are read where they lie and in pieces: no piece goes
/// on where the last one ended, so none of them is fetched ahead. Derived from products of 192³ to 1024³ on Zen 3, where it
/// is 10 to 60.
const PIECE: f64 = 24.0;

/// Counts of one product.
struct Counts {
    /// Vector instructions of the arithmetic units: sums, what starts and ends them, packing.
    vectors: f64,
    traffic: Traffic,
    forks: u32,
    scratch: usize,
    /// Pieces that threads take one at a time.
    pieces: usize,
    /// Share of the instructions that all threads execute together before that.
    together: f64,
}

/// The cost of all products of a workload.
pub(super) fn compute(
    workload: &Workload,
    parameters: &Parameters,
    device: &DeviceInfo,
    isa: Isa,
    algorithm: Algorithm,
) -> Cost {
    let products = Products::describe(workload);
    let dtype = workload.outputs()[0].dtype;
    let size = dtype.size();
    let threads = parameters.threads();
    let together = threads > 1 && products.count >= threads;
    let inside = if together { 1 } else { threads };
    let g = products.first().with_contiguous_rows();
    let sizes = Sizes::of(device);
    let stream = parameters.get(Knob::Stream) == Some(1);
    let blocks = Blocks::of(parameters);
    let plan = Plan::new(&g, algorithm, isa, size, inside, stream, &sizes, blocks);
    let one = count(&g, algorithm, isa, size, &plan, &sizes);
    let many = products.count as f64;
    let lanes = (isa.register_bytes() / size) as f64;
    let operations = many * one.vectors * 2.0 * lanes;
    let traffic = Traffic {
        l1: one.traffic.l1 * many,
        l2: one.traffic.l2 * many,
        l3: one.traffic.l3 * many,
        memory: memory(
            workload,
            device,
            &sizes,
            &plan,
            threads,
            one_by_one(&g, algorithm, size, &plan, &sizes),
        ),
    };
    let unit = ComputeUnit { dtype, isa: Some(isa) };
    let cost = Cost { scratch: one.scratch * size, ..Cost::new(operations, unit, traffic) };
    if together {
        let shares = Split::into(products.count, threads);
        let imbalance = shares.longest() as f64 * threads as f64 / products.count as f64;
        return Cost { threads, imbalance, forks: 1, scratch: cost.scratch * threads, ..cost };
    }
    let forks = if threads > 1 { one.forks * products.count as u32 } else { 0 };
    Cost { forks, ..cost.split_after(one.together, threads, one.pieces) }
}

/// Bytes that come from memory and go there: every operand once, if together they exceed the last cache, and the result again: a
/// line is read before it is written. One that is streamed is not. With vectors of half a line tiles then wait until it is gone, which
/// takes no less (measured on one Zen 3 core: 1.15 to 1.2 times the time of 64×64×65536 and 4096×64×4096); whole lines are gone as
/// soon as this machine's are in a copy (of 4096×64×4096 on one core: Ice Lake 0.85 to 0.94 of the time, Cascade Lake, whose copy
/// is no faster with streaming, 1.2 to 1.3).
fn memory(
    workload: &Workload,
    device: &DeviceInfo,
    sizes: &Sizes,
    plan: &Plan,
    threads: usize,
    one_by_one: bool,
) -> f64 {
    let (bytes, result) = (workload.bytes() as f64, workload.outputs()[0].bytes() as f64);
    let again = match (plan.stream && plan.wide, one_by_one) {
        (true, _) => streamed(device, threads) * result,
        (false, false) => result,
        (false, true) => 2.0 * result,
    };
    if bytes <= sizes.l3 as f64 { 0.0 } else { bytes + again }
}

/// What streaming a line costs beside its bytes, as a share of them. A copy reads a line, reads the one that it will write and writes
/// that: three lines, of which streaming saves one where that pays, and the measured rates tell how much of it.
fn streamed(device: &DeviceInfo, threads: usize) -> f64 {
    let rates = device.peaks.as_ref().and_then(|peaks| {
        peaks.bandwidth(Level::Memory, threads).zip(peaks.streaming(Level::Memory, threads))
    });
    rates.map_or(0.0, |(copy, stream)| (3.0 * copy / stream - 2.0).max(0.0))
}

/// Whether lines of the result go to memory one by one: tiles are written below one another, in rows so far apart that they share
/// the sets of the second cache and the banks of the memory. On one Zen 3 core that costs 64×64×65536 as much as another pass over
/// its result.
fn one_by_one(g: &Gemm<()>, algorithm: Algorithm, size: usize, plan: &Plan, sizes: &Sizes) -> bool {
    let along_rows =
        algorithm == Algorithm::Small || plan.wide || (algorithm == Algorithm::Panel && plan.by_rows);
    let apart = g.c_rs.unsigned_abs() * size;
    // Caches of this level have eight ways or more.
    !along_rows && g.m > 8 && apart > 0 && apart.is_multiple_of(sizes.l2 / 8)
}

fn count(g: &Gemm<()>, algorithm: Algorithm, isa: Isa, size: usize, plan: &Plan, sizes: &Sizes) -> Counts {
    let lanes = isa.register_bytes() / size;
    let (narrow, (wide_rows, most_vectors)) =
        (tile_shape(isa.register_bytes()), wide_shape(isa.register_bytes()));
    let panels = g.n.div_ceil(most_vectors * lanes) as f64;
    let vectors = g.n.div_ceil(lanes) as f64;
    let few = algorithm == Algorithm::Small && g.n <= narrow.1 * lanes;
    let most_rows = if few { narrow.0 } else { wide_rows };
    let (m, n, k) = (g.m as f64, g.n as f64, g.k as f64);
    let bytes = size as f64;
    let small = cpu_small::depths(g, size);
    let passes =
        if algorithm == Algorithm::Small { small.blocks } else { g.k.div_ceil(plan.kc) }.max(1) as f64;
    let blocks = cpu_panel::pieces(g, most_vectors * lanes, plan.wide, &plan.panel());
    let row_blocks =
        if algorithm == Algorithm::Panel { blocks.0.blocks } else { g.m.div_ceil(plan.mc) } as f64;
    let tile_rows = m / g.m.div_ceil(most_rows) as f64;
    // Products, and for every pass each sum is cleared, written, and from the second pass on read.
    let chains = (tile_rows * (most_vectors as f64).min(vectors) / IN_FLIGHT).min(1.0);
    let mut executed = m * vectors * (k / chains + 3.0 * passes - 1.0);
    // Tiles read an element per row and a vector per vector of columns in each step.
    let l1 = k * (panels * m * bytes + m / tile_rows * vectors * (lanes * size) as f64)
        + passes * 2.0 * m * n * bytes;
    let (left, right, result) = (m * k * bytes, k * n * bytes, m * n * bytes);
    let beyond = |what: f64, level: usize| if what > level as f64 { 1.0 } else { 0.0 };
    let resident = left + right + result;
    let packing =
        |elements: f64, transposed: bool| elements / lanes as f64 * if transposed { TRANSPOSE } else { COPY };
    // Lines of a result that leaves the second cache are fetched before they are written, unless they are streamed.
    let fetched = if plan.wide && !plan.stream { beyond(resident, sizes.l2) * result } else { 0.0 };
    let in_place = if passes > 1.0 { m * panels * passes * PIECE } else { 0.0 };
    let (l2, l3, forks, scratch, pieces);
    let mut together = 0.0;
    match algorithm {
        Algorithm::Small => {
            executed += in_place + if g.b_cs == 1 { 0.0 } else { packing(k * n, true) };
            let (again, sums) = (m / tile_rows, result * (2.0 * passes - 1.0));
            let block = small.longest() as f64 * n * bytes;
            l2 = beyond(block, sizes.l1 / 2) * right * again + beyond(resident, sizes.l1) * (left + sums);
            let once = left + result + if passes > 1.0 { right } else { 0.0 };
            l3 = beyond(block, sizes.l2 / 2) * right * again + beyond(resident, sizes.l2) * once;
            (forks, scratch, pieces) = (1, 0, plan.threads);
        }
        Algorithm::Panel => {
            let chunks = (panels / plan.chunk as f64).ceil();
            // Along the rows of the result a piece is as long as the first-level cache allows, and fetched ahead; where steps lie
            // apart, none of them is.
            let waits = match (plan.wide, plan.by_rows) {
                (true, _) if g.a_cs != 1 => m / tile_rows * k * chunks * PIECE,
                (_, true) => 0.0,
                _ => in_place,
            };
            let all = packing(k * n * row_blocks, g.b_cs != 1);
            let before = cpu_panel::packed_before(chunks, plan.threads);
            let copies = plan.by_rows && g.b_cs == 1 && g.epilogue.is_nothing();
            let copy = (COPY - HIDDEN * m).max(ON_THE_WAY) / COPY;
            executed += waits + if copies { all * (before + (1.0 - before) * copy) } else { all };
            // A tile's rows stay near while the panels pass by, or a panel while the rows do.
            let again = if plan.by_rows { left * chunks + right * m / tile_rows } else { left * panels };
            let sums = result * (2.0 * passes - 1.0);
            l2 = right * row_blocks + again + sums;
            l3 = beyond(resident, sizes.l2) * (right * row_blocks + sums + left) + fetched;
            scratch = plan.threads * 2 * plan.chunk * plan.kc.min(g.k) * most_vectors * lanes;
            (forks, pieces) = (1, blocks.0.blocks * blocks.1.blocks);
        }
        Algorithm::Packed | Algorithm::SplitK => {
            let column_blocks = g.n.div_ceil(plan.nc) as f64;
            let right_packed = packing(k * n, g.b_cs != 1);
            executed += right_packed + packing(m * k * column_blocks, g.a_rs != 1);
            let sums = result * (2.0 * passes - 1.0);
            // Blocks that a tuner makes larger than their cache come from the next one again and again.
            let step = (plan.kc.min(g.k) * size) as f64;
            let panel_again = beyond(step * (most_vectors * lanes) as f64, sizes.l1) * right * m / tile_rows;
            let left_again = beyond(step * plan.mc as f64, sizes.l2) * left * panels;
            l2 = left * panels + 2.0 * right * row_blocks + sums + panel_again;
            l3 = 2.0 * right + right * row_blocks + left * column_blocks + sums + fetched + left_again;
            scratch = plan.kc.min(g.k) * (plan.nc.min(g.n) + plan.threads * plan.mc.min(g.m));
            (forks, pieces) = if algorithm == Algorithm::SplitK {
                (2, g.k)
            } else {
                together = right_packed / executed;
                ((2.0 * passes * column_blocks) as u32, row_blocks as usize)
            };
        }
    }
    Counts {
        vectors: executed,
        traffic: Traffic { l1, l2, l3, memory: 0.0 },
        forks,
        scratch,
        pieces,
        together,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::Activation;
    use crate::ops::matmul::cpu_problem::Epilogue;
    use std::ptr::{null, null_mut};

    const SIZES: Sizes = Sizes { l1: 32 << 10, l2: 512 << 10, l3: 32 << 20 };

    fn product(m: usize, k: usize, n: usize) -> Gemm<()> {
        let epilogue = Epilogue { bias: null(), bias_rs: 0, bias_cs: 0, activation: Activation::None };
        let (a, b, c) = (null(), null(), null_mut());
        let (a_rs, b_rs, c_rs, a_cs, b_cs, c_cs) = (k as isize, n as isize, n as isize, 1, 1, 1);
        Gemm { m, n, k, a, a_rs, a_cs, b, b_rs, b_cs, c, c_rs, c_cs, epilogue }
    }

    fn planned(g: &Gemm<()>, algorithm: Algorithm) -> Plan {
        Plan::new(g, algorithm, Isa::Avx2, 4, 1, false, &SIZES, Blocks::default())
    }

    fn instructions(algorithm: Algorithm, side: usize) -> f64 {
        let g = product(side, side, side);
        count(&g, algorithm, Isa::Avx2, 4, &planned(&g, algorithm), &SIZES).vectors
    }

    #[test]
    fn rows_that_share_sets_are_written_one_by_one_unless_along_them() {
        let alone = |m, k, n, algorithm| {
            let g = product(m, k, n);
            one_by_one(&g, algorithm, 4, &planned(&g, algorithm), &SIZES)
        };
        assert!(alone(64, 64, 65536, Algorithm::Packed) && !alone(64, 64, 65536, Algorithm::Panel));
        assert!(alone(64, 512, 65536, Algorithm::Panel), "deep products are computed panel by panel");
        assert!(!alone(64, 64, 65537, Algorithm::Packed) && !alone(4096, 64, 4096, Algorithm::Packed));
    }

    /// The order is the measured one on a machine with these caches.
    #[test]
    fn the_larger_a_cube_the_more_is_packed() {
        for (best, sides) in [
            (Algorithm::Small, &[64, 127, 128, 160][..]),
            (Algorithm::Panel, &[192, 224, 255, 256]),
            (Algorithm::Packed, &[320, 384, 512, 640, 1023, 1024, 2048]),
        ] {
            for &side in sides {
                for other in [Algorithm::Small, Algorithm::Panel, Algorithm::Packed] {
                    let (least, other_takes) = (instructions(best, side), instructions(other, side));
                    assert!(least <= other_takes, "{side}: {best:?} {least}, {other:?} {other_takes}");
                }
            }
        }
    }
}
