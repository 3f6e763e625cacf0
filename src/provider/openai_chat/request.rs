use std::io::Write as _;
use std::sync::Arc;

use bytes::buf::Writer;
use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Map, Value, json};

use super::messages::{Messages, Sink, Stable};
use super::parts::Accepts;
use super::profile::{ChatProfile, SystemRole, ToolChoiceSupport};
use super::{schema, thinking};
use crate::provider::limits::check_tools;
use crate::provider::media_fit::fitted;
use crate::provider::names::NameRule;
use crate::provider::{ModelRequest, ProviderError, ProviderErrorKind, RequestHead, ToolChoice, ToolDefinition};

type Buffer = Writer<BytesMut>;

impl Sink for Buffer {
    fn written(&self) -> usize {
        self.get_ref().len()
    }
}

/// What closes a body whose messages are written.
const TAIL: &[u8] = b"]}";

/// The body of a request. What the conversation's last request already had is taken over as it is.
///
/// `wire` stands for the profile: bodies of other wires are not taken over.
pub(super) fn body(profile: &ChatProfile, wire: &str, request: &ModelRequest) -> Result<Bytes, ProviderError> {
    let head = &request.head;
    check_tools(&profile.id, head.tools.len(), profile.max_tools)?;
    if head.extra.contains_key("messages") {
        let mut out = BytesMut::new().writer();
        write_head(profile, head, &mut out).map_err(|error| unwritable(profile, &error))?;
        out.get_mut().put_slice(b"}");
        return Ok(out.into_inner().freeze());
    }
    let request = &*Accepts::new(profile, &head.model).with_rules(|rules| fitted(request, wire, rules))?;
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

/// Everything up to the conversation: the fields, and the system message.
fn begin(profile: &ChatProfile, head: &RequestHead) -> Result<Buffer, ProviderError> {
    let mut out = BytesMut::with_capacity(4096).writer();
    let written = write_head(profile, head, &mut out).and_then(|()| {
        out.get_mut().put_slice(b",\"messages\":[");
        match head.system.as_deref().filter(|system| !system.trim().is_empty()) {
            Some(system) => {
                let role = match profile.system_role {
                    SystemRole::System => "system",
                    SystemRole::Developer => "developer",
                };
                serde_json::to_writer(&mut out, &SystemMessage { role, content: system })
            }
            None => Ok(()),
        }
    });
    written.map_err(|error| unwritable(profile, &error))?;
    Ok(out)
}

fn append(
    profile: &ChatProfile,
    request: &ModelRequest,
    mut out: Buffer,
    from: usize,
) -> Result<(Bytes, Stable), ProviderError> {
    let first = out.get_ref().last() == Some(&b'[');
    let stable = Messages::new(profile, &request.head).write(&mut out, request.history.turns(), from, first)?;
    let mut bytes = out.into_inner();
    bytes.put_slice(TAIL);
    Ok((bytes.freeze(), stable))
}

fn unwritable(profile: &ChatProfile, error: &serde_json::Error) -> ProviderError {
    let message = format!("the request cannot be written as JSON: {error}");
    ProviderError::new(ProviderErrorKind::Invalid, &*profile.id, message)
}

#[derive(Serialize)]
struct SystemMessage<'a> {
    role: &'static str,
    content: &'a str,
}

/// Writes top-level fields. What `extra` has wins and is written once, at the end.
struct Fields<'a> {
    out: &'a mut Buffer,
    extra: &'a Map<String, Value>,
    empty: bool,
}

impl Fields<'_> {
    fn field(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<(), serde_json::Error> {
        if self.extra.contains_key(name) { Ok(()) } else { self.write(name, |out| serde_json::to_writer(out, value)) }
    }

    fn raw(&mut self, name: &str, json: &str) -> Result<(), serde_json::Error> {
        if self.extra.contains_key(name) {
            return Ok(());
        }
        self.write(name, |out| out.write_all(json.as_bytes()).map_err(serde_json::Error::io))
    }

    fn write(
        &mut self,
        name: &str,
        value: impl FnOnce(&mut Buffer) -> Result<(), serde_json::Error>,
    ) -> Result<(), serde_json::Error> {
        self.out.get_mut().put_u8(if std::mem::take(&mut self.empty) { b'{' } else { b',' });
        serde_json::to_writer(&mut *self.out, name)?;
        self.out.get_mut().put_u8(b':');
        value(self.out)
    }
}

