//! Shapewise on WebGPU: the fastest point of the fastest kernel, found by timing them on the operands themselves.

use crate::contestants::{Contestant, OURS};
use crate::problem::Problem;
use crate::workload::{Over, Task};
use anyhow::{Context, Result, bail};
use shapewise::DType;
use shapewise::backends::webgpu::{self as gpu, WebGpuDevice, WebGpuKernel};
use shapewise::ops::conv::ConvAttributes;
use shapewise::ops::matmul::MatmulAttributes;
use shapewise::ops::reduce::{ReduceAttributes, ReduceKind};
use shapewise::ops::softmax::SoftmaxAttributes;
use shapewise::ops::{Activation, Operation, TensorDesc, Variant, Workload};
use shapewise::tensor::Shape;
use std::time::Instant;

/// Timings of each point; the best counts.
const ROUNDS: usize = 3;

/// A plan with its operands on the device.
pub struct OnDevice<'d> {
    device: &'d WebGpuDevice,
    operands: Vec<gpu::Buffer>,
    plan: gpu::Plan,
}

/// What tuning found.
pub struct Tuned<'d> {
    /// The fastest.
    pub contestant: OnDevice<'d>,
    /// Its kernel and parameters.
    pub found: String,
    /// How many times longer the plain kernel takes, if there is one.
    pub naive: Option<f64>,
}

impl OnDevice<'_> {
    fn run(&self) -> gpu::Result<()> {
        self.device.run(&self.plan, &self.operands.iter().collect::<Vec<_>>())?.wait()
    }

    /// The best of some rounds, after one that compiles.
    fn seconds(&self, rounds: usize) -> Result<f64> {
        self.run()?;
        let mut best = f64::INFINITY;
        for _ in 0..rounds {
            let begin = Instant::now();
            self.run()?;
            best = best.min(begin.elapsed().as_secs_f64());
        }
        Ok(best)
    }
}

impl Contestant for OnDevice<'_> {
    fn name(&self) -> &'static str {
        OURS
    }
    fn call(&mut self, _: &mut [f32]) {
        self.run().expect("a plan that ran when it was tuned");
    }
    fn answer(&mut self, out: &mut [f32]) {
        self.call(out);
        let result = self.operands.last().expect("every operation has an output");
        out.copy_from_slice(&self.device.download::<f32>(result).expect("the output of a plan that ran"));
    }
}

/// Times the favourite point of every kernel, then every point of the fastest.
pub fn tune<'d>(device: &'d WebGpuDevice, problem: &Problem) -> Result<Tuned<'d>> {
    let workload = workload(&problem.task)?;
    let limits = device.limits();
    let mut it =
        OnDevice { device, operands: operands(device, &workload, problem)?, plan: gpu::Plan::default() };
    let (mut fastest, mut naive) = (None::<(f64, &dyn WebGpuKernel)>, None);
    for kernel in workload.kind().webgpu_kernels().iter().filter(|k| k.supports(&workload, limits).is_ok()) {
        let space = kernel.space(&workload, limits);
        let Some(favourite) = space.points().first() else { continue };
        it.plan = kernel.plan(&workload, favourite, limits);
        let seconds = it.seconds(1)?;
        if kernel.variant() == Variant::Naive {
            naive = Some(seconds);
        }
        if fastest.is_none_or(|(best, _)| seconds < best) {
            fastest = Some((seconds, *kernel));
        }
    }
    let (_, kernel) = fastest.context("no WGSL kernel takes the workload")?;
    let mut best = None::<(f64, gpu::Plan, String)>;
    for point in kernel.space(&workload, limits).points() {
        it.plan = kernel.plan(&workload, point, limits);
        let seconds = it.seconds(ROUNDS)?;
        if best.as_ref().is_none_or(|(least, ..)| seconds < *least) {
            best = Some((seconds, it.plan.clone(), format!("{} {point}", kernel.name())));
        }
    }
    let (seconds, plan, found) = best.context("the kernel has no point")?;
    it.plan = plan;
    Ok(Tuned { contestant: it, found, naive: naive.map(|naive| naive / seconds) })
}

/// Inputs on the device, and room for the output.
fn operands(device: &WebGpuDevice, workload: &Workload, problem: &Problem) -> Result<Vec<gpu::Buffer>> {
    let mut buffers = Vec::new();
    for (_, values) in workload.inputs().iter().zip(&problem.inputs) {
        buffers.push(device.upload::<f32>(values)?);
    }
    for output in workload.outputs() {
        buffers.push(device.allocate(output.bytes() as u64)?);
    }
    Ok(buffers)
}

/// The task in the library's words.
fn workload(task: &Task) -> Result<Workload> {
    let desc = |shape: &[usize]| Shape::new(shape).map(|shape| TensorDesc::contiguous(DType::F32, shape));
    Ok(match *task {
        Task::Matmul { batch: 1, m, k, n, transposed: false } => Workload::new(
            Operation::Matmul(MatmulAttributes::default()),
            &[desc(&[m, k])?, desc(&[k, n])?],
            &[desc(&[m, n])?],
        ),
        Task::Conv(conv) => {
            let [[images, inputs, h, w], [o, c, kh, kw], [_, outputs, out_h, out_w]] = conv.shapes();
            let attributes = ConvAttributes {
                stride: [1, conv.stride as u32, conv.stride as u32],
                dilation: [1; 3],
                before: [0, conv.padding as i32, conv.padding as i32],
                transposed: false,
                bias: false,
                activation: Activation::None,
                kept: None,
            };
            let weights = desc(&[conv.groups, o / conv.groups, c, 1, kh, kw])?;
            Workload::new(
                Operation::Conv(attributes),
                &[desc(&[images, inputs, 1, h, w])?, weights],
                &[desc(&[images, outputs, 1, out_h, out_w])?],
            )
        }
        Task::Softmax { rows, cols } => {
            let x = desc(&[rows, cols])?;
            Workload::new(Operation::Softmax(SoftmaxAttributes { log: false }), &[x], &[x])
        }
        Task::Sum { over: Over::All, rows, cols } => Workload::new(
            Operation::Reduce(ReduceAttributes { kind: ReduceKind::Sum, axes: 1 }),
            &[desc(&[rows * cols])?],
            &[desc(&[])?],
        ),
        other => bail!("no comparison on WebGPU for {other:?}"),
    })
}
