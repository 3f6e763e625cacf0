//! Tools as a user writes them: spec, body, arguments, sets and aliases.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use zidane::tool::{
    CompiledTool, Concurrency, Extensions, InvalidArguments, NoInput, Repeat, Tool, ToolContext, ToolError, ToolFn,
    ToolOutput, ToolResultExt, ToolSet, ToolSetError, ToolSpec, tool_fn, tool_fn_blocking, tool_fn_value,
};
use zidane::types::{ToolOutcome, ToolResultBody, ToolResultContent};

fn named(name: &str) -> Arc<dyn Tool> {
    Arc::new(tool_fn(name, "d", |_: NoInput, _cx| async move { Ok(()) }))
}

fn with_schema(schema: Value) -> Result<CompiledTool, ToolSetError> {
    CompiledTool::compile(Arc::new(tool_fn_value("t", "d", schema, |_, _cx| async move { Ok(()) })))
}

fn prepared(schema: Value, raw: &str) -> Result<Value, InvalidArguments> {
    with_schema(schema).unwrap().prepare(raw)
}

async fn call(tool: &impl Tool, input: Value) -> Result<ToolOutput, ToolError> {
    tool.call(input, ToolContext::for_test("t")).await
}

fn text(output: &ToolOutput) -> &str {
    match &output.body {
        ToolResultBody::Text(text) => text,
        ToolResultBody::Blocks(_) => panic!("blocks"),
    }
}

// --- outputs and errors

#[test]
fn outputs_come_from_text_json_blocks_and_nothing() {
    assert_eq!(text(&"a".into()), "a");
    assert_eq!(text(&String::from("b").into()), "b");
    assert_eq!(text(&json!({"n": [1, null]}).into()), r#"{"n":[1,null]}"#);
    assert_eq!(text(&json!("plain").into()), "plain");
    assert_eq!(text(&().into()), "");
    assert_eq!(text(&ToolOutput::json(&(1, "x")).unwrap()), r#"[1,"x"]"#);
    let blocks = ToolOutput::from(vec![ToolResultContent::text("x")]);
    assert_eq!(blocks.body, ToolResultBody::Blocks(vec![ToolResultContent::text("x")]));
    assert!(!blocks.is_error);
    let refused = ToolOutput::error("no").with_structured(json!({"code": 4}));
    assert!(refused.is_error);
    assert_eq!((text(&refused), refused.structured.as_ref()), ("no", Some(&json!({"code": 4}))));
}

#[test]
fn the_model_reads_what_was_written_for_it_and_no_cause() {
    let secret = || std::io::Error::other("postgres://root:hunter2@10.0.0.7");
    let cases: [(ToolError, &str, bool); 7] = [
        ("no such city".into(), "no such city", false),
        (format!("no {}", "city").into(), "no city", false),
        (std::borrow::Cow::from("cow").into(), "cow", false),
        (secret().into(), "The tool failed.", true),
        (Box::<dyn std::error::Error + Send + Sync>::from(secret()).into(), "The tool failed.", true),
        (ToolError::from(secret()).tell_model("the database is away"), "the database is away", true),
        (ToolError::expose(std::io::Error::other("disk full")), "disk full", true),
    ];
    for (error, model, has_source) in cases {
        assert_eq!(error.to_string(), model);
        assert_eq!(error.source().is_some(), has_source, "{model}");
    }
    let hidden = ToolError::from(secret());
    assert!(format!("{hidden:?}").contains("hunter2"), "the host can still log it");
}

#[test]
fn results_say_what_the_model_reads_where_it_happens() {
    let failed = || Err::<(), _>(std::io::Error::other("/etc/passwd"));
    assert_eq!(failed().tell_model("not readable").unwrap_err().to_string(), "not readable");
    assert_eq!(failed().expose().unwrap_err().to_string(), "/etc/passwd");
}

// --- closures

#[tokio::test]
async fn question_marks_take_any_error_and_text() {
    fn boxed() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        Ok(())
    }
    let tool = tool_fn_value("t", "d", json!({"type": "object"}), |input: Value, _cx| async move {
        boxed()?;
        let n: u32 = input.get("n").and_then(Value::as_str).ok_or("/n is missing")?.parse()?;
        if n > 10 {
            return Err(format!("{n} is too large").into());
        }
        Ok(json!(n))
    });
    assert_eq!(text(&call(&tool, json!({"n": "7"})).await.unwrap()), "7");
    assert_eq!(call(&tool, json!({})).await.unwrap_err().to_string(), "/n is missing");
    assert_eq!(call(&tool, json!({"n": "11"})).await.unwrap_err().to_string(), "11 is too large");
    let parse = call(&tool, json!({"n": "x"})).await.unwrap_err();
    assert_eq!(parse.to_string(), "The tool failed.");
    assert!(parse.source().is_some());
}

#[test]
fn a_closure_tool_is_configured_in_place() {
    let tool = tool_fn("t", "d", |_: NoInput, _cx| async move { Ok("") })
        .concurrency(Concurrency::Shared)
        .repeat(Repeat::Safe)
        .timeout(Duration::from_secs(3))
        .configure(|spec| spec.strict(true).cancel_grace(Duration::from_secs(1)).cache(true));
    let spec = tool.spec();
    assert_eq!((spec.concurrency, spec.repeat), (Some(Concurrency::Shared), Repeat::Safe));
    assert_eq!((spec.timeout, spec.cancel_grace), (Some(Duration::from_secs(3)), Some(Duration::from_secs(1))));
    assert!(spec.strict && spec.cache);
    let plain = ToolSpec::new("t", "d");
    assert_eq!((plain.concurrency, plain.repeat, plain.timeout), (None, Repeat::Never, None));
}

#[test]
fn futures_and_tools_are_send() {
    fn is_send<T: Send>(_: &T) {}
    fn is_send_sync<T: Send + Sync + Clone + 'static>() {}
    let tool = tool_fn("t", "d", |_: NoInput, cx: ToolContext| async move {
        cx.progress("half").await?;
        cx.cancelled().await;
        Ok(())
    });
    is_send(&tool.call(json!({}), ToolContext::for_test("t")));
    is_send_sync::<ToolFn>();
    is_send_sync::<ToolContext>();
    is_send_sync::<ToolSet>();
}

/// On one thread: if the body blocked it, the other task could not make the body end.
#[test]
fn a_blocking_body_leaves_the_executor_free() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let tool = tool_fn_blocking("t", "d", move |_: NoInput, cx| {
            wait.lock().unwrap().recv_timeout(Duration::from_secs(20)).expect("the executor was blocked");
            cx.report_outcome(ToolOutcome::Noop)?;
            Ok("end")
        });
        let cx = ToolContext::for_test("t");
        let (output, ()) = tokio::join!(tool.call(json!({}), cx.clone()), async {
            tokio::task::yield_now().await;
            done.send(()).unwrap();
        });
        assert_eq!(text(&output.unwrap()), "end");
        assert_eq!(cx.outcome(), Some(ToolOutcome::Noop));
    });
}

