//! Operands larger than a binding, on a device that is told to take only small ones.

use std::sync::Arc;

use shapewise::backends::webgpu::kernels_on;
use shapewise::ops::OperationKind;
use shapewise::ops::conv::ConvOptions;
use shapewise::ops::fft::FftOptions;
use shapewise::ops::norm::NormOptions;
use shapewise::ops::quantize::{QuantType, Quantization};
use shapewise::ops::rnn::{Nonlinearity, RnnOptions, RnnWeights};
use shapewise::{Runtime, Tensor};

use crate::{backend, builder};

/// Bytes that a binding of the device takes.
const MOST: u64 = 64 << 10;

/// A runtime with the WGSL kernels of these operations on such a device.
fn runtime() -> Option<Runtime> {
    let mut device = backend(builder().max_buffer_size(MOST))?.open().unwrap();
    assert_eq!((device.limits().buffer, device.limits().storage_binding), (MOST, MOST));
    device.calibrate(None).unwrap();
    let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
    let kernels = OperationKind::ALL.iter().flat_map(|o| o.webgpu_kernels()).copied();
    for kernel in kernels_on(&Arc::new(device), kernels).unwrap() {
        rt.kernels().register(kernel).unwrap();
    }
    Some(rt)
}

fn numbers(shape: &[usize], step: f32) -> Tensor {
    let count = shape.iter().product();
    Tensor::from_vec((0..count).map(|i| (i as f32 * step).sin()).collect(), shape).unwrap()
}

/// The largest difference between what a kernel and the CPU's reference compute.
fn difference(
    rt: &Runtime,
    kernel: &str,
    reference: &str,
    call: impl Fn(&Runtime) -> shapewise::Result<Tensor>,
) -> f32 {
    let [ours, theirs] = [kernel, reference].map(|name| {
        let result = call(&rt.with_kernel(name).unwrap()).unwrap();
        result.to_vec::<f32>().unwrap()
    });
    ours.iter().zip(&theirs).fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

#[test]
fn large_calls_are_cut_where_parts_are_independent() {
    let Some(rt) = runtime() else { return };
    let (x, row) = (numbers(&[301, 100], 0.1), numbers(&[100], 0.7));
    let add = |rt: &Runtime| rt.add(&x, &row);
    let reference = "cpu::elementwise::reference";
    for kernel in ["webgpu::elementwise::vec4", "webgpu::elementwise::strided"] {
        assert_eq!(difference(&rt, kernel, reference, add), 0.0, "{kernel}");
    }
    let column = numbers(&[301, 1], 0.2);
    let spread = |rt: &Runtime| rt.mul(&x, &column);
    assert_eq!(difference(&rt, "webgpu::elementwise::strided", reference, spread), 0.0);
    let softmax = |rt: &Runtime| rt.softmax(&x, -1);
    let name = OperationKind::Softmax.webgpu_kernels().last().unwrap().name();
    assert!(difference(&rt, name, "cpu::softmax::reference", softmax) < 1e-6);
    let norm = |rt: &Runtime| rt.layer_norm(&x, 1, &NormOptions::new());
    assert!(difference(&rt, "webgpu::norm::each", "cpu::norm::reference", norm) < 1e-4);
    let right = numbers(&[100, 150], 0.3);
    let product = |rt: &Runtime| rt.matmul(&x, &right);
    assert!(difference(&rt, "webgpu::matmul::naive", "cpu::matmul::reference", product) < 1e-4);
}

#[test]
fn images_lines_rows_and_columns_are_cut_too() {
    let Some(rt) = runtime() else { return };
    let x = numbers(&[12, 4, 24, 24], 0.1);
    let (three, one) = (numbers(&[6, 4, 3, 3], 0.7), numbers(&[6, 4, 1, 1], 0.7));
    let options = ConvOptions::new();
    for (kernel, weights) in
        [("direct", &three), ("implicit", &three), ("winograd_f2", &three), ("pointwise", &one)]
    {
        let conv = |rt: &Runtime| rt.conv2d(&x, weights, &options);
        let name = format!("webgpu::conv::{kernel}");
        assert!(difference(&rt, &name, "cpu::conv::reference", conv) < 1e-4, "{kernel}");
    }
    let plain = FftOptions::new();
    // Scratch memory of a transform is larger than its operands.
    for (kernel, n) in [("stockham", 120), ("bluestein", 127)] {
        let x = numbers(&[200, n], 0.3);
        let there = |rt: &Runtime| rt.irfft(&rt.rfft(&x, &plain)?, &plain.len(n));
        let name = format!("webgpu::fft::{kernel}");
        assert!(difference(&rt, &name, "cpu::fft::reference", there) < 1e-4, "{kernel}");
    }
    // A batch that comes first in memory.
    let x = numbers(&[300, 5, 16], 0.2);
    let (w, u) = (numbers(&[12, 16], 0.1), numbers(&[12, 12], 0.2));
    let options = RnnOptions::new().batch_first();
    for kernel in ["webgpu::rnn::projected", "webgpu::rnn::resident"] {
        let layer =
            |rt: &Runtime| Ok(rt.rnn(&x, &[RnnWeights::new(&w, &u)], Nonlinearity::Tanh, &options)?.0);
        assert!(difference(&rt, kernel, "cpu::rnn::reference", layer) < 1e-4, "{kernel}");
    }
}

#[test]
fn quantised_numbers_are_cut_wherever_their_scales_lie() {
    let Some(rt) = runtime() else { return };
    let x = numbers(&[40, 30, 32], 0.1);
    let scales = |n: usize| (1..=n).map(|i| 0.01 * i as f32).collect::<Vec<_>>();
    let blocks = |n: usize| Tensor::from_vec(scales(40 * 30 * n), &[40, 30, n]).unwrap();
    for kind in [QuantType::I8, QuantType::U4] {
        for how in [
            Quantization::per_tensor(kind, 0.02, 3).unwrap(),
            Quantization::per_channel(kind, 0, &scales(40), &[1; 40]).unwrap(),
            Quantization::per_channel(kind, 1, &scales(30), &[2; 30]).unwrap(),
            Quantization::per_block(kind, 16, &blocks(2), None).unwrap(),
            Quantization::per_block(kind, 24, &blocks(2), None).unwrap(),
        ] {
            let there = |rt: &Runtime| rt.dequantize(&rt.quantize(&x, &how)?, &how);
            for kernel in ["webgpu::quantize::words", "webgpu::quantize::runs"] {
                assert_eq!(difference(&rt, kernel, "cpu::quantize::reference", there), 0.0, "{kernel}");
            }
        }
    }
}

#[test]
fn what_cannot_be_cut_is_refused_with_the_reason() {
    let Some(rt) = runtime() else { return };
    let x = numbers(&[301, 100], 0.1);
    let kernel = OperationKind::Reduce.webgpu_kernels().last().unwrap().name();
    let on_gpu = rt.with_kernel(kernel).unwrap();
    let error = on_gpu.sum(&x, &[0, 1][..]).unwrap_err().to_string();
    assert!(
        error.contains("spans 120400 bytes, a binding takes 65536, and this call cannot be cut"),
        "{error}"
    );
    // Parts of the result lie along one axis, those of the operands along the other.
    let on_gpu = rt.with_kernel("webgpu::elementwise::strided").unwrap();
    let error = on_gpu.mul(&x.transpose(), &x.transpose()).unwrap_err().to_string();
    assert!(error.contains("spans 120400 bytes, a binding takes 65536"), "{error}");
    // The runtime has other kernels for it.
    assert!(rt.sum(&x, &[0, 1][..]).is_ok());
}
