//! Form `usage`: a provider's usage object in buckets that do not overlap.

use bytes::Bytes;
use futures::StreamExt as _;
use serde_json::{Value, json};
use zidane::provider::{PriceBook, Rates, RawResponse, StreamEvent, UsageSnapshot};
use zidane::types::{NanoUsd, TokenUsage};

use super::fields::Fields;
use super::findings::Findings;
use super::wires::{self, MODEL, Protocol};

pub fn judge(case: &mut Fields<'_>, findings: &mut Findings) {
    let shared = case.take("protocol");
    for (number, sample) in case.list("samples").iter().enumerate() {
        let mut sample = Fields::new("samples", sample);
        let protocols = wires::of(sample.take("protocol").or(shared), findings);
        let usage = sample.take("usage").unwrap_or(&Value::Null);
        let expect = sample.take("expect").unwrap_or(&Value::Null);
        for protocol in protocols {
            findings.at(format!("sample {}", number + 1));
            compare(expect, snapshot(protocol, usage), findings);
        }
        findings.at("");
        sample.finish(findings);
    }
    if let Some(mut sample) = case.object("cost_sample") {
        cost(&mut sample, findings);
        sample.finish(findings);
    }
}

/// What the price book makes of a usage.
fn cost(sample: &mut Fields<'_>, findings: &mut Findings) {
    let number = |value: Option<&Value>| value.and_then(Value::as_f64).unwrap_or_default();
    let mut book = PriceBook::empty();
    if let Some(mut prices) = sample.object("price_per_million") {
        let mut price = |key| number(prices.take(key));
        let rates = Rates::usd(price("input"), price("output")).cache_usd(price("cache_read"), price("cache_write"));
        book = book.set("test", MODEL, rates);
        prices.finish(findings);
    }
    let mut tokens = TokenUsage::default();
    if let Some(mut usage) = sample.object("usage") {
        let mut bucket = |key| usage.number(key).unwrap_or_default();
        tokens.input = bucket("input_uncached");
        tokens.cache_read = bucket("cache_read");
        tokens.cache_write = bucket("cache_write");
        tokens.output = bucket("output");
        usage.finish(findings);
    }
    let expected = NanoUsd::from_usd(number(sample.take("expect_cost")));
    findings.equal("cost", &Some(expected), &book.cost("test", None, MODEL, &UsageSnapshot::new(tokens)));
}

/// The usage of an answer that reports this object.
fn snapshot(protocol: Protocol, usage: &Value) -> Option<UsageSnapshot> {
    let body = match protocol {
        Protocol::Anthropic => [
            json!({ "type": "message_start", "message": { "model": "m", "content": [], "usage": usage } }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": usage }),
            json!({ "type": "message_stop" }),
        ]
        .map(|event| format!("data: {event}\n\n"))
        .concat(),
        Protocol::Responses => {
            let response = json!({ "status": "completed", "model": "m", "usage": usage });
            format!("data: {}\n\n", json!({ "type": "response.completed", "response": response }))
        }
        Protocol::Chat => {
            let choice = json!([{ "index": 0, "delta": { "content": "x" }, "finish_reason": "stop" }]);
            let chunk = json!({ "model": "m", "choices": choice, "usage": usage });
            format!("data: {chunk}\n\ndata: [DONE]\n\n")
        }
        Protocol::Gemini => {
            let candidate = json!([{ "content": { "parts": [{ "text": "x" }] }, "finishReason": "STOP" }]);
            format!("data: {}\r\n\r\n", json!({ "candidates": candidate, "usageMetadata": usage }))
        }
    };
    let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
    let response = RawResponse::recorded(200, headers, [Bytes::from(body)]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut stream = protocol.decode(MODEL, response).unwrap();
        let mut last = None;
        while let Some(event) = stream.next().await {
            match event {
                Ok(StreamEvent::Usage(usage)) => last = Some(usage),
                Ok(_) => {}
                Err(_) => return None,
            }
        }
        last
    })
}

fn compare(expect: &Value, usage: Option<UsageSnapshot>, findings: &mut Findings) {
    let Some(usage) = usage else { return findings.wrong("no usage was read") };
    let tokens = usage.tokens;
    let mut expect = Fields::new("expect", expect);
    for (key, got) in [
        ("input_uncached", tokens.input),
        ("cache_read", tokens.cache_read),
        ("cache_write", tokens.cache_write),
        ("output", tokens.output),
        ("reasoning", tokens.reasoning.unwrap_or(0)),
        ("total", tokens.total()),
    ] {
        if let Some(number) = expect.number(key) {
            findings.equal(key, &number, &got);
        }
    }
    expect.finish(findings);
}
