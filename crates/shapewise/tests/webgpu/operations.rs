//! WGSL kernels among the others: chosen, checked, run, predicted.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shapewise::backends::webgpu::{
    Access, AdapterKind, DeviceKernel, Dispatch, Overheads, Place, Plan, Shader, WebGpuCost, WebGpuDevice,
    WebGpuKernel, WebGpuLimits, kernels_on, shared_device,
};
use shapewise::device::{BackendKind, Device};
use shapewise::ops::quantize::{IntegerOptions, QuantType, Quantization};
use shapewise::ops::rnn::{RnnOptions, RnnWeights};
use shapewise::ops::sort::Order;
use shapewise::ops::{
    Operation, OperationKind, ParameterSpace, Parameters, Refusal, Refusals, TensorDesc, Variant, Workload,
};
use shapewise::{DType, Placement, Runtime, StoreLocation, Tensor};

use crate::{backend, builder, device};

/// The device that runtimes share is one test's at a time, because one of them loses it.
fn alone_with_the_shared_device() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds two tensors of any strides.
struct Add;

const WGSL: &str = "
struct Sizes { shape: vec4<u32>, a: vec4<u32>, b: vec4<u32>, c: vec4<u32> }
@group(0) @binding(0) var<storage, read> a: array<f32>;
@group(0) @binding(1) var<storage, read> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(0) @binding(3) var<uniform> sizes: Sizes;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let n = sizes.shape;
    if id.x >= n.x * n.y * n.z * n.w { return; }
    let at = vec4(id.x / (n.y * n.z * n.w), id.x / (n.z * n.w) % n.y, id.x / n.w % n.z, id.x % n.w);
    c[dot(at, sizes.c)] = a[dot(at, sizes.a)] + b[dot(at, sizes.b)];
}";

/// Four numbers, filled up in front.
fn four<T: Copy>(values: &[T], fill: u32, number: impl Fn(T) -> u32) -> Vec<u8> {
    let front = std::iter::repeat_n(fill, 4 - values.len());
    front.chain(values.iter().map(|&value| number(value))).flat_map(u32::to_le_bytes).collect()
}

impl WebGpuKernel for Add {
    fn name(&self) -> &'static str {
        "webgpu::elementwise::test_add"
    }
    fn operation(&self) -> OperationKind {
        OperationKind::Elementwise
    }
    fn variant(&self) -> Variant {
        Variant::Naive
    }
    fn source(&self) -> u64 {
        1
    }
    fn supports(&self, workload: &Workload, _: &WebGpuLimits) -> Result<(), Refusals> {
        let add = matches!(workload.operation(), Operation::Elementwise(p) if p.to_string() == "add(x0, x1)");
        let fits = |o: &TensorDesc| o.dtype == DType::F32 && o.shape.len() <= 4;
        Refusals::collect(
            (!add || !workload.operands().iter().all(fits))
                .then_some(Refusal::Shape("a sum of f32 tensors of at most four axes".into())),
        )
    }
    fn space(&self, _: &Workload, _: &WebGpuLimits) -> ParameterSpace {
        ParameterSpace::single()
    }
    fn cost(&self, workload: &Workload, _: &Parameters) -> WebGpuCost {
        WebGpuCost { operations: workload.outputs()[0].len() as f64, bytes: workload.bytes() as f64 }
    }
    fn plan(&self, workload: &Workload, _: &Parameters, _: &WebGpuLimits) -> Plan {
        let shape = &workload.outputs()[0].shape;
        let mut uniform = four(shape, 1, |n| n as u32);
        for operand in workload.operands() {
            uniform.extend(four(&operand.strides, 0, |s| s as u32));
        }
        let shader = Shader {
            label: self.name().into(),
            source: WGSL.into(),
            bindings: vec![Access::Read, Access::Read, Access::Write],
            uniform: uniform.len() as u32,
            workgroup: [64, 1, 1],
            workgroup_memory: 0,
            f16: false,
            subgroups: false,
        };
        let groups = [workload.outputs()[0].len().div_ceil(64) as u32, 1, 1];
        let places = vec![Place::Operand(0), Place::Operand(1), Place::Operand(2)];
        let dispatches = vec![Dispatch { shader: 0, places, uniform, groups }];
        Plan { shaders: vec![shader], scratch: Vec::new(), dispatches }
    }
}

static ADD: Add = Add;

/// A device of our own that was measured, without files.
fn measured() -> Option<Arc<WebGpuDevice>> {
    let mut device = backend(builder())?.open().unwrap();
    device.calibrate(None).unwrap();
    Some(Arc::new(device))
}

