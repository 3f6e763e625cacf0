//! Random values for the property tests.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};
use zidane::types::*;

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..5_000_u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn tokens() -> impl Strategy<Value = TokenUsage> {
    (count(), count(), count(), count(), option::of(count())).prop_map(
        |(input, output, cache_read, cache_write, reasoning)| TokenUsage {
            input,
            output,
            cache_read,
            cache_write,
            reasoning,
        },
    )
}

/// Few names, so that groups meet again; missing and empty ones among them.
fn model() -> impl Strategy<Value = Option<String>> {
    option::of(prop::sample::select(vec!["", "alpha", "beta", "gamma", "(unknown)"]).prop_map(str::to_owned))
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "one", "two"]).prop_map(str::to_owned)
}

pub(crate) fn turn_usage() -> impl Strategy<Value = TurnUsage> {
    let kind = prop::sample::select(vec![UsageKind::Turn, UsageKind::Turn, UsageKind::Vision, UsageKind::Repair]);
    (tokens(), option::of(count()), model(), name(), name(), kind).prop_map(
        |(tokens, cost, model_id, provider, run_id, kind)| TurnUsage {
            tokens,
            cost: cost.map(NanoUsd),
            model_id,
            provider,
            run_id,
            kind,
            ..TurnUsage::default()
        },
    )
}

fn decision_usage() -> impl Strategy<Value = DecisionUsage> {
    (tokens(), option::of(count()), model(), name(), name()).prop_map(|(tokens, cost, model_id, provider, run_id)| {
        DecisionUsage { tokens, cost: cost.map(NanoUsd), model_id, provider, run_id, ..DecisionUsage::default() }
    })
}

/// One thing that a run adds to its tree, in the order in which it happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Turn(TurnUsage),
    Decision(DecisionUsage),
    Child(ChildStatus, Vec<Step>),
}

pub(crate) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let leaf = prop_oneof![turn_usage().prop_map(Step::Turn), decision_usage().prop_map(Step::Decision)];
    let status = prop::sample::select(vec![
        ChildStatus::Completed,
        ChildStatus::Aborted,
        ChildStatus::Failed,
        ChildStatus::Limit,
        ChildStatus::Deferred,
    ]);
    let step = leaf.prop_recursive(6, 40, 4, move |step| {
        (status.clone(), vec(step, 0..4)).prop_map(|(status, steps)| Step::Child(status, steps))
    });
    vec(step, 0..8)
}

/// The tree that a run of these steps builds.
pub(crate) fn tree(steps: &[Step]) -> AgentStats {
    let mut stats = AgentStats::default();
    for (place, step) in steps.iter().enumerate() {
        match step {
            Step::Turn(usage) => stats.push_turn(usage.clone()),
            Step::Decision(usage) => stats.push_decision(usage.clone()),
            Step::Child(status, steps) => stats.push_child(ChildStats {
                id: format!("child-{place}"),
                call_id: (place % 2 == 0).then(|| format!("call-{place}")),
                task: "look around".into(),
                status: *status,
                stats: tree(steps),
            }),
        }
    }
    stats
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |value| {
        prop_oneof![
            vec(value.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{1,6}", value, 0..4).prop_map(Value::from_iter),
        ]
    })
}

/// Unknown fields: names that no version uses.
fn extra() -> impl Strategy<Value = Extra> {
    prop::collection::btree_map("x-[a-z]{1,4}", json_value(), 0..3)
        .prop_map(|map| Extra::from(serde_json::Map::from_iter(map)))
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), ".{0,20}", "[\\PC\n\t\"\\\\]{0,20}"]
}

fn media() -> impl Strategy<Value = Media> {
    let source = prop_oneof![
        "[A-Za-z0-9+/]{0,40}={0,2}".prop_map(MediaSource::Data),
        text().prop_map(MediaSource::Text),
        text().prop_map(MediaSource::Url),
        text().prop_map(MediaSource::Ref),
    ];
    (option::of(text()), source, extra()).prop_map(|(media_type, source, extra)| Media { media_type, source, extra })
}

