use std::sync::Arc;

use bytes::buf::Writer;
use bytes::{BufMut as _, Bytes, BytesMut};
use serde::ser::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::conversation::{Conversation, Sink, Stable};
use super::profile::ResponsesProfile;
use crate::provider::limits::check_tools;
use crate::provider::media_fit::fitted;
use crate::provider::names::NameRule;
use crate::provider::openai_chat::{ToolChoiceSupport, schema};
use crate::provider::{ModelRequest, ProviderError, ProviderErrorKind, RequestHead, ThinkingLevel, ToolChoice};

type Buffer = Writer<BytesMut>;

impl Sink for Buffer {
    fn written(&self) -> usize {
        self.get_ref().len()
    }
}

/// What closes a body whose items are written.
const TAIL: &[u8] = b"]}";
/// The API refuses a smaller output limit.
const MIN_OUTPUT_TOKENS: u32 = 16;
const ENCRYPTED_REASONING: [&str; 1] = ["reasoning.encrypted_content"];

/// The body of a request. What the conversation's last request already had is taken over as it is.
///
/// `wire` stands for the profile: bodies of other wires are not taken over.
pub(super) fn body(profile: &ResponsesProfile, wire: &str, request: &ModelRequest) -> Result<Bytes, ProviderError> {
    let head = &request.head;
    check_tools(&profile.id, head.tools.len(), profile.max_tools)?;
    if head.extra.contains_key("input") {
        let mut out = BytesMut::new().writer();
        write_head(profile, head, &mut out).map_err(|error| unwritable(profile, &error))?;
        out.get_mut().put_slice(b"}");
        return Ok(out.into_inner().freeze());
    }
    let request = &*profile.accepts(&head.model).with_rules(|rules| fitted(request, wire, rules))?;
    let cached = request.body_cache.take(wire, head, &request.history);
    let (out, from) = match cached {
        Some(body) => {
            let bytes = body.bytes.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&*shared));
            (bytes.writer(), body.turns)
        }
        None => (begin(profile, head)?, 0),
    };
    let (bytes, stable) = append(profile, request, out, from)?;
    debug_assert!(
        from == 0
            || begin(profile, head)
                .and_then(|out| append(profile, request, out, 0))
                .is_ok_and(|(fresh, _)| fresh == bytes),
        "the kept body differs from a fresh one"
    );
    let kept = bytes.slice(..stable.bytes);
    request.body_cache.put(wire.to_owned(), Arc::clone(head), &request.history, stable.turns, kept);
    Ok(bytes)
}

/// Everything up to the conversation.
fn begin(profile: &ResponsesProfile, head: &RequestHead) -> Result<Buffer, ProviderError> {
    let mut out = BytesMut::with_capacity(4096).writer();
    write_head(profile, head, &mut out).map_err(|error| unwritable(profile, &error))?;
    out.get_mut().put_slice(b",\"input\":[");
    Ok(out)
}

fn append(
    profile: &ResponsesProfile,
    request: &ModelRequest,
    mut out: Buffer,
    from: usize,
) -> Result<(Bytes, Stable), ProviderError> {
    let first = out.get_ref().last() == Some(&b'[');
    let stable = Conversation::new(profile, &request.head).write(&mut out, request.history.turns(), from, first)?;
    let mut bytes = out.into_inner();
    bytes.put_slice(TAIL);
    Ok((bytes.freeze(), stable))
}

fn unwritable(profile: &ResponsesProfile, error: &serde_json::Error) -> ProviderError {
    let message = format!("the request cannot be written as JSON: {error}");
    ProviderError::new(ProviderErrorKind::Invalid, &*profile.id, message)
}

/// Writes top-level fields. What `extra` has wins and is written once, at the end.
struct Fields<'a> {
    out: &'a mut Buffer,
    extra: &'a Map<String, Value>,
    empty: bool,
}