#[test]
fn a_wgsl_kernel_computes_what_the_others_do() {
    let Some(device) = measured() else { return };
    let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
    rt.kernels().register(Arc::new(DeviceKernel::new(&ADD, Arc::clone(&device)).unwrap())).unwrap();
    let (gpu, cpu) =
        (rt.with_kernel(ADD.name()).unwrap(), rt.with_kernel("cpu::elementwise::reference").unwrap());
    let numbers = |shape: &[usize], step: f32| {
        let count = shape.iter().product();
        Tensor::from_vec((0..count).map(|i| (i as f32 * step).sin()).collect(), shape).unwrap()
    };
    let (a, b) = (numbers(&[5, 7, 9], 0.1), numbers(&[5, 7, 9], 0.3));
    let (turned, row) = (numbers(&[5, 9, 7], 0.7), numbers(&[1, 1, 9], 0.9));
    let wide = numbers(&[5, 7, 20], 1.1);
    for (x, y) in [
        (a.view(), b.view()),
        (a.view(), turned.view().transpose()),
        (a.view(), row.view().broadcast_to(&[5, 7, 9]).unwrap()),
        (wide.view().slice(2, 3, 20, 2).unwrap(), b.view()),
    ] {
        let [ours, theirs] = [&gpu, &cpu].map(|rt| rt.add(x, y).unwrap());
        assert_eq!(ours.as_slice::<f32>().unwrap(), theirs.as_slice::<f32>().unwrap());
    }
    let mut out = numbers(&[5, 14, 9], 1.3);
    let before = out.view().to_vec::<f32>().unwrap();
    let layout = out.view().slice(1, 0, 14, 2).unwrap();
    let layout = *layout.layout();
    gpu.add_into(&a, &b, out.view_mut().unwrap().with_layout(layout).unwrap()).unwrap();
    let (out, sum) = (out.view().to_vec::<f32>().unwrap(), cpu.add(&a, &b).unwrap());
    let sum = sum.as_slice::<f32>().unwrap();
    for (i, (&now, &was)) in out.iter().zip(&before).enumerate() {
        let (line, column) = (i / 9, i % 9);
        let expected = if line % 2 == 0 { sum[line / 2 * 9 + column] } else { was };
        assert_eq!(now, expected, "gaps of an output stay as they are: {i}");
    }
    let backwards = a.view().slice(0, 0, 5, -1).unwrap();
    let error = gpu.add(backwards, &b).unwrap_err();
    assert!(error.to_string().contains("backwards"), "{error}");
    assert_eq!(gpu.add(&numbers(&[0, 3], 1.0), &numbers(&[0, 3], 1.0)).unwrap().len(), 0);
    assert_eq!(device.memory().buffers, 0);
}

#[test]
fn a_lost_device_is_no_candidate_and_the_call_goes_on() {
    let Some(device) = measured() else { return };
    let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
    rt.kernels().register(Arc::new(DeviceKernel::new(&ADD, Arc::clone(&device)).unwrap())).unwrap();
    let x = Tensor::from_vec(vec![1.0f32; 100], &[100]).unwrap();
    assert_eq!(rt.add(&x, &x).unwrap().as_slice::<f32>().unwrap(), [2.0; 100]);
    device.wgpu().0.destroy();
    assert_eq!(rt.add(&x, &x).unwrap().as_slice::<f32>().unwrap(), [2.0; 100]);
    let why = rt.explain(|rt| rt.add(&x, &x)).unwrap();
    assert!(why.to_string().contains("cpu::"), "{why}");
    assert!(why.to_string().contains("the device was lost"), "{why}");
}

#[test]
fn a_measured_device_can_be_predicted() {
    let Some(unknown) = device() else { return };
    assert!(unknown.info().peaks.is_none() && unknown.overheads().is_none());
    let error = DeviceKernel::new(&ADD, unknown).err().unwrap();
    assert!(error.to_string().contains("calibrate(true)"), "{error}");
    let device = measured().unwrap();
    let peaks = device.info().peaks.clone().unwrap();
    assert!(peaks.is_plausible(), "{peaks:?}");
    assert_eq!(peaks.arithmetic.len(), 1 + usize::from(device.limits().f16));
    let costs = *device.overheads().unwrap();
    for seconds in [costs.submit, costs.upload.seconds(1e6), costs.download.seconds(1e6)] {
        assert!(seconds > 0.0 && seconds.is_finite(), "{costs:?}");
    }
    assert_eq!(device.memory().reserved, 0, "the memory of the measurements is given back");
    let kernel = DeviceKernel::new(&ADD, device).unwrap();
    let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
    let seconds = |n: usize| {
        let x = Tensor::zeros(&[n], DType::F32).unwrap();
        let workload = rt.workloads(|rt| rt.add(&x, &x)).unwrap().remove(0);
        kernel.seconds(&workload, &Parameters::new())
    };
    assert!(seconds(1 << 24) > seconds(1 << 10), "copies count");
    assert!(seconds(1) > costs.submit);
}