fn resource() -> impl Strategy<Value = Resource> {
    let content = prop_oneof![
        text().prop_map(ResourceContent::Text),
        "[A-Za-z0-9+/]{0,40}={0,2}".prop_map(ResourceContent::Blob),
        text().prop_map(ResourceContent::Ref),
        text().prop_map(ResourceContent::Link),
    ];
    (option::of(text()), option::of(text()), content, extra()).prop_map(|(uri, media_type, content, extra)| Resource {
        uri,
        media_type,
        content,
        extra,
    })
}

pub(crate) fn result_content() -> impl Strategy<Value = ToolResultContent> {
    prop_oneof![
        text().prop_map(ToolResultContent::text),
        media().prop_map(ToolResultContent::Image),
        media().prop_map(ToolResultContent::Audio),
        media().prop_map(ToolResultContent::Video),
        resource().prop_map(ToolResultContent::Resource),
        json_value().prop_map(|value| ToolResultContent::Unknown(json!({"type": "x-new", "value": value}))),
    ]
}

pub(crate) fn result_body() -> impl Strategy<Value = ToolResultBody> {
    prop_oneof![text().prop_map(ToolResultBody::Text), vec(result_content(), 0..6).prop_map(ToolResultBody::Blocks),]
}

fn signature() -> impl Strategy<Value = Option<Signature>> {
    let producer = prop_oneof![Just(SignatureProducer::ANTHROPIC), text().prop_map(SignatureProducer::new)];
    option::of((producer, text(), text()).prop_map(|(producer, model, value)| Signature::new(producer, model, value)))
}

fn call() -> impl Strategy<Value = ToolCallBlock> {
    (text(), text(), text(), signature(), extra()).prop_map(|(id, name, arguments, signature, extra)| ToolCallBlock {
        id,
        name,
        arguments,
        signature,
        extra,
    })
}

fn result() -> impl Strategy<Value = ToolResultBlock> {
    let status = prop::sample::select(vec![ToolStatus::Ok, ToolStatus::UnknownTool, ToolStatus::Interrupted]);
    let outcome = prop::sample::select(vec![None, Some(ToolOutcome::Created), Some(ToolOutcome::Failed)]);
    // A stored `null` reads as no value.
    let value = || option::of(json_value().prop_filter("not null", |value| !value.is_null()));
    (text(), text(), value(), result_body(), any::<bool>(), status, outcome, value(), extra()).prop_map(
        |(call_id, name, input, output, is_error, status, outcome, structured, extra)| ToolResultBlock {
            call_id,
            name,
            input,
            output,
            is_error,
            status,
            outcome,
            structured,
            extra,
        },
    )
}

pub(crate) fn block() -> impl Strategy<Value = SessionContentBlock> {
    prop_oneof![
        (text(), signature(), extra()).prop_map(|(text, signature, extra)| SessionContentBlock::Text(TextBlock {
            text,
            signature,
            extra
        })),
        media().prop_map(SessionContentBlock::Image),
        (option::of(text()), media()).prop_map(|(name, media)| SessionContentBlock::Document(Document { name, media })),
        call().prop_map(SessionContentBlock::ToolCall),
        call().prop_map(SessionContentBlock::PartialToolCall),
        result().prop_map(SessionContentBlock::ToolResult),
        (text(), signature(), any::<bool>(), extra()).prop_map(|(text, signature, redacted, extra)| {
            SessionContentBlock::Thinking(ThinkingBlock { text, signature, redacted, extra })
        }),
        (text(), json_value())
            .prop_map(|(model, value)| OpaqueBlock::new(SignatureProducer::GEMINI, model, value))
            .prop_map(SessionContentBlock::Opaque),
        json_value().prop_map(|value| SessionContentBlock::Unknown(json!({"type": "x-new", "value": value}))),
    ]
}
