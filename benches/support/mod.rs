//! What the benchmarks share.
#![allow(dead_code, reason = "each benchmark uses a part")]

pub(crate) mod model;
pub(crate) mod traffic;
pub(crate) mod wires;
