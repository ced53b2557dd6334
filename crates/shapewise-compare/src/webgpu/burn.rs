//! burn's wgpu backend with autotune and fusion, as its default features give it.

use crate::contestants::Contestant;
use crate::problem::{Problem, input};
use crate::workload::{Over, Task};
use anyhow::{Result, bail};
use burn_tensor::activation::softmax;
use burn_tensor::module::conv2d;
use burn_tensor::ops::ConvOptions;
use burn_tensor::{Device, DeviceKind, Tensor, TensorData};

/// A call that returns a tensor on the device.
struct Theirs<const D: usize, F> {
    device: Device,
    call: F,
}

impl<const D: usize, F: FnMut() -> Tensor<D>> Contestant for Theirs<D, F> {
    fn name(&self) -> &'static str {
        "burn"
    }
    fn call(&mut self, _: &mut [f32]) {
        // Kept until the device is done: what nobody holds might not be computed.
        let result = (self.call)();
        self.device.sync().expect("a call that was right when it was checked");
        drop(result);
    }
    fn answer(&mut self, out: &mut [f32]) {
        let data = (self.call)().into_data();
        out.copy_from_slice(&data.try_to_vec::<f32>().expect("a tensor of f32"));
    }
}

/// burn on the adapter that it finds, which is the one that wgpu finds first.
pub fn enter(problem: &Problem) -> Result<Box<dyn Contestant>> {
    let device = Device::wgpu(DeviceKind::DefaultDevice);
    Ok(match problem.task {
        Task::Matmul { batch: 1, m, k, n, transposed: false } => {
            let a = tensor(problem, input::X, [m, k], &device);
            let b = tensor(problem, input::Y, [k, n], &device);
            Box::new(Theirs { device, call: move || a.clone().matmul(b.clone()) })
        }
        Task::Conv(sizes) => {
            let [x, weights, _] = sizes.shapes();
            let x = tensor(problem, input::X, x, &device);
            let weights = tensor(problem, input::WEIGHT, weights, &device);
            let call = move || {
                let (stride, padding) = ([sizes.stride; 2], [sizes.padding; 2]);
                let options = ConvOptions::new(stride, padding, [1, 1], sizes.groups);
                conv2d(x.clone(), weights.clone(), None, options)
            };
            Box::new(Theirs { device, call })
        }
        Task::Softmax { rows, cols } => {
            let x = tensor(problem, input::X, [rows, cols], &device);
            Box::new(Theirs { device, call: move || softmax(x.clone(), 1) })
        }
        Task::Sum { over: Over::All, rows, cols } => {
            let x = tensor(problem, input::X, [rows * cols], &device);
            Box::new(Theirs { device, call: move || x.clone().sum() })
        }
        other => bail!("no comparison on WebGPU for {other:?}"),
    })
}

fn tensor<const D: usize>(problem: &Problem, place: usize, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(problem.inputs[place].to_vec(), shape), device)
}
