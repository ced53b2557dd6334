//! WGSL kernels beside burn's on the same adapter: operands stay on the device, answers are checked first, calls take turns.

mod burn;
mod ours;

use crate::buffer::Buffer;
use crate::contestants::{Contestant, OURS};
use crate::problem::Problem;
use crate::timing::{self, Plan, geometric_mean};
use crate::workload::Workload;
use anyhow::{Result, bail, ensure};
use ours::Tuned;
use shapewise::backends::webgpu::{WebGpuBackend, WebGpuDevice};

/// Workloads of the crate's list that are compared.
const NAMES: [&str; 6] = [
    "matmul/512",
    "matmul/1024",
    "matmul/1x4096x4096",
    "conv/3x3_8x64x56_64",
    "softmax/4096x1000",
    "sum/1e7",
];

/// What each ratio to burn must reach, and their geometric mean.
const BARS: (f64, f64) = (1.0, 1.3);

/// Prints a line for each workload: our time with the kernel that tuning found, burn's time, their ratio.
pub fn run(workloads: &[Workload], plan: &Plan) -> Result<()> {
    let chosen: Vec<_> = workloads.iter().filter(|w| NAMES.contains(&w.name.as_str())).collect();
    ensure!(!chosen.is_empty(), "none of these workloads is compared on WebGPU: {}", NAMES.join(", "));
    let device = WebGpuBackend::builder().build()?.initialise()?;
    let adapter = device.adapter();
    println!("{} ({:?}, {})", adapter.name, adapter.kind, adapter.driver);
    let mut ratios = Vec::new();
    for workload in chosen {
        ratios.extend(duel(workload, &device, plan)?);
    }
    if let Some(mean) = geometric_mean(ratios) {
        println!("geometric mean {mean:.2} (bar: {})", BARS.1);
    }
    Ok(())
}

/// How many times longer burn takes; `None` if its answer is wrong, which is said and counts for nobody.
fn duel(workload: &Workload, device: &WebGpuDevice, plan: &Plan) -> Result<Option<f64>> {
    let problem = Problem::new(workload.task);
    let Tuned { contestant, found, naive } = ours::tune(device, &problem)?;
    let mut contestants: Vec<Box<dyn Contestant + '_>> = vec![Box::new(contestant), burn::enter(&problem)?];
    let mut out = Buffer::zeroed(workload.task.output_len(), problem.inputs.len());
    for contestant in &mut contestants {
        // The first call of burn's tunes.
        contestant.answer(&mut out);
        let error = problem.error(&out);
        if error > 1.0 && contestant.name() == OURS {
            bail!("Shapewise is wrong on {}: {error:.1} times the allowed error", workload.name);
        } else if error > 1.0 {
            contestants.truncate(1);
            let race = timing::race(&mut contestants, &mut out, plan, 1, &mut |_, _| ());
            let ours = race.timings[0].summary().median / 1e3;
            println!(
                "{:<20} ours {ours:>9.2} ms   burn is wrong by {error:.1} times the allowed error: not counted   {found}",
                workload.name
            );
            return Ok(None);
        }
    }
    let race = timing::race(&mut contestants, &mut out, plan, 1, &mut |_, _| ());
    let [ours, theirs] = [&race.timings[0], &race.timings[1]];
    let ratio = theirs.ratio_to(ours);
    println!(
        "{:<20} ours {:>9.2} ms   burn {:>9.2} ms   ratio {ratio:.2} (bar: {})   {found}{}",
        workload.name,
        ours.summary().median / 1e3,
        theirs.summary().median / 1e3,
        BARS.0,
        naive.map_or(String::new(), |times| format!(", {times:.1} times faster than the plain kernel")),
    );
    if let Some(cores) = race.foreign_cores.filter(|&cores| cores > 0.15) {
        println!("{:<20} BUSY: others kept {cores:.2} cores busy, repeat this case", "");
    }
    Ok(Some(ratio))
}
