//! What the kernels execute, counted from how they cut a convolution.

use super::cpu_depthwise_rows::straight_rows;
use super::cpu_direct_kernels as direct;
use super::cpu_fourier::Grid;
use super::cpu_fourier_kernels as fourier;
use super::cpu_kernels::{Plan, blocks_of};
use super::cpu_winograd_kernels as winograd;
use super::geometry::{Geometry, attributes};
use super::{Kept, KeptForm};
use crate::backends::cpu::simd::Isa;
use crate::device::DeviceInfo;
use crate::ops::fft::FftKind;
use crate::ops::matmul::cpu_micro::{tile_shape, wide_shape};
use crate::ops::matmul::cpu_problem::panel_width;
use crate::ops::matmul::plan::Sizes;
use crate::ops::{ComputeUnit, Cost, Kernel, Knob, Parameters, Traffic, Workload};
use crate::tensor::DType;

/// The type that a workload is computed in.
pub(super) fn computed(workload: &Workload) -> DType {
    if workload.outputs()[0].dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// Bytes that come from memory and go there: every operand once if together they exceed the last cache, and written
/// lines twice, because they are read first.
pub(super) fn memory(workload: &Workload, device: &DeviceInfo) -> f64 {
    let bytes = (workload.bytes() + workload.outputs()[0].bytes()) as f64;
    Traffic::pass(bytes, bytes, &device.caches).memory
}

/// Instructions of a multiply-add over those of the loop that measured the peak: where an instruction overwrites one of its two
/// operands (the baseline of x86-64), a factor that is used again is copied first, three instead of two.
fn steps(isa: Isa) -> f64 {
    if cfg!(target_arch = "x86_64") && isa == Isa::Portable { 1.5 } else { 1.0 }
}

/// Multiply-adds in the time of a result that is written away from its neighbours: one core of an Ice Lake takes 4 to 8 ns for it.
const SPREAD: f64 = 24.0;

/// The implicit product; a transposed convolution is several of them.
pub(super) fn implicit_gemm(
    workload: &Workload,
    parameters: &Parameters,
    device: &DeviceInfo,
    isa: Isa,
) -> Cost {
    let g = Geometry::of(workload);
    let dtype = computed(workload);
    let unit = ComputeUnit { dtype, isa: Some(isa) };
    let mut total = Cost::new(0.0, unit, Traffic { memory: memory(workload, device), ..Traffic::default() });
    if g.is_empty() {
        return total;
    }
    let parts =
        if attributes(workload).transposed { g.parts().map(|part| part.g).collect() } else { vec![g] };
    for g in parts.iter().filter(|g| !g.is_empty()) {
        let one = if dtype == DType::F64 {
            product::<f64>(g, workload, parameters, device, isa)
        } else {
            product::<f32>(g, workload, parameters, device, isa)
        };
        total.operations += one.operations;
        total.traffic = total.traffic + one.traffic;
        total.forks += one.forks;
        total.scratch = total.scratch.max(one.scratch);
        (total.threads, total.imbalance) = (one.threads, one.imbalance);
    }
    total
}

fn product<W: crate::backends::cpu::real::Real>(
    g: &Geometry,
    workload: &Workload,
    parameters: &Parameters,
    device: &DeviceInfo,
    isa: Isa,
) -> Cost {
    let threads = parameters.threads();
    let blocks = blocks_of(workload, parameters);
    let plan = Plan::new::<W>(g, isa, attributes(workload).bias, (threads, blocks), device);
    let (cut, frame) = (&plan.cut, &plan.share.frame);
    let size = size_of::<W>() as f64;
    let (rows, vectors) = wide_shape(isa.register_bytes());
    let lanes = (cut.width / vectors) as f64;
    let images = (g.n * g.groups) as f64;
    let (o, k) = (g.o as f64, cut.k as f64);
    let wide = cut.width != panel_width::<W>(isa);
    // The last tile of wide ones has as many vectors as it needs.
    let unit_width = if wide { cut.width / vectors } else { cut.width };
    let columns = g.pixels().next_multiple_of(unit_width) as f64;
    let framed = (g.c * frame.channel()) as f64;
    let kept = attributes(workload).kept == Some(Kept { form: KeptForm::Panels, isa });
    let weights = if kept { 0.0 } else { (g.groups * g.o) as f64 * k };
    // Sums with what starts and ends them, frames and panels copied, weights turned.
    let sums = images * o * columns / lanes * (k * steps(isa) + 3.0 * cut.depths.blocks as f64);
    let copies = images * 2.0 * (framed + k * columns) / lanes + weights * 8.0 / lanes;
    let unit = ComputeUnit { dtype: computed(workload), isa: Some(isa) };
    let groups = (g.o as f64 / rows as f64).ceil();
    // Panels that pass wide tiles come from the second cache; panels and blocks of weights that a tuner makes larger than their cache
    // come from the next one again and again.
    let (sizes, depth) = (Sizes::of(device), cut.depths.longest() as f64 * size);
    let beyond = |what: f64, level: usize| if what > level as f64 { 1.0 } else { 0.0 };
    let chunk = if wide { cut.chunks.longest() * cut.width } else { cut.width };
    let panels_again = beyond(depth * chunk as f64, sizes.l1) * groups * k * columns;
    let weights_again =
        beyond(depth * cut.rows.longest() as f64, sizes.l2) * o * k * columns / cut.width as f64;
    let streamed = o * k * columns / cut.width as f64 + 2.0 * k * columns + 2.0 * framed;
    let traffic = Traffic {
        l1: images * size * k * columns * (groups + o / cut.width as f64 + 2.0),
        l2: images * size * (streamed + panels_again),
        l3: images * size * (2.0 * framed + o * columns * cut.depths.blocks as f64 + weights_again)
            + size * 2.0 * weights,
        memory: 0.0,
    };
    let pieces = (plan.share.outer * g.groups * cut.chunks.blocks).max(1);
    let cost = Cost::new((sums + copies) * 2.0 * lanes, unit, traffic);
    // Threads on one image copy its frame and turn weights together.
    let together = (images * 2.0 * framed + weights * 8.0) / lanes / (sums + copies);
    let together = if plan.share.outer == 1 { together } else { 0.0 };
    let cost = cost.split_after(together, threads, pieces);
    Cost { forks: plan.share.forks(g.n, 2), scratch: plan.scratch() * size_of::<W>(), ..cost }
}

/// A form of Winograd with tiles of so many outputs along an axis.
pub(super) fn winograd(
    workload: &Workload,
    parameters: &Parameters,
    device: &DeviceInfo,
    isa: Isa,
    outputs: usize,
) -> Cost {
    let g = Geometry::of(workload);
    let unit = ComputeUnit { dtype: DType::F32, isa: Some(isa) };
    if g.is_empty() {
        return Cost::new(0.0, unit, Traffic::default());
    }
    let threads = parameters.threads();
    let form = if outputs == 2 { KeptForm::WinogradTwo } else { KeptForm::WinogradFour };
    let kept = attributes(workload).kept == Some(Kept { form, isa });
    let plan = winograd::Plan::new::<f32>(&g, isa, outputs, (attributes(workload).bias, kept), threads);
    let (tiles, frame) = (&plan.tiles, &plan.share.frame);
    let (rows, vectors) = tile_shape(isa.register_bytes());
    let lanes = (tiles.width / vectors) as f64;
    let images = (g.n * g.groups) as f64;
    let (o, c, points) = (g.o as f64, g.c as f64, tiles.points as f64);
    let columns = (tiles.panels() * tiles.width) as f64;
    // Runs of tiles end with their row: vectors are as many as rows of tiles need.
    let along = (tiles.across as f64 / lanes).ceil() * tiles.down as f64 + tiles.panels() as f64;
    let sums = images * points * o * columns / lanes * (c * steps(isa) + 3.0);
    // A transform along an axis takes about two operations for each point that it makes, in both directions; a point is
    // read and written once.
    let transforms = images * (c + o) * along * points * 6.0;
    let weights = if kept { 0.0 } else { (g.groups * g.o) as f64 * c };
    let turned = weights * (18.0 + points * 5.0 / rows as f64);
    let framed = images * c * frame.channel() as f64;
    let operations = (sums + transforms + turned + 10.0 * framed / lanes) * 2.0 * lanes;
    let (v, m) = (images * points * c * columns, images * points * o * columns);
    let groups = (o / rows as f64).ceil();
    // Weights that are transformed for one use stay in the second cache, but then the panels come for every group.
    let far = if plan.fused { v * groups } else { v * o / tiles.width as f64 + 2.0 * points * weights };
    let traffic = Traffic {
        l1: 4.0 * (v * (groups + 2.0) + v * o / tiles.width as f64 + 3.0 * m),
        l2: 4.0 * (v * o / tiles.width as f64 + 2.0 * v + 2.0 * m + 2.0 * framed),
        l3: 4.0 * (far + 2.0 * framed),
        memory: memory(workload, device),
    };
    let pieces = match (plan.fused, plan.few) {
        (true, _) => plan.parts(),
        (_, true) => tiles.panels() * tiles.blocks.blocks,
        _ => tiles.panels(),
    };
    let cost =
        Cost::new(operations, unit, traffic).split(threads, (plan.share.outer * g.groups * pieces).max(1));
    let forks = if plan.fused { 2 * cost.forks } else { plan.share.forks(g.n, 2) };
    Cost { forks, scratch: plan.scratch(&g) * 4, ..cost }
}

/// Tiles of outputs by vectors of channels, inputs read where they lie.
pub(super) fn direct(workload: &Workload, parameters: &Parameters, device: &DeviceInfo, isa: Isa) -> Cost {
    let g = Geometry::of(workload);
    let dtype = computed(workload);
    let unit = ComputeUnit { dtype, isa: Some(isa) };
    if g.is_empty() {
        return Cost::new(0.0, unit, Traffic::default());
    }
    let (threads, bias) = (parameters.threads(), attributes(workload).bias);
    let plan = if dtype == DType::F64 {
        direct::Plan::new::<f64>(&g, isa, bias, threads)
    } else {
        direct::Plan::new::<f32>(&g, isa, bias, threads)
    };
    let cut = &plan.cut;
    let (size, images) = (dtype.size() as f64, (g.n * g.groups) as f64);
    let lanes = isa.register_bytes() as f64 / size;
    let [whole, others] = cut.tiles(&g).map(|tiles| tiles as f64);
    let (k, width, blocks) = (cut.k as f64, cut.width as f64, cut.blocks as f64);
    let read = images * (whole + others) * blocks * k;
    let sums = read * width * cut.block as f64 * steps(isa);
    // One element at a time: inputs of outputs at the border, packed weights, and results that are not neighbours.
    let copied = images * others * width * k;
    let spread = if g.y[1] == 1 { 0.0 } else { images * (g.o * g.pixels()) as f64 };
    let kept = attributes(workload).kept == Some(Kept { form: KeptForm::Blocks, isa });
    let packed = if kept { 0.0 } else { (g.groups * cut.weights()) as f64 };
    let weights = blocks * k * cut.block as f64 * size;
    let streamed = Traffic::pass(images * (whole + others) * weights, weights, &device.caches);
    let traffic = Traffic {
        l1: size * (read * (cut.block as f64 + width) + 2.0 * (copied + spread + packed)),
        l2: streamed.l2 + size * 2.0 * packed,
        l3: streamed.l3,
        memory: memory(workload, device),
    };
    let operations = 2.0 * sums + (copied + SPREAD * spread + packed) * 2.0 * lanes;
    let cost = Cost::new(operations, unit, traffic).split(threads, plan.tasks(&g));
    Cost { forks: 2 * cost.forks, scratch: plan.scratch(&g) * dtype.size(), ..cost }
}

/// Products of spectra between transforms by `transform`.
pub(super) fn fourier(
    workload: &Workload,
    parameters: &Parameters,
    device: &DeviceInfo,
    isa: Isa,
    transform: &dyn Kernel,
) -> Cost {
    let g = Geometry::of(workload);
    let dtype = computed(workload);
    let unit = ComputeUnit { dtype, isa: Some(isa) };
    if g.is_empty() {
        return Cost::new(0.0, unit, Traffic::default());
    }
    let threads = parameters.threads();
    let plan = fourier::Plan::new(&g, threads);
    let (grid, size) = (&plan.grid, dtype.size() as f64);
    let forward = grid.transform(FftKind::RealForward, dtype == DType::F64);
    let one = forward.map(|w| transform.cost(&w, &Parameters::new(), device));
    let (each, moved) = one.map_or((0.0, Traffic::default()), |one| (one.operations, one.traffic));
    let transforms = Grid::transforms(&g);
    let times = |traffic: Traffic, n: f64| Traffic {
        l1: n * traffic.l1,
        l2: n * traffic.l2,
        l3: n * traffic.l3,
        memory: n * traffic.memory,
    };
    let pairs = (g.n * g.groups) as f64 * (g.o * g.c) as f64 * grid.bins() as f64;
    // An image's spectrum, the weights' and the sum are read and the sum is written for every pair; all images of a
    // group come by for every channel of the result.
    let spectra = (g.n * g.c) as f64 * 2.0 * grid.bins() as f64 * size;
    let multiplied = Traffic::pass(8.0 * pairs * size, spectra, &device.caches);
    let filled = Traffic::pass(2.0 * transforms * grid.points() as f64 * size, 0.0, &device.caches);
    let whole = Traffic { memory: memory(workload, device), ..Traffic::default() };
    let traffic = times(moved, transforms) + multiplied + filled + whole;
    let operations = transforms * (each + 2.0 * grid.points() as f64) + 8.0 * pairs;
    let tasks = (g.groups * g.o).min(g.n * g.groups * g.c);
    let cost = Cost::new(operations, unit, traffic).split(threads, tasks.max(1));
    Cost { forks: 2 * cost.forks, scratch: plan.scratch(&g) * dtype.size(), ..cost }
}

/// Vector instructions that could have run while a row is begun that is read from its frame: on one Zen 5 core 20 to 35 ns, and twice as
/// many where inputs are apart.
const FRAMED: f64 = 200.0;

/// Single channels along planes or along channels.
pub(super) fn depthwise(
    workload: &Workload,
    parameters: &Parameters,
    device: &DeviceInfo,
    isa: Isa,
    planes: bool,
) -> Cost {
    let g = Geometry::of(workload);
    let dtype = computed(workload);
    let unit = ComputeUnit { dtype, isa: Some(isa) };
    if g.is_empty() {
        return Cost::new(0.0, unit, Traffic::default());
    }
    let lanes = (isa.register_bytes() / dtype.size()) as f64;
    let taps = g.taps() as f64;
    let channels = (g.n * g.groups * g.o) as f64;
    let size = dtype.size() as f64;
    // Rows are computed four vectors at a time, and copied to their frame; channels four pixels at a time.
    let vectors = if planes {
        let rows = (g.output[0] * g.output[1]) as f64;
        channels * rows * 4.0 * (g.output[2] as f64 / (4.0 * lanes)).ceil()
    } else {
        g.n as f64 * g.pixels() as f64 * (g.groups as f64 / lanes).ceil()
    };
    let input = workload.inputs()[0].bytes() as f64;
    // Rows that are computed straight from the input are not copied.
    let straight = straight_rows(&g, lanes as usize, &(0..g.output[1])).len() as f64 / g.output[1] as f64;
    let copied = if planes { input * (1.0 - straight) } else { 0.0 };
    let bytes = workload.bytes() as f64;
    let stream = parameters.get(Knob::Stream) == Some(1);
    let written = workload.outputs()[0].bytes() as f64;
    let past = Traffic::pass(bytes + if stream { 0.0 } else { written }, bytes + written, &device.caches);
    let reads = if planes { taps } else { 1.25 * taps };
    let traffic = Traffic { l1: vectors * lanes * size * (reads + 1.0) + 2.0 * copied, ..past };
    let threads = parameters.threads();
    let framed = if planes { channels * (g.output[0] * g.output[1]) as f64 * (1.0 - straight) } else { 0.0 };
    let apart = if g.stride[2] == 1 { 1.0 } else { 2.0 };
    let operations = (vectors * (taps + 2.0) + framed * apart * FRAMED) * 2.0 * lanes + 2.0 * copied / size;
    Cost::new(operations, unit, traffic).split(threads, 8 * threads)
}
