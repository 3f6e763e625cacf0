//! Histories in the neutral blocks that cases use.

use serde_json::Value;
use zidane::provider::History;
use zidane::types::{
    Document, Media, Role, SessionContentBlock, SessionTurn, Signature, SignatureProducer, TextBlock, ThinkingBlock,
    ToolCallBlock, ToolResultBlock, ToolResultBody, ToolResultContent, ToolStatus, TurnOrigin,
};

use super::fields::Fields;
use super::findings::Findings;
use super::wires::MODEL;

pub fn history(turns: &[Value], findings: &mut Findings) -> History {
    let mut names = std::collections::HashMap::new();
    let mut out = Vec::new();
    for (number, turn) in turns.iter().enumerate() {
        let mut turn = Fields::new("history", turn);
        let role = if turn.text("role") == Some("assistant") { Role::Assistant } else { Role::User };
        let mut content = Vec::new();
        for block in turn.list("blocks") {
            let mut fields = Fields::new("history.blocks", block);
            content.extend(one(&mut fields, &mut names, findings));
            fields.finish(findings);
        }
        turn.finish(findings);
        let answers = content.iter().any(|block| block.as_tool_result().is_some());
        let origin = match role {
            Role::Assistant => TurnOrigin::Model,
            _ if answers => TurnOrigin::Results,
            _ => TurnOrigin::Prompt,
        };
        out.push(SessionTurn::new(format!("turn-{number}"), role, origin, content));
    }
    out.into_iter().collect()
}

fn one(
    fields: &mut Fields<'_>,
    names: &mut std::collections::HashMap<String, String>,
    findings: &mut Findings,
) -> Option<SessionContentBlock> {
    let text = |fields: &mut Fields<'_>, key: &str| fields.text(key).unwrap_or_default().to_owned();
    Some(match fields.text("type").unwrap_or_default() {
        "text" => {
            let (text, signature) = (text(fields, "text"), signature(fields));
            SessionContentBlock::Text(TextBlock { text, signature, ..TextBlock::default() })
        }
        "image" => SessionContentBlock::Image(media(fields)),
        "document" => {
            let name = fields.text("name").map(str::to_owned);
            SessionContentBlock::Document(Document { name, media: media(fields) })
        }
        "thinking" => {
            let redacted = fields.text("redacted").map(str::to_owned);
            let thinking =
                ThinkingBlock { text: text(fields, "text"), signature: signature(fields), ..ThinkingBlock::default() };
            SessionContentBlock::Thinking(match redacted {
                Some(data) => ThinkingBlock {
                    signature: Some(Signature::new(SignatureProducer::ANTHROPIC, MODEL, data)),
                    redacted: true,
                    ..thinking
                },
                None => thinking,
            })
        }
        "tool_call" => {
            let (id, name) = (text(fields, "id"), text(fields, "name"));
            names.insert(id.clone(), name.clone());
            let arguments = match fields.text("arguments_text") {
                Some(text) => text.to_owned(),
                None => fields.take("input").map(Value::to_string).unwrap_or_default(),
            };
            let signature = signature(fields);
            SessionContentBlock::ToolCall(ToolCallBlock { id, name, arguments, signature, ..ToolCallBlock::default() })
        }
        "tool_result" => {
            let call_id = text(fields, "call_id");
            let is_error = fields.switch("is_error");
            let output = fields.take("output").map_or_else(ToolResultBody::default, |output| body(output, findings));
            SessionContentBlock::ToolResult(ToolResultBlock {
                name: names.get(&call_id).cloned().unwrap_or_default(),
                call_id,
                input: None,
                output,
                is_error,
                status: if is_error { ToolStatus::Error } else { ToolStatus::Ok },
                outcome: None,
                structured: None,
                extra: Default::default(),
            })
        }
        other => {
            findings.need(format!("an adapter for blocks of type `{other}`"));
            return None;
        }
    })
}

fn body(output: &Value, findings: &mut Findings) -> ToolResultBody {
    let Some(blocks) = output.as_array() else {
        return ToolResultBody::Text(super::body::plain(output));
    };
    let mut content = Vec::new();
    for block in blocks {
        let mut fields = Fields::new("output", block);
        match fields.text("type") {
            Some("text") => content.push(ToolResultContent::text(fields.text("text").unwrap_or_default())),
            Some("image") => content.push(ToolResultContent::Image(media(&mut fields))),
            Some("audio") => content.push(ToolResultContent::Audio(media(&mut fields))),
            other => findings.need(format!("an adapter for results of type `{other:?}`")),
        }
        fields.finish(findings);
    }
    ToolResultBody::Blocks(content)
}

fn media(fields: &mut Fields<'_>) -> Media {
    let data = fields.text("data").unwrap_or_default().to_owned();
    let media_type = fields.text("media_type").map(str::to_owned);
    Media::new(media_type, zidane::types::MediaSource::Data(data))
}

/// The model is the one of the request where the case names none.
fn signature(fields: &mut Fields<'_>) -> Option<Signature> {
    let value = fields.take("signature")?.as_object()?;
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let producer = match text("producer")? {
        "anthropic" | "anthropic-messages" => SignatureProducer::ANTHROPIC,
        other => SignatureProducer::new(other.to_owned()),
    };
    Some(Signature::new(producer, text("model").unwrap_or(MODEL), text("value")?))
}
