//! What holds for every model.

use super::*;
use crate::modelling::{Example, FEATURES, Features, Model, ModelError};

fn all() -> Vec<Box<dyn Model>> {
    vec![
        Box::new(RidgeRegression::default()),
        Box::new(DecisionTree::default()),
        Box::new(RandomForest::default()),
        Box::new(GradientBoosting::default()),
        Box::new(SupportVectorRegression::default()),
        Box::new(NeuralNetwork::default()),
    ]
}

/// Residual 1 + x/2 for one kernel and x/2 for another, x from 0 to 2.
fn made_up(count: usize) -> Vec<Example> {
    let example = |i: usize| {
        let mut features = [0.0; FEATURES];
        let x = (i * 7 % count) as f32 / count as f32 * 2.0;
        features[0] = if i.is_multiple_of(2) { 10.0 } else { 20.0 };
        features[1] = features[0];
        features[9] = x;
        features[25] = (i % 5) as f32;
        let residual = x / 2.0 + if i.is_multiple_of(2) { 1.0 } else { 0.0 };
        let seconds = 1e-3 * f64::from(residual).exp();
        Example { features: Features(features), baseline: 1e-3, seconds, shape: i as u64, weight: 1.0 }
    };
    (0..count).map(example).collect()
}

fn predict(model: &dyn Model, examples: &[Example]) -> Vec<f32> {
    let features: Vec<Features> = examples.iter().map(|e| e.features).collect();
    let mut out = vec![0.0; features.len()];
    model.predict(&features, &mut out);
    out
}

#[test]
fn every_model_learns_a_simple_law() {
    let examples = made_up(200);
    for mut model in all() {
        model.fit(&examples).unwrap();
        let found = predict(&*model, &examples);
        let error = examples.iter().zip(&found).map(|(e, f)| (e.residual() - f).abs()).sum::<f32>() / 200.0;
        assert!(error < 0.1, "{}: {error}", model.name());
    }
}

#[test]
fn equal_evidence_gives_equal_models() {
    let examples = made_up(60);
    for (mut a, mut b) in all().into_iter().zip(all()) {
        a.fit(&examples).unwrap();
        b.fit(&made_up(30)).unwrap();
        b.fit(&examples).unwrap();
        assert_eq!(predict(&*a, &examples), predict(&*b, &examples), "{}", a.name());
    }
}

#[test]
fn batches_do_not_change_predictions() {
    let examples = made_up(150);
    for mut model in all() {
        model.fit(&examples).unwrap();
        let together = predict(&*model, &examples);
        let alone: Vec<f32> = examples.iter().flat_map(|e| predict(&*model, &[*e])).collect();
        assert_eq!(together, alone, "{}", model.name());
        assert!(predict(&*model, &[]).is_empty());
    }
}

#[test]
fn one_example_and_equal_ones_are_learned_as_they_are() {
    let one = made_up(1);
    let mut equal = vec![one[0]; 30];
    equal.iter_mut().enumerate().for_each(|(i, e)| e.shape = i as u64);
    for mut model in all() {
        for examples in [&one, &equal] {
            model.fit(examples).unwrap();
            let found = predict(&*model, &one)[0];
            assert!((found - one[0].residual()).abs() < 0.2, "{}: {found}", model.name());
        }
    }
}

#[test]
fn contradictory_examples_meet_in_the_middle() {
    let mut examples = vec![made_up(1)[0]; 40];
    for (i, example) in examples.iter_mut().enumerate() {
        example.seconds = if i.is_multiple_of(2) { 1e-4 } else { 1e-2 };
    }
    for mut model in all() {
        model.fit(&examples).unwrap();
        let found = predict(&*model, &examples[..1])[0];
        // They are ln 10 above and below.
        assert!(found.abs() < 1.0, "{}: {found}", model.name());
    }
}

#[test]
fn impossible_examples_are_refused() {
    for mut model in all() {
        assert_eq!(model.fit(&[]), Err(ModelError::NoExamples));
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            let mut examples = made_up(3);
            examples[2].seconds = seconds;
            assert_eq!(model.fit(&examples), Err(ModelError::Implausible(2)), "{} {seconds}", model.name());
        }
        let mut examples = made_up(3);
        examples[1].features.0[12] = f32::NAN;
        assert_eq!(model.fit(&examples), Err(ModelError::Implausible(1)));
    }
}
