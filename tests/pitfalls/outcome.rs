//! A run over one provider, and what a case expects of it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt as _;
use serde_json::{Value, json};
use zidane::hooks::{AttemptFailed, StreamText};
use zidane::provider::{HistoryTurn, Provider, ProviderError, ProviderErrorKind, RetryPolicy};
use zidane::tool::tool_fn_value;
use zidane::types::{Role, SessionContentBlock, ToolCallBlock, TurnUsage, validate_transcript};
use zidane::{Agent, AgentEvent, RunError, RunErrorKind, RunOutcome, StopCause};

use super::body::Seen;
use super::fields::Fields;
use super::findings::Findings;
use super::wires::MODEL;

/// Longer than anything here may take; what takes longer hangs.
pub const GUARD: Duration = Duration::from_secs(20);

pub struct Setup {
    pub provider: Arc<dyn Provider>,
    /// Names of the tools that the model may call; each says `ok`.
    pub tools: BTreeSet<String>,
    pub retry: RetryPolicy,
    pub abort_after: Option<Duration>,
    /// The text delivered so far is kept here.
    pub seen: Seen,
    /// A failed attempt whose retry is this far away is not waited for.
    pub longest_wait: Option<Duration>,
}

impl Setup {
    pub fn new(provider: Arc<dyn Provider>) -> Self {
        Self {
            provider,
            tools: BTreeSet::new(),
            retry: RetryPolicy::never(),
            abort_after: None,
            seen: Seen::default(),
            longest_wait: None,
        }
    }
}

/// An attempt that failed, and when it is made again.
pub type Failure = (ProviderError, Option<Duration>);

pub struct Ran {
    pub result: Result<RunOutcome, RunError>,
    /// Ids of the calls whose tool ran.
    pub executed: Vec<String>,
    pub failures: Vec<Failure>,
    pub events: Vec<&'static str>,
    pub elapsed: Duration,
    pub history: Vec<Arc<HistoryTurn>>,
}

/// Runs an agent for one turn. `None` when it hangs.
pub async fn run(setup: Setup) -> Option<Ran> {
    let executed = Arc::new(Mutex::new(Vec::new()));
    let mut builder = Agent::builder().provider(setup.provider).model(MODEL).retry(setup.retry).max_turns(1);
    for name in &setup.tools {
        let executed = Arc::clone(&executed);
        builder = builder.tool(tool_fn_value(name, "A tool", json!({ "type": "object" }), move |_, cx| {
            executed.lock().unwrap().push(cx.call_id().to_owned());
            async { Ok("ok") }
        }));
    }
    let agent = builder.build().unwrap();
    let seen = setup.seen;
    agent.hooks().on::<StreamText>(move |cx| seen.lock().unwrap().push_str(cx.delta()));
    let failures = Arc::new(Mutex::new(Vec::new()));
    let (noted, longest) = (Arc::clone(&failures), setup.longest_wait);
    agent.hooks().on::<AttemptFailed>(move |cx| {
        noted.lock().unwrap().push((cx.error().clone(), cx.delay()));
        if cx.delay() > longest && longest.is_some() {
            cx.agent().abort();
        }
    });
    if let Some(after) = setup.abort_after {
        let agent = agent.handle().clone();
        tokio::spawn(async move {
            tokio::time::sleep(after).await;
            agent.abort();
        });
    }
    let started = Instant::now();
    let mut events = Vec::new();
    let mut stream = agent.run("Go").stream();
    let result = tokio::time::timeout(GUARD, async {
        loop {
            match stream.next().await? {
                AgentEvent::Done(result) => return Some(result.map(|outcome| *outcome).map_err(|error| *error)),
                AgentEvent::Text { .. } => events.push("text-delta"),
                AgentEvent::Reset => events.push("attempt-discarded"),
                AgentEvent::TurnEnd { .. } => events.push("message-end"),
                _ => {}
            }
        }
    });
    let result = result.await.ok().flatten()?;
    let elapsed = started.elapsed();
    let executed = executed.lock().unwrap().clone();
    let failures = failures.lock().unwrap().clone();
    Some(Ran { result, executed, failures, events, elapsed, history: agent.history().turns().to_vec() })
}

