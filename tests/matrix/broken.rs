//! The rules find what is broken: real requests, each broken in one place.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use zidane::types::SessionTurn;

use super::kept;
use super::pairs::first;
use super::wire::{End, WIRES, Wire};

type Break = fn(&mut Value);

/// What a fault must say, and what brings it about. Places are of the last request of the first stretch.
fn breaks(wire: Wire) -> Vec<(&'static str, Break)> {
    match wire {
        Wire::Anthropic => vec![
            ("unknown field", |v| v["seed"] = json!(1)),
            ("max_tokens", |v| v["max_tokens"] = json!(0)),
            ("no user's", |v| drop(v["messages"].as_array_mut().unwrap().remove(0))),
            ("must end with a user", |v| drop(v["messages"].as_array_mut().unwrap().pop())),
            ("empty content", |v| v["messages"][0]["content"] = json!([])),
            ("role", |v| v["messages"][0]["role"] = json!("tool")),
            ("blank text", |v| v["messages"][0]["content"][0]["text"] = json!(" \n")),
            ("the bytes are no", |v| v["messages"][0]["content"][1]["source"]["media_type"] = json!("image/gif")),
            ("is not taken", |v| v["messages"][0]["content"][1]["source"]["media_type"] = json!("image/tiff")),
            ("no base64", |v| v["messages"][0]["content"][2]["source"]["data"] = json!("%%%")),
            ("without a signature", |v| v["messages"][1]["content"][0]["signature"] = json!("")),
            ("has no result", |v| drop(v["messages"][2]["content"].as_array_mut().unwrap().remove(0))),
            ("without its call", |v| v["messages"][2]["content"][0]["tool_use_id"] = json!("x")),
            ("after other content", |v| {
                v["messages"][2]["content"].as_array_mut().unwrap().insert(0, json!({"type": "text", "text": "x"}));
            }),
            ("stands twice", |v| {
                let id = v["messages"][1]["content"][3]["id"].clone();
                v["messages"][4]["content"][0]["id"] = id.clone();
                v["messages"][5]["content"][0]["tool_use_id"] = id;
            }),
            ("the name", |v| v["messages"][1]["content"][3]["id"] = json!("a.b")),
            ("the name", |v| v["tools"][0]["name"] = json!("é")),
            ("stands twice", |v| v["tools"][0]["name"] = v["tools"][1]["name"].clone()),
            ("at the root", |v| v["tools"][0]["input_schema"]["anyOf"] = json!([])),
            ("cache marks", |v| {
                for place in 0..4 {
                    v["tools"][place]["cache_control"] = json!({"type": "ephemeral"});
                }
            }),
        ],
        Wire::Chat | Wire::Router => vec![
            ("unknown field", |v| v["top_k"] = json!(1)),
            ("in the middle", |v| {
                v["messages"].as_array_mut().unwrap().insert(2, json!({"role": "system", "content": "x"}));
            }),
            ("blank text", |v| v["messages"][1]["content"][0]["text"] = json!("")),
            ("unknown field", |v| v["messages"][2]["tool_calls"][0]["signature"] = json!("x")),
            ("the arguments", |v| v["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!("[1]")),
            ("the arguments", |v| {
                v["messages"][2]["tool_calls"][0]["function"]["arguments"] = json!("{\"a\":1,\"a\":2}")
            }),
            ("says nothing", |v| {
                v["messages"][2].as_object_mut().unwrap().remove("tool_calls");
                v["messages"][2]["content"] = Value::Null;
            }),
            ("has no result", |v| drop(v["messages"].as_array_mut().unwrap().remove(3))),
            ("has no result", |v| {
                v["messages"].as_array_mut().unwrap().insert(4, json!({"role": "user", "content": "x"}))
            }),
            ("no string", |v| v["messages"][3]["content"] = json!([{"type": "text", "text": "x"}])),
            ("without its call", |v| v["messages"][3]["tool_call_id"] = json!("x")),
            ("the id", |v| v["messages"][2]["tool_calls"][0]["id"] = json!("x".repeat(41))),
            ("not taken", |v| {
                v["messages"][1]["content"][1]["image_url"]["url"] = json!("data:image/tiff;base64,AAAA")
            }),
            ("filename", |v| drop(v["messages"][1]["content"][2]["file"].as_object_mut().unwrap().remove("filename"))),
            ("the last message", |v| drop(v["messages"].as_array_mut().unwrap().pop())),
            ("128", |v| {
                v["tools"] = (0..129)
                    .map(|n| json!({"type": "function", "function": {"name": format!("t{n}")}}))
                    .chain([json!({"type": "function", "function": {"name": "128 "}})])
                    .collect()
            }),
        ],
        Wire::Responses => vec![
            ("unknown field", |v| v["max_tokens"] = json!(1)),
            ("is stored", |v| v["store"] = json!(true)),
            ("`strict` is missing", |v| drop(v["tools"][0].as_object_mut().unwrap().remove("strict"))),
            ("leads to nothing", |v| {
                let reasoning = v["input"][1].clone();
                v["input"].as_array_mut().unwrap().insert(1, json!({"role": "user", "content": "x"}));
                v["input"].as_array_mut().unwrap().insert(1, reasoning);
            }),
            ("stands twice", |v| {
                let reasoning = v["input"][1].clone();
                v["input"].as_array_mut().unwrap().insert(1, reasoning);
            }),
            ("the id", |v| v["input"][1]["id"] = json!("msg_1")),
            ("the id", |v| v["input"][2]["id"] = json!(format!("msg_{}", "x".repeat(80)))),
            ("id or status", |v| drop(v["input"][2].as_object_mut().unwrap().remove("status"))),
            ("without its call", |v| v["input"][6]["call_id"] = json!("x")),
            ("the call id", |v| v["input"][3]["call_id"] = json!("x".repeat(65))),
            ("has no result", |v| drop(v["input"].as_array_mut().unwrap().remove(6))),
            ("a part", |v| v["input"][0]["content"][0]["type"] = json!("text")),
            ("no string", |v| v["input"][0]["content"][1]["image_url"] = json!({"url": "x"})),
            ("no filename", |v| drop(v["input"][0]["content"][2].as_object_mut().unwrap().remove("filename"))),
            ("`summary` is missing", |v| drop(v["input"][1].as_object_mut().unwrap().remove("summary"))),
        ],
        Wire::Gemini => vec![
            ("unknown field", |v| v["model"] = json!("x")),
            ("two contents", |v| {
                let more = v["contents"][0].clone();
                v["contents"].as_array_mut().unwrap().insert(0, more);
            }),
            ("ends with a model", |v| drop(v["contents"].as_array_mut().unwrap().pop())),
            ("no parts", |v| v["contents"][0]["parts"] = json!([])),
            ("data fields", |v| v["contents"][0]["parts"][0]["inlineData"] = json!({})),
            ("not taken", |v| v["contents"][0]["parts"][1]["inlineData"]["mimeType"] = json!("image/gif")),
            ("thought_signature", |v| {
                drop(v["contents"][1]["parts"][1].as_object_mut().unwrap().remove("thoughtSignature"))
            }),
            ("responses to", |v| drop(v["contents"][2]["parts"].as_array_mut().unwrap().remove(0))),
            ("does not match", |v| v["contents"][2]["parts"][0]["functionResponse"]["id"] = json!("x")),
            ("another call", |v| v["contents"][2]["parts"][0]["functionResponse"]["name"] = json!("x")),
            ("unknown field", |v| v["contents"][2]["parts"][0]["functionResponse"]["response"]["result"] = json!("x")),
            ("blank text", |v| v["contents"][1]["parts"][0]["text"] = json!("")),
            ("no object", |v| v["contents"][1]["parts"][1]["functionCall"]["args"] = json!("{}")),
            ("keyword", |v| {
                v["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"]["properties"]["n"]["allOf"] =
                    json!([]);
            }),
            ("not taken", |v| v["tools"][0]["functionDeclarations"][0]["name"] = json!("a/b")),
        ],
    }
}

#[tokio::test]
async fn each_broken_request_is_found() {
    let mut missed = Vec::new();
    for wire in WIRES {
        let end = End { wire, second: false };
        let (_, bodies) = first(end).await;
        let body = bodies.last().unwrap();
        let (good, report) = end.check(body);
        assert_eq!(report.faults, Vec::<String>::new());
        for (at, (says, change)) in breaks(wire).into_iter().enumerate() {
            let mut broken = good.clone();
            change(&mut broken);
            assert_ne!(broken, good, "{wire:?} {at}: nothing was broken");
            let faults = end.check(broken.to_string().as_bytes()).1.faults;
            if !faults.iter().any(|fault| fault.contains(says)) {
                missed.push(format!("{wire:?} {at} {says}: {faults:?}"));
            }
        }
        let twice = String::from_utf8(body.clone()).unwrap().replacen('{', "{\"tools\":[],", 1);
        assert!(end.check(twice.as_bytes()).1.faults[0].contains("stands twice"));
    }
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

/// Removing any one string that the conversation put into a request, or changing it, is noticed.
#[tokio::test]
async fn what_is_lost_or_changed_is_found() {
    for wire in WIRES {
        let end = End { wire, second: false };
        let (stored, bodies) = first(end).await;
        let turns: Vec<SessionTurn> = serde_json::from_str(&stored).unwrap();
        let turns = &turns[..turns.len() - 1];
        let body = String::from_utf8(bodies.last().unwrap().clone()).unwrap();
        let lost = |body: &str| {
            let (value, report) = end.check(body.as_bytes());
            kept::lost(end, &value, &report, turns)
        };
        assert_eq!(lost(&body), Vec::<String>::new());
        let mut texts: BTreeSet<&str> =
            ["What is in these?", "# Notes in a file", "Be brief, please.", "Go on at length.", "Let me look."].into();
        texts.extend(["seen 2", "it broke", "17 °C", "A red square and a paper.", "9007199254740993", "iVBORw0KGgoC"]);
        texts.extend(["JVBERi0", "iVBORw0KGgoB"]);
        let states: &[&str] = match wire {
            Wire::Anthropic => &[
                "SigAnthropicOne1a",
                "SigAnthropicOne1b",
                "SigAnthropicOne3a",
                "SigAnthropicOne3e",
                "I should look at all",
            ],
            Wire::Chat => &[],
            Wire::Router => &["SigRouterOne1a", "SigRouterOne3a"],
            Wire::Responses => &[
                "SigResponsesOne1a",
                "msg_SigResponsesOne1m",
                "fc_SigResponsesOne1f0",
                "commentary",
                "ws_SigResponsesOne3s",
            ],
            Wire::Gemini => &["SigGeminiOne1a", "SigGeminiOne2a", "SigGeminiOne3t", "print(3)", "printed 3"],
        };
        texts.extend(states);
        for text in texts {
            assert!(body.contains(text), "{wire:?}: {text} is not in the request");
            let other = if text.starts_with(|c: char| c.is_ascii_digit()) { "1" } else { "AAAA" };
            assert!(!lost(&body.replacen(text, other, 1)).is_empty(), "{wire:?}: nobody misses {text}");
        }
    }
}

#[test]
fn state_of_another_maker_is_found() {
    let end = |wire, second| End { wire, second };
    for (reader, maker, foreign) in [
        (end(Wire::Anthropic, false), "SigAnthropicTwo1a", false),
        (end(Wire::Responses, false), "SigResponsesTwo1a", true),
        (end(Wire::Gemini, false), "SigGeminiOne1a", false),
        (end(Wire::Gemini, true), "SigGeminiOne1a", true),
        (end(Wire::Chat, false), "SigRouterOne1a", true),
    ] {
        assert_eq!(!kept::foreign(reader, maker.as_bytes()).is_empty(), foreign, "{reader:?} {maker}");
    }
}
