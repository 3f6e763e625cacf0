//! Every recorded answer decodes to what it means, however the network cuts it.
//!
//! The recordings are read from `ZIDANE_WIRE_DIR`, by default `../shared/wire` beside the crate; any folder laid out
//! like it will do. They belong to other projects and are never copied here.
#![cfg(all(feature = "anthropic", feature = "openai", feature = "gemini"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

#[path = "wire/mod.rs"]
mod wire;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use serde_json::{Value, json};
use wire::answer::Answer;
use wire::corpus::{self, Corpus, Exchange, Protocol, Recording};
use wire::cuts::{self, Random};
use wire::got::{self, Got};
use wire::{compare, decode, expect, runs};

/// Tags of which at least one recording must have been compared, so that the test cannot pass by finding nothing.
const MUST_SEE: [&str; 34] = [
    "stream",
    "non-stream",
    "text",
    "tool-call",
    "parallel-tools",
    "tool-result",
    "function-call",
    "empty-args",
    "multi-turn",
    "thinking",
    "redacted-thinking",
    "reasoning",
    "encrypted-reasoning",
    "signature",
    "thought-signature",
    "safety-block",
    "cache",
    "usage-detail",
    "server-tool",
    "web-search",
    "citations",
    "unicode",
    "length",
    "refusal",
    "pause",
    "error",
    "mid-stream-error",
    "rate-limit",
    "overloaded",
    "cut-stream",
    "truncated-args",
    "empty-answer",
    "finish-reason-other",
    "constructed",
];

/// Recorded conversations of which an agent on one wire can go only the first steps, and how many. Turns of another
/// provider were put between them, or the client sent what this loop never does.
const PARTLY_REPLAYED: [(&str, usize); 9] = [
    ("test-anthropic-to-google-deferred-capability-history-replay", 1),
    ("test-live-tool-search-handoff-anthropic-openai-anthropic", 2),
    ("test-deepseek-deferred-capability-with-thinking", 1),
    ("test-lite-agent-structured-output", 2),
    // The client answers a search for tools, which is no call of a tool.
    ("test-openai-client-tool-search-streaming", 1),
    // Keeps the conversation at the server.
    ("test-openai-previous-response-id-seed-auto-chains-through-retries", 1),
    // One agent hands over to another.
    ("test-music-composer-handoff-hierarchy", 1),
    // An exchange in the middle was not recorded.
    ("chat-function-calling-xai-grok-4-1-fast-non-reasoning-can-use-tools-wi-2", 1),
    ("gemini__google__test-tools", 1),
];

/// Prints although the test passes: libtest holds back only what the print macros write.
macro_rules! say {
    ($($part:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($part)*);
    }};
}

enum Verdict {
    Passed,
    Failed(Vec<String>),
    Left,
}

#[test]
fn recorded_answers_decode_to_what_they_mean() {
    let Some(corpus) = corpus::find() else { return };
    let next = AtomicUsize::new(0);
    let verdicts = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get).min(8);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(file) = corpus.files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (verdict, tags) = judge(&corpus, file);
                    verdicts.lock().unwrap().push((corpus.name(file), verdict, tags));
                }
            });
        }
    });
    let mut verdicts = verdicts.into_inner().unwrap();
    verdicts.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    report(&corpus, &verdicts);
}

fn report(corpus: &Corpus, verdicts: &[(String, Verdict, Vec<String>)]) {
    let (mut passed, mut failed, mut left) = (0, 0, 0);
    let mut seen = BTreeSet::new();
    for (name, verdict, tags) in verdicts {
        match verdict {
            Verdict::Left => left += 1,
            Verdict::Passed => passed += 1,
            Verdict::Failed(differences) => {
                failed += 1;
                say!("{name}: {}", differences.join("; "));
            }
        }
        if !matches!(verdict, Verdict::Left) {
            seen.extend(tags.iter().map(String::as_str));
        }
    }
    say!("wire: {passed} passed, {failed} failed, {left} left");
    assert_eq!(failed, 0, "recordings fell short, see above");
    assert!(passed > 0, "nothing was compared");
    if corpus.is_whole {
        let missing: Vec<_> = MUST_SEE.iter().filter(|tag| !seen.contains(**tag)).collect();
        assert!(missing.is_empty(), "no recording was compared with these tags: {missing:?}");
    }
}

