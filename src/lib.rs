//! An embeddable agent runtime.

pub mod clock;
pub mod provider;
pub mod testing;
pub mod types;

pub use async_trait::async_trait;
