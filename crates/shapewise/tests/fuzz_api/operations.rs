//! Every operation, on views of every kind.

use shapewise::ops::Activation;
use shapewise::ops::conv::ConvOptions;
use shapewise::ops::fft::{FftNorm, FftOptions, StftOptions};
use shapewise::ops::matmul::Fused;
use shapewise::ops::norm::NormOptions;
use shapewise::ops::pad::Border;
use shapewise::ops::reduce::{NormOrder, Over, ReduceKind, Scan, ScanKind};
use shapewise::ops::scatter::Combine;
use shapewise::ops::sort::Order;
use shapewise::selection::Limits;
use shapewise::{Runtime, TensorView};

use crate::data::Random;
use crate::{no_kernel_panics, wild};

#[test]
fn elementwise() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = [wild::storage(r), wild::storage(r), wild::storage(r)];
        let Ok(program) = wild::program(r) else { return };
        let right = if r.below(9) == 0 { r.below(10) } else { program.inputs() };
        let first = wild::view(r, &storage[0]);
        let inputs: Vec<TensorView<'_>> = (0..right)
            .map(|i| if r.below(3) == 0 { wild::view(r, &storage[i % 3]) } else { first })
            .collect();
        let _ = rt.elementwise(&program, &inputs);
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout)
            && view.len() <= 1 << 14
        {
            let _ = if r.below(2) == 0 {
                rt.elementwise_into(&program, &inputs, view)
            } else {
                rt.elementwise_in_place(&program, view, inputs.get(1..).unwrap_or_default())
            };
        }
    });
}

#[test]
fn named_functions() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = [wild::storage(r), wild::storage(r), wild::storage(r)];
        let (a, b) = (wild::view(r, &storage[0]), wild::view(r, &storage[1]));
        let c = wild::view(r, &storage[2]);
        let _ = (rt.add(a, b), rt.pow(a, b), rt.less(a, b), rt.where_(c, a, b), rt.gelu(a));
        let _ = (rt.clamp(a, wild::number(r), wild::number(r)), rt.leaky_relu(a, wild::number(r)));
        let _ = rt.cast(a, wild::dtype(r));
        let _ = rt.explain(|rt| rt.mul(a, b)).map(|e| e.to_string());
    });
}

#[test]
fn transforms() {
    no_kernel_panics(3_000, |rt, r| {
        let storage = wild::storage(r);
        let x = wild::view(r, &storage);
        let mut options =
            FftOptions::new().norm([FftNorm::Backward, FftNorm::Ortho, FftNorm::Forward][r.below(3)]);
        if r.below(2) == 0 {
            options = options.axes(&wild::axes(r));
        }
        if r.below(4) == 0 {
            let lens: Vec<usize> =
                (0..r.below(4)).map(|_| [0, 1, 5, 12, usize::MAX, 1 << 62][r.below(6)]).collect();
            options = options.lens(&lens);
        }
        let _ = (rt.fft(x, &options), rt.ifftn(x, &options), rt.rfftn(x, &options), rt.irfft2(x, &options));
        let _ = rt.fftshift(x, &wild::axes(r)[..]);
        let frames = StftOptions::new(r.below(20)).hop(r.below(9)).centred(r.below(2) == 0);
        let _ = rt.stft(x, &frames).and_then(|spectra| rt.istft(&spectra, &frames));
        let _ = rt.istft(x, &frames);
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = rt.fftn_into(x, &options, view);
        }
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout)
            && (view.is_empty() || view.len() < 1 << 14)
        {
            let _ = rt.fftn_in_place(view, &options);
        }
    });
}

fn scan(r: &mut Random) -> Scan {
    let kind = [ScanKind::Sum, ScanKind::Prod, ScanKind::Max, ScanKind::Min][r.below(4)];
    Scan { kind, exclusive: r.below(2) == 0 }
}

fn reduce_kind(r: &mut Random) -> ReduceKind {
    match r.below(12) {
        0 => ReduceKind::Sum,
        1 => ReduceKind::Mean,
        2 => ReduceKind::Prod,
        3 => ReduceKind::Max,
        4 => ReduceKind::Min,
        5 => ReduceKind::ArgMax,
        6 => ReduceKind::ArgMin,
        7 => ReduceKind::Any,
        8 => ReduceKind::All,
        9 => ReduceKind::Variance { correction: [0, 1, u32::MAX][r.below(3)] },
        10 => ReduceKind::Norm(NormOrder::p(wild::number(r)).unwrap_or(NormOrder::Two)),
        _ => ReduceKind::Cumulative(scan(r)),
    }
}

