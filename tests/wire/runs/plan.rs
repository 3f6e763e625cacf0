//! What an agent must be given so that it goes through a recorded conversation.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde_json::{Map, Value};
use zidane::types::TurnFinishReason;

use super::super::answer::{Answer, Arguments, Block, End};
use super::super::corpus::{Exchange, Recording};
use super::super::expect;
use super::meaning::{Part, Request, Tool, Turn, read};
use super::read_responses;

#[derive(Debug)]
pub struct Plan {
    pub model: String,
    pub system: Option<String>,
    pub tools: BTreeMap<String, Tool>,
    /// Goes into the request as it is: tools that the provider defines, and fields that only it knows.
    pub extra: Map<String, Value>,
    /// What had been said before the recording began.
    pub given: Vec<Turn>,
    /// One per call of `run`.
    pub prompts: Vec<Vec<Part>>,
    /// By call id, in the order in which they are needed.
    pub results: HashMap<String, Vec<Part>>,
    pub steps: Vec<Step>,
    /// Why the replay stops before the recording does.
    pub stops: Option<&'static str>,
}

impl Plan {
    /// What the model said before request `step`, one list per turn of its: a paused answer and what continues it are
    /// one turn.
    pub fn said_before(&self, step: usize) -> Vec<Vec<Block>> {
        let mut said: Vec<Vec<Block>> = Vec::new();
        let mut is_open = false;
        for Step { answer, .. } in self.steps.iter().take(step) {
            match said.last_mut().filter(|_| is_open) {
                Some(turn) => turn.extend(answer.blocks.iter().cloned()),
                None => said.push(answer.blocks.clone()),
            }
            is_open = is_paused(answer);
        }
        said
    }
}

impl Plan {
    /// The recorded request of a step, but with what the model said in place of what the client made of it.
    pub fn faithful(&self, step: usize) -> Request {
        let mut said = self.said_before(step).into_iter();
        let mut request = self.steps.get(step).map(|step| step.request.clone()).unwrap_or_default();
        for turn in request.turns.iter_mut().skip(self.given.len()).filter(|turn| !turn.is_user) {
            let mut ids: VecDeque<_> = turn.calls().map(str::to_owned).collect();
            turn.parts = said.next().unwrap_or_default().into_iter().flat_map(parts).collect();
            for part in &mut turn.parts {
                if let Part::Call { id, .. } = part {
                    // Where the wire gives no ids, the reader makes some.
                    let known = ids.pop_front().unwrap_or_default();
                    if id.is_empty() {
                        *id = known;
                    }
                }
            }
        }
        request
    }
}

fn parts(block: Block) -> Vec<Part> {
    match block {
        Block::Text(text) if text.trim().is_empty() => Vec::new(),
        Block::Text(text) => vec![Part::Text(text)],
        Block::Signed { text, signature } => {
            vec![Part::Thinking { text: "text".into(), signature: Some(signature) }, Part::Text(text)]
        }
        Block::Thinking { text, signature } => match signature.as_deref().map(serde_json::from_str) {
            Some(Ok(details @ Value::Array(_))) => {
                vec![Part::Thinking { text, signature: None }, Part::Details(details)]
            }
            Some(Ok(item @ Value::Object(_))) => {
                vec![Part::Thinking { text, signature: read_responses::reasoning(&item) }]
            }
            _ => vec![Part::Thinking { text, signature }],
        },
        Block::Redacted(data) => vec![Part::Redacted(data)],
        Block::Call(call) => {
            let arguments = match call.arguments {
                Arguments::Json(arguments) => arguments,
                Arguments::Raw(raw) => serde_json::json!({ "INVALID_JSON": raw }),
            };
            let signature = call.signature.filter(|signature| !signature.starts_with('{'));
            let signed = signature.map(|value| Part::Thinking {
                text: format!("call {} {arguments}", call.name),
                signature: Some(value),
            });
            signed.into_iter().chain([Part::Call { id: call.id, name: call.name, arguments }]).collect()
        }
        Block::Opaque(value) => vec![Part::Opaque(value)],
    }
}

fn is_paused(answer: &Answer) -> bool {
    matches!(&answer.end, Some(End::Finish { class: TurnFinishReason::Pause, .. }))
}

