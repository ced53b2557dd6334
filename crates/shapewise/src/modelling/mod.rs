//! Models of how long a kernel takes.
//!
//! The [roofline](predict) bounds a candidate's time by the device's measured peaks; an [`OperationModel`] learns from
//! measurements how far each kernel stays behind it, and says how sure it is.

mod accuracy;
mod anomaly;
mod example;
mod features;
mod interval;
mod modeler;
mod models;
mod operation;
mod prediction;
mod repeated;
mod roofline;
mod transfer;
mod weights;

pub use accuracy::{Accuracy, AccuracyReport, Correlation, Trend};
pub use anomaly::{Anomaly, AnomalyWatch, Severity};
pub use example::{Example, Model, ModelError};
pub use features::{FEATURES, FEATURES_VERSION, Features, WorkloadFeatures};
pub use interval::AdaptiveLevel;
pub use modeler::{Estimate, PerformanceModeler};
pub use models::{
    BoostingSettings, DecisionTree, GradientBoosting, NeuralNetwork, RandomForest, RidgeRegression,
    SupportVectorRegression,
};
pub use operation::{ModelChoice, OperationModel, Query, Training, Validation};
pub use prediction::{Basis, Prediction};
pub use roofline::{Roofs, Terms, predict};