fn judge(corpus: &Corpus, file: &Path) -> (Verdict, Vec<String>) {
    let recording = match corpus.read(file) {
        Ok(recording) => recording,
        Err(error) => return (Verdict::Failed(vec![format!("unreadable: {error}")]), Vec::new()),
    };
    if !decode::is_built(recording.protocol) {
        return (Verdict::Left, recording.tags);
    }
    let name = corpus.name(file);
    let mut differences = Vec::new();
    if recording.exchanges.is_empty() {
        differences.push("no exchanges".to_owned());
    }
    for (step, exchange) in recording.exchanges.iter().enumerate() {
        let mut found = judge_exchange(&name, &recording, exchange);
        found.extend(judge_cut_off(&name, &recording, exchange));
        let place = if recording.is_run { format!("step {step}: ") } else { String::new() };
        differences.extend(found.into_iter().map(|difference| format!("{place}{difference}")));
    }
    if recording.is_run {
        match runs::plan::plan(&recording) {
            Ok(plan) => {
                check_stop(&name, corpus, &plan, &mut differences);
                let found = runs::drive::differences(recording.protocol, &recording.vendor, &plan);
                differences.extend(found.into_iter().map(|difference| format!("replay: {difference}")));
            }
            Err(error) => differences.push(format!("it cannot be replayed: {error}")),
        }
    }
    let verdict = if differences.is_empty() { Verdict::Passed } else { Verdict::Failed(differences) };
    (verdict, recording.tags)
}

/// A replay that stops early is one of those that are known to.
fn check_stop(name: &str, corpus: &Corpus, plan: &runs::plan::Plan, differences: &mut Vec<String>) {
    let known = PARTLY_REPLAYED.iter().find(|(known, _)| name.ends_with(known)).map(|(_, steps)| *steps);
    let steps = plan.stops.map(|_| plan.steps.len());
    if corpus.is_whole && steps != known {
        differences.push(format!("expected to stop after {known:?} steps, stops after {steps:?}: {:?}", plan.stops));
    }
}

fn judge_exchange(name: &str, recording: &Recording, exchange: &Exchange) -> Vec<String> {
    let expected = expect::answer(recording.protocol, &recording.vendor, exchange);
    let body = Bytes::from(exchange.body.clone().into_bytes());
    let run = |pieces| decode::decode(recording.protocol, &recording.vendor, exchange, pieces);
    let whole = run(vec![body.clone()]);
    let mut found = differences(recording, &expected, &whole);
    let mut cuttings = vec![("bytewise".to_owned(), cuts::bytewise(&body))];
    for salt in 0..3 {
        let mut random = Random::of(name, salt);
        cuttings.push((format!("cut at random ({salt})"), cuts::random(&body, &mut random)));
    }
    for (cutting, pieces) in cuttings {
        let again = run(pieces);
        // The events depend on the bytes and on nothing else.
        if again.events != whole.events {
            let at = again.events.iter().zip(&whole.events).take_while(|(a, b)| a == b).count();
            let (a, b) = (whole.events.get(at), again.events.get(at));
            found.push(format!("{cutting}: event {at} is {b:?} and not {a:?}"));
        } else if again.error.as_ref().map(ToString::to_string) != whole.error.as_ref().map(ToString::to_string) {
            found.push(format!("{cutting}: the error is {:?} and not {:?}", again.error, whole.error));
        }
    }
    found
}

