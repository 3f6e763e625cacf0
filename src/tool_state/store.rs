use std::sync::Arc;

use async_trait::async_trait;

use super::{ToolStateCommit, ToolStateSnapshot};

/// What a store fails with. Any error converts with `?`, and so does text.
pub type StoreError = Box<dyn std::error::Error + Send + Sync>;

/// Durable backing for tool state, over whatever the host already trusts with writes.
///
/// `load` comes once per agent, before any tool is dispatched (again after a failure, or when a commit was cut short
/// and what the store holds is not known). `commit` comes once per tool call that wrote something, in call order, never
/// two at a time from one agent, and never without ops. Agents of several processes may share a store; each scope is
/// one writer's at a time, or the last write of a key wins.
///
/// A commit must be all or nothing, and **idempotent by [`commit_id`](ToolStateCommit::commit_id)**: a durable run that
/// is resumed may hand in a commit that was already applied, after newer ones. Applying it again would move the state
/// backwards, so a store remembers the ids it has applied (within the scope) and answers `Ok` without doing anything.
///
/// A rejected commit does not fail the tool call, whose effects have happened: the write is dropped and the host is
/// told. A store for which the write matters more than the latency retries by itself, with a bound.
///
/// Dropping the future of `commit` may leave the commit applied or not; it must not leave a part of it.
///
/// ```
/// use zidane::tool_state::{StoreError, ToolStateCommit, ToolStateSnapshot, ToolStateStore};
///
/// struct Audited<S>(S);
///
/// #[zidane::async_trait]
/// impl<S: ToolStateStore> ToolStateStore for Audited<S> {
///     async fn load(&self, scope: &str) -> Result<ToolStateSnapshot, StoreError> {
///         self.0.load(scope).await
///     }
///     async fn commit(&self, commit: &ToolStateCommit) -> Result<(), StoreError> {
///         println!("call {} wrote {} keys", commit.call_id, commit.ops.len());
///         self.0.commit(commit).await
///     }
/// }
/// ```
#[async_trait]
pub trait ToolStateStore: Send + Sync {
    /// All state of a scope; empty for a scope nobody wrote to.
    ///
    /// # Errors
    /// Whatever kept the store from reading it. The run then fails or goes on with an empty state, as the host chose.
    async fn load(&self, scope: &str) -> Result<ToolStateSnapshot, StoreError>;

    /// Applies the writes of one call, in their order, once per commit id.
    ///
    /// # Errors
    /// Whatever kept the store from applying them; then none of them was.
    async fn commit(&self, commit: &ToolStateCommit) -> Result<(), StoreError>;
}

#[async_trait]
impl<S: ToolStateStore + ?Sized> ToolStateStore for Arc<S> {
    async fn load(&self, scope: &str) -> Result<ToolStateSnapshot, StoreError> {
        (**self).load(scope).await
    }

    async fn commit(&self, commit: &ToolStateCommit) -> Result<(), StoreError> {
        (**self).commit(commit).await
    }
}
