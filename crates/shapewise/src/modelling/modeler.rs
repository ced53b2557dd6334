//! One place to ask about performance: time, memory and throughput of candidates, and how far to trust the answers.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::{
    Accuracy, AccuracyReport, Anomaly, AnomalyWatch, Example, Features, ModelError, OperationModel,
    Prediction, Query, Training,
};
use crate::ops::{Cost, OperationKind, Workload};

/// What a candidate is expected to need and to do.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Seconds, with an interval and how sure.
    pub time: Prediction,
    /// Bytes of operands and scratch together.
    pub memory: usize,
    /// Arithmetic operations per second.
    pub operations_per_second: f64,
    /// Bytes of operands per second.
    pub bytes_per_second: f64,
}

impl Estimate {
    /// What follows from a candidate's cost and its time.
    pub fn new(workload: &Workload, cost: &Cost, time: Prediction) -> Self {
        Self {
            time,
            memory: workload.bytes().saturating_add(cost.scratch),
            operations_per_second: cost.operations / time.seconds,
            bytes_per_second: workload.bytes() as f64 / time.seconds,
        }
    }
}

/// The models of all operations on one device, with a record of how good they were.
#[derive(Default)]
pub struct PerformanceModeler {
    training: Training,
    models: BTreeMap<OperationKind, Arc<OperationModel>>,
    accuracy: BTreeMap<OperationKind, Accuracy>,
    watch: AnomalyWatch,
}

impl PerformanceModeler {
    /// Nothing learned yet: the roofline with wide intervals.
    pub fn new(training: Training) -> Self {
        Self { training, ..Self::default() }
    }

    /// Learns an operation anew from all its examples; on an error the old model stays.
    pub fn train(&mut self, operation: OperationKind, examples: &[Example]) -> Result<(), ModelError> {
        let model = OperationModel::train(examples, &self.training)?;
        self.models.insert(operation, Arc::new(model));
        Ok(())
    }

    /// The model of an operation, if it was trained.
    pub fn model(&self, operation: OperationKind) -> Option<&Arc<OperationModel>> {
        self.models.get(&operation)
    }

    /// Every trained model.
    pub fn models(&self) -> impl Iterator<Item = (OperationKind, &Arc<OperationModel>)> {
        self.models.iter().map(|(&operation, model)| (operation, model))
    }

    /// What one candidate of a workload is expected to need and to do.
    pub fn estimate(&self, workload: &Workload, shape: u64, query: &Query, cost: &Cost) -> Estimate {
        let mut times = Vec::with_capacity(1);
        match self.models.get(&workload.kind()) {
            Some(model) => model.predict(shape, std::slice::from_ref(query), &mut times),
            None => OperationModel::untrained().predict(shape, std::slice::from_ref(query), &mut times),
        }
        Estimate::new(workload, cost, times[0])
    }

    /// Records how long a predicted call took, and says what was unusual about it.
    pub fn record(
        &mut self,
        operation: OperationKind,
        kernel: &str,
        shape: u64,
        features: &Features,
        prediction: &Prediction,
        seconds: f64,
    ) -> Vec<Anomaly> {
        if !self.accuracy.entry(operation).or_default().record(prediction, features, seconds) {
            return Vec::new();
        }
        if let Some(model) = self.models.get(&operation) {
            model.observe(prediction, seconds);
        }
        self.watch.succeeded(kernel, shape, prediction, seconds)
    }

    /// Records that a kernel failed.
    pub fn record_failure(&mut self, kernel: &str) -> Option<Anomaly> {
        self.watch.failed(kernel)
    }

    /// Whether memory is short for a call that needs so many bytes.
    pub fn check_memory(&self, needed: usize, available: usize) -> Option<Anomaly> {
        self.watch.memory(needed, available)
    }

    /// How good an operation's predictions were.
    pub fn accuracy(&self, operation: OperationKind) -> AccuracyReport {
        self.accuracy.get(&operation).map_or_else(|| Accuracy::default().report(), Accuracy::report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modelling::{Basis, Terms, WorkloadFeatures};
    use crate::ops::softmax::SoftmaxAttributes;
    use crate::ops::{ComputeUnit, Operation, Parameters, TensorDesc, Traffic};
    use crate::tensor::{DType, Shape};

    fn softmax(rows: usize) -> (Workload, Cost, Query) {
        let of = TensorDesc::contiguous(DType::F32, Shape::new(&[rows, 64]).unwrap());
        let workload = Workload::new(Operation::Softmax(SoftmaxAttributes::default()), &[of], &[of]);
        let unit = ComputeUnit { dtype: DType::F32, isa: None };
        let mut cost = Cost::new(rows as f64 * 640.0, unit, Traffic::default());
        cost.scratch = 100;
        let terms = Terms { arithmetic: cost.operations / 1e9, ..Terms::default() };
        let features = WorkloadFeatures::new(&workload).candidate("k", &Parameters::new(), &cost, &terms);
        (workload, cost, Query { features, baseline: terms.seconds() })
    }

    #[test]
    fn estimates_before_and_after_learning() {
        let mut modeler = PerformanceModeler::default();
        let (workload, cost, query) = softmax(16);
        let before = modeler.estimate(&workload, 99, &query, &cost);
        assert_eq!((before.time.basis, before.memory), (Basis::Roofline, 2 * 16 * 64 * 4 + 100));
        // Twice the roofline, always.
        let examples: Vec<Example> = (1..80)
            .map(|rows| {
                let (_, _, q) = softmax(rows);
                let seconds = 2.0 * q.baseline;
                Example {
                    features: q.features,
                    baseline: q.baseline,
                    seconds,
                    shape: rows as u64,
                    weight: 1.0,
                }
            })
            .collect();
        modeler.train(workload.kind(), &examples).unwrap();
        let after = modeler.estimate(&workload, 99, &query, &cost);
        assert!((after.time.seconds / query.baseline - 2.0).abs() < 0.2, "{after:?}");
        assert!(after.time.half_width() < before.time.half_width());
        assert!(after.operations_per_second > 0.0 && after.bytes_per_second > 0.0);
    }

    #[test]
    fn outcomes_are_recorded_per_operation() {
        let mut modeler = PerformanceModeler::default();
        let (workload, cost, query) = softmax(16);
        let estimate = modeler.estimate(&workload, 1, &query, &cost);
        for _ in 0..10 {
            modeler.record(workload.kind(), "k", 1, &query.features, &estimate.time, estimate.time.seconds);
        }
        assert!(
            modeler.record(workload.kind(), "k", 1, &query.features, &estimate.time, f64::NAN).is_empty()
        );
        assert_eq!(modeler.accuracy(workload.kind()).observations, 10);
        assert_eq!(modeler.accuracy(OperationKind::Matmul).observations, 0);
        assert!(modeler.record_failure("k").is_some());
        assert!(modeler.check_memory(estimate.memory, 100).is_some());
    }

    #[test]
    fn a_refused_training_keeps_the_old_model() {
        let mut modeler = PerformanceModeler::default();
        assert_eq!(modeler.train(OperationKind::Norm, &[]), Err(ModelError::NoExamples));
        assert!(modeler.model(OperationKind::Norm).is_none());
    }
}
