//! An agent sent through a recorded conversation.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use zidane::provider::RetryPolicy;
use zidane::testing::{HttpReply, SseServer};
use zidane::tool::{Tool as AgentTool, ToolContext, ToolError, ToolOutput, ToolSpec};
use zidane::types::{
    Document, Extra, Media as AgentMedia, MediaSource, OpaqueBlock, Prompt, PromptPart, Resource, ResourceContent,
    Role, SessionContentBlock, SessionTurn, SignatureProducer, ToolResultBody, ToolResultContent, TurnFinishReason,
    TurnOrigin,
};
use zidane::{AgentBuilder, RunErrorKind};

use super::super::answer::{Block, End};
use super::super::corpus::Protocol;
use super::super::decode;
use super::meaning::{Media, Part, Tool, Turn, read};
use super::plan::{Plan, Step};
use super::{compare, prefix};

/// Nothing here waits for anything but loopback; a replay that takes this long never ends.
const LONGEST: Duration = Duration::from_secs(60);

/// What the replay shows, in words.
pub fn differences(protocol: Protocol, vendor: &str, plan: &Plan) -> Vec<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let server = SseServer::start(plan.steps.iter().map(reply)).await.unwrap();
        let builder = decode::agent(protocol, vendor, &server.url());
        let mut found = match tokio::time::timeout(LONGEST, run(builder, plan)).await {
            Ok(found) => found,
            Err(_) => vec![format!("it hangs after request {}", server.requests().len())],
        };
        let sent: Vec<Value> = server.requests().iter().map(|request| request.json().unwrap_or_default()).collect();
        if sent.len() != plan.steps.len() {
            found.push(format!("expected {} requests, sent {}", plan.steps.len(), sent.len()));
        }
        for (at, (step, sent)) in plan.steps.iter().zip(&sent).enumerate() {
            let differences = compare::differences(&step.request, &plan.faithful(at), &read(protocol, sent));
            found.extend(differences.into_iter().map(|difference| format!("request {at}: {difference}")));
        }
        found.extend(prefix::breaks(&sent));
        found
    })
}

fn reply(step: &Step) -> HttpReply {
    let exchange = &step.exchange;
    let headers = exchange.headers.iter().filter(|(name, _)| name != "content-length");
    headers
        .fold(HttpReply::new(exchange.status), |reply, (name, value)| reply.header(name, value))
        .chunk(exchange.body.clone())
}

async fn run(builder: AgentBuilder, plan: &Plan) -> Vec<String> {
    let results = Arc::new(Mutex::new(
        plan.results.iter().map(|(id, results)| (id.clone(), results.iter().cloned().collect())).collect(),
    ));
    let mut builder = builder
        .model(plan.model.clone())
        .retry(RetryPolicy::never())
        .continue_after_empty(false)
        .continue_after_length(false);
    if let Some(system) = &plan.system {
        builder = builder.system(system.clone());
    }
    for (name, value) in &plan.extra {
        builder = builder.request_field(name, value.clone());
    }
    for (name, tool) in &plan.tools {
        builder = builder.tool(Recorded { name: name.clone(), tool: tool.clone(), results: Arc::clone(&results) });
    }
    if !plan.given.is_empty() {
        builder = builder.history(plan.given.iter().enumerate().map(|(at, turn)| given(plan, at, turn)));
    }
    let ends_in_calls = plan
        .steps
        .last()
        .is_some_and(|step| matches!(&step.answer.end, Some(End::Finish { class: TurnFinishReason::ToolCalls, .. })));
    if plan.stops.is_some() || ends_in_calls {
        builder = builder.max_turns(u32::try_from(plan.steps.len()).unwrap());
    }
    let agent = match builder.build() {
        Ok(agent) => agent,
        Err(error) => return vec![format!("the agent cannot be built: {error}")],
    };
    let mut found = Vec::new();
    for (at, prompt) in plan.prompts.iter().enumerate() {
        let is_last = at + 1 == plan.prompts.len();
        let outcome = agent.run(prompt_of(prompt)).await;
        found.extend(outcome_differences(plan, is_last, &outcome).map(|difference| format!("run {at}: {difference}")));
    }
    found
}

/// A turn from before the recording, as a session would hold it. Only what the recordings have in such turns.
fn given(plan: &Plan, at: usize, turn: &Turn) -> SessionTurn {
    let (role, origin) =
        if turn.is_user { (Role::User, TurnOrigin::Prompt) } else { (Role::Assistant, TurnOrigin::Model) };
    let content = turn.parts.iter().map(|part| match part {
        Part::Text(text) => SessionContentBlock::text(text.clone()),
        Part::Opaque(value) => SessionContentBlock::Opaque(OpaqueBlock::new(
            SignatureProducer::OPENAI_RESPONSES,
            plan.model.clone(),
            value.clone(),
        )),
        other => panic!("no recording has this before its first prompt: {other:?}"),
    });
    SessionTurn::new(format!("given-{at}"), role, origin, content.collect())
}

