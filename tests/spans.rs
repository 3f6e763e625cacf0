//! The spans of a run, as a subscriber sees them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use harness::{Notes, tool};
use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use zidane::hooks::ToolGate;
use zidane::provider::{ProviderErrorKind, RetryPolicy};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::{Agent, AgentBuilder};

#[derive(Clone, Debug, Default)]
struct Seen {
    name: &'static str,
    parent: Option<u64>,
    fields: BTreeMap<&'static str, String>,
    /// None once it is closed.
    handles: u32,
}

/// Keeps all spans of this crate, and which of them each thread is in.
#[derive(Clone, Default)]
struct Keeper {
    spans: Arc<Mutex<BTreeMap<u64, Seen>>>,
    within: Arc<Mutex<Vec<u64>>>,
    next: Arc<AtomicU64>,
}

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "zidane::gen_ai"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let parent = match span.parent() {
            Some(parent) => Some(parent.into_u64()),
            None if span.is_contextual() => self.within.lock().unwrap().last().copied(),
            None => None,
        };
        let mut seen = Seen { name: span.metadata().name(), parent, handles: 1, ..Seen::default() };
        span.record(&mut Fields(&mut seen.fields));
        self.spans.lock().unwrap().insert(id, seen);
        Id::from_u64(id)
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut spans = self.spans.lock().unwrap();
        values.record(&mut Fields(&mut spans.get_mut(&span.into_u64()).unwrap().fields));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        self.within.lock().unwrap().push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        let mut within = self.within.lock().unwrap();
        let place = within.iter().rposition(|id| *id == span.into_u64()).unwrap();
        within.remove(place);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.spans.lock().unwrap().get_mut(&id.into_u64()).unwrap().handles += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let mut spans = self.spans.lock().unwrap();
        let span = spans.get_mut(&id.into_u64()).unwrap();
        span.handles -= 1;
        span.handles == 0
    }
}

impl Keeper {
    /// The spans, oldest first, each with the names of those above it.
    fn tree(&self) -> Vec<String> {
        let spans = self.spans.lock().unwrap();
        let named = |seen: &Seen| seen.fields.get("otel.name").cloned().unwrap_or_else(|| seen.name.to_owned());
        let path = |seen: &Seen| {
            let mut path = vec![named(seen)];
            let mut above = seen.parent;
            while let Some(parent) = above {
                path.push(named(&spans[&parent]));
                above = spans[&parent].parent;
            }
            path.reverse();
            path.join(" > ")
        };
        spans.values().map(path).collect()
    }

    fn named(&self, name: &str) -> Vec<BTreeMap<&'static str, String>> {
        let spans = self.spans.lock().unwrap();
        spans.values().filter(|seen| seen.name == name).map(|seen| seen.fields.clone()).collect()
    }

    fn all_closed(&self) -> bool {
        self.within.lock().unwrap().is_empty() && self.spans.lock().unwrap().values().all(|seen| seen.handles == 0)
    }
}

fn builder(model: &ScriptedProvider) -> AgentBuilder {
    Agent::builder()
        .provider(model.clone())
        .model("test-1")
        .system("Be brief.")
        .session_id("chat")
        .tool(tool("inner", |_, _| Box::pin(async { Ok("secret result".into()) })))
        .tool(tool("outer", |_, cx| {
            Box::pin(async move { Ok(cx.run_tool("inner", json!({"key": "secret argument"})).await?) })
        }))
        .tool(tool("broken", |_, _| Box::pin(async { panic!("secret panic") })))
}

/// One test at a time: who subscribes in one thread decides for a call site that another one meets first.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn told(builder: AgentBuilder, prompt: &str) -> (Keeper, Result<zidane::RunOutcome, zidane::RunError>) {
    let _turn = TURN.lock().await;
    let keeper = Keeper::default();
    let result = {
        let _here = tracing::subscriber::set_default(keeper.clone());
        let agent = builder.build().unwrap();
        agent.hooks().on::<ToolGate>(|cx| {
            if cx.name() == "blocked" {
                cx.block("no");
            }
        });
        agent.run(prompt).run_id("run").await
    };
    tokio::task::yield_now().await;
    assert!(keeper.all_closed(), "{:#?}", keeper.tree());
    (keeper, result)
}

fn script() -> ScriptedProvider {
    ScriptedProvider::new([
        Reply::text("secret answer")
            .and_call("outer", json!({}))
            .and_call("broken", json!({}))
            .and_call("nope", json!({})),
        Reply::text("Done."),
    ])
}

