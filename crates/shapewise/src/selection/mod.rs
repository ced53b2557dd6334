//! Choosing a kernel: registry → candidates → policy → decision table, and the explanation of it.

mod candidates;
mod explain;
mod policy;
mod registry;
mod table;
mod verify;

pub use candidates::{Candidate, Candidates, Limits};
pub use explain::{ExplainedCandidate, ExplainedRefusal, Explanation};
pub use policy::{Decision, Policy, ScoreBased};
pub use registry::{KernelHandle, KernelRegistry};
pub use table::Choice;
pub(crate) use table::DecisionTable;
pub(crate) use verify::{run_caught, verify};
