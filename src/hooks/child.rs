use std::sync::Arc;

/// A run that a tool spawned, and its place in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildInfo {
    run_id: Arc<str>,
    parent_run_id: Arc<str>,
    name: Arc<str>,
    path: Vec<Arc<str>>,
}

impl ChildInfo {
    /// A run that the call `call_id` of a tool spawns, below `above`.
    pub(crate) fn new(
        run_id: Arc<str>,
        parent_run_id: Arc<str>,
        name: Arc<str>,
        above: Option<&Self>,
        call_id: Arc<str>,
    ) -> Self {
        let path = above.map_or(&[][..], |above| &above.path).iter().cloned().chain([call_id]).collect();
        Self { run_id, parent_run_id, name, path }
    }

    /// Its own id.
    #[must_use]
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The run that spawned it.
    #[must_use]
    pub fn parent_run_id(&self) -> &str {
        &self.parent_run_id
    }

    /// What the host calls it: the name of the tool that spawned it, where the host gave it no other.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The calls that lead to it: one of the root's run, one of the run below that, and so on; the last one spawned it.
    #[must_use]
    pub fn path(&self) -> &[Arc<str>] {
        &self.path
    }

    /// The call that spawned it.
    #[must_use]
    pub fn call_id(&self) -> &str {
        self.path.last().map_or("", |call| call)
    }

    /// How deep in the tree it is; 1 for a child of the root.
    #[must_use]
    pub fn depth(&self) -> u32 {
        u32::try_from(self.path.len()).unwrap_or(u32::MAX)
    }
}
