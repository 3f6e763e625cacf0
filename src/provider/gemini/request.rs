//! The request body: head fields, then `"contents":[`, the contents, and a tail. What was encoded for an earlier
//! request of the conversation is kept and appended to.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::limits::check_tools;
use super::super::media_fit::{Rules, check_whole, fitted};
use super::super::names::NameRule;
use super::super::{ModelRequest, ProviderError, ProviderErrorKind, RequestHead, ThinkingLevel, ToolChoice};
use super::contents::{Contents, paused, unsupported};
use super::models::{Thinking, family};
use super::parts::{CallPlace, Parts};
use super::schema::lowered;
use super::{MAX_TOOLS, TOKEN, Wire};
use crate::types::{Role, SessionContentBlock};

/// Encodes a request, from what the conversation's cache holds where it can.
///
/// # Errors
/// `Unsupported`, naming turn and block, for what this wire cannot say.
pub(super) fn encode(wire: &Wire, request: &ModelRequest) -> Result<Bytes, ProviderError> {
    let head = &request.head;
    check_tools(&wire.id, head.tools.len(), Some(MAX_TOOLS))?;
    if head.extra.contains_key("contents") {
        let mut body = Body::new(wire, head);
        body.head()?;
        body.buffer.put_u8(b'}');
        return Ok(body.buffer.freeze());
    }
    let key = format!("gemini {}", wire.id);
    let request = &*with_rules(wire, &head.model, |rules| fitted(request, &key, rules))?;
    let ModelRequest { head, history, body_cache } = request;
    let turns = history.turns();
    let (end, token) = paused(wire, &head.model, turns).map_or((turns.len(), None), |(end, token)| (end, Some(token)));
    let cached = body_cache.take(&key, head, history).filter(|cached| cached.turns <= end);
    let mut body = Body::new(wire, head);
    let from = match cached {
        Some(cached) => {
            body.buffer = cached.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
            cached.turns
        }
        None => {
            body.begin()?;
            0
        }
    };
    let kept = body.contents(request, from, end, token)?;
    let bytes = body.buffer.freeze();
    body_cache.put(key, Arc::clone(head), history, end, bytes.slice(..kept));

    #[cfg(debug_assertions)]
    if from > 0 {
        let mut fresh = Body::new(wire, head);
        fresh.begin()?;
        fresh.contents(request, 0, end, token)?;
        debug_assert_eq!(bytes, fresh.buffer, "the kept body is not what would be encoded now");
    }
    Ok(bytes)
}

/// Checks that blocks can be sent.
///
/// # Errors
/// `Unsupported`, naming the first block that cannot.
pub(super) fn check(wire: &Wire, model: &str, content: &[SessionContentBlock]) -> Result<(), ProviderError> {
    with_rules(wire, model, |rules| {
        for (index, block) in content.iter().enumerate() {
            if let Some(what) = (rules.fault)(Role::User, block) {
                return Err(unsupported(wire, &format!("block {index} ({what})")));
            }
        }
        check_whole(content, rules)
    })
}

fn with_rules<T>(wire: &Wire, model: &str, with: impl FnOnce(&Rules<'_>) -> T) -> T {
    let head = RequestHead { model: model.to_owned(), ..RequestHead::default() };
    let parts = Parts { wire, family: family(model), head: &head };
    let fault = |_: Role, block: &SessionContentBlock| parts.part(block, CallPlace { first: true, own: false }).err();
    with(&Rules { provider: &wire.id, part: wire.media, whole: wire.request_media, fault: &fault })
}

struct Body<'a> {
    wire: &'a Wire,
    head: &'a RequestHead,
    buffer: BytesMut,
}

impl<'a> Body<'a> {
    fn new(wire: &'a Wire, head: &'a RequestHead) -> Self {
        Self { wire, head, buffer: BytesMut::new() }
    }

    fn json(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), ProviderError> {
        serde_json::to_writer((&mut self.buffer).writer(), value)
            .map_err(|error| self.wire.error(ProviderErrorKind::Invalid, format!("the request is no JSON: {error}")))
    }

    fn key(&mut self, name: &str) -> Result<(), ProviderError> {
        if self.buffer.last() != Some(&b'{') {
            self.buffer.put_u8(b',');
        }
        self.json(name)?;
        self.buffer.put_u8(b':');
        Ok(())
    }

