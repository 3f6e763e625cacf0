//! Differences between what was expected and what came, in words.

use serde_json::Value;

use super::answer::{Answer, Block, Call, End, Failure, Usage};
use super::corpus::Protocol;

pub fn differences(protocol: Protocol, vendor: &str, expected: &Answer, got: &Answer) -> Vec<String> {
    let mut found = Vec::new();
    models(&mut found, expected, got);
    let is_broken_off = matches!(expected.end, Some(End::Error(_)));
    let (mut ours, mut theirs) = (normal(&expected.blocks, protocol), normal(&got.blocks, protocol));
    if is_broken_off && protocol == Protocol::Chat {
        // Details without text are put together at the end, which did not come.
        let is_bare = |block: &Block| matches!(block, Block::Thinking { text, .. } if text.is_empty());
        ours.retain(|block| !is_bare(block));
        theirs.retain(|block| !is_bare(block));
    }
    if ours.len() == theirs.len() {
        for (at, (expected, got)) in ours.iter().zip(&theirs).enumerate() {
            block(&mut found, at, expected, got, is_broken_off);
        }
    } else {
        found.push(format!("blocks: expected {}, got {}", kinds(&ours), kinds(&theirs)));
    }
    usage(&mut found, vendor, expected.usage.as_ref(), got.usage.as_ref());
    end(&mut found, expected.end.as_ref(), got.end.as_ref());
    found
}

fn models(found: &mut Vec<String>, expected: &Answer, got: &Answer) {
    // A router may name several models over one stream; any of them will do.
    let is_right = match got.models.last() {
        Some(model) => expected.models.contains(model),
        None => expected.models.is_empty(),
    };
    if !is_right {
        found.push(format!("model: expected one of {:?}, got {:?}", expected.models, got.models));
    }
}

/// What a difference in must not count:
/// - text blocks with nothing in them and nothing signed;
/// - how unsigned text in a row is divided into blocks;
/// - on the Chat wire, which knows no blocks, how text and reasoning alternate beyond which came first.
fn normal(blocks: &[Block], protocol: Protocol) -> Vec<Block> {
    let mut normal: Vec<Block> = Vec::new();
    for block in blocks {
        let block = match block {
            // A text block with citations may be kept as the provider's own.
            Block::Opaque(value) if value["type"] == "text" => {
                Block::Text(value["text"].as_str().unwrap_or_default().to_owned())
            }
            other => other.clone(),
        };
        match &block {
            Block::Text(text) if text.is_empty() => continue,
            Block::Thinking { text, signature: None } if text.is_empty() => continue,
            _ => {}
        }
        let is_chat = protocol == Protocol::Chat;
        let earlier = normal.iter().rposition(|known| std::mem::discriminant(known) == std::mem::discriminant(&block));
        let earlier = earlier.filter(|at| is_chat || at + 1 == normal.len());
        match (earlier.map(|at| &mut normal[at]), &block) {
            (Some(Block::Text(text)), Block::Text(more)) => text.push_str(more),
            (Some(Block::Thinking { text, signature }), Block::Thinking { text: more, signature: newer })
                if is_chat =>
            {
                text.push_str(more);
                if newer.is_some() {
                    signature.clone_from(newer);
                }
            }
            _ => normal.push(block),
        }
    }
    normal
}

fn kinds(blocks: &[Block]) -> String {
    let kinds: Vec<_> = blocks
        .iter()
        .map(|block| match block {
            Block::Text(_) => "text".to_owned(),
            Block::Signed { .. } => "signed text".to_owned(),
            Block::Thinking { .. } => "thinking".to_owned(),
            Block::Redacted(_) => "redacted".to_owned(),
            Block::Call(call) => format!("call {}", call.name),
            Block::Opaque(value) => format!("opaque {}", value["type"]),
        })
        .collect();
    format!("[{}]", kinds.join(", "))
}

fn block(found: &mut Vec<String>, at: usize, expected: &Block, got: &Block, is_broken_off: bool) {
    match (expected, got) {
        (Block::Text(expected), Block::Text(got)) => text(found, &format!("text of block {at}"), expected, got),
        (Block::Thinking { text: expected, signature }, Block::Thinking { text: got, signature: other }) => {
            text(found, &format!("thinking of block {at}"), expected, got);
            // State that is given at the block's end is not there yet when the answer breaks off before.
            let is_missing = is_broken_off && other.is_none();
            if !is_missing && !same_signature(signature.as_deref(), other.as_deref()) {
                found.push(format!("signature of block {at}: expected {}, got {}", short(signature), short(other)));
            }
        }
        (Block::Signed { text: expected, signature }, Block::Signed { text: got, signature: other }) => {
            text(found, &format!("text of block {at}"), expected, got);
            text(found, &format!("signature of block {at}"), signature, other);
        }
        (Block::Redacted(expected), Block::Redacted(got)) => text(found, &format!("data of block {at}"), expected, got),
        (Block::Call(expected), Block::Call(got)) => call(found, at, expected, got),
        (Block::Opaque(expected), Block::Opaque(got)) => {
            if expected != got {
                found.push(format!("block {at}: expected {}, got {}", short(expected), short(got)));
            }
        }
        _ => found.push(format!("block {at}: expected {}, got {}", short(expected), short(got))),
    }
}

