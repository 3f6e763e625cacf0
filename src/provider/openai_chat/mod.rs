//! OpenAI Chat Completions, and everything that speaks it.

mod calls;
mod chunk;
mod details;
mod error;
mod fast;
mod finish;
mod ids;
mod json_scan;
mod lenient;
mod profile;
mod stream;
mod thinking;
mod usage;
mod vendors;

pub use profile::{
    CallIds, ChatProfile, DocumentStyle, KeyHeader, MaxTokensField, Models, ReasoningEcho, ReasoningField, SystemRole,
    ToolChoiceSupport, UsageStyle,
};
pub use thinking::{Effort, ThinkingRule, ThinkingSwitch};
