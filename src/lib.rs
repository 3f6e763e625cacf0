//! An embeddable agent runtime.

pub mod provider;
pub mod types;

pub use async_trait::async_trait;
