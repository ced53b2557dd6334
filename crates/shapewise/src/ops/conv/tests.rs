//! Every kernel against the reference, errors, and identities between convolutions.

use super::*;
use crate::backends::cpu::Probe;
use crate::device::Device;
use crate::ops::{Parameters, Workload};
use crate::runtime::Runtime;
use crate::tensor::{DType, Tensor, TensorView};

fn runtime() -> Runtime {
    Runtime::builder().threads(2).without_calibration().build().unwrap()
}

/// Runs every kernel that takes the workload, at every point of its space, and compares with the reference.
fn check(rt: &Runtime, workload: &Workload) -> usize {
    let device = rt.device();
    let (reference, others) = KERNELS.split_last().unwrap();
    let mut expected = Probe::new(workload, device).unwrap();
    reference.launch(&mut expected.call(workload, &Parameters::new(), device)).unwrap();
    let mut ran = 0;
    for kernel in others.iter().filter(|k| k.supports(workload, device.info()).is_ok()) {
        for parameters in kernel.space(workload, device.info()).points() {
            let mut found = Probe::new(workload, device).unwrap();
            kernel.launch(&mut found.call(workload, parameters, device)).unwrap();
            if let Err(difference) = found.same_outputs(&expected, workload) {
                panic!("{} {parameters} on {workload}: {difference}", kernel.name());
            }
            assert!(kernel.cost(workload, parameters, device.info()).operations > 0.0);
            ran += 1;
        }
    }
    ran
}

/// The workload of a call on tensors of these shapes.
fn ask(
    rt: &Runtime,
    dtype: DType,
    transposed: bool,
    x: &[usize],
    w: &[usize],
    options: &ConvOptions<'_>,
) -> Workload {
    let (x, w) = (Tensor::zeros(x, dtype).unwrap(), Tensor::zeros(w, dtype).unwrap());
    let call = |rt: &Runtime| match (x.rank(), transposed) {
        (3, false) => rt.conv1d(&x, &w, options),
        (4, false) => rt.conv2d(&x, &w, options),
        (5, false) => rt.conv3d(&x, &w, options),
        (3, true) => rt.conv_transpose1d(&x, &w, options),
        (4, true) => rt.conv_transpose2d(&x, &w, options),
        _ => rt.conv_transpose3d(&x, &w, options),
    };
    rt.workloads(call).unwrap().remove(0)
}

#[test]
fn layers_of_every_kind_and_type() {
    let rt = runtime();
    let o = ConvOptions::new;
    let cases: Vec<(&[usize], &[usize], ConvOptions<'_>)> = vec![
        (&[2, 3, 20, 21], &[8, 3, 7, 7], o().stride(2).padding(3)),
        (&[2, 5, 9, 30], &[7, 5, 3, 3], o().padding(1)),
        (&[1, 40, 14, 14], &[13, 40, 3, 3], o().padding(1)),
        (&[1, 5, 9, 19], &[50, 5, 3, 3], o().padding(1)),
        (&[1, 130, 5, 14], &[70, 130, 3, 3], o().padding(1)),
        (&[1, 4, 5, 6], &[9, 4, 1, 1], o()),
        (&[2, 4, 7, 9], &[9, 4, 1, 1], o().stride(2)),
        (&[1, 6, 9, 17], &[6, 1, 3, 3], o().padding(1).groups(6)),
        (&[1, 6, 12, 17], &[12, 1, 5, 5], o().padding(2).stride(2).groups(6)),
        (&[1, 6, 9, 10], &[4, 3, 2, 3], o().groups(2).dilation(2).paddings(&[(0, 3), (2, 1)])),
        (&[3, 2, 10], &[4, 2, 3], o().same().stride(2)),
        (&[1, 2, 5, 6, 7], &[3, 2, 3, 2, 3], o().padding(1).stride(2)),
        (&[2, 4, 20, 23], &[4, 2, 11, 9], o().padding(4).groups(2)),
        (&[1, 2, 15, 16], &[3, 2, 5, 7], o().padding(6).dilation(2)),
        (&[1, 1, 1, 1], &[1, 1, 1, 1], o()),
        (&[2, 3, 4, 4], &[2, 3, 3, 3], o().padding(4).dilation(3)),
        (&[1, 0, 4, 4], &[2, 0, 3, 3], o().padding(1)),
        (&[0, 3, 4, 4], &[2, 3, 3, 3], o().padding(1)),
    ];
    let mut ran = 0;
    for &dtype in DType::FLOATS {
        for (x, w, options) in &cases {
            ran += check_unless_empty(&rt, &ask(&rt, dtype, false, x, w, options));
            if x.len() == 4 {
                let last = [x[0], x[2], x[3], x[1]];
                let options = options.clone().channels_last();
                ran += check_unless_empty(&rt, &ask(&rt, dtype, false, &last, w, &options));
            }
        }
    }
    assert!(ran > 150, "only {ran} combinations ran");
}