#[test]
fn runtimes_share_one_device() {
    let _alone = alone_with_the_shared_device();
    if device().is_none() {
        return;
    }
    let (one, two) = (shared_device(true).unwrap(), shared_device(true).unwrap());
    assert!(Arc::ptr_eq(&one, &two) && one.info().peaks.is_some());
    let kernels = kernels_on(&one, [&ADD as &dyn WebGpuKernel]).unwrap();
    assert_eq!((kernels.len(), kernels[0].name()), (1, ADD.name()));
    let software = one.adapter().kind == AdapterKind::Cpu;
    assert_eq!(shared_device(false).is_err(), software, "software does not count as hardware");
    one.wgpu().0.destroy();
    one.synchronize().err();
    let three = shared_device(true).unwrap();
    assert!(!Arc::ptr_eq(&one, &three), "a lost device is replaced");
}

#[test]
fn a_runtime_placed_on_webgpu_computes_there_or_says_why_not() {
    let _alone = alone_with_the_shared_device();
    if device().is_none() {
        return;
    }
    let on = |placement| {
        let builder = Runtime::builder().placement(placement).store(StoreLocation::Memory);
        builder.without_calibration().build().unwrap()
    };
    let rt = on(Placement::On(BackendKind::WebGpu));
    let a = Tensor::from_vec((0..12u8).map(f32::from).collect(), &[3, 4]).unwrap();
    let product = |rt: &Runtime| rt.matmul(&a, &a.transpose());
    let right = product(&on(Placement::On(BackendKind::Cpu))).unwrap();
    assert_eq!(product(&rt).unwrap().to_vec::<f32>().unwrap(), right.to_vec::<f32>().unwrap());
    assert!(rt.explain(product).unwrap().chosen.starts_with("webgpu::matmul::"));
    let refused = rt.sort(&a, -1, Order::Ascending).unwrap_err().to_string();
    assert!(refused.contains("only webgpu is allowed"), "{refused}");
}

/// Software takes part only where it is asked for, so the GPU's kernels are registered by hand; on hardware `Auto` does it.
#[test]
fn devices_compete_where_placement_is_automatic() {
    let _alone = alone_with_the_shared_device();
    if device().is_none() {
        return;
    }
    let gpu = shared_device(true).unwrap();
    let builder = Runtime::builder().placement(Placement::Auto).store(StoreLocation::Memory);
    let rt = builder.exploration(1.0).build().unwrap();
    let named = |rt: &Runtime, name: &str| {
        rt.kernels().kernels(OperationKind::Matmul).iter().any(|k| k.name() == name)
    };
    for kernel in kernels_on(&gpu, shapewise::ops::matmul::webgpu::WEBGPU_KERNELS.iter().copied()).unwrap() {
        if !named(&rt, kernel.name()) {
            rt.kernels().register(kernel).unwrap();
        }
    }
    let a = Tensor::from_vec((0..96 * 96u32).map(|i| f64::from(i % 17) as f32 - 8.0).collect(), &[96, 96])
        .unwrap();
    let product = |rt: &Runtime| rt.matmul(&a, &a);
    let before = rt.explain(product).unwrap();
    let of = |backend: &str| {
        before.candidates.iter().filter(|c| c.kernel.starts_with(backend)).collect::<Vec<_>>()
    };
    let (on_cpu, on_gpu) = (of("cpu::"), of("webgpu::"));
    assert!(!on_cpu.is_empty() && !on_gpu.is_empty());
    // Operands go to the GPU and back, and nobody predicts less than that takes.
    let Overheads { submit, upload, download, .. } = *gpu.overheads().unwrap();
    let bytes = f64::from(96 * 96 * 4);
    let least = submit + 2.0 * upload.seconds(bytes) + download.seconds(bytes);
    for candidate in &on_gpu {
        assert!(candidate.roofline.unwrap() > least, "{candidate:?}");
    }
    let only = Runtime::builder().placement(Placement::On(BackendKind::Cpu)).without_calibration();
    let right = product(&only.build().unwrap()).unwrap().to_vec::<f32>().unwrap();
    // Trials on either device give the answer, and so does each of the GPU's kernels when it is forced.
    for _ in 0..100 {
        assert_eq!(product(&rt).unwrap().to_vec::<f32>().unwrap(), right);
    }
    for candidate in on_gpu {
        let forced = rt.with_kernel(&candidate.kernel).unwrap();
        assert_eq!(product(&forced).unwrap().to_vec::<f32>().unwrap(), right, "{}", candidate.kernel);
    }
}

