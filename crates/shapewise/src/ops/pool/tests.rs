//! Every kernel against the reference, identities, and what users rely on at the edges.

use super::*;
use crate::ops::Workload;
use crate::ops::testing::{agree, runtime};
use crate::runtime::Runtime;
use crate::tensor::{DType, Tensor};
use proptest::prelude::*;

/// Checks the workloads of a call.
fn check_call<T>(rt: &Runtime, call: impl FnOnce(&Runtime) -> crate::Result<T>) -> usize {
    rt.workloads(call).unwrap().iter().map(|w| agree(rt, w)).sum()
}

#[test]
fn one_two_and_three_axes_of_every_type() {
    let rt = runtime();
    let mut ran = 0;
    for &dtype in DType::FLOATS {
        for (shape, window) in [
            (&[2, 3, 17][..], &[3][..]),
            (&[3, 17], &[2]),
            (&[2, 3, 9, 19], &[3, 3]),
            (&[3, 9, 40], &[2, 5]),
            (&[1, 2, 5, 6, 18], &[2, 3, 4]),
            (&[0, 2, 5, 6], &[2, 2]),
        ] {
            let x = Tensor::zeros(shape, dtype).unwrap();
            let half: Vec<usize> = window.iter().map(|w| w / 2).collect();
            for stride in 1..4 {
                let stride = vec![stride; window.len()];
                let options = PoolOptions::new(window).stride(&stride).padding(&half);
                ran += check_call(&rt, |rt| rt.max_pool(&x, &options));
                ran += check_call(&rt, |rt| rt.avg_pool(&x, &options));
                ran +=
                    check_call(&rt, |rt| rt.avg_pool(&x, &options.clone().ceil().count_include_pad(false)));
                ran += check_call(&rt, |rt| rt.max_pool_with_indices(&x, &options));
            }
        }
    }
    for dtype in [DType::I8, DType::U8, DType::I32, DType::U32, DType::I64] {
        let x = Tensor::zeros(&[2, 3, 9, 19], dtype).unwrap();
        ran += check_call(&rt, |rt| rt.max_pool_with_indices(&x, &PoolOptions::new(&[3, 2])));
    }
    assert!(ran > 300, "only {ran} combinations ran");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 100 }))]
    #[test]
    fn random_windows(
        (n, c, h, w) in (1usize..3, 1usize..40, 1usize..20, 1usize..60),
        (kh, kw, sh, sw, dilation) in (1usize..6, 1usize..14, 1usize..4, 1usize..4, 1usize..3),
        (ph, pw, ceil, last, average) in (0usize..3, 0usize..7, any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let rt = runtime();
        let shape = if last { [n, h, w, c] } else { [n, c, h, w] };
        let x = Tensor::zeros(&shape, DType::F32).unwrap();
        let mut options =
            PoolOptions::new(&[kh, kw]).stride(&[sh, sw]).padding(&[ph.min(kh / 2), pw.min(kw / 2)]);
        if ceil {
            options = options.ceil();
        }
        if last {
            options = options.channels_last();
        }
        if !average {
            options = options.dilation(&[dilation, dilation]);
        }
        let workloads = rt.workloads(|rt| if average { rt.avg_pool(&x, &options) } else { rt.max_pool(&x, &options) });
        for workload in workloads.unwrap_or_default() {
            agree(&rt, &workload);
        }
    }

    #[test]
    fn equal_elements_stay_what_they_are(h in 1usize..30, w in 1usize..30, k in 1usize..6, value in -5.0f32..5.0) {
        let rt = runtime();
        let x = Tensor::full(value, &[1, 2, h, w]).unwrap();
        let options = PoolOptions::new(&[k.min(h), k.min(w)]).stride(&[1, 1]);
        for y in [rt.max_pool(&x, &options).unwrap(), rt.avg_pool(&x, &options).unwrap()] {
            prop_assert!(y.to_vec::<f32>().unwrap().iter().all(|y| (y - value).abs() <= 1e-6 * value.abs()));
        }
        let y = rt.adaptive_avg_pool(&x, &[h.div_ceil(2), 1]).unwrap();
        prop_assert!(y.to_vec::<f32>().unwrap().iter().all(|y| (y - value).abs() <= 1e-5 * value.abs()));
    }
}

#[test]
fn the_layers_of_known_models() {
    let rt = runtime();
    let cases = [
        (
            "ResNet-50 stem",
            vec![1, 4, 112, 112],
            PoolOptions::new(&[3, 3]).stride(&[2, 2]).padding(&[1, 1]),
            [56, 56],
        ),
        ("VGG", vec![1, 4, 56, 56], PoolOptions::new(&[2, 2]), [28, 28]),
        (
            "Inception",
            vec![1, 4, 35, 35],
            PoolOptions::new(&[3, 3]).stride(&[1, 1]).padding(&[1, 1]),
            [35, 35],
        ),
        ("DenseNet", vec![1, 4, 14, 14], PoolOptions::new(&[2, 2]), [7, 7]),
        ("SqueezeNet", vec![1, 4, 54, 54], PoolOptions::new(&[3, 3]).stride(&[2, 2]).ceil(), [27, 27]),
        ("YOLO", vec![1, 4, 13, 13], PoolOptions::new(&[5, 5]).stride(&[1, 1]).padding(&[2, 2]), [13, 13]),
    ];
    for (name, shape, options, size) in cases {
        let x = Tensor::zeros(&shape, DType::F32).unwrap();
        let y = rt.max_pool(&x, &options).unwrap();
        assert_eq!(y.shape()[2..], size, "{name}");
        assert!(check_call(&rt, |rt| rt.max_pool(&x, &options)) > 0, "{name}");
        assert!(check_call(&rt, |rt| rt.avg_pool(&x, &options)) > 0, "{name}");
    }
    // MobileNet and ResNet end in a mean over each plane.
    let x = Tensor::full(2.0f32, &[1, 8, 7, 7]).unwrap();
    for y in [rt.global_avg_pool(&x, 2).unwrap(), rt.global_max_pool(&x, 2).unwrap()] {
        assert_eq!((y.shape(), y.to_vec::<f32>().unwrap()), (&[1, 8, 1, 1][..], vec![2.0; 8]));
    }
}

