//! One conversation moved through every ordered pair of wires. Each request is held against the rules of its wire, which
//! are written down here from the vendors' references and know nothing of our encoders, and against the stored
//! conversation: nothing that can be kept is lost, and no wire's own state reaches another.
#![cfg(all(feature = "anthropic", feature = "openai", feature = "gemini"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "matrix/approval.rs"]
mod approval;
#[path = "matrix/bound.rs"]
mod bound;
#[path = "matrix/broken.rs"]
mod broken;
#[path = "matrix/compacted.rs"]
mod compacted;
#[path = "matrix/kept.rs"]
mod kept;
#[path = "matrix/pairs.rs"]
mod pairs;
#[path = "matrix/prefix.rs"]
mod prefix;
#[path = "matrix/rules/mod.rs"]
mod rules;
#[path = "matrix/strict_json.rs"]
mod strict_json;
#[path = "matrix/wire.rs"]
mod wire;
