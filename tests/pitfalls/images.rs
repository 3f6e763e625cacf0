//! Form `wire`, images: what is sent of a conversation that has more of them, or larger ones, than the API takes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use zidane::provider::{History, RequestHead};
use zidane::types::{Media, Role, SessionContentBlock, SessionTurn, TurnOrigin};

use super::fields::Fields;
use super::findings::Findings;
use super::json_path;
use super::neutral;
use super::wire::send;
use super::wires::Protocol;

/// A model that has the limits.
const MODEL: &str = "claude-sonnet-4-5";
const MARKER: &str = "left out: ";

struct Limits {
    bytes: u64,
    edge: u64,
    many: u64,
    many_edge: u64,
}

pub fn judge(case: &mut Fields<'_>, protocols: &[Protocol], findings: &mut Findings) {
    let (Some(mut limits), Some(mut generator)) = (case.object("limits"), case.object("history_generator")) else {
        return findings.need("limits and a generator, both");
    };
    let mut limit = |name| limits.number(name).unwrap_or(0);
    let limit = Limits {
        bytes: limit("max_image_bytes"),
        edge: limit("max_edge"),
        many: limit("many_images"),
        many_edge: limit("many_edge"),
    };
    limits.finish(findings);
    let images = generator.number("images").unwrap_or(0);
    let edge = generator.number("edge").unwrap_or(0);
    generator.finish(findings);
    let Some(mut expect) = case.object("expect") else { return };

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut head = RequestHead::default();
    head.model = MODEL.to_owned();
    let too_long = u32::try_from(limit.edge + 1_000).unwrap();
    let edge = u32::try_from(edge).unwrap();
    let many: Vec<_> = (0..images).map(|_| (edge, edge)).collect();
    for protocol in protocols {
        findings.at(protocol.name());
        let mut sent = |sides: &[(u32, u32)]| runtime.block_on(send(*protocol, head.clone(), history(sides, findings)));
        let (many, one) = (sent(&many), sent(&[(too_long, 10)]));
        let (many, one) = match (many, one) {
            (Ok(many), Ok(one)) => (seen(&many), seen(&one)),
            (Err(error), _) | (_, Err(error)) => {
                findings.wrong(format!("the conversation cannot go on: {error}"));
                continue;
            }
        };
        if expect.flag("request_within_limits") {
            for seen in [&many, &one] {
                within(&limit, seen, findings);
            }
        }
        if let Some(order) = expect.take("replaced_by_marker") {
            findings.equal("the order", order, &json!("oldest first"));
            findings.equal("images before", &many.len(), &many.len().max(usize::try_from(images).unwrap_or(0)));
            let kept = many.iter().position(|image| image.is_ok()).unwrap_or(many.len());
            findings.ensure(kept > 0 && kept < many.len(), || format!("{kept} of {} were replaced", many.len()));
            findings.ensure(many.iter().skip(kept).all(Result::is_ok), || "a later image was replaced".to_owned());
            findings.ensure(one.iter().all(Result::is_err), || "the longest image was sent".to_owned());
        }
        if expect.flag("reported") {
            let markers = many.iter().chain(&one).filter_map(|image| image.as_ref().err());
            let told = markers.filter(|text| text.split(MARKER).nth(1).is_some_and(|why| why.len() > 10)).count();
            findings.ensure(told > 1, || "nothing says why an image is missing".to_owned());
        }
    }
    findings.at("");
    expect.finish(findings);
}

/// Prompts and results with an image each, all answered, and a last prompt of text alone.
fn history(sides: &[(u32, u32)], findings: &mut Findings) -> History {
    let mut turns = Vec::new();
    for (number, (width, height)) in sides.iter().enumerate() {
        let image = Media::base64("image/png", png(*width, *height));
        if number % 2 == 0 {
            let content = vec![SessionContentBlock::Image(image)];
            turns.push(SessionTurn::new(format!("u{number}"), Role::User, TurnOrigin::Prompt, content));
        } else {
            let data = png(*width, *height);
            let call = json!({ "role": "assistant", "blocks": [
                { "type": "tool_call", "id": format!("c{number}"), "name": "shot", "input": {} },
            ]});
            let output = json!([{ "type": "image", "media_type": "image/png", "data": data }]);
            let result = json!({ "role": "user", "blocks": [
                { "type": "tool_result", "call_id": format!("c{number}"), "output": output },
            ]});
            turns.extend(neutral::history(&[call, result], findings).iter().cloned());
        }
        let answer = vec![SessionContentBlock::text("seen")];
        turns.push(SessionTurn::new(format!("a{number}"), Role::Assistant, TurnOrigin::Model, answer));
    }
    turns.push(SessionTurn::new("last", Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text("go on")]));
    History::from_iter(turns)
}

fn png(width: u32, height: u32) -> String {
    let start = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &width.to_be_bytes(), &height.to_be_bytes(), &[8; 8]];
    STANDARD.encode(start.concat())
}

/// The images of a request in order: the data, or what stands there instead.
fn seen(body: &Value) -> Vec<Result<String, String>> {
    let mut seen = Vec::new();
    json_path::walk(body, "", &mut |_, value| match value["type"].as_str() {
        Some("image") => seen.push(Ok(value["source"]["data"].as_str().unwrap_or_default().to_owned())),
        Some("text") => {
            let text = value["text"].as_str().unwrap_or_default();
            if text.contains(MARKER) {
                seen.push(Err(text.to_owned()));
            }
        }
        _ => {}
    });
    seen
}

fn within(limit: &Limits, seen: &[Result<String, String>], findings: &mut Findings) {
    let sent: Vec<_> = seen.iter().filter_map(|image| image.as_ref().ok()).collect();
    let most = if sent.len() as u64 > limit.many { limit.many_edge } else { limit.edge };
    for data in sent {
        findings.ensure(data.len() as u64 <= limit.bytes, || format!("an image has {} bytes", data.len()));
        let bytes = STANDARD.decode(data).unwrap();
        let side = |from: usize| u64::from(u32::from_be_bytes(bytes[from..from + 4].try_into().unwrap()));
        let longest = side(16).max(side(20));
        findings.ensure(longest <= most, || format!("an image has a side of {longest}, and {most} is taken"));
    }
}
