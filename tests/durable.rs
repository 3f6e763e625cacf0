//! Durable runs in memory and in SQLite: the engines by themselves, and agents on them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "durable/agents.rs"]
mod agents;
#[path = "durable/engines.rs"]
mod engines;
#[path = "harness/folder.rs"]
mod folder;
#[path = "durable/sabotage.rs"]
mod sabotage;
#[path = "durable/stopping.rs"]
mod stopping;

use zidane::durable::MemoryDurable;
use zidane::testing::durable_conformance;

durable_conformance!(memory, MemoryDurable::new());

#[cfg(feature = "sqlite")]
mod sqlite {
    use futures::future::BoxFuture;
    use std::sync::Arc;
    use zidane::durable::{DurableError, DurableRun, DurableRuntime, SqliteDurable};
    use zidane::sqlite::Database;
    use zidane::testing::durable_conformance;

    use crate::folder::Folder;

    /// Each attempt has the file open for itself, as another process would.
    struct Reopening(Folder);

    impl DurableRuntime for Reopening {
        fn attach(&self, id: &str, _: Option<&str>) -> BoxFuture<'_, Result<Arc<dyn DurableRun>, DurableError>> {
            let id = id.to_owned();
            Box::pin(async move {
                let database = Database::open(self.0.join("test.sqlite")).await.unwrap();
                SqliteDurable::new(database).attach(&id, None).await
            })
        }
    }

    durable_conformance!(in_memory, SqliteDurable::new(Database::in_memory().await.unwrap()));
    durable_conformance!(in_a_file, Reopening(Folder::new("durable")));
}
