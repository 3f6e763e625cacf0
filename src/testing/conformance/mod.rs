//! Test suites that any implementation of a trait can be held against. They panic where an implementation falls short,
//! as tests do.

mod provider;
pub(super) mod store;

pub use provider::{ProviderFixture, ProviderTest, Saying, check_provider};
