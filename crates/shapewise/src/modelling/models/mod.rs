//! Models of the residual, one file each; all are flat arrays when they predict, and none allocates then.
//!
//! They are written here because what general crates offer keeps its nodes private and allocates for each prediction.

mod boosting;
mod encode;
mod forest;
mod linear;
mod network;
mod support;
#[cfg(test)]
mod tests;
mod tree;

pub use boosting::{BoostingSettings, GradientBoosting};
pub use forest::RandomForest;
pub use linear::RidgeRegression;
pub use network::NeuralNetwork;
pub use support::SupportVectorRegression;
pub use tree::DecisionTree;