#[test]
fn nan_wins_and_indices_point_into_the_plane() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let x = Tensor::from_vec(vec![-inf, -inf, 1.0, 1.0, nan, 3.0], &[1, 1, 6]).unwrap();
    for kernel in KERNELS {
        let rt = runtime().with_kernel(kernel.name()).unwrap();
        let options = PoolOptions::new(&[2]);
        if let Ok(y) = rt.max_pool(&x, &options) {
            let y = y.to_vec::<f32>().unwrap();
            assert_eq!(y[..2], [-inf, 1.0], "{}", kernel.name());
            assert!(y[2].is_nan(), "{}", kernel.name());
        }
        if let Ok((_, at)) = rt.max_pool_with_indices(&x, &options) {
            assert_eq!(at.to_vec::<i64>().unwrap(), [0, 2, 4], "{}", kernel.name());
        }
    }
}

#[test]
fn bad_input_is_refused_with_the_reason() {
    let rt = runtime();
    let x = Tensor::zeros(&[1, 2, 5, 6], DType::F32).unwrap();
    let window = |w: &[usize]| PoolOptions::new(w);
    let fails = |options: &PoolOptions, why: &str| {
        let error = rt.max_pool(&x, options).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    };
    fails(&window(&[0, 2]), "must not be zero");
    fails(&window(&[2, 2]).stride(&[0, 1]), "must not be zero");
    fails(&window(&[2, 2]).dilation(&[1, 0]), "must not be zero");
    fails(&window(&[3, 3]).padding(&[2, 0]), "more than half");
    fails(&window(&[6, 2]), "does not fit 5");
    fails(&window(&[2, 2]).stride(&[1]), "stride [1] for a window over 2 axes");
    fails(&window(&[2]), "neither [batch, channels");
    fails(&window(&[]), "1 to 3 sizes");
    fails(&window(&[1 << 20, 1]), "at most 32768");
    // Both elements of the window lie beside the only one there is.
    let one = Tensor::zeros(&[1, 1, 1], DType::F32).unwrap();
    let error = rt.max_pool(&one, &window(&[2]).dilation(&[4]).padding(&[2])).unwrap_err().to_string();
    assert!(error.contains("nothing but padding"), "{error}");
    let error = rt.avg_pool(&x, &window(&[2, 2]).dilation(&[2, 2])).unwrap_err().to_string();
    assert!(error.contains("for the maximum only"), "{error}");
    let whole = Tensor::zeros(&[1, 2, 5, 6], DType::I32).unwrap();
    assert!(rt.avg_pool(&whole, &window(&[2, 2])).unwrap_err().to_string().contains("cast to a float"));
    assert!(rt.adaptive_avg_pool(&x, &[2]).is_err() && rt.global_avg_pool(&x, 4).is_err());
    let mut out = Tensor::zeros(&[1, 2, 5, 6], DType::F32).unwrap();
    assert!(rt.max_pool_into(&x, &window(&[2, 2]), &mut out).unwrap_err().to_string().contains("the output"));
}

#[test]
fn everything_that_tells_poolings_apart_is_in_their_key() {
    let rt = runtime();
    let x = Tensor::zeros(&[1, 2, 8, 8], DType::F32).unwrap();
    let base = PoolOptions::new(&[3, 3]).stride(&[1, 1]).padding(&[1, 1]);
    let mut all = rt.workloads(|rt| rt.max_pool(&x, &base)).unwrap();
    all.extend(rt.workloads(|rt| rt.max_pool_with_indices(&x, &base)).unwrap());
    all.extend(rt.workloads(|rt| rt.avg_pool(&x, &base)).unwrap());
    all.extend(rt.workloads(|rt| rt.avg_pool(&x, &base.clone().count_include_pad(false))).unwrap());
    all.extend(rt.workloads(|rt| rt.adaptive_avg_pool(&x, &[8, 8])).unwrap());
    all.extend(
        rt.workloads(|rt| rt.max_pool(&x, &PoolOptions::new(&[5, 5]).stride(&[1, 1]).padding(&[2, 2])))
            .unwrap(),
    );
    let dilated = PoolOptions::new(&[3, 3]).stride(&[1, 1]).padding(&[2, 2]).dilation(&[2, 2]);
    all.extend(rt.workloads(|rt| rt.max_pool(&x, &dilated)).unwrap());
    let keys: std::collections::HashSet<_> = all.iter().map(Workload::key).collect();
    assert_eq!((keys.len(), all.len()), (7, 7));
}