#[tokio::test]
async fn a_panic_in_a_blocking_body_is_a_panic_of_the_call() {
    let tool = tool_fn_blocking("t", "d", |_: NoInput, _cx| -> Result<(), ToolError> {
        std::panic::resume_unwind(Box::new("inner"))
    });
    let task = tokio::spawn(async move { call(&tool, json!({})).await });
    let panic = task.await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"inner"));
}

#[test]
fn a_blocking_tool_without_a_runtime_fails_and_does_not_panic() {
    let tool = tool_fn_blocking("t", "d", |_: NoInput, _cx| Ok(()));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut future = tool.call(json!({}), ToolContext::for_test("t"));
    let std::task::Poll::Ready(result) = future.as_mut().poll(&mut cx) else { panic!("pending") };
    assert!(result.unwrap_err().source().is_some());
}

// --- context

#[test]
fn a_context_for_tests_shows_all_of_it() {
    struct Db(&'static str);
    let mut extensions = Extensions::new();
    extensions.insert(Db("main")).insert(7_u8);
    assert_eq!(extensions.clone().len(), 2);
    let cx = ToolContext::for_test_with("weather", extensions, [("k", json!(1))].into_iter().collect());
    assert_eq!((cx.name(), cx.display_name(), cx.idempotency_key().as_str()), ("weather", "weather", "run:call"));
    assert_eq!((cx.call_id(), cx.turn_id(), cx.run_id(), cx.session_id()), ("call", "turn", "run", "session"));
    assert_eq!(cx.get::<Db>().map(|db| db.0), Some("main"));
    assert_eq!((cx.get::<u8>(), cx.get::<u16>()), (Some(&7), None));
    assert_eq!(cx.state().get("k").as_deref(), Some(&json!(1)));
    assert!(!cx.is_cancelled());
    cx.cancel_token().cancel();
    assert!(cx.is_cancelled());
    cx.report_outcome(ToolOutcome::Created).unwrap();
    cx.report_outcome(ToolOutcome::Updated).unwrap();
    assert_eq!(cx.outcome(), Some(ToolOutcome::Updated), "the last report wins");
}

// --- arguments

#[test]
fn nothing_null_and_wrapped_objects_are_objects() {
    for raw in ["", "  \n", "null", "{}", "\"\"", "\"{}\"", "\"null\"", " \"  \" "] {
        assert_eq!(prepared(json!({"type": "object"}), raw).unwrap(), json!({}), "{raw:?}");
    }
    let wrapped = r#""{\"a\": \"{\\\"b\\\":1}\"}""#;
    assert_eq!(prepared(json!({"type": "object"}), wrapped).unwrap(), json!({"a": "{\"b\":1}"}));
    for raw in ["[]", "7", "true", "\"text\"", "\"[1]\"", "\"{oops\""] {
        let error = prepared(json!({"type": "object"}), raw).unwrap_err();
        assert!(matches!(error, InvalidArguments::Schema { .. }), "{raw}: {error}");
        assert!(error.to_string().contains("an object is expected"), "{error}");
    }
}

#[test]
fn text_that_is_not_json_says_where() {
    let error = prepared(json!({"type": "object"}), "{\"city\": \"hunter2\"\n oops}").unwrap_err();
    let InvalidArguments::BadJson { line, column, .. } = &error else { panic!("{error:?}") };
    assert_eq!((*line, *column), (2, 2));
    assert!(!error.to_string().contains("hunter2"));
    for raw in ["{", "{\"a\":", "{}{}", "nul", "\u{feff}{}", "{\"a\":1,}"] {
        assert!(matches!(prepared(json!({"type": "object"}), raw), Err(InvalidArguments::BadJson { .. })), "{raw}");
    }
    let deep = "[".repeat(100_000);
    assert!(matches!(prepared(json!({"type": "object"}), &deep), Err(InvalidArguments::BadJson { .. })));
}

#[test]
fn whole_floats_become_integers_only_where_the_schema_says_so() {
    let schema = json!({
        "type": "object",
        "properties": {
            "n": {"type": "integer"},
            "f": {"type": "number"},
            "either": {"type": ["integer", "number"]},
            "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "list": {"type": "array", "items": {"type": "integer"}},
            "pair": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "integer"}], "items": {"type": "integer"}},
            "map": {"type": "object", "additionalProperties": {"type": "integer"}},
            "by_ref": {"$ref": "#/$defs/Point%20two"},
            "all": {"allOf": [{"type": "number"}, {"type": "integer"}]},
            "big": {"type": "integer"},
            "free": {},
        },
        "$defs": {"Point two": {"type": "object", "properties": {"x": {"type": "integer"}, "next": {"$ref": "#/$defs/Point%20two"}}}},
    });
    let raw = r#"{"n":5.0,"f":5.0,"either":5.0,"maybe":-3.0,"list":[1.0,2,-0.0],"pair":[1.0,2.0,3.0],"map":{"k":1e3},
        "by_ref":{"x":1.0,"next":{"x":2.0,"next":{"x":3.0}}},"all":6.0,"big":9007199254740993,"free":7.0}"#;
    let value = prepared(schema, raw).unwrap();
    let expected = r#"{"n":5,"f":5.0,"either":5.0,"maybe":-3,"list":[1,2,0],"pair":[1.0,2,3],"map":{"k":1000},
        "by_ref":{"x":1,"next":{"x":2,"next":{"x":3}}},"all":6,"big":9007199254740993,"free":7.0}"#;
    assert_eq!(value, serde_json::from_str::<Value>(expected).unwrap());
}

