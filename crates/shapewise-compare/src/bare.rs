//! What a call costs above its kernel: a 4×4 product by a kernel of our own, called directly and through a runtime.

use crate::contestants::{Contestant, OURS, owned, writes};
use crate::timing::{self, Plan, median};
use anyhow::{Context, Result};
use shapewise::device::DeviceInfo;
use shapewise::ops::matmul::Fused;
use shapewise::ops::{
    Call, ComputeUnit, Constraint, Cost, Kernel, KernelError, OperationKind, Parameters, Traffic, Variant,
    Workload,
};
use shapewise::{DType, Runtime, Tensor};
use std::sync::Arc;

const NAME: &str = "compare::matmul::four_by_four";

/// Nanoseconds that a call may cost above its kernel.
const BAR: f64 = 150.0;

/// The kernel: sixteen entries, nothing else.
struct FourByFour;

impl Kernel for FourByFour {
    fn name(&self) -> &'static str {
        NAME
    }
    fn operation(&self) -> OperationKind {
        OperationKind::Matmul
    }
    fn variant(&self) -> Variant {
        Variant::Custom
    }
    fn constraints(&self) -> &[Constraint] {
        const SHAPES: Constraint =
            Constraint::Shape("4x4 matrices", |w| w.operands().iter().all(|o| o.shape[..] == [4, 4]));
        &[Constraint::DTypes(&[DType::F32]), Constraint::Contiguous, SHAPES]
    }
    fn cost(&self, _: &Workload, _: &Parameters, device: &DeviceInfo) -> Cost {
        let unit = ComputeUnit { dtype: DType::F32, isa: None };
        Cost::new(128.0, unit, Traffic::pass(192.0, 192.0, &device.caches))
    }
    fn launch(&self, call: &mut Call<'_>) -> Result<(), KernelError> {
        let (a, b) = (call.input(0)?, call.input(1)?);
        multiply(a, b, call.output(0)?);
        Ok(())
    }
}

#[inline(never)]
fn multiply(a: &[f32], b: &[f32], c: &mut [f32]) {
    let ([a, ..], [b, ..], [c, ..]) =
        (a.as_chunks::<16>().0, b.as_chunks::<16>().0, c.as_chunks_mut::<16>().0)
    else {
        return;
    };
    for i in 0..4 {
        for j in 0..4 {
            c[4 * i + j] = (0..4).map(|k| a[4 * i + k] * b[4 * k + j]).sum();
        }
    }
}

/// Times the kernel alone, through the runtime and prepared, in turns, and returns what to print.
pub fn run(runtime: &Runtime, plan: &Plan) -> Result<String> {
    let (x, y): (Vec<f32>, Vec<f32>) = (0u8..16).map(|i| (f32::from(i), 1.0 / f32::from(i + 1))).unzip();
    let (a, b) = (Tensor::from_slice(&x, &[4, 4])?, Tensor::from_slice(&y, &[4, 4])?);
    let zeros = || Tensor::zeros(&[4, 4], DType::F32);
    runtime.kernels().register(Arc::new(FourByFour))?;
    let forced = runtime.with_kernel(NAME)?;
    let (a, b) = (&a, &b);
    let prepared = forced.prepare_matmul(a, b, &Fused::new(), &mut zeros()?)?;
    let mut contestants: Vec<Box<dyn Contestant>> = vec![
        writes("the kernel alone", |out| multiply(std::hint::black_box(&x), &y, out)),
        owned(OURS, zeros()?, |out| forced.matmul_into(a, b, out)),
        owned("prepared", zeros()?, |out| prepared.run(&[a, b], out)),
    ];
    let mut answers = Vec::new();
    for contestant in &mut contestants {
        let mut out = vec![f32::NAN; 16];
        contestant.answer(&mut out);
        answers.push(out);
    }
    anyhow::ensure!(answers.windows(2).all(|w| w[0] == w[1]), "the ways do not agree: {answers:?}");
    let race = timing::race(&mut contestants, &mut [0.0; 16], plan, 1, &mut |_, _| ());
    let [alone, ways @ ..] = &race.timings[..] else { anyhow::bail!("nobody was timed") };
    let mut text = format!("matmul 4x4, the kernel alone: {:.1} ns\n", alone.summary().median * 1e3);
    for (contestant, timing) in contestants[1..].iter().zip(ways) {
        let above = timing.samples.iter().zip(&alone.samples).map(|(t, a)| (t - a) * 1e3).collect();
        let above = median(above);
        let verdict = if above <= BAR { "pass" } else { "FAIL" };
        let total = timing.summary().median * 1e3;
        let name = contestant.name();
        text += &format!("{name:<22} {total:>7.1} ns, {above:>6.1} ns above (bar {BAR} ns: {verdict})\n");
    }
    if let Some(cores) =
        race.foreign_cores.context("the system does not tell its load").ok().filter(|&c| c > 0.15)
    {
        text += &format!("BUSY: others kept {cores:.2} cores busy, repeat this\n");
    }
    Ok(text)
}