fn text(found: &mut Vec<String>, what: &str, expected: &str, got: &str) {
    if expected != got {
        let same = expected.chars().zip(got.chars()).take_while(|(a, b)| a == b).count();
        let rest = |text: &str| text.chars().skip(same).take(40).collect::<String>();
        let (a, b) = (rest(expected), rest(got));
        let (long, other) = (expected.len(), got.len());
        found.push(format!("{what}: differs after {same} characters ({long} and {other} bytes): {a:?}, got {b:?}"));
    }
}

fn call(found: &mut Vec<String>, at: usize, expected: &Call, got: &Call) {
    // Ids that occur twice in one answer may be made unique by a suffix.
    if !got.id.starts_with(&expected.id) || (expected.id.is_empty() != got.id.is_empty()) {
        found.push(format!("id of block {at}: expected {:?}, got {:?}", expected.id, got.id));
    }
    if expected.name != got.name {
        found.push(format!("name of block {at}: expected {:?}, got {:?}", expected.name, got.name));
    }
    if expected.arguments != got.arguments {
        let (expected, got) = (short(&expected.arguments), short(&got.arguments));
        found.push(format!("arguments of block {at}: expected {expected}, got {got}"));
    }
    if expected.complete.is_some() && expected.complete != got.complete {
        found.push(format!("block {at} complete: expected {:?}, got {:?}", expected.complete, got.complete));
    }
    if !same_signature(expected.signature.as_deref(), got.signature.as_deref()) {
        found.push(format!("signature of block {at}: {} / {}", short(&expected.signature), short(&got.signature)));
    }
}

/// Byte for byte, or, for details of the Chat wire, the same JSON but for nulls.
fn same_signature(expected: Option<&str>, got: Option<&str>) -> bool {
    if expected == got {
        return true;
    }
    let json = |text: Option<&str>| -> Option<Value> { serde_json::from_str(text?).ok() };
    match (json(expected), json(got)) {
        (Some(expected), Some(got)) => without_nulls(expected) == without_nulls(got),
        _ => false,
    }
}

fn without_nulls(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(kept.map(|(name, value)| (name, without_nulls(value))).collect())
        }
        other => other,
    }
}

fn usage(found: &mut Vec<String>, vendor: &str, expected: Option<&Usage>, got: Option<&Usage>) {
    let (expected, got) = match (expected, got) {
        (None, None) => return,
        (Some(expected), Some(got)) => (expected, got),
        (expected, got) => {
            found.push(format!("usage: expected {expected:?}, got {got:?}"));
            return;
        }
    };
    let counts = |usage: &Usage| Usage { reasoning: usage.reasoning.min(usage.output), cost_usd: None, ..*usage };
    if counts(expected) != counts(got) {
        found.push(format!("usage: expected {expected:?}, got {got:?}"));
    }
    let close = |a: f64, b: f64| (a - b).abs() < 1e-8;
    let is_right = match (expected.cost_usd, got.cost_usd) {
        (Some(expected), Some(got)) => close(expected, got),
        // Only OpenRouter's is promised.
        (Some(_), None) => vendor != "openrouter",
        (None, got) => got.is_none(),
    };
    if !is_right {
        found.push(format!("cost: expected {:?}, got {:?}", expected.cost_usd, got.cost_usd));
    }
}

fn end(found: &mut Vec<String>, expected: Option<&End>, got: Option<&End>) {
    let (Some(End::Error(expected)), Some(End::Error(got))) = (expected, got) else {
        if expected != got {
            found.push(format!("end: expected {}, got {}", short(&expected), short(&got)));
        }
        return;
    };
    failure(found, expected, got);
}

fn failure(found: &mut Vec<String>, expected: &Failure, got: &Failure) {
    if !got.kinds.iter().all(|kind| expected.kinds.contains(kind)) {
        found.push(format!("error kind: expected one of {:?}, got {:?}", expected.kinds, got.kinds));
    }
    if expected.retryable.is_some() && expected.retryable != got.retryable {
        found.push(format!("retryable: expected {:?}, got {:?}", expected.retryable, got.retryable));
    }
    if expected.status.is_some() && expected.status != got.status {
        found.push(format!("status: expected {:?}, got {:?}", expected.status, got.status));
    }
    if expected.retry_after != got.retry_after {
        found.push(format!("retry after: expected {:?}, got {:?}", expected.retry_after, got.retry_after));
    }
    let is_known = match got.request_ids.first() {
        Some(id) => expected.request_ids.contains(id),
        None => expected.request_ids.is_empty(),
    };
    if !is_known {
        found.push(format!("request id: expected one of {:?}, got {:?}", expected.request_ids, got.request_ids));
    }
}

fn short(value: &dyn std::fmt::Debug) -> String {
    let text = format!("{value:?}");
    if text.chars().count() <= 300 { text } else { text.chars().take(300).chain("…".chars()).collect() }
}
