//! Recorded conversations, replayed: the recorded answers are served in order, the recorded tool results are given by
//! tools, and what the agent sends is compared with what the recorded client sent.
//!
//! Both sides are read into the same wire-neutral form first (`meaning`), by readers that know nothing of the crate.

pub mod compare;
pub mod drive;
pub mod meaning;
pub mod plan;
pub mod prefix;
pub mod read_anthropic;
pub mod read_chat;
pub mod read_gemini;
pub mod read_responses;