#[derive(Debug)]
pub struct Step {
    pub exchange: Exchange,
    pub request: Request,
    pub answer: Answer,
}

pub fn plan(recording: &Recording) -> Result<Plan, String> {
    let mut steps: Vec<Step> = Vec::new();
    let mut stops = None;
    for exchange in &recording.exchanges {
        let request = read(recording.protocol, &exchange.request);
        match steps.last().map_or_else(|| first(&request), |before| follows(before, &request)) {
            Ok(()) => {}
            Err(reason) if steps.is_empty() => return Err(reason.to_owned()),
            Err(reason) => {
                stops = Some(reason);
                break;
            }
        }
        let answer = expect::answer(recording.protocol, &recording.vendor, exchange);
        steps.push(Step { exchange: exchange.clone(), request, answer });
    }
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return Err("no exchanges".into()) };
    let mut tools = BTreeMap::new();
    for step in &steps {
        tools.extend(step.request.tools.clone());
    }
    Ok(Plan {
        model: first.exchange.model(),
        system: Some(first.request.system.clone()).filter(|system| !system.is_empty()),
        extra: extra(&first.exchange.request),
        prompts: prompts(&last.request, first.request.turns.len().saturating_sub(1)),
        given: first.request.turns.split_last().map_or_else(Vec::new, |(_, before)| before.to_vec()),
        results: results(&last.request),
        tools,
        steps,
        stops,
    })
}

fn first(request: &Request) -> Result<(), &'static str> {
    match request.turns.as_slice() {
        [.., turn] if turn.is_user && !turn.has_results() => Ok(()),
        _ => Err("it does not begin with a prompt"),
    }
}

/// Whether a request is the one before, its answer, and what the loop or the user adds to that.
fn follows(before: &Step, request: &Request) -> Result<(), &'static str> {
    if before.request.system != request.system {
        return Err("the system text changes: the recorded client hands over to another agent");
    }
    let added = request.turns.len().saturating_sub(before.request.turns.len());
    let ends_in_user = request.turns.last().is_some_and(|turn| turn.is_user);
    match (added, ends_in_user) {
        (2, true) => Ok(()),
        (1, false) if is_paused(&before.answer) => Ok(()),
        (1, false) => Err("the next request ends in the model's turn, which the loop never sends"),
        _ => Err("turns that this recording does not hold come next"),
    }
}

fn extra(body: &Value) -> Map<String, Value> {
    let mut extra = Map::new();
    let tools = body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let only_functions = |tool: &Value| {
        let fields = tool.as_object().into_iter().flatten().filter(|(_, value)| !value.is_null());
        fields.map(|(name, _)| name.as_str()).eq(["functionDeclarations"])
    };
    let is_plain = |tool: &Value| {
        let is_flat = tool["type"] == "function" && tool["defer_loading"] != true;
        tool["function"].is_object() || tool["input_schema"].is_object() || is_flat || only_functions(tool)
    };
    if !tools.iter().all(is_plain) {
        extra.insert("tools".into(), body["tools"].clone());
    }
    for field in ["mcp_servers", "toolConfig"] {
        if body[field].is_array() || body[field].is_object() {
            extra.insert(field.into(), body[field].clone());
        }
    }
    extra
}

fn prompts(request: &Request, given: usize) -> Vec<Vec<Part>> {
    request
        .turns
        .iter()
        .skip(given)
        .filter(|turn| turn.is_user && !turn.has_results())
        .map(|turn| turn.parts.clone())
        .collect()
}

fn results(request: &Request) -> HashMap<String, Vec<Part>> {
    let mut results: HashMap<String, Vec<Part>> = HashMap::new();
    for turn in request.turns.iter().filter(|turn| turn.has_results()) {
        let mut last: Option<String> = None;
        for part in &turn.parts {
            match part {
                Part::Result { id, .. } => {
                    results.entry(id.clone()).or_default().push(part.clone());
                    last = Some(id.clone());
                }
                // Media that follow the results were part of one: the Chat wire's tool rows take text only.
                Part::Media(_) => {
                    let result = last.as_ref().and_then(|id| results.get_mut(id)).and_then(|all| all.last_mut());
                    if let Some(Part::Result { content, .. }) = result {
                        content.push(part.clone());
                    }
                }
                _ => {}
            }
        }
    }
    results
}
