//! What the suites share.

pub mod compare;
pub mod data;
pub mod layers;
pub mod numbers;
pub mod operand;
