use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;

use super::parts::{Accepts, Part, PartsOrText};
use super::profile::{ChatProfile, ReasoningEcho, ReasoningField};
use crate::provider::names::NameRule;
use crate::provider::outgoing::outgoing;
use crate::provider::{HistoryTurn, ProviderError, ProviderErrorKind, RequestHead};
use crate::types::{Role, SessionContentBlock, SessionTurn, Signature, ThinkingBlock, ToolCallBlock};

#[derive(Serialize)]
struct UserMessage<'a> {
    role: &'static str,
    content: PartsOrText<'a>,
}

#[derive(Serialize)]
struct ToolMessage<'a> {
    role: &'static str,
    tool_call_id: Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Cow<'a, str>>,
    content: PartsOrText<'a>,
}

#[derive(Serialize)]
struct AssistantMessage<'a> {
    role: &'static str,
    content: Content<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_details: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call<'a>>,
}

/// An assistant's content is a plain string: a list makes some models write lists into their text.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Null(()),
    Text(Cow<'a, str>),
    Parts(Vec<AssistantPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum AssistantPart<'a> {
    Text {
        text: &'a str,
    },
    Thinking {
        thinking: [TextPart<'a>; 1],
        #[serde(skip_serializing_if = "Option::is_none")]
        signature: Option<&'a str>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename = "text")]
struct TextPart<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct Call<'a> {
    id: Cow<'a, str>,
    r#type: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: Cow<'a, str>,
}

/// Where the messages of a conversation go.
pub(super) trait Sink: io::Write {
    /// How many bytes there are.
    fn written(&self) -> usize;
}

/// Turns the turns of a conversation into messages.
pub(super) struct Messages<'r> {
    profile: &'r ChatProfile,
    head: &'r RequestHead,
    accepts: Accepts<'r>,
}

/// Media of tool results, which wait for the last `tool` message in a row.
type Attached<'a> = Vec<Part<'a>>;

/// How much of what was written stays as it is, whatever follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stable {
    pub(super) turns: usize,
    pub(super) bytes: usize,
}

impl<'r> Messages<'r> {
    pub(super) fn new(profile: &'r ChatProfile, head: &'r RequestHead) -> Self {
        Self { profile, head, accepts: Accepts::new(profile, &head.model) }
    }

    /// Writes the messages of `turns` from `from` on, each with a comma before it unless it is the `first`.
    pub(super) fn write(
        &self,
        out: &mut impl Sink,
        turns: &[Arc<HistoryTurn>],
        from: usize,
        mut first: bool,
    ) -> Result<Stable, ProviderError> {
        let mut attached = Attached::new();
        let mut stable = Stable { turns: from, bytes: out.written() };
        for index in from..turns.len() {
            let Some(turn) = turns.get(index) else { break };
            let blocks = outgoing(turns, index);
            match turn.role {
                Role::User => self.user(out, &mut first, (index, turn), &blocks, &mut attached)?,
                Role::Assistant => {
                    self.attachments(out, &mut first, &mut attached)?;
                    self.assistant(out, &mut first, &blocks)?;
                }
            }
            if attached.is_empty() {
                stable = Stable { turns: index.saturating_add(1), bytes: out.written() };
            }
        }
        self.attachments(out, &mut first, &mut attached)?;
        Ok(stable)
    }

    fn user<'a>(
        &self,
        out: &mut impl Sink,
        first: &mut bool,
        (place, turn): (usize, &SessionTurn),
        blocks: &[&'a SessionContentBlock],
        attached: &mut Attached<'a>,
    ) -> Result<(), ProviderError> {
        for result in blocks.iter().filter_map(|block| block.as_tool_result()) {
            let content = self.accepts.result(result, attached);
            let shown = self.profile.name_in_tool_results.then(|| self.name(&result.name));
            let tool_call_id = self.profile.call_ids.wire_id(&result.call_id);
            self.message(out, first, &ToolMessage { role: "tool", tool_call_id, name: shown, content })?;
        }
        let mut parts = Vec::new();
        for block in blocks {
            parts.extend(self.accepts.part(block).map_err(|refused| {
                let index = turn.content.iter().position(|stored| std::ptr::eq(stored, *block)).unwrap_or_default();
                self.accepts.unsupported(&format!("part {index} of turn {place}"), &refused)
            })?);
        }
        if parts.is_empty() {
            return Ok(());
        }
        self.attachments(out, first, attached)?;
        match PartsOrText::of(parts) {
            Some(content) => self.message(out, first, &UserMessage { role: "user", content }),
            None => Ok(()),
        }
    }

    /// The media of the results before, in a message of their own.
    fn attachments(
        &self,
        out: &mut impl Sink,
        first: &mut bool,
        attached: &mut Attached<'_>,
    ) -> Result<(), ProviderError> {
        if attached.is_empty() {
            return Ok(());
        }
        let mut parts = vec![Part::Text { text: "Attachments of the tool results above, in order:".into() }];
        parts.append(attached);
        self.message(out, first, &UserMessage { role: "user", content: PartsOrText::Parts(parts) })
    }

    fn assistant(
        &self,
        out: &mut impl Sink,
        first: &mut bool,
        blocks: &[&SessionContentBlock],
    ) -> Result<(), ProviderError> {
        let calls: Vec<_> =
            blocks.iter().filter_map(|block| block.as_tool_call()).map(|call| self.tool_call(call)).collect();
        let texts = || blocks.iter().filter_map(|block| block.as_text());
        if calls.is_empty() && texts().all(str::is_empty) {
            return Ok(());
        }
        let echoes = match self.profile.reasoning_echo {
            ReasoningEcho::Never | ReasoningEcho::Signed => false,
            ReasoningEcho::WithCalls => !calls.is_empty(),
            ReasoningEcho::Always => true,
        };
        let mut message = AssistantMessage {
            role: "assistant",
            content: Content::Null(()),
            reasoning_content: None,
            reasoning: None,
            reasoning_details: None,
            extra_content: None,
            tool_calls: calls,
        };
        let thinking = || blocks.iter().filter_map(|block| self.own_thinking(block));
        match self.profile.reasoning_field {
            ReasoningField::ContentPart if echoes && thinking().next().is_some() => {
                message.content = Content::Parts(blocks.iter().filter_map(|block| self.content_part(block)).collect());
            }
            field => {
                message.content = joined(texts()).map_or(Content::Null(()), Content::Text);
                let lost = || if message.tool_calls.is_empty() { None } else { self.profile.missing_reasoning.clone() };
                let text = if echoes { joined(thinking().map(|block| &*block.text)).or_else(lost) } else { None };
                match field {
                    ReasoningField::ReasoningContent => message.reasoning_content = text,
                    ReasoningField::Reasoning => message.reasoning = text,
                    ReasoningField::ContentPart => {}
                }
            }
        }
        if self.profile.reasoning_echo == ReasoningEcho::Signed {
            message.reasoning_details = blocks.iter().find_map(|block| match block {
                SessionContentBlock::Thinking(block) => {
                    self.state(block.signature.as_ref().filter(|signature| signature.model == self.head.model), '[')
                }
                _ => None,
            });
        }
        message.extra_content = blocks.iter().find_map(|block| match block {
            SessionContentBlock::Text(text) => self.state(text.signature.as_ref(), '{'),
            _ => None,
        });
        self.message(out, first, &message)
    }

    /// Reasoning that may go back as text: nobody's or this vendor's.
    fn own_thinking<'a>(&self, block: &'a SessionContentBlock) -> Option<&'a ThinkingBlock> {
        let SessionContentBlock::Thinking(block) = block else { return None };
        let own = block.signature.as_ref().is_none_or(|signature| signature.producer.as_str() == self.profile.id);
        (own && !block.redacted && !block.text.is_empty()).then_some(block)
    }

    fn content_part<'a>(&self, block: &'a SessionContentBlock) -> Option<AssistantPart<'a>> {
        match block {
            SessionContentBlock::Text(text) if !text.text.is_empty() => Some(AssistantPart::Text { text: &text.text }),
            SessionContentBlock::Thinking(_) => {
                let block = self.own_thinking(block)?;
                let signature = block.signature.as_ref().map(|signature| &*signature.value);
                Some(AssistantPart::Thinking { thinking: [TextPart { text: &block.text }], signature })
            }
            _ => None,
        }
    }

    fn tool_call<'a>(&self, call: &'a ToolCallBlock) -> Call<'a>
    where
        'r: 'a,
    {
        Call {
            id: self.profile.call_ids.wire_id(&call.id),
            r#type: "function",
            function: Function { name: self.name(&call.name), arguments: arguments(&call.arguments) },
            extra_content: self.state(call.signature.as_ref(), '{'),
        }
    }

    fn name<'a>(&self, canonical: &'a str) -> Cow<'a, str>
    where
        'r: 'a,
    {
        NameRule::PORTABLE.wire_name(self.head.names.display(canonical))
    }

    /// This vendor's own state, if it is JSON that begins as it should.
    fn state<'a>(&self, signature: Option<&'a Signature>, begins: char) -> Option<&'a RawValue> {
        let own = signature.filter(|signature| signature.producer.as_str() == self.profile.id)?;
        if own.value.starts_with(begins) { serde_json::from_str(&own.value).ok() } else { None }
    }

    fn message(&self, out: &mut impl Sink, first: &mut bool, message: &impl Serialize) -> Result<(), ProviderError> {
        let separator: &[u8] = if std::mem::take(first) { b"" } else { b"," };
        let written = out.write_all(separator).map_err(serde_json::Error::io);
        written.and_then(|()| serde_json::to_writer(out, message)).map_err(|error| self.unwritable(&error))
    }

    fn unwritable(&self, error: &serde_json::Error) -> ProviderError {
        let message = format!("the conversation cannot be written as JSON: {error}");
        ProviderError::new(ProviderErrorKind::Invalid, &*self.profile.id, message)
    }
}

/// Texts of one answer, as one. `None` when there is nothing.
fn joined<'a>(mut texts: impl Iterator<Item = &'a str>) -> Option<Cow<'a, str>> {
    let mut joined = Cow::Borrowed(texts.next()?);
    texts.for_each(|text| joined += text);
    (!joined.is_empty()).then_some(joined)
}

/// The argument text as JSON: servers parse it when they render the conversation.
fn arguments(raw: &str) -> Cow<'_, str> {
    if raw.trim().is_empty() {
        Cow::Borrowed("{}")
    } else if serde_json::from_str::<serde::de::IgnoredAny>(raw).is_ok() {
        Cow::Borrowed(raw)
    } else {
        Cow::Owned(format!("{{\"INVALID_JSON\":{}}}", serde_json::Value::from(raw)))
    }
}