/// Writes everything but the messages, without the closing brace.
fn write_head(profile: &ChatProfile, head: &RequestHead, out: &mut Buffer) -> Result<(), serde_json::Error> {
    let mut fields = Fields { out, extra: &head.extra, empty: true };
    fields.field("model", &head.model)?;
    fields.field("stream", &true)?;
    if profile.stream_options && head.extra.get("stream") != Some(&Value::Bool(false)) {
        let obfuscation = if profile.obfuscation { ",\"include_obfuscation\":false" } else { "" };
        fields.raw("stream_options", &format!("{{\"include_usage\":true{obfuscation}}}"))?;
    }
    if let Some(max_tokens) = head.max_tokens {
        // A host that sets either name itself means it.
        let own = ["max_tokens", "max_completion_tokens"].iter().any(|name| head.extra.contains_key(*name));
        if !own {
            fields.field(profile.max_tokens_field.name(), &max_tokens)?;
        }
    }
    if let Some(temperature) = head.temperature.filter(|_| !profile.fixed_temperature.contains(&head.model)) {
        fields.field("temperature", &temperature)?;
    }
    if !head.stop_sequences.is_empty() {
        fields.field("stop", &head.stop_sequences)?;
    }
    if let Some(level) = head.thinking {
        for field in thinking::fields(&profile.thinking, &head.model, level) {
            fields.raw(field.name, &field.value)?;
        }
    }
    if head.cache && profile.cache_control.contains(&head.model) {
        fields.raw("cache_control", "{\"type\":\"ephemeral\"}")?;
    }
    if let Some(output) = head.output.as_ref().filter(|_| profile.structured_output) {
        let strict = profile.strict_tools;
        let schema = output.closed(strict);
        let format =
            json!({"type": "json_schema", "json_schema": {"name": output.name, "schema": schema, "strict": strict}});
        fields.field("response_format", &format)?;
    }
    write_tools(profile, head, &mut fields)?;
    for (name, value) in &head.extra {
        fields.write(name, |out| serde_json::to_writer(out, value))?;
    }
    Ok(())
}

fn write_tools(profile: &ChatProfile, head: &RequestHead, fields: &mut Fields<'_>) -> Result<(), serde_json::Error> {
    let full = profile.tool_choice == ToolChoiceSupport::Full;
    // Where the choice is not understood, the only way to allow no calls is to declare no tools.
    if head.tools.is_empty() || (head.tool_choice == ToolChoice::None && !full) {
        return Ok(());
    }
    let tools = Tools { profile, head };
    fields.field("tools", &tools)?;
    if full {
        match &head.tool_choice {
            ToolChoice::Auto => {}
            ToolChoice::Required => fields.field("tool_choice", "required")?,
            ToolChoice::None => fields.field("tool_choice", "none")?,
            ToolChoice::Tool(name) => {
                let name = NameRule::PORTABLE.wire_name(head.names.display(name));
                fields.field("tool_choice", &json!({"type": "function", "function": {"name": name}}))?;
            }
        }
    }
    Ok(())
}

struct Tools<'a> {
    profile: &'a ChatProfile,
    head: &'a RequestHead,
}

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let strict_taken = self.profile.strict_tools;
        let names = &self.head.names;
        serializer.collect_seq(self.head.tools.iter().map(|tool| Tool {
            r#type: "function",
            function: FunctionDefinition {
                name: NameRule::PORTABLE.wire_name(names.display(&tool.name)),
                description: &tool.description,
                parameters: Parameters { tool, plain_root: self.profile.plain_schema_root },
                strict: tool.strict && strict_taken && schema::fits_strict(&tool.input_schema),
            },
        }))
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    function: FunctionDefinition<'a>,
}

#[derive(Serialize)]
struct FunctionDefinition<'a> {
    name: std::borrow::Cow<'a, str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    description: &'a str,
    parameters: Parameters<'a>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    strict: bool,
}

/// A tool's schema. An object schema without `properties` gets empty ones: OpenAI refuses it otherwise.
struct Parameters<'a> {
    tool: &'a ToolDefinition,
    plain_root: bool,
}

impl Serialize for Parameters<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let schema = &*self.tool.input_schema;
        if self.plain_root && schema::has_refused_root(schema) {
            return schema::lowered(schema).serialize(serializer);
        }
        match schema {
            Value::Object(fields) if !fields.contains_key("properties") && !fields.contains_key("$ref") => {
                let mut map = serializer.serialize_map(None)?;
                if !fields.contains_key("type") {
                    map.serialize_entry("type", "object")?;
                }
                for (name, value) in fields {
                    map.serialize_entry(name, value)?;
                }
                map.serialize_entry("properties", &Map::new())?;
                map.end()
            }
            schema => schema.serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests;