#[tokio::test]
async fn a_run_its_requests_and_its_calls_have_spans() {
    let (keeper, result) = told(builder(&script()), "secret prompt").await;
    let outcome = result.unwrap();
    assert_eq!(
        keeper.tree(),
        [
            "invoke_agent",
            "invoke_agent > chat test-1",
            "invoke_agent > execute_tool outer",
            "invoke_agent > execute_tool outer > execute_tool inner",
            "invoke_agent > execute_tool broken",
            "invoke_agent > chat test-1",
        ],
        "a call whose tool is unknown executes nothing"
    );
    let run = &keeper.named("invoke_agent")[0];
    for (field, value) in [
        ("gen_ai.operation.name", "invoke_agent"),
        ("gen_ai.provider.name", "scripted"),
        ("gen_ai.request.model", "test-1"),
        ("gen_ai.conversation.id", "chat"),
        ("zidane.run.id", "run"),
        ("zidane.run.stop", "stop"),
    ] {
        assert_eq!(run.get(field).map(String::as_str), Some(value), "{field}");
    }
    assert!(!run.contains_key("gen_ai.usage.input_tokens"), "usage is on chat spans only");
    let chats = keeper.named("chat");
    assert_eq!(chats[0]["gen_ai.operation.name"], "chat");
    assert_eq!(chats[0]["gen_ai.response.finish_reasons"], "[\"tool-calls\"]");
    assert_eq!(chats[0]["otel.kind"], "client");
    let sum = |field: &str| chats.iter().map(|chat| chat[field].parse::<u64>().unwrap()).sum::<u64>();
    let totals = outcome.stats.totals();
    assert_eq!(sum("gen_ai.usage.input_tokens"), totals.input + totals.cache_read + totals.cache_write);
    assert_eq!(sum("gen_ai.usage.output_tokens"), totals.output);
    let tools = keeper.named("execute_tool");
    assert_eq!((tools[0]["gen_ai.tool.name"].as_str(), tools[0]["gen_ai.tool.type"].as_str()), ("outer", "function"));
    assert_eq!(tools[1]["gen_ai.tool.call.id"], "call_1/1");
    assert_eq!((tools[2]["error.type"].as_str(), tools[2]["otel.status_code"].as_str()), ("panic", "ERROR"));
    let everything = format!("{:?}", keeper.spans.lock().unwrap());
    assert!(!everything.contains("secret") && !everything.contains("Be brief"), "content is off: {everything}");
}

#[tokio::test]
async fn content_is_there_when_it_is_asked_for() {
    let (keeper, result) = told(builder(&script()).trace_content(true), "secret prompt").await;
    result.unwrap();
    let chats = keeper.named("chat");
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(json(&chats[0]["gen_ai.system_instructions"])[0]["content"], "Be brief.");
    let asked = json(&chats[0]["gen_ai.input.messages"]);
    assert_eq!(asked, json!([{"role": "user", "parts": [{"type": "text", "content": "secret prompt"}]}]));
    let answer = json(&chats[0]["gen_ai.output.messages"]);
    assert_eq!(answer[0]["parts"][0]["content"], "secret answer");
    assert_eq!(answer[0]["parts"][1]["type"], "tool_call");
    let asked = json(&chats[1]["gen_ai.input.messages"]);
    assert_eq!((&asked[2]["role"], &asked[2]["parts"][0]["response"]), (&json!("tool"), &json!("secret result")));
    let tools = keeper.named("execute_tool");
    assert_eq!(json(&tools[1]["gen_ai.tool.call.arguments"]), json!({"key": "secret argument"}));
    assert_eq!(tools[1]["gen_ai.tool.call.result"], "secret result");
}

#[tokio::test]
async fn failures_are_named() {
    let model = ScriptedProvider::new([Reply::fails(ProviderErrorKind::Auth)]);
    let (keeper, result) = told(builder(&model).retry(RetryPolicy::never()), "Hi").await;
    assert!(result.is_err());
    for span in ["chat", "invoke_agent"] {
        let fields = &keeper.named(span)[0];
        assert_eq!((fields["error.type"].as_str(), fields["otel.status_code"].as_str()), ("auth", "ERROR"), "{span}");
    }
}

#[tokio::test]
async fn a_run_without_a_subscriber_tells_nobody() {
    let _turn = TURN.lock().await;
    let notes = Notes::default();
    let log = notes.clone();
    let model = ScriptedProvider::new([Reply::call("look", json!({})), Reply::text("Done.")]);
    let look = tool("look", move |_, _| {
        log.add(format!("{:?}", tracing::Span::current().id()));
        Box::pin(async { Ok("seen".into()) })
    });
    builder(&model).tool(look).build().unwrap().run("Hi").await.unwrap();
    assert_eq!(notes.all(), ["None"]);
}

#[tokio::test]
async fn a_sub_agent_stands_below_the_call_that_spawned_it() {
    let child = || {
        let model = ScriptedProvider::new([Reply::call("inner", json!({})), Reply::text("Found.")]);
        builder(&model).session_id("child")
    };
    let model = ScriptedProvider::new([Reply::call("research", json!({"task": "Look."})), Reply::text("Done.")]);
    let spawn = zidane::agent::Spawn::new("research", "Looks things up", child);
    let (keeper, result) = told(builder(&model).tool(spawn), "Hi").await;
    result.unwrap();
    let above = "invoke_agent > execute_tool research > invoke_agent research";
    assert_eq!(
        keeper.tree()[2..6],
        [
            "invoke_agent > execute_tool research".to_owned(),
            above.to_owned(),
            format!("{above} > chat test-1"),
            format!("{above} > execute_tool inner"),
        ]
    );
    assert_eq!(keeper.named("invoke_agent")[1]["gen_ai.agent.name"], "research");
}
