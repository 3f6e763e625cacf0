//! Counterparts for tests: what stands in for a model, a network or a clock. Public, so that a host's tests have them too.

mod sse_server;

pub use sse_server::{Framing, Gate, ReceivedRequest, Reply, ReplyEnd, ReplyState, SseServer};