    /// A field of the head, unless the host sends its own.
    fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), ProviderError> {
        if self.head.extra.contains_key(name) {
            return Ok(());
        }
        self.key(name)?;
        self.json(value)
    }

    /// An object into whose fields the host's are merged.
    fn merged(&mut self, name: &str, mut own: Map<String, Value>) -> Result<(), ProviderError> {
        match self.head.extra.get(name) {
            None if own.is_empty() => Ok(()),
            None => self.field(name, &own),
            Some(Value::Object(theirs)) => {
                own.extend(theirs.iter().map(|(name, value)| (name.clone(), value.clone())));
                self.key(name)?;
                self.json(&own)
            }
            Some(theirs) => {
                self.key(name)?;
                self.json(theirs)
            }
        }
    }

    fn begin(&mut self) -> Result<(), ProviderError> {
        self.head()?;
        self.key("contents")?;
        self.buffer.put_u8(b'[');
        Ok(())
    }

    fn head(&mut self) -> Result<(), ProviderError> {
        const MERGED: [&str; 2] = ["toolConfig", "generationConfig"];
        let head = self.head;
        self.buffer.put_u8(b'{');
        // A cached content holds these already, and the API refuses them beside it.
        if !head.extra.contains_key("cachedContent") {
            if let Some(system) = head.system.as_deref().filter(|system| !system.trim().is_empty()) {
                self.field("systemInstruction", &Instruction { parts: [InstructionText { text: system }] })?;
            }
            if !head.tools.is_empty() {
                self.field("tools", &[Tools { function_declarations: declarations(head) }])?;
            }
            let own = if head.tools.is_empty() { Map::new() } else { self.tool_config() };
            self.merged("toolConfig", own)?;
        } else if let Some(config) = head.extra.get("toolConfig") {
            self.key("toolConfig")?;
            self.json(config)?;
        }
        self.merged("generationConfig", self.generation_config())?;
        for (name, value) in head.extra.iter().filter(|(name, _)| !MERGED.contains(&name.as_str())) {
            self.key(name)?;
            self.json(value)?;
        }
        Ok(())
    }

    fn tool_config(&self) -> Map<String, Value> {
        let head = self.head;
        let strict = head.tools.iter().all(|tool| tool.strict) && family(&head.model).validates_calls();
        let config = match &head.tool_choice {
            ToolChoice::Auto if strict => json!({"mode": "VALIDATED"}),
            ToolChoice::Auto => return Map::new(),
            ToolChoice::None => json!({"mode": "NONE"}),
            ToolChoice::Required => json!({"mode": "ANY"}),
            ToolChoice::Tool(name) => {
                let name = NameRule::GEMINI.wire_name(head.names.display(name));
                json!({"mode": "ANY", "allowedFunctionNames": [name]})
            }
        };
        [("functionCallingConfig".to_owned(), config)].into_iter().collect()
    }

    fn generation_config(&self) -> Map<String, Value> {
        let head = self.head;
        let family = family(&head.model);
        let mut config = Map::new();
        if let Some(max_tokens) = head.max_tokens {
            config.insert("maxOutputTokens".into(), max_tokens.into());
        }
        if let Some(temperature) = head.temperature.filter(|temperature| temperature.is_finite() && family.sampling()) {
            config.insert("temperature".into(), shortest(temperature));
        }
        let stops: Vec<_> = head.stop_sequences.iter().filter(|stop| !stop.is_empty()).cloned().collect();
        if !stops.is_empty() {
            config.insert("stopSequences".into(), stops.into());
        }
        if let Some(level) = head.thinking
            && let Some(thinking) = family.thinking(level)
        {
            let (name, value): (_, Value) = match thinking {
                Thinking::Budget(budget) => ("thinkingBudget", budget.into()),
                Thinking::Level(level) => ("thinkingLevel", level.into()),
            };
            let mut fields = Map::from_iter([(name.to_owned(), value)]);
            if level != ThinkingLevel::Off {
                fields.insert("includeThoughts".into(), true.into());
            }
            config.insert("thinkingConfig".into(), fields.into());
        }
        // The older field beside it would be refused.
        let host_has_own =
            head.extra.get("generationConfig").is_some_and(|config| config.get("responseSchema").is_some());
        if let Some(output) = &head.output
            && family.structured_output()
            && !host_has_own
        {
            let schema = lowered(&output.schema).unwrap_or_else(|| json!({"type": "object"}));
            config.insert("responseMimeType".into(), "application/json".into());
            config.insert("responseJsonSchema".into(), schema);
        }
        config
    }

    /// Writes the turns from `from` up to `end`, and the tail. Gives how many bytes will stay whatever follows.
    fn contents(
        &mut self,
        request: &'a ModelRequest,
        from: usize,
        end: usize,
        token: Option<&str>,
    ) -> Result<usize, ProviderError> {
        let mut contents = Contents::new(self.wire, self.head, request.history.turns(), from);
        for index in from..end {
            contents.write(index, &mut self.buffer)?;
        }
        let kept = self.buffer.len();
        contents.close(&mut self.buffer);
        self.buffer.put_u8(b']');
        if let Some(token) = token {
            self.field(TOKEN, token)?;
        }
        self.buffer.put_u8(b'}');
        Ok(kept)
    }
}

/// The number as it was written, and not what it is in binary.
fn shortest(number: f32) -> Value {
    number.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

#[derive(Serialize)]
struct Instruction<'a> {
    parts: [InstructionText<'a>; 1],
}

#[derive(Serialize)]
struct InstructionText<'a> {
    text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters_json_schema: Option<Value>,
}

fn declarations(head: &RequestHead) -> Vec<Declaration<'_>> {
    head.tools
        .iter()
        .map(|tool| Declaration {
            name: NameRule::GEMINI.wire_name(head.names.display(&tool.name)),
            description: tool.description.trim(),
            parameters_json_schema: lowered(&tool.input_schema),
        })
        .collect()
}
