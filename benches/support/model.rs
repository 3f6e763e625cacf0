use std::sync::Arc;

use futures::stream;
use zidane::async_trait;
use zidane::provider::{ModelRequest, Provider, ProviderError, ProviderStream, RequestContext, StreamEvent};
use zidane::types::TurnFinishReason;

/// A model in memory: calls the tool `add` in the given number of turns, then answers.
#[derive(Clone, Copy)]
pub(crate) struct Model {
    /// Turns with calls.
    pub(crate) turns: usize,
    /// Calls in each of them.
    pub(crate) calls: usize,
    /// Text deltas in every turn.
    pub(crate) deltas: usize,
}

#[async_trait]
impl Provider for Model {
    fn id(&self) -> &str {
        "in-memory"
    }

    async fn stream(&self, request: Arc<ModelRequest>, _: &RequestContext) -> Result<ProviderStream, ProviderError> {
        let turn = request.history.len() / 2;
        let mut events = Vec::with_capacity(self.deltas + 3 * self.calls + 1);
        events.extend((0..self.deltas).map(|_| StreamEvent::Text { block: 0, delta: "sixteen bytes on".to_owned() }));
        let calls = if turn < self.turns { self.calls } else { 0 };
        for (block, call) in (1..).zip(0..calls) {
            let id = format!("call_{turn}_{call}");
            events.push(StreamEvent::ToolCallStart { block, id, name: "add".to_owned() });
            events.push(StreamEvent::ToolCallDelta { block, delta: format!("{{\"a\":{turn},\"b\":{call}}}") });
            events.push(StreamEvent::ToolCallEnd { block });
        }
        let reason = if calls > 0 { TurnFinishReason::ToolCalls } else { TurnFinishReason::Stop };
        events.push(StreamEvent::Finish { reason, raw: None });
        Ok(ProviderStream::new(stream::iter(events.into_iter().map(Ok))))
    }
}
