//! Images, in each way that a server takes them.

use serde_json::{Value, json};
use zidane::decision::{Decider, DecisionContract, DecisionProfile};
use zidane::types::{Media, PromptPart};

use super::ask::{answered, api, json_reply, serve, yes_or_no};

const PNG: &str = "iVBORw0KGgo=";

async fn sent(profile: DecisionProfile, parts: Vec<PromptPart>) -> (Value, Option<String>) {
    let server = serve(json_reply(&answered(profile.contract, 0.9))).await;
    Decider::new(api(profile, server.url())).decide(parts, yes_or_no()).await.unwrap();
    let request = &server.requests()[0];
    (request.json().unwrap(), request.header("typesafe-danger-zone-images").map(ToOwned::to_owned))
}

fn image() -> PromptPart {
    // Called something else than it is.
    PromptPart::Image(Media::base64("image/jpeg", PNG))
}

#[tokio::test]
async fn assets_stand_behind_placeholders_that_stand_nowhere_else() {
    let parts = vec![PromptPart::text("Compare <image 1> with:"), image(), PromptPart::text("and"), image()];
    let (body, header) = sent(DecisionProfile::typesafe(), parts).await;
    let asset = json!({"type": "image", "format": "png", "data_base64": PNG});
    assert_eq!(body["state"], json!(["Compare <image 1> with:", "<image-1 1>", "and", "<image-1 2>"]));
    assert_eq!(body["assets"], json!({"<image-1 1>": asset, "<image-1 2>": asset}));
    assert_eq!(header.as_deref(), Some("true"));
}

#[tokio::test]
async fn data_urls_stand_beside_the_state() {
    let (body, header) = sent(DecisionProfile::llama_cpp(), vec![PromptPart::text("See"), image()]).await;
    assert_eq!(body["images"], json!([format!("data:image/png;base64,{PNG}")]));
    assert_eq!((&body["state"], header), (&json!("See"), None), "the opt-in is TypeSafe's alone");
}

#[tokio::test]
async fn parts_stand_in_the_state() {
    let parts = vec![PromptPart::text("See"), PromptPart::Image(Media::url("https://example.com/a.png")), image()];
    let (body, _) = sent(DecisionProfile::openrouter(), parts).await;
    let url = |url: &str| json!({"type": "image_url", "image_url": {"url": url}});
    let expected = json!([
        {"type": "text", "text": "See"},
        url("https://example.com/a.png"),
        url(&format!("data:image/png;base64,{PNG}")),
    ]);
    assert_eq!(body["state"], expected);
}

#[tokio::test]
async fn text_alone_is_a_string_everywhere() {
    for profile in [DecisionProfile::typesafe(), DecisionProfile::openrouter(), DecisionProfile::ollama()] {
        let (body, header) =
            sent(profile, vec![PromptPart::text("One"), PromptPart::text(" "), PromptPart::text("Two")]).await;
        assert_eq!((&body["state"], header), (&json!("One\n\nTwo"), None));
        assert!(body.get("assets").is_none() && body.get("images").is_none());
    }
    let (body, _) = sent(DecisionProfile::openai(), vec![PromptPart::text("One")]).await;
    assert_eq!(body["input"][0]["content"], json!([{"type": "input_text", "text": "One"}]));
    assert_eq!(DecisionProfile::openai().contract, DecisionContract::OpenAi);
}
