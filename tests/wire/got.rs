//! What the crate makes of a recorded answer.

use futures::StreamExt as _;
use zidane::provider::{ProviderError, ProviderStream, StreamEvent, UsageSnapshot};

use super::answer::{Answer, Arguments, Block, Call, End, Failure, Usage};

/// Everything that came, in order, and the error that ended it.
#[derive(Debug, Default)]
pub struct Got {
    pub events: Vec<StreamEvent>,
    pub error: Option<ProviderError>,
}

pub fn collect(stream: impl FnOnce() -> Result<ProviderStream, ProviderError>) -> Got {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut got = Got::default();
        match stream() {
            Ok(mut stream) => {
                while let Some(item) = stream.next().await {
                    match item {
                        Ok(event) => got.events.push(event),
                        Err(error) => {
                            got.error = Some(error);
                            break;
                        }
                    }
                }
            }
            Err(error) => got.error = Some(error),
        }
        got
    })
}

enum Open {
    Text(String, Option<String>),
    Thinking(String, Option<String>),
    Redacted(String),
    Call { id: String, name: String, arguments: String, signature: Option<String>, complete: bool },
    Opaque(serde_json::Value),
}

/// The events as an answer, or what is wrong with them in themselves.
pub fn answer(got: &Got) -> Result<Answer, String> {
    let mut blocks: Vec<Open> = Vec::new();
    let mut answer = Answer::default();
    for event in &got.events {
        if answer.end.is_some() {
            return Err(format!("an event after the finish: {event:?}"));
        }
        match event {
            StreamEvent::Start { model, .. } => answer.models.extend(model.clone()),
            StreamEvent::Usage(usage) => answer.usage = Some(snapshot(usage)),
            StreamEvent::Finish { reason, raw } => {
                answer.end = Some(End::Finish { class: *reason, raw: raw.clone() });
            }
            StreamEvent::FinishMessage(said) if !said.is_empty() => {}
            other => block_event(&mut blocks, other)?,
        }
    }
    match (&answer.end, &got.error) {
        (Some(_), Some(error)) => return Err(format!("an error after the finish: {error}")),
        (None, None) => return Err("neither a finish nor an error".into()),
        (None, Some(error)) => answer.end = Some(End::Error(failure(error))),
        (Some(_), None) => {}
    }
    answer.blocks = blocks.into_iter().map(close).collect();
    Ok(answer)
}

fn block_event(blocks: &mut Vec<Open>, event: &StreamEvent) -> Result<(), String> {
    let (block, opened) = match event {
        StreamEvent::Text { block, .. } => (*block, Some(Open::Text(String::new(), None))),
        StreamEvent::Thinking { block, .. } => (*block, Some(Open::Thinking(String::new(), None))),
        StreamEvent::Signature { block, .. } => (*block, Some(Open::Text(String::new(), None))),
        StreamEvent::RedactedThinking { block, data, .. } => (*block, Some(Open::Redacted(data.clone()))),
        StreamEvent::Opaque { block, value, .. } => (*block, Some(Open::Opaque(value.clone()))),
        StreamEvent::ToolCallStart { block, id, name } => {
            let call = Open::Call {
                id: id.clone(),
                name: name.clone(),
                arguments: String::new(),
                signature: None,
                complete: false,
            };
            (*block, Some(call))
        }
        StreamEvent::ToolCallDelta { block, .. } | StreamEvent::ToolCallEnd { block } => (*block, None),
        _ => return Err(format!("an unknown event: {event:?}")),
    };
    let at = usize::try_from(block).unwrap();
    let is_new = at == blocks.len();
    match opened {
        Some(open) if is_new => blocks.push(open),
        _ if at < blocks.len() => {}
        _ => return Err(format!("a block number out of order ({} open): {event:?}", blocks.len())),
    }
    match (&mut blocks[at], event) {
        (Open::Text(text, _), StreamEvent::Text { delta, .. })
        | (Open::Thinking(text, _), StreamEvent::Thinking { delta, .. }) => text.push_str(delta),
        (
            Open::Text(_, signature) | Open::Thinking(_, signature) | Open::Call { signature, .. },
            StreamEvent::Signature { value, .. },
        ) => *signature = Some(value.clone()),
        (Open::Call { arguments, complete: false, .. }, StreamEvent::ToolCallDelta { delta, .. }) => {
            arguments.push_str(delta);
        }
        (Open::Call { complete, .. }, StreamEvent::ToolCallEnd { .. }) if !*complete => *complete = true,
        (Open::Redacted(_) | Open::Opaque(_) | Open::Call { .. }, _) if is_new => {}
        _ => return Err(format!("an event that does not fit its block: {event:?}")),
    }
    Ok(())
}

fn close(open: Open) -> Block {
    match open {
        // Elsewhere the state of a text is JSON of what else came with it, and compared no further.
        Open::Text(text, Some(signature)) if !signature.starts_with(['{', '[']) => Block::Signed { text, signature },
        Open::Text(text, _) => Block::Text(text),
        Open::Thinking(text, signature) => Block::Thinking { text, signature },
        Open::Redacted(data) => Block::Redacted(data),
        Open::Call { id, name, arguments, signature, complete } => {
            Block::Call(Call { id, name, arguments: Arguments::parse(&arguments), signature, complete: Some(complete) })
        }
        Open::Opaque(value) => Block::Opaque(value),
    }
}

fn snapshot(usage: &UsageSnapshot) -> Usage {
    Usage {
        input: usage.tokens.input,
        output: usage.tokens.output,
        cache_read: usage.tokens.cache_read,
        cache_write: usage.tokens.cache_write,
        cache_write_1h: usage.cache_write_1h,
        reasoning: usage.tokens.reasoning.unwrap_or(0),
        cost_usd: usage.cost.map(zidane::types::NanoUsd::usd),
    }
}

fn failure(error: &ProviderError) -> Failure {
    Failure {
        kinds: vec![error.kind],
        retryable: Some(error.is_retryable()),
        status: error.status,
        retry_after: error.retry_after,
        request_ids: error.request_id.clone().into_iter().collect(),
    }
}