/// A stream that breaks off anywhere means what had come by then.
fn judge_cut_off(name: &str, recording: &Recording, exchange: &Exchange) -> Vec<String> {
    const CUTS: u64 = 24;
    let is_stream = exchange.status < 400 && !exchange.body.trim_start().starts_with('{');
    if !is_stream {
        return Vec::new();
    }
    let mut found = Vec::new();
    for salt in 0..CUTS {
        // Less than a line's field name could be the start of anything.
        let mut at = Random::of(name, 100 + salt).below(exchange.body.len()).max(16).min(exchange.body.len());
        while !exchange.body.is_char_boundary(at) {
            at -= 1;
        }
        let cut = Exchange { body: exchange.body[..at].to_owned(), ..exchange.clone() };
        let expected = expect::answer(recording.protocol, &recording.vendor, &cut);
        let body = Bytes::from(cut.body.clone().into_bytes());
        let got = decode::decode(recording.protocol, &recording.vendor, &cut, vec![body]);
        let differences = differences(recording, &expected, &got);
        found.extend(differences.into_iter().map(|difference| format!("broken off at {at}: {difference}")));
    }
    found
}

fn differences(recording: &Recording, expected: &Answer, got: &Got) -> Vec<String> {
    match got::answer(got) {
        Ok(answer) => compare::differences(recording.protocol, &recording.vendor, expected, &answer),
        Err(error) => vec![error],
    }
}

/// Recorded clients sent back what, by our reading, the model had said: the expectations and the two readers of
/// requests check each other, without any of the crate.
#[test]
fn recorded_requests_bear_the_expectations_out() {
    let Some(corpus) = corpus::find() else { return };
    let mut failed = 0;
    for file in &corpus.files {
        let Ok(recording) = corpus.read(file) else { continue };
        if !recording.is_run || recording.protocol == Protocol::Left {
            continue;
        }
        let found = match runs::plan::plan(&recording) {
            Ok(plan) => (0..plan.steps.len())
                .flat_map(|step| {
                    let said = plan.faithful(step);
                    runs::compare::differences(&plan.steps[step].request, &said, &said)
                })
                .collect(),
            Err(error) => vec![error],
        };
        if !found.is_empty() {
            failed += 1;
            say!("{}: {}", corpus.name(file), found.join("; "));
        }
    }
    assert_eq!(failed, 0, "see above");
}

