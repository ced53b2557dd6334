//! Little evidence, bad evidence, and intervals that keep their word.

use super::*;
use crate::modelling::FEATURES;

/// A candidate whose arithmetic takes `baseline` seconds.
fn features(kernel: u32, size: f32, baseline: f64) -> Features {
    let mut all = [0.0; FEATURES];
    all[0] = kernel as f32;
    all[1] = kernel as f32;
    all[2] = baseline as f32;
    all[8] = crate::modelling::features::log2(baseline);
    all[25] = size;
    Features(all)
}

fn example(kernel: u32, shape: u64, baseline: f64, seconds: f64) -> Example {
    let features = features(kernel, baseline.log2() as f32, baseline);
    Example { features, baseline, seconds, shape, weight: 1.0 }
}

fn predict(model: &OperationModel, of: &Example) -> Prediction {
    let mut out = Vec::new();
    model.predict(of.shape, &[Query { features: of.features, baseline: of.baseline }], &mut out);
    out[0]
}

fn train(examples: &[Example]) -> OperationModel {
    OperationModel::train(examples, &Training::default()).unwrap()
}

fn is_sound(p: &Prediction) -> bool {
    p.low.is_finite() && p.high.is_finite() && 0.0 < p.low && p.low <= p.seconds && p.seconds <= p.high
}

/// Uniform numbers between 0 and 1 from a fixed generator.
fn numbers() -> impl FnMut() -> f64 {
    let mut state = 3u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[test]
fn without_evidence_the_roofline_with_a_wide_interval() {
    let p = predict(&OperationModel::untrained(), &example(1, 0, 1e-3, 1.0));
    assert_eq!((p.basis, p.confidence), (Basis::Roofline, 0.0));
    assert!(is_sound(&p) && p.low <= 1e-3 && p.high > 5e-3, "{p:?}");
}

#[test]
fn one_sample_of_seven_seconds_is_believed_and_no_nanosecond_predicted() {
    let slow = example(1, 7, 1e-3, 7.0);
    let model = train(&[slow]);
    let same = predict(&model, &slow);
    assert!((same.seconds - 7.0).abs() < 1e-3 && same.basis == Basis::Measured, "{same:?}");
    for baseline in [1e-6, 1e-3, 1.0] {
        for kernel in [1, 2] {
            let p = predict(&model, &example(kernel, 8, baseline, 1.0));
            assert!(is_sound(&p) && p.seconds >= baseline, "{p:?}");
        }
    }
}

#[test]
fn two_and_contradictory_samples() {
    let two = train(&[example(1, 1, 1e-3, 2e-3), example(1, 2, 1e-2, 2e-2)]);
    let between = predict(&two, &example(1, 3, 3e-3, 1.0));
    assert!(is_sound(&between) && (3e-3..3e-2).contains(&between.seconds), "{between:?}");
    let torn = train(&[example(1, 1, 1e-3, 1e-3), example(1, 1, 1e-3, 1e-1)]);
    let p = predict(&torn, &example(1, 1, 1e-3, 1.0));
    assert!((p.seconds - 1e-3).abs() < 1e-5, "what else the machine does only adds: {p:?}");
    assert!(
        is_sound(&p) && p.low < 1e-4 && p.high >= 1e-1,
        "one of them is a hundred times the other: {p:?}"
    );
}

#[test]
fn equal_samples_of_many_shapes() {
    let equal: Vec<Example> = (0..100).map(|i| example(1, i, 1e-3, 2e-3)).collect();
    let p = predict(&train(&equal), &example(1, 1000, 1e-3, 1.0));
    assert!(is_sound(&p) && (p.seconds / 2e-3 - 1.0).abs() < 0.01, "{p:?}");
}

#[test]
fn impossible_times_are_refused() {
    for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let bad = OperationModel::train(&[example(1, 1, 1e-3, seconds)], &Training::default());
        assert_eq!(bad.err(), Some(ModelError::Implausible(0)));
        let bad = OperationModel::train(&[example(1, 1, seconds, 1.0)], &Training::default());
        assert_eq!(bad.err(), Some(ModelError::Implausible(0)));
    }
    assert_eq!(OperationModel::train(&[], &Training::default()).err(), Some(ModelError::NoExamples));
}

