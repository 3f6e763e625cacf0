use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Settled, ToolStateError, ToolStateOp, ToolStateSnapshot};

/// Tool state as one call sees it: the state as committed when the call was dispatched, plus the call's own writes.
///
/// Writes are staged. They are committed after the body returned `Ok`, and dropped when it returned `Err`, panicked,
/// timed out or was aborted. Clones are the same view. Once the call has settled, writes give [`Settled`]; reads still
/// work and show what the call saw last.
///
/// Keys are any text; `/` or `:` make prefixes for [`keys`](Self::keys). Values are any JSON.
#[derive(Clone)]
pub struct ToolStateView {
    shared: Arc<Shared>,
}

struct Shared {
    base: ToolStateSnapshot,
    /// What the enclosing call had staged when this one, nested in it, began.
    inherited: Overlay,
    stage: Mutex<Stage>,
}

/// Per key what is staged; `None` is a removal.
type Overlay = BTreeMap<Arc<str>, Option<Arc<Value>>>;

#[derive(Default)]
struct Stage {
    overlay: Overlay,
    ops: Vec<ToolStateOp>,
    sealed: bool,
}

impl Stage {
    fn push(&mut self, op: ToolStateOp) -> Result<(), Settled> {
        if self.sealed {
            return Err(Settled);
        }
        match &op {
            ToolStateOp::Set { key, value } => self.overlay.insert(Arc::clone(key), Some(Arc::clone(value))),
            ToolStateOp::Delete { key } => self.overlay.insert(Arc::clone(key), None),
        };
        self.ops.push(op);
        Ok(())
    }
}

impl Shared {
    fn read(&self, stage: &Stage, key: &str) -> Option<Arc<Value>> {
        match stage.overlay.get(key).or_else(|| self.inherited.get(key)) {
            Some(staged) => staged.clone(),
            None => self.base.get(key).cloned(),
        }
    }
}

