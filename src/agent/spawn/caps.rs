/// How deep no tree may become, whatever its caps.
const DEEPEST: u32 = 16;

/// How far a tree of runs may grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::agent) struct SpawnCaps {
    /// The depth of the deepest run; the root's is 0.
    pub(super) max_depth: u32,
    /// Runs that one run may have at work at the same time.
    pub(super) max_concurrent: u64,
    /// Runs below the root in all.
    pub(super) total: u64,
}

impl Default for SpawnCaps {
    fn default() -> Self {
        Self { max_depth: 3, max_concurrent: 8, total: 256 }
    }
}

impl SpawnCaps {
    /// The smaller of each. How many children a run has at work is its own affair.
    pub(super) fn below(self, above: Option<&Self>) -> Self {
        let total = above.map_or(self.total, |above| self.total.min(above.total));
        let max_depth = above.map_or(self.max_depth, |above| self.max_depth.min(above.max_depth)).min(DEEPEST);
        Self { max_depth, total, ..self }
    }
}