#[test]
fn nothing_is_predicted_beyond_what_was_measured() {
    let mut next = numbers();
    let examples: Vec<Example> = (0..200)
        .map(|i| {
            let baseline = 1e-6 * 10f64.powf(3.0 * next());
            example(1 + i % 2, u64::from(i / 2), baseline, baseline * (1.5 + next()))
        })
        .collect();
    let model = train(&examples);
    for baseline in [1e-12, 1e-9, 1.0, 1e4] {
        let ratio = predict(&model, &example(1, 999_999, baseline, 1.0)).seconds / baseline;
        assert!((1.49..2.51).contains(&ratio), "{baseline}: {ratio}");
    }
}

#[test]
fn intervals_hold_nine_times_in_ten_on_new_shapes() {
    let mut next = numbers();
    let mut draw = |shape: u64| {
        let baseline = 1e-6 * 10f64.powf(4.0 * next());
        let kernel = 1 + (shape % 3) as u32;
        // Noise between 0.8 and 1.25 times.
        let noise = (1.25f64.ln() * (2.0 * next() - 1.0)).exp();
        example(kernel, shape, baseline, baseline * (1.0 + f64::from(kernel)) * noise)
    };
    let examples: Vec<Example> = (0..600).map(&mut draw).collect();
    let model = train(&examples);
    let fresh: Vec<Example> = (1000..2000).map(&mut draw).collect();
    let covered = fresh.iter().filter(|e| {
        let p = predict(&model, e);
        (p.low..=p.high).contains(&e.seconds)
    });
    let share = covered.count() as f64 / 1000.0;
    assert!((0.86..0.94).contains(&share), "{share}");
    assert!(model.validation().unwrap().mean_error < 0.2);
}

#[test]
fn a_measured_candidate_is_predicted_by_its_own_measurement() {
    let mut examples: Vec<Example> =
        (0..60).map(|i| example(1, i, 1e-5 * (1 + i) as f64, 3e-5 * (1 + i) as f64)).collect();
    examples[30].seconds *= 4.0;
    let p = predict(&train(&examples), &examples[30]);
    assert!((p.seconds / examples[30].seconds - 1.0).abs() < 0.01 && p.basis == Basis::Measured, "{p:?}");
}

#[test]
fn every_choice_of_model_trains_and_a_users_own_too() {
    struct Nothing;
    impl Model for Nothing {
        fn name(&self) -> &'static str {
            "nothing"
        }
        fn fit(&mut self, _: &[Example]) -> Result<(), ModelError> {
            Ok(())
        }
        fn predict(&self, _: &[Features], out: &mut [f32]) {
            out.fill(0.0);
        }
    }
    let examples: Vec<Example> =
        (0..40).map(|i| example(1, i, 1e-5 * (1 + i) as f64, 3e-5 * (1 + i) as f64)).collect();
    let choices = [
        ModelChoice::GradientBoosting,
        ModelChoice::RidgeRegression,
        ModelChoice::DecisionTree,
        ModelChoice::RandomForest,
        ModelChoice::SupportVectorRegression,
        ModelChoice::NeuralNetwork,
        ModelChoice::Custom(Arc::new(|| Box::new(Nothing))),
    ];
    for model in choices {
        let trained = OperationModel::train(&examples, &Training { model, ..Training::default() }).unwrap();
        let p = predict(&trained, &example(1, 777, 1.1e-4, 1.0));
        assert!((p.seconds / 3.3e-4 - 1.0).abs() < 0.2, "{}: {p:?}", trained.model());
    }
}

#[test]
fn predictions_aim_at_the_least_relative_error() {
    assert_eq!(least_relative(&[0.0; 5]), 0.0);
    assert!((least_relative(&[-0.1; 3]) - 0.1).abs() < 1e-6, "all predicted a tenth too high");
    let half_and_double = [2f32.ln(), -(2f32.ln())];
    assert!(least_relative(&half_and_double) > 0.19, "too high by two counts more than too low by two");
}