/// Two layers in both directions.
fn layers(dtype: DType) -> (Tensor, Vec<[Tensor; 4]>) {
    let (input, hidden) = (5, 6);
    let made = |shape: &[usize], step: f32| {
        let count = shape.iter().product();
        let values = (0..count).map(|i| (i as f32 * step).sin() * 0.4).collect();
        let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
        rt.cast(&Tensor::from_vec(values, shape).unwrap(), dtype).unwrap()
    };
    let sets = (0..4u8).map(|i| {
        let width = if i < 2 { input } else { 2 * hidden };
        let step = 0.3 + f32::from(i);
        [
            made(&[4 * hidden, width], step),
            made(&[4 * hidden, hidden], step + 0.1),
            made(&[4 * hidden], step + 0.2),
            made(&[4 * hidden], step + 0.3),
        ]
    });
    (made(&[7, 3, input], 0.9), sets.collect())
}

#[test]
fn layers_and_directions_of_a_recurrent_network_run_on_webgpu() {
    let _alone = alone_with_the_shared_device();
    if device().is_none() {
        return;
    }
    let on = |kind| {
        let builder = Runtime::builder().placement(Placement::On(kind)).store(StoreLocation::Memory);
        builder.without_calibration().build().unwrap()
    };
    let (gpu, cpu) = (on(BackendKind::WebGpu), on(BackendKind::Cpu));
    let half = shared_device(true).unwrap().limits().f16.then_some(DType::F16);
    for dtype in [Some(DType::F32), half].into_iter().flatten() {
        let (x, sets) = layers(dtype);
        let weights: Vec<_> = sets.iter().map(|[w, r, b, c]| RnnWeights::new(w, r).bias(b, c)).collect();
        let options = RnnOptions::new().bidirectional();
        let outputs = [&gpu, &cpu].map(|rt| {
            let (y, h, c) = rt.lstm(&x, &weights, &options).unwrap();
            [y, h, c].map(|t| cpu.cast(&t, DType::F32).unwrap().to_vec::<f32>().unwrap())
        });
        // A rounding of the largest number of the type, which is below 1 here.
        let allowed = if dtype == DType::F16 { 1e-3 } else { 1e-5 };
        for (ours, theirs) in outputs[0].iter().zip(&outputs[1]) {
            assert_eq!(ours.len(), theirs.len());
            assert!(ours.iter().zip(theirs).all(|(a, b)| (a - b).abs() <= allowed), "{dtype}");
        }
    }
}

/// A call on numbers and how they are quantised.
type QuantisedCall = fn(&Runtime, &Tensor, &Quantization) -> shapewise::Result<Tensor>;

#[test]
fn quantised_numbers_run_on_webgpu() {
    let _alone = alone_with_the_shared_device();
    if device().is_none() {
        return;
    }
    let builder =
        Runtime::builder().placement(Placement::On(BackendKind::WebGpu)).store(StoreLocation::Memory);
    let gpu = builder.without_calibration().build().unwrap();
    let cpu = Runtime::builder().threads(1).without_calibration().build().unwrap();
    let x = Tensor::from_vec((0..77u8).map(|i| f32::from(i) * 0.31 - 9.0).collect(), &[7, 11]).unwrap();
    let how = Quantization::per_channel(QuantType::I8, 0, &[0.07; 7], &[]).unwrap();
    let calls: [QuantisedCall; 3] = [
        |rt, x, how| rt.dequantize(&rt.quantize(x, how)?, how),
        |rt, x, how| {
            let q = rt.quantize(x, how)?;
            rt.dequantize(
                &rt.matmul_integer(&q, &q.transpose(), &IntegerOptions::new())?,
                &Quantization::per_tensor(QuantType::I32, 0.5, 0)?,
            )
        },
        |rt, x, how| rt.matmul_quantized(x, &rt.pack_quantized(&rt.quantize(x, how)?, how)?),
    ];
    for (i, call) in calls.iter().enumerate() {
        let [ours, theirs] = [&gpu, &cpu].map(|rt| call(rt, &x, &how).unwrap().to_vec::<f32>().unwrap());
        let same =
            |(a, b): (&f32, &f32)| if i == 2 { (a - b).abs() <= 1e-4 * b.abs().max(1.0) } else { a == b };
        assert!(ours.iter().zip(&theirs).all(same), "{ours:?} {theirs:?}");
    }
}