impl Ran {
    pub fn error(&self) -> Option<&ProviderError> {
        match &self.result {
            Err(RunError { kind: RunErrorKind::Provider(error), .. }) => Some(error),
            _ => None,
        }
    }

    fn turn(&self) -> Option<&HistoryTurn> {
        self.history.iter().find(|turn| turn.role == Role::Assistant).map(|turn| &**turn)
    }

    fn usage(&self) -> Option<&TurnUsage> {
        let stats = match &self.result {
            Ok(outcome) => &outcome.stats,
            Err(error) => &error.stats,
        };
        stats.turn_usage.first().map(|usage| &**usage)
    }

    fn calls(&self) -> Vec<&ToolCallBlock> {
        self.turn().map(|turn| turn.tool_calls().collect()).unwrap_or_default()
    }

    fn came_to(&self) -> &'static str {
        match &self.result {
            Ok(outcome) if outcome.stop == StopCause::Aborted => "aborted",
            Ok(_) => "ok",
            Err(_) => "error",
        }
    }

    /// Compares with `expect`. `timed` is false where the way to run it is slower than the case means.
    pub fn compare(&self, expect: &mut Fields<'_>, timed: bool, findings: &mut Findings) {
        let outcome = expect.text("outcome").unwrap_or("ok");
        let came_to = self.came_to();
        let right = match outcome {
            "ok_or_error" => came_to == "ok" || came_to == "error",
            other => came_to == other,
        };
        findings.ensure(right, || format!("expected the outcome {outcome}, got {came_to}: {}", self.words()));
        // Whatever ends a run, what it stored can be gone on from.
        let valid = validate_transcript(self.history.iter().map(|turn| &***turn));
        findings.ensure(valid.is_ok(), || format!("the stored conversation is broken: {valid:?}"));
        if came_to != "ok" {
            findings.equal("executed calls", &Vec::<String>::new(), &self.executed);
        }
        self.content(expect, findings);
        self.end(expect, findings);
        if let Some(usage) = expect.take("usage") {
            compare_usage(usage, self.usage(), findings);
        }
        if let Some(limit) = expect.number("within_ms")
            && timed
        {
            findings.within(Duration::from_millis(limit), self.elapsed);
        }
        for prose in expect.list("must_not") {
            self.must_not(prose.as_str().unwrap_or_default(), findings);
        }
    }

    fn words(&self) -> String {
        match &self.result {
            Ok(outcome) => outcome.stop.as_str().to_owned(),
            Err(error) => error.to_string(),
        }
    }

    fn content(&self, expect: &mut Fields<'_>, findings: &mut Findings) {
        let text = self.turn().map(|turn| turn.text()).unwrap_or_default();
        if let Some(expected) = expect.text("text") {
            findings.equal("text", expected, text.as_str());
        }
        if let Some(expected) = expect.text("partial_text") {
            findings.equal("partial text", expected, text.as_str());
            let is_marked = self.turn().is_none_or(|turn| turn.interrupted);
            findings.ensure(is_marked, || "the partial turn is not marked as interrupted".to_owned());
        }
        if let Some(expected) = expect.take("tool_calls") {
            let calls = if self.came_to() == "ok" { self.calls() } else { Vec::new() };
            compare_calls(expected, &calls, findings);
        }
        if let Some(expected) = expect.take("executed") {
            findings.equal("executed calls", expected, &json!(self.executed));
        }
        if let Some(expected) = expect.take("results") {
            compare_results(expected, &self.history, findings);
        }
        let blocks = self.turn().map_or(&[][..], |turn| &turn.content);
        if let Some(expected) = expect.take("thinking") {
            compare_thinking(expected, blocks, findings);
        }
        if let Some(expected) = expect.take("block_order") {
            findings.equal("order of blocks", expected, &json!(blocks.iter().map(kind).collect::<Vec<_>>()));
        }
        if expect.flag("empty_turn_reported") {
            // The text of the outcome is that of the last answer, and the cause says that the model ended by itself.
            let said = self.result.as_ref().is_ok_and(|outcome| outcome.text.is_empty());
            findings.ensure(said, || "the outcome does not say that the answer is empty".to_owned());
        }
    }

    fn end(&self, expect: &mut Fields<'_>, findings: &mut Findings) {
        let usage = self.usage();
        if let Some(expected) = expect.text("finish") {
            let finish = usage.and_then(|usage| usage.finish_reason).map(|reason| reason.as_str());
            findings.equal("finish", &Some(expected), &finish);
        }
        if let Some(expected) = expect.text("raw_finish") {
            let raw = usage.and_then(|usage| usage.raw_finish_reason.as_deref());
            findings.equal("raw finish", &Some(expected), &raw);
        }
        if expect.flag("context_overflow") {
            // The class is `length`; that it was the window and not the limit is in the provider's own word.
            let raw = usage.and_then(|usage| usage.raw_finish_reason.as_deref()).unwrap_or_default();
            let is_told = raw.contains("context") && raw.contains("window");
            findings.ensure(is_told, || format!("the raw finish {raw:?} does not name the context window"));
        }
        if let Some(mut error) = expect.object("error") {
            compare_error(&mut error, self.error(), findings);
            error.finish(findings);
        }
        if let Some(expected) = expect.take("events_order") {
            let mut events = self.events.clone();
            events.dedup();
            findings.equal("events", expected, &json!(events));
        }
    }

    fn must_not(&self, prose: &str, findings: &mut Findings) {
        match prose {
            "execute any tool" => findings.equal("executed calls", &Vec::<String>::new(), &self.executed),
            "record the turn as completed" => {
                let completed = self.turn().is_some_and(|turn| !turn.interrupted || turn.finish_reason.is_some());
                findings.ensure(!completed, || "the turn is stored as completed".to_owned());
            }
            "usage of zero reported as known" => {
                let known = self.usage().is_some_and(|usage| usage.complete && usage.tokens.total() == 0);
                findings.ensure(!known, || "a usage of zero is said to be complete".to_owned());
            }
            "finish stop" => {
                let finish = self.usage().and_then(|usage| usage.finish_reason).map(|reason| reason.as_str());
                findings.ensure(finish != Some("stop"), || "it finished with stop".to_owned());
            }
            _ => findings.need(format!("an adapter for must_not `{prose}`")),
        }
    }
}

