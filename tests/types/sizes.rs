use std::borrow::Cow;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;
use zidane::types::*;

use super::generate;

fn png(data: &str) -> ToolResultContent {
    ToolResultContent::Image(Media::base64("image/png", data))
}

fn sourced(media_type: Option<&str>, source: MediaSource) -> Media {
    Media::new(media_type.map(str::to_owned), source)
}

fn resource(uri: Option<&str>, media_type: Option<&str>, content: ResourceContent) -> ToolResultContent {
    ToolResultContent::Resource(Resource {
        uri: uri.map(str::to_owned),
        media_type: media_type.map(str::to_owned),
        content,
        extra: Extra::default(),
    })
}

/// A block, its text, its wire size, its budget size.
fn table() -> Vec<(ToolResultContent, String, usize, usize)> {
    let long = "A".repeat(1234);
    let marker = |block, text: &str, wire| (block, text.to_owned(), wire, text.len());
    let pointer = |block, text: &str| (block, text.to_owned(), text.len(), text.len());
    vec![
        marker(ToolResultContent::text("héllo"), "héllo", 6),
        marker(ToolResultContent::text(""), "", 0),
        marker(png(&long), "[image: image/png, 1234 b64 bytes]", 1234),
        marker(png(""), "[image: image/png, 0 b64 bytes]", 0),
        pointer(
            ToolResultContent::Image(sourced(Some("image/png"), MediaSource::Ref("KEY".into()))),
            "[image: image/png, ref KEY]",
        ),
        pointer(
            ToolResultContent::Image(sourced(Some("image/png"), MediaSource::Url("https://e.org/é".into()))),
            "[image: image/png, url https://e.org/é]",
        ),
        marker(
            ToolResultContent::Audio(sourced(None, MediaSource::Data("aGk=".into()))),
            "[audio: application/octet-stream, 4 b64 bytes]",
            4,
        ),
        marker(
            ToolResultContent::Video(sourced(Some("video/mp4"), MediaSource::Data("aGk=".into()))),
            "[video: video/mp4, 4 b64 bytes]",
            4,
        ),
        marker(
            ToolResultContent::Image(sourced(Some("image/svg+xml"), MediaSource::Text("<svg/>".into()))),
            "<svg/>",
            6,
        ),
        marker(resource(Some("file:///a"), None, ResourceContent::Text("body".into())), "body", 4),
        marker(
            resource(Some("file:///a"), Some("application/pdf"), ResourceContent::Blob("aGk=".into())),
            "[resource: file:///a, 4 b64 bytes]",
            4,
        ),
        marker(
            resource(None, Some("application/pdf"), ResourceContent::Blob("aGk=".into())),
            "[resource: application/pdf, 4 b64 bytes]",
            4,
        ),
        pointer(
            resource(None, None, ResourceContent::Ref("KEY".into())),
            "[resource: application/octet-stream, ref KEY]",
        ),
        pointer(resource(Some("file:///a"), None, ResourceContent::Link("A".into())), "[resource: file:///a, link]"),
        pointer(ToolResultContent::Unknown(json!({"type": "hologram"})), "[block: hologram, not supported]"),
    ]
}

#[test]
fn each_kind_of_block_has_its_text_and_sizes() {
    for (block, text, wire, budget) in table() {
        let blocks = [block];
        assert_eq!(tool_result_to_text(&blocks), text);
        assert_eq!(tool_output_byte_length(&blocks), wire, "{text}");
        assert_eq!(tool_output_budget_byte_length(&blocks), budget, "{text}");
    }
}

#[test]
fn blocks_are_joined_and_separators_not_counted() {
    let (blocks, texts): (Vec<_>, Vec<_>) = table().into_iter().map(|(block, text, ..)| (block, text)).unzip();
    let (wire, budget) = table().iter().fold((0, 0), |(wire, budget), row| (wire + row.2, budget + row.3));
    let body = ToolResultBody::Blocks(blocks);
    assert_eq!(tool_result_to_text(&body), texts.join("\n"));
    assert_eq!(tool_output_byte_length(&body), wire);
    assert_eq!(tool_output_budget_byte_length(&body), budget);
}

#[test]
fn text_is_borrowed() {
    let body = ToolResultBody::from("héllo");
    let lone = ToolResultBody::from(vec![ToolResultContent::text("héllo")]);
    for body in [&body, &lone] {
        assert!(matches!(tool_result_to_text(body), Cow::Borrowed("héllo")));
        assert_eq!(tool_output_byte_length(body), 6);
        assert_eq!(tool_output_budget_byte_length(body), 6);
    }
    assert!(matches!(tool_result_to_text("plain"), Cow::Borrowed("plain")));
    assert_eq!(tool_output_byte_length(&String::from("plain")), 5);
    assert_eq!(tool_output_budget_byte_length("plain"), 5);
}

#[test]
fn empty_is_nothing() {
    let none: [ToolResultContent; 0] = [];
    assert_eq!(tool_result_to_text(&none), "");
    assert_eq!(tool_output_byte_length(&none), 0);
    assert_eq!(tool_output_budget_byte_length(""), 0);
}

proptest! {
    #[test]
    fn the_budget_counts_what_the_text_prints(blocks in vec(generate::result_content(), 0..8)) {
        let separators = blocks.len().saturating_sub(1);
        prop_assert_eq!(tool_output_budget_byte_length(&blocks) + separators, tool_result_to_text(&blocks).len());
    }

    #[test]
    fn sizes_add_up_over_the_blocks(blocks in vec(generate::result_content(), 0..8)) {
        let each = |size: fn(&ToolResultBody) -> usize| -> usize {
            blocks.iter().map(|block| size(&vec![block.clone()].into())).sum()
        };
        prop_assert_eq!(tool_output_byte_length(&blocks), each(|body| tool_output_byte_length(body)));
        prop_assert_eq!(tool_output_budget_byte_length(&blocks), each(|body| tool_output_budget_byte_length(body)));
    }

    #[test]
    fn an_attachment_never_weighs_on_the_budget(data in "[A-Za-z0-9]{0,4000}") {
        let blocks = [png(&data)];
        prop_assert_eq!(tool_output_byte_length(&blocks), data.len());
        prop_assert!(tool_output_budget_byte_length(&blocks) < 40);
    }
}