impl Fields<'_> {
    fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), serde_json::Error> {
        if self.extra.contains_key(name) { Ok(()) } else { self.write(name, value) }
    }

    fn write(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), serde_json::Error> {
        self.out.get_mut().put_u8(if std::mem::take(&mut self.empty) { b'{' } else { b',' });
        serde_json::to_writer(&mut *self.out, name)?;
        self.out.get_mut().put_u8(b':');
        serde_json::to_writer(&mut *self.out, value)
    }
}

/// Writes everything but the items, without the closing brace.
fn write_head(profile: &ResponsesProfile, head: &RequestHead, out: &mut Buffer) -> Result<(), serde_json::Error> {
    let mut fields = Fields { out, extra: &head.extra, empty: true };
    fields.field("model", &head.model)?;
    fields.field("stream", &true)?;
    if profile.obfuscation && head.extra.get("stream") != Some(&Value::Bool(false)) {
        fields.field("stream_options", &json!({ "include_obfuscation": false }))?;
    }
    fields.field("store", &false)?;
    if profile.encrypted_reasoning.contains(&head.model) {
        fields.field("include", &ENCRYPTED_REASONING)?;
    }
    if let Some(system) = head.system.as_deref().filter(|system| !system.trim().is_empty()) {
        fields.field("instructions", system)?;
    }
    if let Some(limit) = head.max_tokens.filter(|_| profile.max_output_tokens) {
        fields.field("max_output_tokens", &limit.max(MIN_OUTPUT_TOKENS))?;
    }
    if let Some(temperature) = head.temperature.filter(|value| value.is_finite())
        && !profile.fixed_temperature.contains(&head.model)
    {
        fields.field("temperature", &temperature)?;
    }
    if let Some(level) = head.thinking
        && let Some(effort) = profile.effort(&head.model, level)
    {
        let summary = (profile.reasoning_summary && level != ThinkingLevel::Off).then_some("auto");
        fields.field("reasoning", &Reasoning { effort, summary })?;
    }
    if let Some(output) = head.output.as_ref().filter(|_| profile.structured_output) {
        let strict = profile.strict_tools;
        let schema = output.closed(strict);
        let format = json!({ "type": "json_schema", "name": output.name, "schema": schema, "strict": strict });
        fields.field("text", &json!({ "format": format }))?;
    }
    write_tools(profile, head, &mut fields)?;
    for (name, value) in &head.extra {
        fields.write(name, value)?;
    }
    Ok(())
}

#[derive(serde::Serialize)]
struct Reasoning {
    effort: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

fn write_tools(
    profile: &ResponsesProfile,
    head: &RequestHead,
    fields: &mut Fields<'_>,
) -> Result<(), serde_json::Error> {
    let full = profile.tool_choice == ToolChoiceSupport::Full;
    // Where the choice is not understood, the only way to allow no calls is to declare no tools.
    if head.tools.is_empty() || (head.tool_choice == ToolChoice::None && !full) {
        return Ok(());
    }
    fields.field("tools", &Tools { profile, head })?;
    if full {
        match &head.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::Required => fields.field("tool_choice", "required")?,
            ToolChoice::None => fields.field("tool_choice", "none")?,
            ToolChoice::Tool(name) => {
                let name = NameRule::PORTABLE.wire_name(head.names.display(name));
                fields.field("tool_choice", &json!({ "type": "function", "name": name }))?;
            }
        }
    }
    Ok(())
}

struct Tools<'a> {
    profile: &'a ResponsesProfile,
    head: &'a RequestHead,
}

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = &self.head.names;
        serializer.collect_seq(self.head.tools.iter().map(|tool| Tool {
            r#type: "function",
            name: NameRule::PORTABLE.wire_name(names.display(&tool.name)),
            description: &tool.description,
            parameters: schema::lowered(&tool.input_schema),
            strict: self.profile.strict_tools.then(|| tool.strict && schema::fits_strict(&tool.input_schema)),
        }))
    }
}

#[derive(serde::Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: std::borrow::Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: std::borrow::Cow<'a, Value>,
    /// Left out, it means "if the schema allows", which changes what the model must give.
    #[serde(skip_serializing_if = "Option::is_none")]
    strict: Option<bool>,
}
