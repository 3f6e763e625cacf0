use super::StoreError;

/// The call has ended: its staged writes, progress and outcome are final, and this came too late.
///
/// A task that a tool left behind sees it when it touches its context after the body returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the tool call has settled; nothing can be added to it")]
pub struct Settled;

/// What went wrong with tool state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ToolStateError {
    /// The store could not give the state of a scope.
    #[error("tool state of scope `{scope}` could not be loaded")]
    Load {
        /// The scope.
        scope: String,
        /// What the store said.
        #[source]
        source: StoreError,
    },
    /// The store refused a commit. The write is dropped and memory is unchanged.
    #[error("tool state commit `{commit_id}` of call `{call_id}` was rejected")]
    Commit {
        /// The commit.
        commit_id: String,
        /// The call whose writes are lost.
        call_id: String,
        /// What the store said.
        #[source]
        source: StoreError,
    },
    /// A value does not fit the type asked for, or a type cannot be a JSON value.
    #[error("tool state key `{key}` does not fit the type")]
    Type {
        /// The key.
        key: String,
        /// What serde said.
        #[source]
        source: StoreError,
    },
    /// The call has ended.
    #[error(transparent)]
    Settled(#[from] Settled),
}

/// What a run does when its tool state cannot be loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadFailure {
    /// The run fails before anything is dispatched: an empty view could overwrite good data.
    #[default]
    FailRun,
    /// The run goes on with what memory has, empty in a fresh agent. The next run tries to load again.
    ContinueEmpty,
}