/// The replay itself, on a conversation whose requests are then changed one by one.
#[test]
fn a_replay_that_differs_is_found() {
    let right = small_run();
    let replay = |recording: &Recording| {
        let plan = runs::plan::plan(recording).unwrap();
        runs::drive::differences(recording.protocol, &recording.vendor, &plan)
    };
    assert_eq!(replay(&right), Vec::<String>::new());
    let changes: [(&str, &str); 8] = [
        ("/messages/0/content", "Be long."),
        ("/messages/1/content", "5 + 5?"),
        ("/messages/2/content", "Other."),
        ("/messages/2/tool_calls/0/function/arguments", r#"{"a":3}"#),
        ("/messages/2/tool_calls/0/function/name", "sub"),
        ("/messages/3/tool_call_id", "other"),
        ("/messages/3/content", ""),
        ("/tools/0/function/description", "Subtracts"),
    ];
    for (place, value) in changes {
        let mut wrong = right.clone();
        *wrong.exchanges[1].request.pointer_mut(place).unwrap() = value.into();
        let mut plan = runs::plan::plan(&wrong).unwrap();
        // What the agent is given stays right, but for the result, which is the host's.
        let given = runs::plan::plan(&right).unwrap();
        (plan.system, plan.prompts, plan.tools) = (given.system, given.prompts, given.tools);
        if place != "/messages/3/content" {
            plan.results = given.results;
        }
        let mut found = runs::drive::differences(wrong.protocol, &wrong.vendor, &plan);
        found.extend(plan.stops.map(str::to_owned));
        // An empty result is given a placeholder, which is right.
        assert_eq!(found.is_empty(), place == "/messages/3/content", "{place}: {found:?}");
    }
}

/// The same on the Responses wire, which has items in place of messages.
#[test]
fn a_replay_of_items_that_differs_is_found() {
    let right = small_run_of_items();
    let given = runs::plan::plan(&right).unwrap();
    assert_eq!(runs::drive::differences(right.protocol, &right.vendor, &given), Vec::<String>::new());
    let changes: [(&str, &str); 8] = [
        ("/instructions", "Be long."),
        ("/input/0/content", "5 + 5?"),
        ("/input/1/encrypted_content", ""),
        ("/input/2/content/0/text", "Other."),
        ("/input/3/arguments", r#"{"a":3}"#),
        ("/input/3/name", "sub"),
        ("/input/4/call_id", "other"),
        ("/input/4/output", "5"),
    ];
    for (place, value) in changes {
        let mut wrong = right.clone();
        *wrong.exchanges[1].request.pointer_mut(place).unwrap() = value.into();
        let mut plan = runs::plan::plan(&wrong).unwrap();
        let given = runs::plan::plan(&right).unwrap();
        (plan.system, plan.prompts, plan.results) = (given.system, given.prompts, given.results);
        let mut found = runs::drive::differences(wrong.protocol, &wrong.vendor, &plan);
        found.extend(plan.stops.map(str::to_owned));
        // Reasoning that the recorded client lost goes back as the model made it.
        assert_eq!(found.is_empty(), place.ends_with("encrypted_content"), "{place}: {found:?}");
    }
}

fn small_run_of_items() -> Recording {
    let tools = json!([{ "type": "function", "name": "add", "description": "Adds",
        "parameters": { "type": "object", "properties": {} } }]);
    let said = json!([
        { "type": "reasoning", "id": "r", "summary": [], "encrypted_content": "e" },
        { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "Let me add." }] },
        { "type": "function_call", "call_id": "c1", "name": "add", "arguments": "{\"a\":2}" },
    ]);
    let mut items = vec![json!({ "role": "user", "content": "2 + 2?" })];
    let request =
        |items: &[Value]| json!({ "model": "m", "instructions": "Be brief.", "input": items, "tools": tools });
    let first = request(&items);
    items.extend(said.as_array().unwrap().iter().cloned());
    items.push(json!({ "type": "function_call_output", "call_id": "c1", "output": "4" }));
    let second = request(&items);
    let answer = |output: &Value| json!({ "model": "m", "status": "completed", "output": output }).to_string();
    let last = json!([{ "type": "message", "content": [{ "type": "output_text", "text": "4" }] }]);
    let exchange = |request: Value, body: String| Exchange {
        path: String::new(),
        request,
        status: 200,
        headers: vec![("content-type".into(), "application/json".into())],
        body,
    };
    Recording {
        protocol: Protocol::Responses,
        vendor: "openai".into(),
        tags: Vec::new(),
        exchanges: vec![exchange(first, answer(&said)), exchange(second, answer(&last))],
        is_run: true,
    }
}

fn small_run() -> Recording {
    let tools = json!([{ "type": "function", "function": {
        "name": "add", "description": "Adds", "parameters": { "type": "object", "properties": {} } } }]);
    let call = json!([{ "id": "c1", "type": "function", "function": { "name": "add", "arguments": "{\"a\":2}" } }]);
    let mut messages =
        vec![json!({ "role": "system", "content": "Be brief." }), json!({ "role": "user", "content": "2 + 2?" })];
    let first = json!({ "model": "m", "messages": messages, "tools": tools });
    messages.push(json!({ "role": "assistant", "content": "Let me add.", "tool_calls": call }));
    messages.push(json!({ "role": "tool", "tool_call_id": "c1", "content": "4" }));
    let second = json!({ "model": "m", "messages": messages, "tools": tools });
    let answer = |message: Value, reason: &str| {
        json!({ "model": "m", "choices": [{ "index": 0, "message": message, "finish_reason": reason }] }).to_string()
    };
    let exchange = |request: Value, body: String| Exchange {
        path: String::new(),
        request,
        status: 200,
        headers: vec![("content-type".into(), "application/json".into())],
        body,
    };
    Recording {
        protocol: Protocol::Chat,
        vendor: "openai".into(),
        tags: Vec::new(),
        exchanges: vec![
            exchange(first, answer(messages[2].clone(), "tool_calls")),
            exchange(second, answer(json!({ "content": "4" }), "stop")),
        ],
        is_run: true,
    }
}

