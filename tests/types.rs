//! The plain types: stored forms, usage trees, sizes and the transcript check.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "types/forward.rs"]
mod forward;
#[path = "types/generate.rs"]
mod generate;
#[path = "types/golden.rs"]
mod golden;
#[path = "types/round_trip.rs"]
mod round_trip;
#[path = "types/sizes.rs"]
mod sizes;
#[path = "types/transcript.rs"]
mod transcript;
#[path = "types/usage_tree.rs"]
mod usage_tree;
