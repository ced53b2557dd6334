//! The trained models of every operation, published together.

use std::collections::HashMap;
use std::sync::Arc;

use super::learner::shape_of;
use crate::modelling::{Features, OperationModel, PerformanceModeler, Query, WorkloadFeatures};
use crate::ops::{OperationKind, Workload, WorkloadKey};
use crate::selection::Candidate;

/// A model for each operation that has evidence.
#[derive(Clone, Default)]
pub struct Models(HashMap<OperationKind, Arc<OperationModel>>);

impl Models {
    /// What the modeler has trained so far.
    pub(crate) fn of(modeler: &PerformanceModeler) -> Self {
        Self(modeler.models().map(|(operation, model)| (operation, Arc::clone(model))).collect())
    }

    /// The model of an operation.
    pub fn get(&self, operation: OperationKind) -> Option<&Arc<OperationModel>> {
        self.0.get(&operation)
    }

    /// Gives candidates of a workload what the operation's model says about them.
    pub(crate) fn attach(&self, workload: &Workload, key: WorkloadKey, candidates: &mut [Candidate]) {
        let Some(model) = self.get(workload.kind()) else { return };
        let shared = WorkloadFeatures::new(workload);
        let mut asked = Vec::with_capacity(candidates.len());
        let mut queries = Vec::with_capacity(candidates.len());
        for (i, candidate) in candidates.iter().enumerate() {
            if let (Some(features), Some(baseline)) = (describe(&shared, candidate), candidate.roofline()) {
                asked.push(i);
                queries.push(Query { features, baseline });
            }
        }
        let mut predictions = Vec::with_capacity(queries.len());
        model.predict(shape_of(key), &queries, &mut predictions);
        for (i, prediction) in asked.into_iter().zip(predictions) {
            candidates[i].learned = Some(prediction);
        }
    }
}

/// The features of a candidate; `None` where the device is not calibrated.
pub(crate) fn describe(shared: &WorkloadFeatures, candidate: &Candidate) -> Option<Features> {
    let Candidate { kernel, parameters, cost, terms, .. } = candidate;
    Some(shared.candidate(kernel.name(), parameters, cost, terms.as_ref()?))
}