/// Kernels need not count operations for what has no results or no products.
fn check_unless_empty(rt: &Runtime, workload: &Workload) -> usize {
    if workload.operands().iter().any(crate::ops::TensorDesc::is_empty) {
        let mut probe = Probe::new(workload, rt.device()).unwrap();
        for kernel in KERNELS.iter().filter(|k| k.supports(workload, rt.device().info()).is_ok()) {
            kernel.launch(&mut probe.call(workload, &Parameters::new(), rt.device())).unwrap();
        }
        return 0;
    }
    check(rt, workload)
}

#[test]
fn infinities_stay_where_they_belong_and_small_kernels_are_not_transformed() {
    let rt = runtime();
    let mut values = vec![1.0f32; 40 * 40];
    values[0] = f32::INFINITY;
    let x = TensorView::from_slice(&values, &[1, 1, 40, 40]).unwrap();
    let large = Tensor::full(0.5f32, &[1, 1, 15, 15]).unwrap();
    let workload = ask(&rt, DType::F32, false, &[1, 1, 40, 40], &[1, 1, 15, 15], &ConvOptions::new());
    let mut forced = 0;
    for kernel in KERNELS.iter().filter(|k| k.name().ends_with("_fft")) {
        if kernel.supports(&workload, rt.device().info()).is_err() {
            continue;
        }
        let only = rt.with_kernel(kernel.name()).unwrap();
        let found = only.conv2d(x, &large, &ConvOptions::new()).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(found[0].to_bits(), f32::INFINITY.to_bits(), "{}", kernel.name());
        assert!(found[1..].iter().all(|y| (y - 112.5).abs() < 1e-3), "{}", kernel.name());
        let small = only.conv2d(x, &Tensor::full(0.5f32, &[1, 1, 3, 3]).unwrap(), &ConvOptions::new());
        assert!(small.unwrap_err().to_string().contains("fewer operations"), "{}", kernel.name());
        forced += 1;
    }
    assert!(forced > 0);
}

#[test]
fn transposed_layers() {
    let rt = runtime();
    let o = ConvOptions::new;
    let cases: Vec<(&[usize], &[usize], ConvOptions<'_>)> = vec![
        (&[1, 3, 5, 6], &[3, 4, 3, 3], o()),
        (&[2, 3, 5, 6], &[3, 4, 4, 4], o().stride(2).padding(1)),
        (&[1, 4, 5, 6], &[4, 2, 3, 3], o().stride(2).padding(1).output_padding(1).groups(2)),
        (&[1, 2, 5], &[2, 3, 2], o().stride(3)),
        (&[1, 2, 4, 7], &[2, 3, 3, 3], o().strides(&[4, 6]).dilations(&[2, 4])),
        (&[1, 2, 3, 4, 3], &[2, 2, 2, 3, 2], o().stride(2).paddings(&[(1, 0), (0, 1), (1, 1)])),
    ];
    for &dtype in DType::FLOATS {
        for (x, w, options) in &cases {
            assert!(check(&rt, &ask(&rt, dtype, true, x, w, options)) > 0);
        }
    }
}

fn conv2d(x: &[usize], w: &[usize], options: &ConvOptions<'_>) -> String {
    let (x, w) = (Tensor::zeros(x, DType::F32).unwrap(), Tensor::zeros(w, DType::F32).unwrap());
    runtime().conv2d(&x, &w, options).unwrap_err().to_string()
}

