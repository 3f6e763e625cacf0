use std::sync::Arc;

use futures::StreamExt as _;
use tracing::Instrument as _;

use super::assemble::Assembler;
use super::context::RunCx;
use super::model_step::Lost;
use super::options::Fallback;
use super::spans;
use crate::provider::{ModelRequest, ProviderError, ProviderErrorKind, RequestContext};
use crate::types::{NanoUsd, TokenUsage, TurnFinishReason};

/// What a request beside the turns came to.
pub(super) struct SideAnswer {
    /// The text of the answer.
    pub(super) result: Result<String, ProviderError>,
    /// All attempts together.
    pub(super) tokens: TokenUsage,
    pub(super) cost: Option<NanoUsd>,
    pub(super) complete: bool,
    pub(super) attempts: u32,
    pub(super) model_id: Option<String>,
    pub(super) finish: Option<(TurnFinishReason, Option<String>)>,
}

/// Asks a model for a text, beside the turns of the run. Retried by the agent's policy; an abort ends it with an error of
/// that kind.
pub(super) async fn ask_aside(cx: &RunCx, of: &Fallback, request: ModelRequest) -> SideAnswer {
    let span = spans::chat(cx, of.provider.id(), &request);
    let answer = ask(cx, of, request).instrument(span.clone()).await;
    if !span.is_disabled() {
        spans::answered_aside(cx, &span, &answer);
    }
    answer
}

async fn ask(cx: &RunCx, of: &Fallback, request: ModelRequest) -> SideAnswer {
    let provider = &*of.provider;
    let request = Arc::new(request);
    let fails = |kind, text| Err(ProviderError::new(kind, provider.id(), text));
    let price = |answer: &Assembler| {
        let usage = answer.usage.as_ref()?;
        cx.agent.options.prices.cost(provider.id(), answer.model_id.as_deref(), &of.model, usage)
    };
    let mut lost = Lost::default();
    let mut attempts = 1;
    let (result, assembler) = loop {
        let mut assembler = Assembler::new();
        let answer = async {
            let request_cx = RequestContext { attempt: attempts, ..RequestContext::default() };
            let mut events = provider.stream(Arc::clone(&request), &request_cx).await?;
            while let Some(event) = events.next().await {
                let _ = assembler.apply(&event?);
                if assembler.finish.is_some() {
                    return Ok(());
                }
            }
            fails(ProviderErrorKind::TruncatedStream, "the stream ended before the answer did")
        };
        let error = match cx.abort.run_until_cancelled(answer).await {
            Some(Ok(())) => break (Ok(assembler.text()), assembler),
            Some(Err(error)) => error,
            None => {
                break (fails(ProviderErrorKind::Aborted, "the run was aborted").map(|()| String::new()), assembler);
            }
        };
        let Some(delay) = cx.agent.options.retry.delay(attempts, &error, false) else { break (Err(error), assembler) };
        if let Some(usage) = &assembler.usage {
            lost.add(usage, price(&assembler));
        }
        if cx.abort.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
            let aborted = ProviderError::new(ProviderErrorKind::Aborted, provider.id(), "the run was aborted");
            break (Err(aborted), Assembler::new());
        }
        attempts += 1;
    };
    let mut tokens = lost.tokens;
    tokens += assembler.usage.map(|usage| usage.tokens).unwrap_or_default();
    SideAnswer {
        complete: result.is_ok() && assembler.usage.is_some(),
        result,
        tokens,
        cost: lost.with(assembler.usage, price(&assembler)),
        attempts,
        model_id: assembler.model_id,
        finish: assembler.finish,
    }
}
