//! Shapes that nothing was designed on: drawn by a generator, the same on every machine.

use anyhow::Result;
use shapewise::ops::conv::ConvOptions;
use shapewise::ops::reduce::Over;
use shapewise::ops::{Knob, Workload};
use shapewise::selection::Candidate;
use shapewise::tuning::Workbench;
use shapewise::{DType, Runtime, Tensor};

use super::super::suite::Draw;

/// Points that a space must have to take part.
pub const LEAST_POINTS: usize = 100;
/// Points that are expected to take more than this many times the least are left out, as they are from races.
const CHANCE: f64 = 2.0;
/// Shapes drawn at most for each that is found: shapes whose spaces are smaller do not count.
const PATIENCE: usize = 50;

/// An operation and its held-out shapes.
pub struct HeldOut {
    /// The operation's name.
    pub operation: &'static str,
    /// Its workloads, each with at least a hundred points.
    pub workloads: Vec<Workload>,
}

/// Draws `count` shapes of each operation, f32, between about 20 microseconds and a few milliseconds a call.
pub fn held_out(runtime: &Runtime, count: usize) -> Result<Vec<HeldOut>> {
    type Ask = fn(&Runtime, &mut Draw) -> Result<Workload>;
    let asks: [(&'static str, Ask); 3] = [("matmul", matmul), ("conv2d", conv), ("reduce", reduce)];
    let mut out = Vec::new();
    for (operation, ask) in asks {
        let mut draw = Draw(0x7E57);
        let mut workloads: Vec<Workload> = Vec::new();
        for _ in 0..PATIENCE * count {
            if workloads.len() == count {
                break;
            }
            let workload = ask(runtime, &mut draw)?;
            let points = tunable(runtime, &workload)?.len();
            if points >= LEAST_POINTS && !workloads.contains(&workload) {
                workloads.push(workload);
            }
        }
        out.push(HeldOut { operation, workloads });
    }
    Ok(out)
}

/// Every point of the kernels that have more to tune than threads, those left out that the peaks allow no chance; what would
/// run of them without tuning comes first. Kernels without tunables are the selector's business, not the search's.
pub fn tunable(runtime: &Runtime, workload: &Workload) -> Result<Vec<Candidate>> {
    let mut all = runtime.candidates(workload)?;
    let mut kernels: Vec<String> = Vec::new();
    for candidate in &all {
        if candidate.parameters.iter().any(|(knob, _)| knob != Knob::Threads) {
            kernels.push(candidate.kernel.name().to_owned());
        }
    }
    all.retain(|c| kernels.iter().any(|name| name == c.kernel.name()));
    let least = all.iter().filter_map(expected).fold(f64::INFINITY, f64::min);
    all.retain(|c| expected(c).is_some_and(|seconds| seconds <= CHANCE * least));
    let usual = runtime.selector().candidates(workload)?;
    let is_usual = |c: &Candidate| usual.iter().any(|u| u.is(c.kernel.name(), &c.parameters.to_string()));
    let first = (0..all.len()).filter(|&p| is_usual(&all[p])).min_by(|&a, &b| {
        expected(&all[a]).unwrap_or(f64::NAN).total_cmp(&expected(&all[b]).unwrap_or(f64::NAN))
    });
    if let Some(first) = first {
        all.swap(0, first);
    }
    Ok(all)
}

/// What is expected of a candidate before it is measured.
pub fn expected(candidate: &Candidate) -> Option<f64> {
    candidate.predicted.map(|p| p.seconds).or(candidate.roofline())
}

fn only(workloads: Vec<Workload>) -> Result<Workload> {
    workloads.into_iter().next().ok_or_else(|| anyhow::anyhow!("a call without a workload"))
}

fn matmul(runtime: &Runtime, draw: &mut Draw) -> Result<Workload> {
    let [m, k, n] = [(48, 600), (150, 900), (150, 900)].map(|(low, high)| draw.size(low, high));
    let cut = |size: usize| if m * k * n > 40_000_000 { size / 2 } else { size };
    let (a, b) = (Tensor::zeros(&[cut(m), k], DType::F32)?, Tensor::zeros(&[k, cut(n)], DType::F32)?);
    only(runtime.workloads(|rt| rt.matmul(&a, &b))?)
}

fn conv(runtime: &Runtime, draw: &mut Draw) -> Result<Workload> {
    let (channels, filters) = (draw.size(8, 128), draw.size(8, 128));
    let (side, window, stride) = (draw.size(10, 48), draw.pick(&[1, 3, 3, 5]), draw.pick(&[1, 1, 2]));
    let x = Tensor::zeros(&[1, channels, side, side], DType::F32)?;
    let w = Tensor::zeros(&[filters, channels, window, window], DType::F32)?;
    let options = ConvOptions::new().stride(stride).padding(window / 2);
    only(runtime.workloads(|rt| rt.conv2d(&x, &w, &options))?)
}

fn reduce(runtime: &Runtime, draw: &mut Draw) -> Result<Workload> {
    let (rows, columns) = (draw.size(16, 2000), draw.size(500, 20_000));
    let x = Tensor::zeros(&[rows, columns.min(4_000_000 / rows)], DType::F32)?;
    only(match draw.pick(&[0, 1, 2, 3]) {
        0 => runtime.workloads(|rt| rt.sum(&x, Over::from(-1)))?,
        1 => runtime.workloads(|rt| rt.max(&x, Over::from(-1)))?,
        2 => runtime.workloads(|rt| rt.mean(&x, Over::from(-1)))?,
        _ => runtime.workloads(|rt| rt.argmax(&x, Over::from(-1)))?,
    })
}
