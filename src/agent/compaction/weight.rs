use crate::provider::RequestHead;
use crate::types::{
    Media, MediaSource, SessionContentBlock, SessionTurn, ToolResultBody, ToolResultContent,
    tool_output_budget_byte_length,
};

/// Bytes of text that count as one token.
const BYTES: usize = 4;

/// Tokens that an image or a document counts as. Wires count pixels and pages, which are not known here.
const MEDIA: u64 = 1_600;

pub(super) fn of_bytes(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(BYTES)).unwrap_or(u64::MAX)
}

/// An estimate of what a turn takes of the window, in tokens.
pub(super) fn of_turn(turn: &SessionTurn) -> u64 {
    turn.content.iter().map(of_block).fold(0, u64::saturating_add)
}

/// An estimate of what everything but the conversation takes.
pub(super) fn of_head(head: &RequestHead) -> u64 {
    let system = head.system.as_deref().map_or(0, str::len);
    let tools = head.tools.iter().map(|tool| {
        let schema = tool.input_schema.to_string().len();
        tool.name.len().saturating_add(tool.description.len()).saturating_add(schema)
    });
    of_bytes(tools.fold(system, usize::saturating_add))
}

fn of_block(block: &SessionContentBlock) -> u64 {
    match block {
        SessionContentBlock::Text(text) => of_bytes(text.text.len()),
        SessionContentBlock::Thinking(thinking) => of_bytes(thinking.text.len()),
        SessionContentBlock::ToolCall(call) => of_bytes(call.name.len().saturating_add(call.arguments.len())),
        SessionContentBlock::ToolResult(result) => of_output(&result.output),
        SessionContentBlock::Image(media) => of_media(media),
        SessionContentBlock::Document(document) => of_media(&document.media),
        SessionContentBlock::Opaque(opaque) => of_bytes(opaque.value.to_string().len()),
        // Not sent.
        _ => 0,
    }
}

fn of_output(output: &ToolResultBody) -> u64 {
    let text = of_bytes(tool_output_budget_byte_length(output));
    let ToolResultBody::Blocks(blocks) = output else { return text };
    let media = blocks.iter().filter(|block| !matches!(block, ToolResultContent::Text { .. })).count();
    text.saturating_add(u64::try_from(media).unwrap_or(u64::MAX).saturating_mul(MEDIA))
}

fn of_media(media: &Media) -> u64 {
    match &media.source {
        MediaSource::Text(text) => of_bytes(text.len()),
        _ => MEDIA,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Role, TurnOrigin};

    #[test]
    fn media_count_the_same_whatever_their_bytes() {
        let turn = |block| SessionTurn::new("t", Role::User, TurnOrigin::Prompt, vec![block]);
        assert_eq!(of_turn(&turn(SessionContentBlock::text("12345"))), 2);
        let image = |bytes: usize| SessionContentBlock::Image(Media::bytes("image/png", vec![0; bytes]));
        assert_eq!(of_turn(&turn(image(10))), of_turn(&turn(image(100_000))));
        let output = ToolResultBody::Blocks(vec![
            ToolResultContent::text("12345678"),
            ToolResultContent::Image(Media::bytes("image/png", vec![0; 10_000])),
        ]);
        let weight = of_output(&output);
        assert!((MEDIA + 2..MEDIA + 20).contains(&weight), "{weight}");
    }
}