#[test]
fn reductions() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = wild::storage(r);
        let x = wild::view(r, &storage);
        let kind = reduce_kind(r);
        let axes = wild::axes(r);
        let over = if r.below(3) == 0 { Over::from(..) } else { Over::from(&axes[..]) };
        let over = if r.below(2) == 0 { over.keepdims() } else { over };
        let _ = rt.reduce(kind, x, over);
        let _ = rt.scan(scan(r), x, wild::axis(r));
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = rt.reduce_into(kind, x, over, view);
        }
        let _ = rt.scan_into(scan(r), x, wild::axis(r), &mut out);
    });
}

#[test]
fn products() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = [wild::storage(r), wild::storage(r), wild::storage(r)];
        let a = wild::view(r, &storage[0]);
        // Half of the time something that fits.
        let b = if r.below(2) == 0 { a.transpose() } else { wild::view(r, &storage[1]) };
        let bias = wild::view(r, &storage[2]);
        let mut fused = Fused::new();
        if r.below(2) == 0 {
            fused = fused.activation(Activation::LeakyRelu { slope: wild::number(r) as f32 });
        }
        if r.below(3) == 0 {
            fused = fused.bias(bias);
        }
        let _ = rt.matmul_fused(a, b, fused);
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = rt.matmul_fused_into(a, b, fused, view);
        }
    });
}

#[test]
fn packed_products() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = [wild::storage(r), wild::storage(r), wild::storage(r)];
        let a = wild::view(r, &storage[0]);
        let b = if r.below(2) == 0 { a.transpose() } else { wild::view(r, &storage[1]) };
        let Ok(packed) = rt.pack_rhs_as(b, wild::dtype(r)).or_else(|_| rt.pack_rhs(b)) else { return };
        let _ = rt.matmul_packed(a, &packed);
        let fused = Fused::new().bias(wild::view(r, &storage[2]));
        let _ = rt.matmul_packed_fused(a, &packed, fused);
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = rt.matmul_packed_into(a, &packed, Fused::new(), view);
        }
    });
}

#[test]
fn softmax_and_norms() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = [wild::storage(r), wild::storage(r), wild::storage(r)];
        let x = wild::view(r, &storage[0]);
        let (scale, bias) = (wild::view(r, &storage[1]), wild::view(r, &storage[2]));
        let _ = (rt.softmax(x, wild::axis(r)), rt.log_softmax(x, wild::axis(r)));
        let mut options = NormOptions::new().channel_axis(wild::axis(r));
        if r.below(3) == 0 {
            options = options.eps(wild::number(r));
        }
        if r.below(3) == 0 {
            options = options.scale(scale);
        }
        if r.below(3) == 0 {
            options = options.bias(bias);
        }
        let _ = rt.layer_norm(x, r.below(5), &options);
        let _ = rt.rms_norm(x, r.below(5), &options);
        let _ = rt.group_norm(x, r.below(5), &options);
        let _ = rt.batch_norm(x, scale, bias, &options);
        let _ = rt.batch_norm_training(x, &options).map(|all| {
            let (mut mean, mut variance) = (wild::storage(r), all.variance.deep_clone().unwrap());
            let _ = all.update_running(&mut mean, &mut variance, wild::number(r));
        });
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = rt.softmax_into(x, wild::axis(r), view);
        }
        let _ = rt.layer_norm_into(x, r.below(5), &options, &mut out);
    });
}

#[test]
fn moving() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = [wild::storage(r), wild::storage(r)];
        let (x, y) = (wild::view(r, &storage[0]), wild::view(r, &storage[1]));
        let order: Vec<usize> = (0..r.below(6)).map(|_| r.below(6)).collect();
        let sizes: Vec<usize> = (0..r.below(4)).map(|_| r.below(6)).collect();
        let _ = (rt.copy(x), rt.transpose(x), rt.permute(x, &order));
        let _ = (rt.concat(&[x, y], wild::axis(r)), rt.concat(&[x, x, x], wild::axis(r)));
        let _ = rt.split(x, &sizes, wild::axis(r));
        let borders = [Border::Constant(wild::number(r)), Border::Edge, Border::Reflect, Border::Wrap];
        let widths: Vec<_> = (0..if r.below(9) == 0 { r.below(9) } else { x.rank() })
            .map(|_| if r.below(40) == 0 { (usize::MAX, r.below(3)) } else { (r.below(4), r.below(4)) })
            .collect();
        if x.len() < 1 << 10 {
            let _ = rt.pad(x, &widths, borders[r.below(4)]);
        }
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = rt.copy_into(x, view);
        }
        let _ = rt.concat_into(&[x, y], wild::axis(r), &mut out);
    });
}