/// The expectations themselves, on answers whose meaning is plain to see.
mod expectations {
    use serde_json::{Value, json};
    use zidane::provider::ProviderErrorKind as Kind;
    use zidane::types::TurnFinishReason as Class;

    use super::wire::answer::{Answer, Arguments, Block, Call, End, Usage};
    use super::wire::compare::differences;
    use super::wire::corpus::{Exchange, Protocol};
    use super::wire::expect::answer;

    fn exchange(status: u16, body: &str) -> Exchange {
        Exchange { path: String::new(), request: Value::Null, status, headers: Vec::new(), body: body.to_owned() }
    }

    fn call(id: &str, name: &str, arguments: Value) -> Block {
        Block::Call(Call {
            id: id.into(),
            name: name.into(),
            arguments: Arguments::Json(arguments),
            signature: None,
            complete: Some(true),
        })
    }

    fn finish(class: Class, raw: &str) -> Option<End> {
        Some(End::Finish { class, raw: Some(raw.into()) })
    }

    const ANTHROPIC: &str = concat!(
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\"content\":[],",
        "\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":7,\"output_tokens\":1}}}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"signature_delta\",\"signature\":\"s\"}}\n\n",
        "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"tool_use\",\"id\":\"c\",\"name\":\"t\",\"input\":{}}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"a\\\"\"}}\n\n",
        "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\":1}\"}}\n\n",
        "data: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\"},\"usage\":{\"input_tokens\":null,\"output_tokens\":9}}\n\n",
    );

    fn anthropic_expected() -> Answer {
        Answer {
            models: vec!["m".into()],
            blocks: vec![
                Block::Thinking { text: "hm".into(), signature: Some("s".into()) },
                call("c", "t", json!({ "a": 1 })),
            ],
            usage: Some(Usage { input: 5, output: 9, cache_read: 7, ..Usage::default() }),
            end: finish(Class::ToolCalls, "tool_use"),
        }
    }

    #[test]
    fn an_anthropic_stream_is_read() {
        let whole = format!("{ANTHROPIC}data: {{\"type\":\"message_stop\"}}\n\n");
        assert_eq!(answer(Protocol::Anthropic, "anthropic", &exchange(200, &whole)), anthropic_expected());
        let cut = ANTHROPIC.split("data: {\"type\":\"content_block_stop\",\"index\":1}").next().unwrap();
        let cut = answer(Protocol::Anthropic, "anthropic", &exchange(200, cut));
        let Some(End::Error(failure)) = cut.end else { panic!("{cut:?}") };
        assert_eq!(failure.kinds, [Kind::TruncatedStream]);
        assert!(matches!(&cut.blocks[1], Block::Call(Call { complete: Some(false), .. })));
    }

    #[test]
    fn an_anthropic_body_is_read() {
        let body = json!({
            "model": "m",
            "content": [{ "type": "text", "text": "hi" }, { "type": "server_tool_use", "id": "x" }],
            "stop_reason": "max_tokens",
            "usage": { "input_tokens": 1, "output_tokens": 2, "cache_creation_input_tokens": 3,
                "cache_creation": { "ephemeral_1h_input_tokens": 2 },
                "iterations": [{ "type": "message", "input_tokens": 1 }, { "type": "compaction", "input_tokens": 10 }] },
        });
        let expected = Answer {
            models: vec!["m".into()],
            blocks: vec![Block::Text("hi".into()), Block::Opaque(json!({ "type": "server_tool_use", "id": "x" }))],
            usage: Some(Usage { input: 11, output: 2, cache_write: 3, cache_write_1h: 2, ..Usage::default() }),
            end: finish(Class::Length, "max_tokens"),
        };
        assert_eq!(answer(Protocol::Anthropic, "anthropic", &exchange(200, &body.to_string())), expected);
    }