#[test]
fn integers_stay_exact() {
    let schema = || json!({"type": "object", "properties": {"id": {"type": "integer"}}});
    for id in [u64::MAX, 9_007_199_254_740_993, (1 << 53) - 1] {
        assert_eq!(prepared(schema(), &format!("{{\"id\":{id}}}")).unwrap()["id"].as_u64(), Some(id));
    }
    assert_eq!(prepared(schema(), &format!("{{\"id\":{}}}", i64::MIN)).unwrap()["id"].as_i64(), Some(i64::MIN));
    assert_eq!(prepared(schema(), r#"{"id":9007199254740991.0}"#).unwrap()["id"].as_u64(), Some((1 << 53) - 1));
    // This float stands for two integers; which one was meant is not known, so it is left.
    assert!(prepared(schema(), r#"{"id":9007199254740992.0}"#).unwrap()["id"].is_f64());
}

#[test]
fn tagged_unions_are_normalised_by_their_branch() {
    let schema = json!({
        "type": "object",
        "required": ["shape"],
        "properties": {"shape": {"oneOf": [
            {"type": "object", "required": ["kind", "r"],
             "properties": {"kind": {"const": "circle"}, "r": {"type": "integer"}, "label": {"type": "string"}}},
            {"$ref": "#/$defs/Square"},
        ]}},
        "$defs": {"Square": {"type": "object", "required": ["kind", "r"],
            "properties": {"kind": {"enum": ["square"]}, "r": {"type": "number"}, "label": {"type": ["string", "null"]}}}},
    });
    let circle = r#"{"shape":{"kind":"circle","r":2.0,"label":null}}"#;
    assert_eq!(prepared(schema.clone(), circle).unwrap(), json!({"shape": {"kind": "circle", "r": 2}}));
    let square = r#"{"shape":{"kind":"square","r":2.0,"label":null}}"#;
    assert_eq!(
        prepared(schema.clone(), square).unwrap(),
        json!({"shape": {"kind": "square", "r": 2.0, "label": null}})
    );
    let in_text = r#"{"shape":"{\"kind\":\"circle\",\"r\":2.0}"}"#;
    assert_eq!(prepared(schema, in_text).unwrap(), json!({"shape": {"kind": "circle", "r": 2}}));
}

#[test]
fn what_a_branch_does_not_decide_is_left_alone() {
    let schema = json!({"type": "object", "properties": {"v": {"anyOf": [
        {"type": "object", "properties": {"n": {"type": "integer"}}},
        {"type": "object", "properties": {"n": {"type": "number"}}},
    ]}}});
    assert_eq!(prepared(schema, r#"{"v":{"n":5.0}}"#).unwrap(), json!({"v": {"n": 5.0}}));
}

#[test]
fn normalising_again_changes_nothing() {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer"}, "a": {"type": "array", "items": {"type": "object", "properties": {"o": {"type": "string"}}}},
    }});
    let tool = with_schema(schema).unwrap();
    let once = tool.prepare(r#"{"n":5.0,"a":"[{\"o\":null}]"}"#).unwrap();
    assert_eq!(once, json!({"n": 5, "a": [{}]}));
    assert_eq!(tool.prepare_value(once.clone()).unwrap(), once);
    assert_eq!(tool.prepare(&once.to_string()).unwrap(), once);
    tool.check(&once).unwrap();
    assert!(tool.check(&json!([])).is_err());
}

#[test]
fn roots_that_take_no_object_are_refused_and_empty_ones_are_not() {
    for schema in [
        json!({"type": "string"}),
        json!({"type": ["array", "null"]}),
        json!({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/A"}], "$defs": {"A": {"type": "array"}}}),
        json!({"enum": ["a"]}),
        json!(false),
        json!("object"),
        json!([]),
    ] {
        let error = with_schema(schema.clone()).unwrap_err();
        assert!(matches!(&error, ToolSetError::BadSchema { tool, .. } if tool == "t"), "{schema}: {error}");
    }
    for schema in [
        json!({}),
        json!(true),
        json!(null),
        json!({"type": ["object", "null"]}),
        json!({"oneOf": [{"type": "object", "required": ["x"]}, {"type": "object", "required": ["y"]}]}),
    ] {
        assert!(with_schema(schema.clone()).is_ok(), "{schema}");
    }
    assert_eq!(
        *with_schema(json!(true)).unwrap().definition().input_schema,
        json!({"type": "object", "properties": {}})
    );
}

#[test]
fn deep_and_circular_schemas_do_no_harm() {
    let mut deep = json!({});
    for _ in 0..1_000 {
        deep = Value::Object([("not".to_owned(), deep)].into_iter().collect());
    }
    assert!(matches!(with_schema(deep), Err(ToolSetError::BadSchema { .. })));
    for schema in [
        json!({"type": "object", "$ref": "#"}),
        json!({"type": "object", "allOf": [{"$ref": "#"}]}),
        json!({"type": "object", "$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
        json!({"type": "object", "anyOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        json!({"type": "object", "properties": {"a": {"$ref": "#"}}, "additionalProperties": {"$ref": "#"}}),
    ] {
        // Refused or usable, but it ends.
        if let Ok(tool) = with_schema(schema) {
            let _ = tool.prepare(r#"{"a":{"a":{"b":{}}},"c":1}"#);
        }
    }
}

#[test]
fn deep_arguments_fit_on_the_stack() {
    let schema = json!({"type": "object", "properties": {"a": {"$ref": "#"}, "n": {"type": "integer"}}});
    let nest = |depth: usize, core: &str| format!("{}{core}{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    let inner = nest(120, r#"{"n":1.0}"#);
    let raw = nest(31, &json!(inner).to_string());
    let value = prepared(schema.clone(), &raw).unwrap();
    assert_eq!(value.pointer(&format!("{}/n", "/a".repeat(151))), Some(&json!(1)));
    // Deeper down a string is not opened any more.
    let raw = nest(40, &json!(inner).to_string());
    assert_eq!(prepared(schema, &raw).is_err(), cfg!(feature = "json-schema"));
}

// --- sets

#[test]
fn tools_are_found_by_alias_and_by_canonical_name() {
    let aliases =
        HashMap::from([("read_file".to_owned(), "Read".to_owned()), ("shell".to_owned(), "shell".to_owned())]);
    let set = ToolSet::new([named("read_file"), named("shell")], aliases).unwrap();
    assert_eq!(set.canonical_of("Read"), Some("read_file"));
    assert_eq!(set.canonical_of("read_file"), Some("read_file"));
    assert_eq!(set.canonical_of("read"), None, "case is exact");
    assert_eq!(set.canonical_of("shell"), Some("shell"));
    assert_eq!((set.get("Read").is_none(), set.get("read_file").is_some()), (true, true));
    let declared: Vec<_> = set.definitions().iter().map(|definition| definition.name.as_str()).collect();
    assert_eq!(declared, ["read_file", "shell"]);
    assert_eq!((set.names().display("read_file"), set.names().display("shell")), ("Read", "shell"));
    assert_eq!(set.names().iter().count(), 1);
    assert!(Arc::ptr_eq(set.definitions(), set.clone().definitions()));
    assert!(Arc::ptr_eq(&set.get("shell").unwrap().spec().input_schema, &set.definitions()[1].input_schema));
    assert_eq!(set.len(), 2);
    assert!(ToolSet::default().is_empty());
}

#[test]
fn an_alias_shadows_the_canonical_name_of_a_tool_that_is_shown_otherwise() {
    let aliases = HashMap::from([("a".to_owned(), "b".to_owned()), ("b".to_owned(), "a".to_owned())]);
    let swapped = ToolSet::new([named("a"), named("b")], aliases).unwrap();
    assert_eq!((swapped.canonical_of("a"), swapped.canonical_of("b")), (Some("b"), Some("a")));
    let aliases = HashMap::from([("a".to_owned(), "b".to_owned()), ("b".to_owned(), "c".to_owned())]);
    let shifted = ToolSet::new([named("a"), named("b")], aliases).unwrap();
    assert_eq!(shifted.canonical_of("b"), Some("a"));
    assert_eq!(shifted.canonical_of("c"), Some("b"));
    assert_eq!(shifted.canonical_of("a"), Some("a"), "no alias shadows it");
}

#[test]
fn names_and_aliases_that_cannot_stand_are_build_errors() {
    let build = |tools: &[&str], aliases: &[(&str, &str)]| {
        let aliases = aliases.iter().map(|(name, alias)| ((*name).to_owned(), (*alias).to_owned())).collect();
        ToolSet::new(tools.iter().map(|name| named(name)), aliases).unwrap_err()
    };
    assert!(matches!(build(&[" "], &[]), ToolSetError::EmptyName { .. }));
    assert_eq!(build(&["a", "a"], &[]), ToolSetError::DuplicateName { name: "a".into() });
    assert!(matches!(build(&["a"], &[("a", "")]), ToolSetError::EmptyAlias { .. }));
    assert!(matches!(build(&["a"], &[("x", "y")]), ToolSetError::UnknownTool { .. }));
    let collision = |error| matches!(error, ToolSetError::AliasCollision { .. });
    assert!(collision(build(&["a", "b"], &[("a", "b")])));
    assert!(collision(build(&["b", "a"], &[("a", "b")])));
    assert!(collision(build(&["a", "b"], &[("a", "x"), ("b", "x")])));
}

#[cfg(feature = "json-schema")]
mod typed {
    use zidane::tool::TypedTool;

    use super::*;

    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Weather {
        /// Where.
        city: String,
        days: Option<u32>,
    }

    #[test]
    fn the_schema_comes_from_the_type() {
        let tool = tool_fn("weather", "Current weather of a city", |input: Weather, _cx| async move {
            Ok(format!("{}: 21 °C, clear", input.city))
        });
        let schema = tool.spec().input_schema;
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["properties"]["city"], json!({"type": "string", "description": "Where."}));
        assert_eq!(schema["required"], json!(["city"]));
        assert!(schema.get("$schema").is_none() && schema.get("title").is_none(), "{schema}");
    }

    #[tokio::test]
    async fn arguments_arrive_typed() {
        let tool =
            tool_fn(
                "weather",
                "d",
                |input: Weather, _cx| async move { Ok(format!("{} {:?}", input.city, input.days)) },
            );
        let compiled = CompiledTool::compile(Arc::new(tool.clone())).unwrap();
        let input = compiled.prepare(r#"{"city":"Lyon","days":3.0}"#).unwrap();
        assert_eq!(text(&call(&tool, input).await.unwrap()), "Lyon Some(3)");
        let error = call(&tool, json!({"city": 1})).await.unwrap_err().to_string();
        assert!(error.starts_with("The arguments could not be read:"), "{error}");
    }

    struct Counter(u32);

    impl TypedTool for Counter {
        type Input = NoInput;
        const NAME: &'static str = "count";
        const DESCRIPTION: &'static str = "Counts";

        async fn run(&self, _input: NoInput, cx: &ToolContext) -> Result<ToolOutput, ToolError> {
            cx.state().set("n", self.0)?;
            Ok(self.0.to_string().into())
        }
        fn configure(&self, spec: ToolSpec) -> ToolSpec {
            spec.concurrency(Concurrency::Shared)
        }
    }

    #[tokio::test]
    async fn a_typed_tool_is_a_tool() {
        let tool: Arc<dyn Tool> = Arc::new(Counter(4));
        assert_eq!((tool.spec().name.as_str(), tool.spec().concurrency), ("count", Some(Concurrency::Shared)));
        let cx = ToolContext::for_test("count");
        let output = tool.call(json!({}), cx.clone()).await.unwrap();
        assert_eq!(text(&output), "4");
        assert_eq!(cx.state().staged().len(), 1);
    }

    #[test]
    fn violations_name_the_place_and_hold_no_value() {
        let schema = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["city"],
            "properties": {
                "city": {"type": "string"},
                "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}},
                "at": {"type": "object", "required": ["a/b"], "properties": {"a/b": {}}},
            },
        });
        let raw = r#"{"tags":["ok","hunter2"],"at":{},"passwd":1}"#;
        let error = prepared(schema, raw).unwrap_err();
        let InvalidArguments::Schema { violations, more } = &error else { panic!("{error:?}") };
        let mut places: Vec<_> = violations.iter().map(|violation| violation.pointer.as_str()).collect();
        places.sort_unstable();
        assert_eq!(places, ["/at/a~1b", "/city", "/passwd", "/tags/1"]);
        assert!(!more);
        let shown = error.to_string();
        assert!(places.iter().all(|place| shown.contains(place)) && !shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn violations_inside_a_branch_name_the_place_where_it_is_clear_which_was_meant() {
        let schema = json!({
            "type": "object",
            "properties": {
                "at": {"anyOf": [{"$ref": "#/$defs/Point"}, {"type": "null"}]},
                "shape": {"oneOf": [
                    {"type": "object", "required": ["kind", "r"], "properties": {"kind": {"const": "circle"}, "r": {"type": "integer"}}},
                    {"type": "object", "required": ["kind"], "properties": {"kind": {"const": "square"}}},
                ]},
                "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
            },
            "$defs": {"Point": {"type": "object", "required": ["x", "y"], "properties": {"x": {"type": "integer"}}}},
        });
        let raw = r#"{"at":{"x":"1"},"shape":{"kind":"circle"},"either":"no"}"#;
        let InvalidArguments::Schema { violations, .. } = prepared(schema, raw).unwrap_err() else { panic!() };
        let mut places: Vec<_> = violations.iter().map(|violation| violation.pointer.as_str()).collect();
        places.sort_unstable();
        assert_eq!(places, ["/at/x", "/at/y", "/either", "/shape/r"]);
    }

    #[test]
    fn what_is_said_of_violations_is_bounded() {
        let schema = json!({"type": "object", "additionalProperties": {"type": "object"}});
        let arguments: serde_json::Map<String, Value> =
            (0..500).map(|n| (format!("{n}{}", "é".repeat(2_000)), json!("x".repeat(5_000)))).collect();
        let error = prepared(schema, &Value::Object(arguments).to_string()).unwrap_err();
        let InvalidArguments::Schema { violations, more } = &error else { panic!("{error:?}") };
        assert_eq!((violations.len(), *more), (10, true));
        assert!(error.to_string().len() < 6_000, "{}", error.to_string().len());
        assert!(error.to_string().contains("send JSON directly, not inside a string"));
    }

    #[test]
    fn a_bad_schema_names_tool_and_place_and_fetches_nothing() {
        let error = with_schema(json!({"type": "object", "properties": {"a": {"type": "strin"}}})).unwrap_err();
        let ToolSetError::BadSchema { tool, pointer, .. } = &error else { panic!("{error}") };
        assert_eq!((tool.as_str(), pointer.as_str()), ("t", "/properties/a/type"));
        for reference in ["http://127.0.0.1:9/s.json", "file:///etc/passwd", "other.json", "#/$defs/missing"] {
            let schema = json!({"type": "object", "properties": {"a": {"$ref": reference}}});
            let error = with_schema(schema).unwrap_err();
            assert!(matches!(error, ToolSetError::BadSchema { .. }), "{reference}: {error}");
        }
        assert!(with_schema(json!({"type": "object", "properties": {"a": {"pattern": "("}}})).is_err());
    }

    #[test]
    fn older_drafts_are_taken() {
        for draft in ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2019-09/schema"] {
            let schema = json!({"$schema": draft, "type": "object", "definitions": {"n": {"type": "integer"}},
                "properties": {"a": {"type": "array", "items": [{"$ref": "#/definitions/n"}]}}});
            assert_eq!(prepared(schema, r#"{"a":[1.0,1.0]}"#).unwrap(), json!({"a": [1, 1.0]}), "{draft}");
        }
    }

    #[test]
    fn arguments_in_known_trouble() {
        let default = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/pitfalls");
        let folder = std::env::var_os("ZIDANE_PITFALLS_DIR").map_or(default, Into::into).join("cases");
        if !folder.is_dir() {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "no cases at {}", folder.display());
            eprintln!("SKIPPED: no cases at {} (set ZIDANE_PITFALLS_DIR)", folder.display());
            return;
        }
        let mut seen = 0;
        for entry in std::fs::read_dir(&folder).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let Ok(case) = serde_json::from_str::<Value>(&text) else { continue };
            if case["case"] != "schema" {
                continue;
            }
            let id = &case["id"];
            let tool = with_schema(case["schema"].clone()).unwrap_or_else(|error| panic!("{id}: {error}"));
            for root in case["more_roots"].as_array().into_iter().flatten() {
                with_schema(root.clone()).unwrap_or_else(|error| panic!("{id}: {error}"));
            }
            for sample in case["samples"].as_array().into_iter().flatten() {
                let raw = sample["args_text"].as_str().map_or_else(|| sample["args"].to_string(), str::to_owned);
                let prepared = tool.prepare(&raw);
                assert_eq!(prepared.is_ok(), sample["valid"] == true, "{id} {raw}: {prepared:?}");
                if let (Ok(value), Some(expected)) = (prepared, sample.get("normalised")) {
                    assert_eq!(&value, expected, "{id} {raw}");
                }
                seen += 1;
            }
        }
        assert!(seen >= 15, "only {seen} samples were there");
    }
}