#[test]
fn indexed() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = [wild::storage(r), wild::storage(r), wild::storage(r)];
        let x = wild::view(r, &storage[0]);
        let ids: Vec<i32> =
            (0..512).map(|_| r.below(7) as i32 - if r.below(40) == 0 { 9 } else { 2 }).collect();
        let ids = shapewise::Tensor::from_vec(ids, &[512]).unwrap();
        let index = if r.below(9) == 0 { wild::view(r, &storage[1]) } else { wild::view(r, &ids) };
        // Half of the time something that fits.
        let source = if r.below(2) == 0 { x } else { wild::view(r, &storage[2]) };
        let axis = wild::axis(r);
        if index.len().saturating_mul(x.len()) < 1 << 20 {
            let _ = (rt.index_select(x, axis, index), rt.gather(x, axis, index), rt.embedding(x, index));
        }
        let rules = [Combine::Set, Combine::Add, Combine::Prod, Combine::Max, Combine::Min];
        let rule = rules[r.below(5)];
        let _ = rt.scatter(x, axis, index, source, rule);
        let _ = rt.index_scatter(x, axis, index, source, rule);
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = match r.below(3) {
                0 => rt.gather_into(x, axis, index, view),
                1 => rt.index_select_into(x, axis, index, view),
                _ => rt.scatter_in_place(view, axis, index, source, rule),
            };
        }
    });
}

#[test]
fn sorts() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = wild::storage(r);
        let x = wild::view(r, &storage);
        let (axis, order) =
            (wild::axis(r), if r.below(2) == 0 { Order::Ascending } else { Order::Descending });
        let k = if r.below(9) == 0 { usize::MAX } else { r.below(6) };
        let _ = (rt.sort(x, axis, order), rt.argsort(x, axis, order), rt.topk(x, k, axis, order));
        let _ = rt.sort_with_indices(x, axis, order);
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = if r.below(2) == 0 {
                rt.sort_into(x, axis, order, view)
            } else {
                rt.argsort_into(x, axis, order, view)
            };
        }
    });
}

#[test]
fn broadcasts_beyond_all_memory_are_errors() {
    let limits = Limits { memory: Some(64 << 20), ..Limits::default() };
    let rt = Runtime::builder().limits(limits).without_calibration().build().unwrap();
    let one = shapewise::Tensor::scalar(1.0f32);
    for shape in [vec![1 << 40], vec![1 << 31, 1 << 31], vec![isize::MAX as usize]] {
        let Ok(wide) = one.broadcast_to(&shape) else { continue };
        assert!(rt.exp(&wide).is_err(), "{shape:?}");
    }
}

#[test]
fn kernels_by_name() {
    no_kernel_panics(500, |rt, r| {
        let name: String = (0..r.below(30)).map(|_| char::from(b'0' + r.below(80) as u8)).collect();
        assert!(rt.with_kernel(&name).is_err());
        let _ = rt.kernels().remove(&name).is_err();
    });
}

#[test]
fn convolutions() {
    no_kernel_panics(4_000, |rt, r| {
        let storage = [wild::storage(r), wild::storage(r), wild::storage(r)];
        let (x, w) = (wild::view(r, &storage[0]), wild::view(r, &storage[1]));
        let few = |r: &mut Random| if r.below(20) == 0 { usize::MAX >> r.below(64) } else { r.below(4) };
        let list = |r: &mut Random| (0..r.below(5)).map(|_| few(r)).collect::<Vec<_>>();
        let mut options = ConvOptions::new().strides(&list(r)).dilations(&list(r)).output_paddings(&list(r));
        let pads: Vec<_> = (0..r.below(5)).map(|_| (few(r), few(r))).collect();
        options = if r.below(4) == 0 { options.same() } else { options.paddings(&pads) };
        if r.below(2) == 0 {
            options = ConvOptions::new().padding(r.below(3));
        }
        if r.below(2) == 0 {
            options = options.groups(few(r));
        }
        if r.below(3) == 0 {
            options = options.channels_last();
        }
        if r.below(4) == 0 {
            options = options.bias(wild::view(r, &storage[2]));
        }
        // Half of the time weights that fit: what is left of the input's channels, kernels of one.
        let fitting = x.with_layout(shapewise::tensor::Layout {
            shape: shapewise::tensor::Shape::filled(1, x.rank().min(5)),
            strides: shapewise::tensor::Strides::filled(0, x.rank().min(5)),
            offset: 0,
        });
        let w = if r.below(2) == 0 { fitting.unwrap_or(w) } else { w };
        let _ = (rt.conv1d(x, w, &options), rt.conv2d(x, w, &options), rt.conv3d(x, w, &options));
        let _ = (rt.conv_transpose1d(x, w, &options), rt.conv_transpose2d(x, w, &options));
        let _ = rt.conv_transpose3d(x, w, &options);
        let mut out = wild::storage(r);
        let layout = wild::layout(r);
        if let Ok(view) = out.view_mut().unwrap().with_layout(layout) {
            let _ = rt.conv2d_into(x, w, &options, view);
        }
    });
}