impl ToolStateView {
    /// A view on a snapshot, with nothing staged.
    #[must_use]
    pub fn new(base: ToolStateSnapshot) -> Self {
        Self { shared: Arc::new(Shared { base, inherited: Overlay::new(), stage: Mutex::default() }) }
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Arc<Value>> {
        self.shared.read(&self.stage(), key)
    }

    /// The value of a key as a type of the tool's.
    ///
    /// # Errors
    /// [`ToolStateError::Type`] when the value does not fit.
    pub fn get_as<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, ToolStateError> {
        self.get(key).map(|value| read_as(key, &value)).transpose()
    }

    /// Stages a value.
    ///
    /// # Errors
    /// [`Settled`] once the call has ended.
    pub fn set(&self, key: impl Into<Arc<str>>, value: impl Into<Value>) -> Result<(), Settled> {
        let op = ToolStateOp::set(key, value);
        self.stage().push(op)
    }

    /// Stages a value of a type of the tool's.
    ///
    /// # Errors
    /// [`ToolStateError::Type`] when it cannot be JSON, [`ToolStateError::Settled`] once the call has ended.
    pub fn set_as<T: Serialize + ?Sized>(&self, key: impl Into<Arc<str>>, value: &T) -> Result<(), ToolStateError> {
        let key = key.into();
        match serde_json::to_value(value) {
            Ok(value) => Ok(self.set(key, value)?),
            Err(error) => Err(ToolStateError::Type { key: key.as_ref().into(), source: error.into() }),
        }
    }

    /// Stages the removal of a key.
    ///
    /// # Errors
    /// [`Settled`] once the call has ended.
    pub fn delete(&self, key: impl Into<Arc<str>>) -> Result<(), Settled> {
        self.stage().push(ToolStateOp::delete(key))
    }

    /// Stages a value made from the one the call sees now.
    ///
    /// Several tasks of the call may do this at once and none is lost: `change` runs again when another got in between.
    ///
    /// ```
    /// # use zidane::tool_state::ToolStateView;
    /// # let state = ToolStateView::new(Default::default());
    /// state.update("calls", |old| old.and_then(|n| n.as_u64()).unwrap_or(0).saturating_add(1))?;
    /// assert_eq!(state.get_as::<u64>("calls")?, Some(1));
    /// # Ok::<_, zidane::tool_state::ToolStateError>(())
    /// ```
    ///
    /// # Errors
    /// [`Settled`] once the call has ended; `change` may have run.
    pub fn update<V, F>(&self, key: impl Into<Arc<str>>, mut change: F) -> Result<(), Settled>
    where
        V: Into<Value>,
        F: FnMut(Option<&Value>) -> V,
    {
        let key = key.into();
        // `change` is foreign code, so it runs without the lock and what it was given is compared afterwards. Each
        // round lost is another task's round won.
        loop {
            let seen = {
                let stage = self.stage();
                if stage.sealed {
                    return Err(Settled);
                }
                self.shared.read(&stage, &key)
            };
            let value = Arc::new(change(seen.as_deref()).into());
            let mut stage = self.stage();
            let now = self.shared.read(&stage, &key);
            let unchanged = match (&seen, &now) {
                (Some(seen), Some(now)) => Arc::ptr_eq(seen, now),
                (None, None) => true,
                _ => false,
            };
            if unchanged {
                return stage.push(ToolStateOp::Set { key, value });
            }
        }
    }

    /// The keys that begin with `prefix` (all for `""`), in byte order.
    #[must_use]
    pub fn keys(&self, prefix: &str) -> Vec<Arc<str>> {
        let mut keys: BTreeMap<Arc<str>, bool> =
            self.shared.base.keys(prefix).map(|key| (Arc::clone(key), true)).collect();
        let stage = self.stage();
        for (key, staged) in self.shared.inherited.iter().chain(&stage.overlay) {
            if key.starts_with(prefix) {
                keys.insert(Arc::clone(key), staged.is_some());
            }
        }
        keys.into_iter().filter_map(|(key, there)| there.then_some(key)).collect()
    }

    /// Drops everything staged so far.
    ///
    /// # Errors
    /// [`Settled`] once the call has ended.
    pub fn discard(&self) -> Result<(), Settled> {
        let mut stage = self.stage();
        if stage.sealed {
            return Err(Settled);
        }
        stage.overlay.clear();
        stage.ops.clear();
        Ok(())
    }

    /// What is staged, in the order it was made. Empty once the call has settled.
    #[must_use]
    pub fn staged(&self) -> Vec<ToolStateOp> {
        self.stage().ops.clone()
    }

    /// Ends the view and hands over what was staged. Only the first time gives anything.
    pub(crate) fn seal(&self) -> Vec<ToolStateOp> {
        let mut stage = self.stage();
        stage.sealed = true;
        std::mem::take(&mut stage.ops)
    }

    /// A view for a call nested in this one: it sees what this one staged so far, and stages on its own.
    pub(crate) fn nested(&self) -> Self {
        let mut inherited = self.shared.inherited.clone();
        inherited.extend(self.stage().overlay.iter().map(|(key, staged)| (Arc::clone(key), staged.clone())));
        Self { shared: Arc::new(Shared { base: self.shared.base.clone(), inherited, stage: Mutex::default() }) }
    }

    /// Takes over the ops of a nested call that ended well.
    pub(crate) fn join(&self, ops: Vec<ToolStateOp>) -> Result<(), Settled> {
        let mut stage = self.stage();
        ops.into_iter().try_for_each(|op| stage.push(op))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.shared.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ToolStateView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stage = self.stage();
        f.debug_struct("ToolStateView")
            .field("base", &self.shared.base.len())
            .field("staged", &stage.ops.len())
            .field("sealed", &stage.sealed)
            .finish_non_exhaustive()
    }
}

pub(super) fn read_as<T: DeserializeOwned>(key: &str, value: &Value) -> Result<T, ToolStateError> {
    T::deserialize(value).map_err(|error| ToolStateError::Type { key: key.to_owned(), source: error.into() })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view() -> ToolStateView {
        ToolStateView::new([("a", json!(1)), ("b", json!(2))].into_iter().collect())
    }

    fn keys(view: &ToolStateView) -> Vec<String> {
        view.keys("").iter().map(|key| key.to_string()).collect()
    }

    #[test]
    fn sealing_hands_over_once_and_refuses_what_comes_later() {
        let view = view();
        view.set("c", 3).unwrap();
        view.delete("a").unwrap();
        assert_eq!(view.seal(), [ToolStateOp::set("c", 3), ToolStateOp::delete("a")]);
        assert_eq!(view.seal(), []);
        assert_eq!(view.set("c", 4), Err(Settled));
        assert_eq!(view.delete("c"), Err(Settled));
        assert_eq!(view.update("c", |_| 5), Err(Settled));
        assert_eq!(view.discard(), Err(Settled));
        assert!(matches!(view.set_as("c", &5), Err(ToolStateError::Settled(Settled))));
        assert_eq!(view.get("c").as_deref(), Some(&json!(3)));
    }

    #[test]
    fn a_nested_view_sees_what_was_staged_and_joins_only_when_asked() {
        let outer = view();
        outer.set("c", 3).unwrap();
        outer.delete("a").unwrap();
        let inner = outer.nested();
        assert_eq!(keys(&inner), ["b", "c"]);
        inner.set("a", 9).unwrap();
        inner.delete("c").unwrap();
        assert_eq!(keys(&inner), ["a", "b"]);
        assert_eq!(keys(&outer), ["b", "c"]);
        inner.discard().unwrap();
        assert_eq!(keys(&inner), ["b", "c"]);
        inner.set("d", 4).unwrap();
        outer.join(inner.seal()).unwrap();
        assert_eq!(keys(&outer), ["b", "c", "d"]);
        assert_eq!(outer.seal().len(), 3);
        assert_eq!(outer.join(vec![ToolStateOp::delete("d")]), Err(Settled));
    }
}
