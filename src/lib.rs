//! An embeddable agent runtime.

pub mod provider;
pub mod tool;
pub mod tool_state;
pub mod types;

pub use async_trait::async_trait;