#[test]
fn bad_attributes_are_refused_with_the_reason() {
    let o = ConvOptions::new;
    let (x, w) = (&[1, 4, 5, 5][..], &[4, 4, 3, 3][..]);
    for (options, why) in [
        (o().stride(0), "a stride of 0"),
        (o().dilation(0), "a dilation of 0"),
        (o().groups(0), "0 groups"),
        (o().groups(3), "4 input channels in 3 groups"),
        (o().dilation(3), "reaches over 7 elements is larger than the padded input of 5"),
        (o().strides(&[1, 2, 3]), "3 strides for 2 axes"),
        (o().paddings(&[(1, 1); 9]), "more than three paddings"),
        (o().padding(usize::MAX), "overflow"),
        (o().dilation(usize::MAX), "overflow"),
        (o().padding(1 << 40), "an attribute exceeds"),
        (o().output_padding(1), "belongs to transposed"),
    ] {
        let found = conv2d(x, w, &options);
        assert!(found.contains(why), "{found}");
    }
    assert!(conv2d(&[1, 4, 5], w, &o()).contains("must have 4 axes"));
    assert!(conv2d(x, &[4, 4, 3], &o()).contains("must have 4 axes"));
    assert!(conv2d(x, &[4, 3, 3, 3], &o()).contains("the weights take 3"));
    assert!(conv2d(x, &[4, 4, 0, 3], &o()).contains("size 0"));
    assert!(conv2d(x, &[3, 2, 3, 3], &o().groups(2)).contains("do not fall into 2 groups"));
    let bias = Tensor::zeros(&[3], DType::F32).unwrap();
    assert!(conv2d(x, w, &o().bias(&bias)).contains("4 output channels"));
    let bias = Tensor::zeros(&[4], DType::F64).unwrap();
    assert!(conv2d(x, w, &o().bias(&bias)).contains("cast one of them"));
}

#[test]
fn bad_operands_and_outputs_are_refused_with_the_reason() {
    let rt = runtime();
    let o = ConvOptions::new();
    let (x, w) = (
        Tensor::zeros(&[1, 4, 5, 5], DType::F32).unwrap(),
        Tensor::zeros(&[4, 4, 3, 3], DType::F32).unwrap(),
    );
    let whole = Tensor::zeros(&[1, 4, 5, 5], DType::I32).unwrap();
    assert!(rt.conv2d(&whole, &w, &o).unwrap_err().to_string().contains("cast to f32"));
    let mut out = Tensor::zeros(&[1, 4, 5, 5], DType::F32).unwrap();
    assert!(rt.conv2d_into(&x, &w, &o, &mut out).unwrap_err().to_string().contains("the result is 1×4×3×3"));
    let mut out = Tensor::zeros(&[1, 4, 3, 3], DType::F64).unwrap();
    assert!(rt.conv2d_into(&x, &w, &o, &mut out).unwrap_err().to_string().contains("cast one"));
    let t = |options: &ConvOptions<'_>| rt.conv_transpose2d(&x, &w, options).unwrap_err().to_string();
    assert!(t(&ConvOptions::new().output_padding(1)).contains("must be less than the stride"));
    assert!(t(&ConvOptions::new().same()).contains("give it explicitly"));
    assert!(t(&ConvOptions::new().padding(4)).contains("leaves nothing"));
    assert!(t(&ConvOptions::new().groups(3)).contains("multiple of the groups"));
    assert!(t(&ConvOptions::new().stride(usize::MAX)).contains("overflows"));
    // A broadcast input of more elements than any memory holds.
    let one = Tensor::scalar(1.0f32);
    let wide = one.broadcast_to(&[1, 1, 1 << 31, 1 << 30]).unwrap();
    let single = Tensor::full(1.0f32, &[1, 1, 1, 1]).unwrap();
    assert!(rt.conv2d(&wide, &single, &o).is_err());
}

#[test]
fn same_padding_keeps_the_size_and_layouts_agree() {
    let rt = runtime();
    let x: Vec<f32> = (0..2 * 3 * 4 * 5).map(|i| (i % 7) as f32 - 3.0).collect();
    let w: Vec<f32> = (0..2 * 3 * 2 * 3).map(|i| (i % 5) as f32 - 2.0).collect();
    let (x, w) = (
        TensorView::from_slice(&x, &[2, 3, 4, 5]).unwrap(),
        TensorView::from_slice(&w, &[2, 3, 2, 3]).unwrap(),
    );
    let first = rt.conv2d(x, w, &ConvOptions::new().same()).unwrap();
    assert_eq!(first.shape(), [2, 2, 4, 5]);
    let last =
        rt.conv2d(x.permute(&[0, 2, 3, 1]).unwrap(), w, &ConvOptions::new().same().channels_last()).unwrap();
    assert_eq!(last.shape(), [2, 4, 5, 2]);
    let turned = last.permute(&[0, 3, 1, 2]).unwrap();
    assert_eq!(first.to_vec::<f32>().unwrap(), turned.to_vec::<f32>().unwrap());
    let strided = rt.conv2d(x, w, &ConvOptions::new().same().stride(2)).unwrap();
    assert_eq!(strided.shape(), [2, 2, 2, 3]);
}

