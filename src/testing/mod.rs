//! What tests of an agent need, without a network, a key or a real clock. Always compiled, so that users have it too.

mod conformance;
#[doc(hidden)]
pub mod durable;
mod recorder;
mod scripted;
#[doc(hidden)]
pub mod session_store;
mod sse_server;
mod step_journal;
#[doc(hidden)]
pub mod tool_state_store;
mod virtual_clock;

#[doc(hidden)]
pub use conformance::store::run_check;
pub use conformance::{ProviderFixture, ProviderTest, Saying, check_provider};
pub use durable::durable_conformance;
pub use recorder::EventRecorder;
pub use scripted::{Reply, ScriptedProvider, ScriptedRequest};
pub use session_store::session_store_conformance;
pub use sse_server::{Gate, HttpEnd, HttpFraming, HttpReply, HttpReplyState, ReceivedRequest, SseServer};
pub use step_journal::StepJournal;
pub use tool_state_store::tool_state_store_conformance;
pub use virtual_clock::VirtualClock;

// Pure, and used by the loop too: it lives with the types.
pub use crate::types::{TranscriptError, TranscriptRule, validate_transcript};