pub fn compare_error(expect: &mut Fields<'_>, error: Option<&ProviderError>, findings: &mut Findings) {
    if let Some(class) = expect.text("class") {
        let kind = error.map(|error| error.kind);
        findings.ensure(kind.is_some_and(|kind| is_class(kind, class)), || {
            format!("expected an error of class {class}, got {kind:?}")
        });
    }
    if let Some(retryable) = expect.take("retryable") {
        let got = error.map(|error| Value::from(error.is_retryable()));
        findings.equal("retryable", &Some(retryable), &got.as_ref());
    }
    if let (Some(part), Some(error)) = (expect.text("message_contains"), error) {
        findings.ensure(error.message.contains(part), || format!("{:?} does not contain {part:?}", error.message));
    }
}

/// Whether a kind of error is of the class that a case names.
pub fn is_class(kind: ProviderErrorKind, class: &str) -> bool {
    match class {
        "server_error" => kind == ProviderErrorKind::Server,
        // A connection that broke is told apart from one that closed too early.
        "truncated_stream" => matches!(kind, ProviderErrorKind::TruncatedStream | ProviderErrorKind::Transport),
        other => kind.as_str() == other,
    }
}

fn compare_calls(expected: &Value, calls: &[&ToolCallBlock], findings: &mut Findings) {
    let expected = expected.as_array().cloned().unwrap_or_default();
    findings.equal("number of calls", &expected.len(), &calls.len());
    let ids: BTreeSet<_> = calls.iter().map(|call| call.id.as_str()).collect();
    findings.ensure(ids.len() == calls.len(), || "two calls have one id".to_owned());
    for (at, (expected, call)) in expected.iter().zip(calls).enumerate() {
        let mut expected = Fields::new("tool_calls", expected);
        match expected.text("id") {
            Some("*unique" | "*nonempty") => {
                findings.ensure(!call.id.is_empty(), || format!("call {at} has no id"));
            }
            Some(id) => findings.equal(format!("id of call {at}"), id, call.id.as_str()),
            None => {}
        }
        if let Some(name) = expected.text("name") {
            findings.equal(format!("name of call {at}"), name, call.name.as_str());
        }
        let text = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
        let arguments = serde_json::from_str::<Value>(text);
        if let Some(args) = expected.take("args") {
            findings.equal(format!("arguments of call {at}"), &Some(args), &arguments.as_ref().ok());
        }
        if let Some(text) = expected.text("args_text") {
            findings.equal(format!("argument text of call {at}"), text, call.arguments.as_str());
        }
        for (key, length) in expected.take("args_len").and_then(Value::as_object).into_iter().flatten() {
            let got = arguments.as_ref().ok().and_then(|arguments| arguments[key].as_str()).map(str::len);
            findings.equal(format!("length of {key} of call {at}"), &Some(length), &got.map(Value::from).as_ref());
        }
        expected.finish(findings);
    }
}