#[test]
fn kept_weights_give_the_same_answers() {
    let rt = runtime();
    let values = |n: usize| (0..n).map(|i| ((i * 7 % 23) as f32 - 11.0) / 8.0).collect::<Vec<f32>>();
    let (x, w) = (values(2 * 8 * 9 * 10), values(20 * 4 * 9));
    let x = TensorView::from_slice(&x, &[2, 8, 9, 10]).unwrap();
    let w = TensorView::from_slice(&w, &[20, 4, 3, 3]).unwrap();
    let options = ConvOptions::new().padding(1).groups(2);
    let wanted = rt.conv2d(x, w, &options).unwrap().to_vec::<f32>().unwrap();
    let mut forms = 0;
    for kernel in KERNELS {
        let forced = rt.with_kernel(kernel.name()).unwrap();
        let Ok(packed) = forced.pack_conv(w, x, &options) else { continue };
        forms += usize::from(packed.kept().is_some());
        // Its own kernel and all others take the packed weights.
        for runtime in [&forced, &rt] {
            let found = runtime.conv_packed(x, &packed, &options).unwrap().to_vec::<f32>().unwrap();
            let near = found.iter().zip(&wanted).all(|(f, w)| (f - w).abs() < 1e-3);
            assert!(near, "{}", kernel.name());
        }
        // Another number of groups reads the plain weights.
        let narrow = x.slice(1, 0, 4, 1).unwrap();
        let found = rt.conv_packed(narrow, &packed, &ConvOptions::new()).unwrap();
        let plain = rt.conv2d(narrow, w, &ConvOptions::new()).unwrap();
        assert_eq!(found.to_vec::<f32>().unwrap(), plain.to_vec::<f32>().unwrap());
    }
    assert!(forms >= 4, "every instruction set keeps four forms");
    assert!(rt.pack_conv(x, w, &options).is_err());
}

#[test]
fn kernels_of_one_element_keep_panels() {
    let rt = runtime();
    let values = |n: usize| (0..n).map(|i| ((i * 7 % 23) as f64 - 11.0) / 8.0).collect::<Vec<f64>>();
    let (x, w) = (values(2 * 8 * 30), values(20 * 8));
    let x = TensorView::from_slice(&x, &[2, 8, 5, 6]).unwrap();
    let w = TensorView::from_slice(&w, &[20, 8, 1, 1]).unwrap();
    let options = ConvOptions::new();
    let wanted = rt.conv2d(x, w, &options).unwrap().to_vec::<f64>().unwrap();
    let forced = rt.with_kernel("cpu::conv::pointwise_portable_packed").unwrap();
    let packed = forced.pack_conv(w, x, &options).unwrap();
    assert_eq!(packed.kept(), Some(Kept { form: KeptForm::Panels, isa: Isa::Portable }));
    // Products of eighths are exact.
    for kernel in ["cpu::conv::portable_implicit_gemm", "cpu::conv::pointwise_portable_packed"] {
        let forced = rt.with_kernel(kernel).unwrap();
        let found = forced.conv_packed(x, &packed, &options).unwrap();
        assert_eq!(found.to_vec::<f64>().unwrap(), wanted, "{kernel}");
    }
}

#[test]
fn results_away_from_their_neighbours_cost_the_direct_kernels_more() {
    let rt = Runtime::builder().threads(1).without_calibration().build().unwrap();
    let (shape, weights, o) = ([1, 16, 16, 16], [16, 16, 3, 3], ConvOptions::new);
    let first = ask(&rt, DType::F32, false, &shape, &weights, &o().padding(1));
    let last = ask(&rt, DType::F32, false, &shape, &weights, &o().padding(1).channels_last());
    let info = rt.device().info();
    for kernel in KERNELS.iter().filter(|k| k.name().ends_with("_direct") && k.supports(&first, info).is_ok())
    {
        let [first, last] = [&first, &last].map(|w| kernel.cost(w, &Parameters::new(), info).operations);
        assert!(first > last, "{}: {first} with channels first, {last} with channels last", kernel.name());
    }
}