/// Only the last run's end is known for sure: it is that of the last recorded answer.
fn outcome_differences(
    plan: &Plan,
    is_last: bool,
    outcome: &Result<zidane::RunOutcome, zidane::RunError>,
) -> Option<String> {
    let Step { answer, exchange, .. } = plan.steps.last()?;
    let is_cited = exchange.body.contains("citations_delta");
    match (outcome, &answer.end) {
        (Ok(_), _) if !is_last || plan.stops.is_some() => None,
        (Ok(outcome), Some(End::Finish { .. })) => {
            let said = answer.blocks.iter().filter_map(|block| match block {
                Block::Text(text) | Block::Signed { text, .. } => Some(text.as_str()),
                _ => None,
            });
            // A space that is a text block of its own, between two with citations, is not kept: blank text is not
            // stored, since no wire takes it back.
            let said: String = said.filter(|text| !text.trim().is_empty() || !is_cited).collect();
            (outcome.text != said).then(|| format!("expected the text {said:?}, got {:?}", outcome.text))
        }
        (Err(error), Some(End::Error(expected))) if is_last => match &error.kind {
            RunErrorKind::Provider(error) if expected.kinds.contains(&error.kind) => None,
            kind => Some(format!("expected one of {:?}, got {kind}", expected.kinds)),
        },
        (Ok(_), _) => Some("an error was expected".into()),
        (Err(error), _) => Some(format!("it failed: {error}")),
    }
}

struct Recorded {
    name: String,
    tool: Tool,
    results: Arc<Mutex<HashMap<String, VecDeque<Part>>>>,
}

#[zidane::async_trait]
impl AgentTool for Recorded {
    fn spec(&self) -> ToolSpec {
        let schema = if self.tool.schema.is_object() { self.tool.schema.clone() } else { json!({ "type": "object" }) };
        ToolSpec::new(self.name.clone(), self.tool.description.clone()).input_schema(schema)
    }

    async fn call(&self, _input: Value, cx: ToolContext) -> Result<ToolOutput, ToolError> {
        let result = {
            let mut results = self.results.lock().unwrap();
            // Where the wire gives no ids, a call's name and place do (see `read_gemini`).
            let made = (0..).map(|place| format!("{}#{place}", self.name)).take(results.len());
            let keys: Vec<_> = std::iter::once(cx.call_id().to_owned()).chain(made).collect();
            keys.iter().find_map(|key| results.get_mut(key)?.pop_front())
        };
        let Some(Part::Result { content, is_error, .. }) = result else { return Err("not recorded".into()) };
        let mut output = ToolOutput::from(body(&content));
        output.is_error = is_error;
        Ok(output)
    }
}

fn body(content: &[Part]) -> ToolResultBody {
    if let [Part::Text(text)] = content {
        return ToolResultBody::Text(text.clone());
    }
    ToolResultBody::Blocks(
        content
            .iter()
            .map(|part| match part {
                Part::Text(text) => ToolResultContent::text(text.clone()),
                Part::Media(media) => attachment(media),
                other => ToolResultContent::text(format!("{other:?}")),
            })
            .collect(),
    )
}

fn attachment(media: &Media) -> ToolResultContent {
    match media.kind.as_str() {
        "image" => ToolResultContent::Image(agent_media(media)),
        "audio" => ToolResultContent::Audio(agent_media(media)),
        _ => ToolResultContent::Resource(Resource {
            uri: None,
            media_type: Some(media.media_type.clone()),
            content: ResourceContent::Blob(media.data.clone()),
            extra: Extra::default(),
        }),
    }
}

fn agent_media(media: &Media) -> AgentMedia {
    if media.is_url { AgentMedia::url(media.data.clone()) } else { AgentMedia::base64(&media.media_type, &media.data) }
}

fn prompt_of(parts: &[Part]) -> Prompt {
    let parts = parts.iter().map(|part| match part {
        Part::Media(media) if media.kind == "image" => PromptPart::Image(agent_media(media)),
        Part::Media(media) if media.media_type.starts_with("text/") => {
            let text = MediaSource::Text(media.data.clone());
            let media = AgentMedia { source: text, ..agent_media(media) };
            PromptPart::Document(Document { name: None, media })
        }
        Part::Media(media) => PromptPart::Document(Document { name: None, media: agent_media(media) }),
        Part::Text(text) => PromptPart::text(text.clone()),
        other => PromptPart::text(format!("{other:?}")),
    });
    parts.collect::<Vec<_>>().into()
}