/// `results`, in call order: who was answered, and how.
pub fn compare_results(expected: &Value, history: &[Arc<HistoryTurn>], findings: &mut Findings) {
    let results: Vec<_> = history.iter().flat_map(|turn| turn.tool_results()).collect();
    let expected = expected.as_array().cloned().unwrap_or_default();
    findings.equal("number of results", &expected.len(), &results.len());
    for (expected, result) in expected.iter().zip(results) {
        let mut expected = Fields::new("results", expected);
        if let Some(id) = expected.text("call_id") {
            findings.equal("call of a result", id, result.call_id.as_str());
        }
        if let Some(is_error) = expected.take("is_error") {
            findings.equal(format!("is_error of {}", result.call_id), is_error, &Value::from(result.is_error));
        }
        if let Some(output) = expected.text("output") {
            let text = zidane::types::tool_result_to_text(&result.output);
            findings.equal(format!("output of {}", result.call_id), output, &*text);
        }
        for part in expected.list("contains").iter().filter_map(Value::as_str) {
            let text = zidane::types::tool_result_to_text(&result.output);
            findings.ensure(text.contains(part), || format!("{text:?} does not contain {part:?}"));
        }
        expected.finish(findings);
    }
}

fn compare_thinking(expected: &Value, blocks: &[SessionContentBlock], findings: &mut Findings) {
    let got: Vec<_> = blocks
        .iter()
        .filter_map(|block| match block {
            SessionContentBlock::Thinking(thinking) => {
                let signature = thinking.signature.as_ref().map(|signature| &signature.value);
                Some(if thinking.redacted {
                    json!({ "redacted": signature })
                } else {
                    json!({ "text": thinking.text, "signature": signature })
                })
            }
            _ => None,
        })
        .collect();
    findings.equal("thinking", expected, &Value::from(got));
}

fn kind(block: &SessionContentBlock) -> &'static str {
    match block {
        SessionContentBlock::Text(_) => "text",
        SessionContentBlock::Thinking(thinking) if thinking.redacted => "redacted_thinking",
        SessionContentBlock::Thinking(_) => "thinking",
        SessionContentBlock::ToolCall(_) => "tool_call",
        SessionContentBlock::PartialToolCall(_) => "partial_tool_call",
        SessionContentBlock::Opaque(_) => "opaque",
        _ => "other",
    }
}

fn compare_usage(expected: &Value, usage: Option<&TurnUsage>, findings: &mut Findings) {
    if let Some(word) = expected.as_str() {
        if word != "unknown" {
            return findings.need(format!("an adapter for the usage `{word}`"));
        }
        let unknown = usage.is_none_or(|usage| !usage.complete);
        findings.ensure(unknown, || "a usage that nobody reported is said to be complete".to_owned());
        return;
    }
    let mut expected = Fields::new("usage", expected);
    let tokens = usage.map(|usage| usage.tokens).unwrap_or_default();
    for (key, got) in [
        ("input_uncached", Some(tokens.input)),
        ("cache_read", Some(tokens.cache_read)),
        ("cache_write", Some(tokens.cache_write)),
        ("output", Some(tokens.output)),
        ("reasoning", Some(tokens.reasoning.unwrap_or(0))),
        ("total", Some(tokens.total())),
    ] {
        if let Some(number) = expected.take(key) {
            findings.equal(format!("usage {key}"), number, &json!(got));
        }
    }
    expected.finish(findings);
}