    const CHAT: &str = concat!(
        ": wait\n\n",
        "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"reasoning\":\"hm\"}}]}\n\n",
        "data: {\"model\":\"m\",\"choices\":[{\"index\":1,\"delta\":{\"content\":\"no\"}},{\"index\":0,\"delta\":{\"content\":\"hi\"}}]}\n\n",
        "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"c\",\"function\":{\"name\":\"t\"}}]}}]}\n\n",
        "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\\\"a\\\":\"}}]}}]}\n\n",
        "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"\",\"function\":{\"arguments\":\"1}\"}}]}}]}\n\n",
        "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":4,\"prompt_tokens_details\":{\"cached_tokens\":5},\"completion_tokens_details\":{\"reasoning_tokens\":3}}}\n\n",
    );

    fn chat_expected() -> Answer {
        Answer {
            models: vec!["m".into()],
            blocks: vec![
                Block::Thinking { text: "hm".into(), signature: None },
                Block::Text("hi".into()),
                call("c", "t", json!({ "a": 1 })),
            ],
            usage: Some(Usage { input: 4, output: 4, cache_read: 5, reasoning: 3, ..Usage::default() }),
            end: finish(Class::ToolCalls, "stop"),
        }
    }

    #[test]
    fn a_chat_stream_is_read() {
        let expected = chat_expected();
        assert_eq!(answer(Protocol::Chat, "openai", &exchange(200, CHAT)), expected);
        let xai = answer(Protocol::Chat, "xai", &exchange(200, CHAT));
        assert_eq!(xai.usage.unwrap().output, 7, "reasoning comes on top");
        let cut = CHAT.split("data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{}").next().unwrap();
        let cut = answer(Protocol::Chat, "openai", &exchange(200, cut));
        assert!(matches!(cut.end, Some(End::Error(failure)) if failure.kinds == [Kind::TruncatedStream]));
    }

    const RESPONSES: &str = concat!(
        "data: {\"type\":\"response.created\",\"response\":{\"model\":\"m\",\"status\":\"in_progress\"}}\n\n",
        "data: {\"type\":\"response.reasoning_summary_text.delta\",\"output_index\":0,\"summary_index\":0,\"delta\":\"hm\"}\n\n",
        "data: {\"type\":\"response.output_item.done\",\"output_index\":0,\"item\":{\"type\":\"reasoning\",\"id\":\"r\",",
        "\"summary\":[{\"type\":\"summary_text\",\"text\":\"hm\"}],\"encrypted_content\":\"e\"}}\n\n",
        "data: {\"type\":\"response.output_item.added\",\"output_index\":1,",
        "\"item\":{\"type\":\"function_call\",\"id\":\"f\",\"call_id\":\"c\",\"name\":\"t\",\"arguments\":\"\"}}\n\n",
        "data: {\"type\":\"response.function_call_arguments.delta\",\"output_index\":1,\"delta\":\"{\\\"a\\\":1}\"}\n\n",
        "data: {\"type\":\"response.output_item.done\",\"output_index\":1,\"item\":{\"type\":\"function_call\",\"id\":\"f\",",
        "\"call_id\":\"c\",\"name\":\"t\",\"arguments\":\"{\\\"a\\\":1}\",\"status\":\"completed\"}}\n\n",
        "data: {\"type\":\"response.completed\",\"response\":{\"model\":\"m\",\"status\":\"completed\",\"output\":[],\"usage\":",
        "{\"input_tokens\":5,\"input_tokens_details\":{\"cached_tokens\":2},\"output_tokens\":9}}}\n\n",
    );

