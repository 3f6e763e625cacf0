//! Form `schema`: arguments against a tool's schema, and the schema as each wire sends it.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use zidane::Agent;
use zidane::hooks::{ToolAfter, ToolBefore, ToolGate};
use zidane::provider::{History, RequestHead, ToolDefinition};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::tool::{CompiledTool, ToolFn, tool_fn_value};
use zidane::types::{Role, SessionContentBlock, SessionTurn, TurnOrigin};

use super::fields::Fields;
use super::findings::Findings;
use super::wires::{self, MODEL, Protocol};
use super::{json_path, wire};

pub fn judge(case: &mut Fields<'_>, findings: &mut Findings) {
    let schema = case.take("schema").cloned().unwrap_or_else(|| json!({}));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (number, sample) in case.list("samples").iter().enumerate() {
        findings.at(format!("sample {}", number + 1));
        runtime.block_on(sample_of(&schema, sample, findings));
    }
    findings.at("");
    let lower = case.object("lower");
    let roots = case.list("more_roots");
    if let Some(mut lower) = lower {
        for name in lower.keys().collect::<Vec<_>>() {
            let mut conditions = lower.object(name).unwrap();
            let Some(protocol) = wires::by_name(name, findings) else { continue };
            let lowered = runtime.block_on(lowered(protocol, &schema));
            conditions_of(&mut conditions, &lowered, findings);
            conditions.finish(findings);
            for root in roots {
                let lowered = runtime.block_on(self::lowered(protocol, root));
                findings.equal(format!("type of the root {root}"), &json!("object"), &lowered["type"]);
                let has_union = ["anyOf", "oneOf", "allOf"].iter().any(|key| lowered.get(key).is_some());
                findings.ensure(!has_union, || format!("the root {root} keeps a union: {lowered}"));
            }
        }
        lower.finish(findings);
    }
    for root in roots {
        let compiled = CompiledTool::compile(Arc::new(tool(root.clone(), Seen::default())));
        findings.ensure(compiled.is_ok(), || format!("the root {root} is refused: {:?}", compiled.err()));
    }
    if let Some(mut expect) = case.object("expect") {
        // Every sample is run through an agent, where hooks and tool are held against the normalised value.
        for who in ["hooks_see", "tool_sees"] {
            match expect.text(who) {
                None | Some("normalised") => {}
                Some(other) => findings.need(format!("an adapter for {who} `{other}`")),
            }
        }
        expect.finish(findings);
    }
}

type Seen = Arc<Mutex<Vec<Value>>>;

fn tool(schema: Value, seen: Seen) -> ToolFn {
    tool_fn_value("t", "A tool", schema, move |input, _| {
        seen.lock().unwrap().push(input);
        async { Ok("ok") }
    })
}

async fn sample_of(schema: &Value, sample: &Value, findings: &mut Findings) {
    let mut sample = Fields::new("samples", sample);
    let text = match sample.text("args_text") {
        Some(text) => text.to_owned(),
        None => sample.take("args").map(Value::to_string).unwrap_or_default(),
    };
    let valid = sample.take("valid") != Some(&Value::Bool(false));
    let normalised = sample.take("normalised");
    sample.finish(findings);
    let compiled = match CompiledTool::compile(Arc::new(tool(schema.clone(), Seen::default()))) {
        Ok(compiled) => compiled,
        Err(error) => return findings.wrong(error),
    };
    let prepared = compiled.prepare(&text);
    findings.ensure(prepared.is_ok() == valid, || format!("expected valid to be {valid}, got {prepared:?}"));
    if let (Some(expected), Ok(value)) = (normalised, &prepared) {
        findings.equal("normalised", expected, value);
        findings.ensure(compiled.check(value).is_ok(), || "the normalised value is not valid".to_owned());
    }
    through_an_agent(schema, &text, valid, prepared.as_ref().ok(), findings).await;
}

/// Hooks and tool see one and the same value, and an invalid call reaches neither gate nor tool.
async fn through_an_agent(
    schema: &Value,
    text: &str,
    valid: bool,
    normalised: Option<&Value>,
    findings: &mut Findings,
) {
    let seen = Seen::default();
    let model = ScriptedProvider::new([Reply::empty().raw_call(Some("c1"), "t", text), Reply::text("end")]);
    let agent =
        Agent::builder().provider(model).model(MODEL).tool(tool(schema.clone(), Arc::clone(&seen))).build().unwrap();
    let gated = Seen::default();
    let before = Seen::default();
    let failed = Arc::new(Mutex::new(Vec::new()));
    let (to_gated, to_before, to_failed) = (Arc::clone(&gated), Arc::clone(&before), Arc::clone(&failed));
    agent.hooks().on::<ToolGate>(move |cx| to_gated.lock().unwrap().push(cx.input().clone()));
    agent.hooks().on::<ToolBefore>(move |cx| to_before.lock().unwrap().push(cx.input().clone()));
    agent.hooks().on::<ToolAfter>(move |cx| to_failed.lock().unwrap().push(cx.result().is_error));
    if let Err(error) = agent.run("Go").await {
        return findings.wrong(format!("the run failed: {error}"));
    }
    let expected: Vec<_> = normalised.into_iter().filter(|_| valid).cloned().collect();
    findings.equal("what the gate sees", &expected, &*gated.lock().unwrap());
    findings.equal("what hooks see", &expected, &*before.lock().unwrap());
    findings.equal("what the tool sees", &expected, &*seen.lock().unwrap());
    findings.equal("whether the result is an error", &vec![!valid], &*failed.lock().unwrap());
}

/// The schema as the provider sends it.
async fn lowered(protocol: Protocol, schema: &Value) -> Value {
    let compiled = CompiledTool::compile(Arc::new(tool(schema.clone(), Seen::default()))).unwrap();
    let mut head = RequestHead::default();
    head.model = MODEL.to_owned();
    head.tools = vec![ToolDefinition::new("t", "A tool", (*compiled.definition().input_schema).clone())].into();
    let prompt = SessionTurn::new("p", Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text("Go")]);
    let body = wire::send(protocol, head, History::from_iter([prompt])).await.unwrap();
    let field = match protocol {
        Protocol::Anthropic => "input_schema",
        Protocol::Chat | Protocol::Responses => "parameters",
        Protocol::Gemini => "parametersJsonSchema",
    };
    protocol.tools(&body).first().map(|tool| tool[field].clone()).unwrap_or_default()
}

fn conditions_of(expect: &mut Fields<'_>, lowered: &Value, findings: &mut Findings) {
    for pair in expect.list("path_equals") {
        let path = pair[0].as_str().unwrap_or_default();
        findings.equal(path, &Some(&pair[1]), &json_path::get(lowered, path));
    }
    for path in expect.list("path_absent").iter().filter_map(Value::as_str) {
        findings.equal(path, &None, &json_path::get(lowered, path));
    }
    for key in expect.list("root_forbidden").iter().filter_map(Value::as_str) {
        findings.ensure(lowered.get(key).is_none(), || format!("the root has {key}"));
    }
    for key in expect.list("forbidden_keys_anywhere").iter().filter_map(Value::as_str) {
        let mut found = false;
        json_path::walk(lowered, "", &mut |name, _| found |= name == key);
        findings.ensure(!found, || format!("there is a key {key}"));
    }
}
