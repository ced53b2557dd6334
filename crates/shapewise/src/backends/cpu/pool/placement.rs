//! Where the pages of large buffers lie.

use serde::Serialize;

/// Which pages large buffers have, and on which nodes of memory they lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryPlan {
    /// Ordinary pages, where the system puts them.
    Default,
    /// Large pages, where the system puts them: what a pool does unless it is told otherwise.
    #[default]
    LargePages,
    /// Large pages, each on the node of the thread that touches it first, whatever the process was started with.
    NumaLocal,
    /// Large pages, taken in turns from all nodes: for operands that threads of all nodes read.
    Interleaved,
}

/// Node numbers that the system may have at most (`CONFIG_NODES_SHIFT` is at most ten).
const MOST_NODES: usize = 1024;
const WORDS: usize = MOST_NODES / 64;

/// A plan with the nodes of the machine it is for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Placement {
    pub plan: MemoryPlan,
    /// A bit for each node: only Linux binds pages to nodes.
    #[cfg(target_os = "linux")]
    pub nodes: [u64; WORDS],
}

impl Placement {
    /// A plan for a machine with these nodes; the error says why it has no meaning there.
    pub fn new(plan: MemoryPlan, nodes: &[usize]) -> Result<Self, String> {
        if plan == MemoryPlan::Interleaved && nodes.len() < 2 {
            return Err(format!("this machine has {} node of memory, and turns need two", nodes.len()));
        }
        let mut bits = [0; WORDS];
        for &node in nodes {
            let word =
                bits.get_mut(node / 64).ok_or_else(|| format!("node {node} is not below {MOST_NODES}"))?;
            *word |= 1 << (node % 64);
        }
        Ok(Self {
            plan,
            #[cfg(target_os = "linux")]
            nodes: bits,
        })
    }

    /// Whether its pages are large.
    #[cfg(target_os = "linux")]
    pub fn large(&self) -> bool {
        self.plan != MemoryPlan::Default
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn one_node_cannot_be_taken_in_turns() {
        let why = Placement::new(MemoryPlan::Interleaved, &[0]).unwrap_err();
        assert!(why.contains("1 node"), "{why}");
        let two = Placement::new(MemoryPlan::Interleaved, &[0, 65]).unwrap();
        assert_eq!((two.nodes[0], two.nodes[1]), (1, 2));
        assert!(Placement::new(MemoryPlan::NumaLocal, &[2000]).is_err());
        assert!(Placement::new(MemoryPlan::Default, &[]).is_ok_and(|p| !p.large()));
    }
}
