use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

/// The host's own things by type (a database pool, the user a run is for), which tools find in their context.
///
/// Cloning shares what is in it.
#[derive(Clone, Default)]
pub struct Extensions {
    by_type: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl Extensions {
    /// With nothing in it.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Puts a thing in. One of the same type is replaced.
    pub fn insert<T: Send + Sync + 'static>(&mut self, thing: T) -> &mut Self {
        self.by_type.insert(TypeId::of::<T>(), Arc::new(thing));
        self
    }

    /// The thing of a type.
    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.by_type.get(&TypeId::of::<T>())?.downcast_ref()
    }

    /// How many things there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_type.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_type.is_empty()
    }
}

impl std::fmt::Debug for Extensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extensions").field("len", &self.len()).finish()
    }
}
