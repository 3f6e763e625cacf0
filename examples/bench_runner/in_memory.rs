use std::sync::Arc;

use futures::stream;
use zidane::async_trait;
use zidane::provider::{
    ModelRequest, Provider, ProviderError, ProviderErrorKind, ProviderStream, RequestContext, StreamEvent,
    UsageSnapshot,
};
use zidane::types::{TokenUsage, TurnFinishReason};

use super::Failure;
use super::script::{Script, operands, words};

/// A model in memory that follows a `loop` script: what the server says, without wire and server.
pub(crate) struct InMemory {
    turns: usize,
    deltas: usize,
}

impl InMemory {
    pub(crate) fn new(script: &Script) -> Result<Self, Failure> {
        let (turns, deltas) = script.loop_shape().ok_or("only loop scripts are known in memory")?;
        Ok(Self { turns, deltas })
    }
}

#[async_trait]
impl Provider for InMemory {
    fn id(&self) -> &str {
        "in-memory"
    }

    async fn stream(&self, request: Arc<ModelRequest>, _: &RequestContext) -> Result<ProviderStream, ProviderError> {
        // The prompt, then an answer and its results for every turn so far.
        let turn = request.history.len() / 2;
        if request.history.len() != 2 * turn + 1 || turn > self.turns {
            return Err(ProviderError::new(
                ProviderErrorKind::Invalid,
                self.id(),
                "not the conversation of the script",
            ));
        }
        let text = |delta: &str| StreamEvent::Text { block: 0, delta: delta.to_owned() };
        let start = StreamEvent::Start { model: None, response_id: None };
        let said = words(turn, self.deltas).map(text);
        let mut events = Vec::with_capacity(5);
        let reason = if turn < self.turns {
            let (a, b) = operands(turn);
            let id = format!("call_{turn:05}");
            events.push(StreamEvent::ToolCallStart { block: 1, id, name: "add".to_owned() });
            events.push(StreamEvent::ToolCallDelta { block: 1, delta: format!("{{\"a\":{a},\"b\":{b}}}") });
            events.push(StreamEvent::ToolCallEnd { block: 1 });
            TurnFinishReason::ToolCalls
        } else {
            events.push(text(&format!("done:{}", self.turns)));
            TurnFinishReason::Stop
        };
        events.push(StreamEvent::Usage(UsageSnapshot::new(TokenUsage::default())));
        events.push(StreamEvent::Finish { reason, raw: None });
        Ok(ProviderStream::new(stream::iter(std::iter::once(start).chain(said).chain(events).map(Ok))))
    }
}
