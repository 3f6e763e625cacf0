//! Floor 0: plain data and pure functions.
//!
//! Whatever is stored is `Clone + Debug + PartialEq + Serialize + Deserialize`. Nothing here does I/O, awaits, or
//! knows a wire. Field names serialize in camelCase and enum values in kebab-case, so that a stored session stays
//! readable for years and beside the reference.

mod content;
mod deferred;
mod extra;
mod finish;
mod media;
mod outcome;
mod prompt;
mod size;
mod stats;
mod tool_result;
mod transcript;
mod turn;
mod usage;

pub use content::{
    OpaqueBlock, SessionContentBlock, Signature, SignatureProducer, TextBlock, ThinkingBlock, ToolCallBlock,
    ToolResultBlock,
};
pub use deferred::DeferredCall;
pub use extra::Extra;
pub use finish::TurnFinishReason;
pub use media::{Document, Media, MediaSource};
pub use outcome::{ToolOutcome, ToolStatus};
pub use prompt::{Prompt, PromptPart};
pub use size::{ToolOutputRef, tool_output_budget_byte_length, tool_output_byte_length, tool_result_to_text};
pub use stats::{
    AgentStats, ChildStats, ChildStatus, Children, ModelUsage, Totals, fold_totals, stats_by_model,
    stats_by_provider_model, stats_by_run, walk_decisions, walk_turns,
};
pub use tool_result::{Resource, ResourceContent, ToolResultBody, ToolResultContent};
pub use transcript::{TranscriptError, TranscriptRule, validate_transcript};
pub use turn::{PendingCall, Role, SessionTurn, Timestamp, TurnOrigin};
pub use usage::{DecisionUsage, NanoUsd, TokenUsage, TurnUsage, UsageKind};
