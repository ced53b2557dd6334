//! Choosing a kernel: registry → candidates → policy → decision table, and the explanation of it.

mod budget;
mod candidates;
mod explain;
mod knowledge;
mod policy;
mod registry;
mod replay;
mod selector;
mod table;
mod trials;
mod verify;
mod watch;
mod workbench;

pub use budget::Budget;
pub(crate) use candidates::Narrow;
#[cfg(test)]
pub(crate) use candidates::tests::made_up;
pub use candidates::{Candidate, Candidates, Limits};
pub use explain::{ExplainedCandidate, ExplainedModel, ExplainedRefusal, Explanation, Stage};
pub(crate) use knowledge::{Knowledge, Sources};
pub use policy::{
    Decision, Hybrid, MachineLearning, Policy, ScoreBased, ScoreWeights, SelectionAlgorithm, Situation,
};
pub use registry::{KernelHandle, KernelRegistry};
pub use replay::{Replayed, replay};
pub use selector::AdaptiveKernelSelector;
pub(crate) use selector::Considered;
pub use table::Choice;
pub(crate) use table::{DecisionTable, Entry};
pub(crate) use verify::{LaunchFailure, Panic, judge, run_bound, run_caught, verify};
pub(crate) use watch::Watch;
