use std::fmt::Write as _;

use crate::agent::spill::Ends;
use crate::types::{
    Document, MediaSource, SessionContentBlock, SessionTurn, ToolResultBlock, TurnOrigin, tool_result_to_text,
};

/// The most bytes of one text that somebody said, and of one call's arguments or result.
const SAID: usize = 32 * 1024;
const DONE: usize = 4 * 1024;

/// A conversation in words, for the model that summarises it. Lossy: long parts lose their middle, and so does the
/// whole when it is longer than `limit` bytes; media are named, reasoning is left out.
pub(super) fn record<'a>(turns: impl IntoIterator<Item = &'a SessionTurn>, limit: usize) -> String {
    let mut text = String::new();
    for turn in turns {
        let who = match turn.origin {
            TurnOrigin::Model => "assistant",
            TurnOrigin::Summary => "summary of what came before",
            // What the loop itself said.
            TurnOrigin::Budget | TurnOrigin::Pause | TurnOrigin::Continue => continue,
            _ => "user",
        };
        for block in &turn.content {
            match block {
                SessionContentBlock::Text(said) if !said.text.trim().is_empty() => {
                    part(&mut text, who, &said.text, SAID)
                }
                SessionContentBlock::ToolCall(call) => {
                    part(&mut text, &format!("assistant calls {}", call.name), &call.arguments, DONE);
                }
                SessionContentBlock::ToolResult(result) => result_part(&mut text, result),
                SessionContentBlock::Image(_) => part(&mut text, who, "(an image)", SAID),
                SessionContentBlock::Document(document) => document_part(&mut text, who, document),
                _ => {}
            }
        }
    }
    match Ends::of(&text, limit) {
        Some(ends) => ends.to_string(),
        None => text,
    }
}

fn result_part(text: &mut String, result: &ToolResultBlock) {
    let failed = if result.is_error { ", which failed" } else { "" };
    part(text, &format!("result of {}{failed}", result.name), &tool_result_to_text(&result.output), DONE);
}

fn document_part(text: &mut String, who: &str, document: &Document) {
    let name = document.name.as_deref().unwrap_or("without a name");
    match &document.media.source {
        MediaSource::Text(words) => part(text, &format!("{who}, a document, {name}"), words, DONE),
        _ => part(text, who, &format!("(a document, {name})"), SAID),
    }
}

fn part(text: &mut String, who: &str, said: &str, limit: usize) {
    let separator = if text.is_empty() { "" } else { "\n\n" };
    // A string takes everything.
    let _ = match Ends::of(said, limit) {
        Some(ends) => write!(text, "{separator}[{who}]\n{ends}"),
        None => write!(text, "{separator}[{who}]\n{said}"),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Extra, Media, Role, ToolCallBlock, ToolStatus};

    fn turn(role: Role, origin: TurnOrigin, content: Vec<SessionContentBlock>) -> SessionTurn {
        SessionTurn::new("t", role, origin, content)
    }

    #[test]
    fn a_conversation_reads_as_a_script() {
        let call =
            ToolCallBlock { name: "read".into(), arguments: "{\"path\":\"a\"}".into(), ..ToolCallBlock::default() };
        let result = ToolResultBlock {
            call_id: "1".into(),
            name: "read".into(),
            input: None,
            output: "é".repeat(DONE).into(),
            is_error: true,
            status: ToolStatus::Error,
            outcome: None,
            structured: None,
            extra: Extra::default(),
        };
        let image = SessionContentBlock::Image(Media::bytes("image/png", vec![0; 100_000]));
        let turns = [
            turn(Role::User, TurnOrigin::Summary, vec![SessionContentBlock::text("Before.")]),
            turn(Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text("Read it."), image]),
            turn(Role::Assistant, TurnOrigin::Model, vec![SessionContentBlock::ToolCall(call)]),
            turn(Role::User, TurnOrigin::Results, vec![SessionContentBlock::ToolResult(result)]),
            turn(Role::User, TurnOrigin::Budget, vec![SessionContentBlock::text("Read less.")]),
        ];
        let text = record(&turns, usize::MAX);
        let start = "[summary of what came before]\nBefore.\n\n[user]\nRead it.\n\n[user]\n(an image)\n\n\
                     [assistant calls read]\n{\"path\":\"a\"}\n\n[result of read, which failed]\néé";
        assert!(text.starts_with(start), "{}", &text[..200]);
        assert!(text.contains("bytes left out") && text.ends_with("éé") && text.len() < 2 * DONE, "{}", text.len());
        for limit in [0, 1, 100, 1_000] {
            let cut = record(&turns, limit);
            assert!(cut.len() <= limit + 60, "{limit}: {}", cut.len());
        }
    }
}
