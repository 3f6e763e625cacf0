//! What tests of an agent need, without a network, a key or a real clock. Always compiled, so that users have it too.

mod conformance;
mod recorder;
mod scripted;
mod sse_server;
mod step_journal;
mod virtual_clock;

pub use conformance::{ProviderFixture, ProviderTest, Saying, check_provider};
pub use recorder::EventRecorder;
pub use scripted::{Reply, ScriptedProvider, ScriptedRequest};
pub use sse_server::{Gate, HttpEnd, HttpFraming, HttpReply, HttpReplyState, ReceivedRequest, SseServer};
pub use step_journal::StepJournal;
pub use virtual_clock::VirtualClock;

// Pure, and used by the loop too: it lives with the types.
pub use crate::types::{TranscriptError, TranscriptRule, validate_transcript};