    #[test]
    fn a_responses_stream_is_read() {
        let read = |body: &str| answer(Protocol::Responses, "openai", &exchange(200, body));
        let item = json!({ "type": "reasoning", "id": "r", "encrypted_content": "e",
            "summary": [{ "type": "summary_text", "text": "hm" }] });
        let Block::Call(called) = call("c", "t", json!({ "a": 1 })) else { unreachable!() };
        let expected = Answer {
            models: vec!["m".into()],
            blocks: vec![
                Block::Thinking { text: "hm".into(), signature: Some(item.to_string()) },
                Block::Call(Call { signature: Some(r#"{"id":"f"}"#.into()), ..called }),
            ],
            usage: Some(Usage { input: 3, output: 9, cache_read: 2, ..Usage::default() }),
            end: finish(Class::ToolCalls, "completed"),
        };
        assert_eq!(read(RESPONSES), expected);
        let cut = RESPONSES.split("data: {\"type\":\"response.output_item.done\",\"output_index\":1").next().unwrap();
        let cut = read(cut);
        assert!(matches!(&cut.blocks[1], Block::Call(call) if call.complete == Some(false)), "{cut:?}");
        assert!(matches!(cut.end, Some(End::Error(failure)) if failure.kinds == [Kind::TruncatedStream]));
        let filtered = r#"{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[]}"#;
        assert_eq!(read(filtered).end, finish(Class::ContentFilter, "content_filter"));
    }

    #[test]
    fn a_gemini_stream_is_read() {
        let chunk = |parts: Value, more: Value| {
            let mut chunk = json!({ "candidates": [{ "content": { "parts": parts } }], "modelVersion": "m" });
            for (field, value) in more.as_object().unwrap() {
                chunk["candidates"][0][field] = value.clone();
            }
            chunk["usageMetadata"] = json!({ "promptTokenCount": 9, "cachedContentTokenCount": 4,
                "candidatesTokenCount": 2, "thoughtsTokenCount": 3 });
            format!("data: {chunk}\r\n\r\n")
        };
        let piece = json!({ "jsonPath": "$.a[1].b", "numberValue": 1 });
        let start = [
            chunk(json!([{ "text": "h", "thought": true }]), json!({})),
            chunk(json!([{ "text": "m", "thought": true }, { "text": "h" }, { "text": "i" }]), json!({})),
            chunk(json!([{ "text": "", "thoughtSignature": "s1" }, { "executableCode": {} }]), json!({})),
            chunk(
                json!([{ "functionCall": { "name": "t", "willContinue": true }, "thoughtSignature": "s2" }]),
                json!({}),
            ),
            chunk(json!([{ "functionCall": { "partialArgs": [piece], "willContinue": true } }]), json!({})),
        ]
        .concat();
        let mut called = call("", "t", json!({ "a": [null, { "b": 1 }] }));
        if let Block::Call(call) = &mut called {
            call.signature = Some("s2".into());
        }
        let expected = Answer {
            models: vec!["m".into()],
            blocks: vec![
                Block::Thinking { text: "hm".into(), signature: None },
                Block::Text("hi".into()),
                Block::Signed { text: String::new(), signature: "s1".into() },
                Block::Opaque(json!({ "executableCode": {} })),
                called,
            ],
            usage: Some(Usage { input: 5, output: 5, cache_read: 4, reasoning: 3, ..Usage::default() }),
            end: finish(Class::ToolCalls, "STOP"),
        };
        let end = chunk(json!([]), json!({ "finishReason": "STOP" }));
        assert_eq!(answer(Protocol::Gemini, "google", &exchange(200, &format!("{start}{end}"))), expected);
        let cut = answer(Protocol::Gemini, "google", &exchange(200, &start));
        assert!(matches!(cut.end, Some(End::Error(failure)) if failure.kinds == [Kind::TruncatedStream]));
        let error = "{\n\"error\": {\"code\": 503}}\n";
        let failed = answer(Protocol::Gemini, "google", &exchange(200, &format!("{start}{error}")));
        assert!(matches!(failed.end, Some(End::Error(failure)) if failure.kinds == [Kind::Overloaded]));
        let blocked = r#"[{"promptFeedback":{"blockReason":"SAFETY"}}]"#;
        let blocked = answer(Protocol::Gemini, "google", &exchange(200, blocked));
        assert_eq!((blocked.blocks, blocked.end), (Vec::new(), finish(Class::ContentFilter, "SAFETY")));
    }

    #[test]
    fn failures_are_classed() {
        let table = [
            (
                Protocol::Anthropic,
                529,
                r#"{"type":"error","error":{"type":"overloaded_error"}}"#,
                Kind::Overloaded,
                true,
            ),
            (
                Protocol::Anthropic,
                400,
                r#"{"error":{"message":"prompt is too long: 9"}}"#,
                Kind::ContextOverflow,
                false,
            ),
            (Protocol::Chat, 401, r#"{"detail":"no"}"#, Kind::Auth, false),
            (Protocol::Chat, 429, r#"{"error":{"code":"insufficient_quota"}}"#, Kind::Quota, false),
            (Protocol::Chat, 429, r#"{"error":{"code":"rate_limit_exceeded"}}"#, Kind::RateLimited, true),
            (Protocol::Chat, 200, r#"{"error":{"code":502,"message":"x"}}"#, Kind::Server, true),
            (Protocol::Chat, 502, "<html>", Kind::Server, true),
            (
                Protocol::Responses,
                200,
                "data: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"x\"}\n\n",
                Kind::RateLimited,
                true,
            ),
            (
                Protocol::Gemini,
                400,
                r#"[{"error":{"code":400,"details":[{"reason":"API_KEY_INVALID"}]}}]"#,
                Kind::Auth,
                false,
            ),
            (
                Protocol::Gemini,
                429,
                r#"{"error":{"details":[{"violations":[{"quotaId":"RequestsPerDay"}]}]}}"#,
                Kind::Quota,
                false,
            ),
        ];
        for (protocol, status, body, kind, retryable) in table {
            let answer = answer(protocol, "x", &exchange(status, body));
            let Some(End::Error(failure)) = answer.end else { panic!("{body}") };
            assert_eq!((failure.kinds, failure.retryable), (vec![kind], Some(retryable)), "{body}");
        }
    }

    #[test]
    fn every_kind_of_difference_is_found() {
        let right = anthropic_expected();
        let same = |answer: &Answer| differences(Protocol::Anthropic, "anthropic", &right, answer).is_empty();
        assert!(same(&right));
        type Change = fn(&mut Answer);
        let changes: [Change; 12] = [
            |answer| answer.models.clear(),
            |answer| answer.blocks.truncate(1),
            |answer| answer.blocks.swap(0, 1),
            |answer| answer.blocks.push(Block::Text("more".into())),
            |answer| answer.blocks[0] = Block::Thinking { text: "hm".into(), signature: None },
            |answer| answer.blocks[0] = Block::Thinking { text: "hm.".into(), signature: Some("s".into()) },
            |answer| answer.blocks[1] = call("c", "t", json!({ "a": 2 })),
            |answer| answer.blocks[1] = call("", "t", json!({ "a": 1 })),
            |answer| answer.usage = None,
            |answer| answer.usage = Some(Usage { cache_read: 0, ..answer.usage.unwrap() }),
            |answer| answer.end = finish(Class::Stop, "tool_use"),
            |answer| answer.end = finish(Class::ToolCalls, "tool_calls"),
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut wrong = right.clone();
            change(&mut wrong);
            assert!(!same(&wrong), "change {number} went unnoticed");
        }
        let chat = chat_expected();
        let mut swapped = chat.clone();
        swapped.blocks.swap(0, 1);
        assert!(!differences(Protocol::Chat, "openai", &chat, &swapped).is_empty());
    }
}
