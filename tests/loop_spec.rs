//! The scenario table of the turn loop: one test, or a few, per row. Every scenario is told directly, through a
//! journal, and from every prefix of that journal (see `harness`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;

use std::time::Duration;

use harness::{Notes, Scenario, echo, forbidden, tool};
use serde_json::json;
use zidane::agent::{Compaction, DeferredResult, SteerMode, ToolExecution};
use zidane::hooks::{
    ContextTransform, StreamText, SystemBefore, ToolAfter, ToolBefore, ToolGate, ToolTransform, TurnAfter, TurnBefore,
};
use zidane::provider::{ProviderError, ProviderErrorKind, Resume, RetryPolicy};
use zidane::testing::Reply;
use zidane::tool::{Concurrency, ToolError, ToolOutput};
use zidane::types::{
    DeferredCall, Role, SessionContentBlock, SessionTurn, ToolOutcome, ToolStatus, TurnFinishReason, TurnOrigin,
};
use zidane::{AgentBuilder, RunErrorKind, StopCause};

fn cut(kind: ProviderErrorKind) -> ProviderError {
    ProviderError::new(kind, "scripted", "cut")
}

// Row 1: abort while streaming.

#[tokio::test]
async fn row_01_abort_while_streaming_keeps_what_arrived() {
    let told = Scenario::new([Reply::deltas(["Hello ", "there"])
        .and_call("echo", json!({"n": 1}))
        .partial_call("echo", "{\"n\":")
        .then_stall()])
    .build(|builder| builder.tool(forbidden("echo")))
    .hooks(|agent| {
        agent.hooks().on::<StreamText>(|cx| {
            if cx.delta() == "there" {
                let handle = cx.agent().clone();
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    handle.abort();
                });
            }
        });
    })
    .tell()
    .await;
    let outcome = told.outcome();
    assert_eq!(outcome.stop, StopCause::Aborted);
    assert_eq!(outcome.text, "Hello there");
    assert_eq!(
        told.transcript(),
        [
            "prompt: Go",
            "model (interrupted): Hello there | call echo {\"n\":1} | cut call echo {\"n\":",
            "results: not_started! This call was not started: the run was stopped. It had no ef",
        ]
    );
    assert!(!outcome.stats.turn_usage[0].complete);
    let ends: Vec<_> = told.events.iter().filter(|e| e.starts_with("agent:")).collect();
    assert_eq!(ends, ["agent:start", "agent:abort", "agent:done aborted"]);
}

#[tokio::test]
async fn row_01_abort_before_anything_arrived_stores_no_turn() {
    let told = Scenario::new([Reply::text("never").after(Duration::from_secs(60))])
        .hooks(|agent| {
            let handle = agent.handle().clone();
            agent.hooks().on::<TurnBefore>(move |_| handle.abort());
        })
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Aborted);
    assert_eq!(told.transcript(), ["prompt: Go"]);
}

// Row 2: abort with calls running.

#[tokio::test]
async fn row_02_abort_with_calls_running_keeps_finished_results() {
    let told = Scenario::new([Reply::call("fast", json!({})).and_call("slow", json!({})).and_call("late", json!({}))])
        .build(|builder| {
            let mut fast = tool("fast", |_, _| Box::pin(async { Ok("done".into()) }));
            fast.spec.concurrency = Some(Concurrency::Shared);
            let mut slow = tool("slow", |_, cx| {
                Box::pin(async move {
                    cx.agent().abort();
                    std::future::pending().await
                })
            });
            slow.spec.concurrency = Some(Concurrency::Shared);
            builder.tool(fast).tool(slow).tool(forbidden("late"))
        })
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Aborted);
    let results: Vec<_> =
        told.outcome().turns[2].tool_results().map(|result| (result.status, result.output.clone())).collect();
    assert_eq!(results[0].0, ToolStatus::Ok);
    assert_eq!(results[1].0, ToolStatus::Interrupted);
    assert_eq!(results[2].0, ToolStatus::NotStarted);
    assert_eq!(results[0].1, "done".into());
}

#[tokio::test]
async fn row_02_a_tool_that_heeds_the_token_keeps_its_result() {
    let told = Scenario::new([Reply::call("careful", json!({}))])
        .build(|builder| {
            builder.tool(tool("careful", |_, cx| {
                Box::pin(async move {
                    cx.agent().abort();
                    cx.cancelled().await;
                    Ok("rolled back".into())
                })
            }))
        })
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Aborted);
    assert_eq!(told.transcript()[2], "results: ok rolled back");
}

#[tokio::test(start_paused = true)]
async fn row_02_a_tool_that_ignores_the_token_is_dropped_after_its_grace() {
    let started = tokio::time::Instant::now();
    let told = Scenario::new([Reply::call("stubborn", json!({}))])
        .build(|builder| {
            builder.tool(tool("stubborn", |_, cx| {
                Box::pin(async move {
                    cx.agent().abort();
                    std::future::pending().await
                })
            }))
        })
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Aborted);
    assert_eq!(started.elapsed(), Duration::from_millis(50));
}

// Row 3: steering.

fn steering(mode: SteerMode) -> Scenario {
    Scenario::new([Reply::call("first", json!({})).and_call("second", json!({})), Reply::text("ok")]).build(
        move |builder| {
            let first = tool("first", |_, cx| {
                Box::pin(async move {
                    cx.agent().steer("Hold on").unwrap();
                    Ok("1".into())
                })
            });
            let second = tool("second", |_, _| Box::pin(async { Ok("2".into()) }));
            builder.steer_mode(mode).tool(first).tool(second)
        },
    )
}

#[tokio::test]
async fn row_03_steering_waits_for_the_batch() {
    let told = steering(SteerMode::AfterBatch).tell().await;
    assert_eq!(
        told.transcript(),
        [
            "prompt: Go",
            "model: call first {} | call second {}",
            "results: ok 1 | ok 2",
            "steering: Hold on",
            "model: ok"
        ]
    );
    assert!(told.outcome().undelivered.is_empty());
    assert!(told.events.contains(&"steer:inject Hold on".to_owned()));
}

#[tokio::test]
async fn row_03_steering_may_skip_what_has_not_started() {
    let told = steering(SteerMode::SkipUnstarted).tell().await;
    assert_eq!(
        told.transcript()[2..],
        [
            "results: ok 1 | skipped! This call was skipped: a new message from the user came firs",
            "steering: Hold on",
            "model: ok"
        ]
    );
}

#[tokio::test]
async fn row_03_an_abort_loses_no_message() {
    let told = Scenario::new([Reply::call("first", json!({}))])
        .build(|builder| {
            builder.tool(tool("first", |_, cx| {
                Box::pin(async move {
                    cx.agent().steer("Hold on").unwrap();
                    cx.agent().abort();
                    Ok("1".into())
                })
            }))
        })
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Aborted);
    assert_eq!(told.outcome().undelivered.len(), 1);
    told.model.push(Reply::text("next"));
    let outcome = told.agent.run("And?").await.unwrap();
    let texts: Vec<_> = outcome.turns.iter().map(|turn| harness::line(turn)).collect();
    assert_eq!(texts, ["prompt: And?", "steering: Hold on", "model: next"]);
}

#[tokio::test]
async fn row_03_steering_while_the_last_answer_streams_is_answered() {
    let told = Scenario::new([Reply::text("one"), Reply::text("two")])
        .hooks(|agent| {
            agent.hooks().on::<StreamText>(|cx| {
                if cx.delta() == "one" {
                    cx.agent().steer("more").unwrap();
                }
            });
        })
        .tell()
        .await;
    assert_eq!(told.transcript(), ["prompt: Go", "model: one", "steering: more", "model: two"]);
}

// Row 4: follow-up.

#[tokio::test]
async fn row_04_follow_ups_come_one_at_a_time_when_the_run_would_end() {
    let told = Scenario::new([Reply::text("1"), Reply::text("2"), Reply::text("3")])
        .hooks(|agent| {
            agent.follow_up("second").unwrap();
            agent.follow_up("third").unwrap();
        })
        .tell()
        .await;
    assert_eq!(
        told.transcript(),
        ["prompt: Go", "model: 1", "follow_up: second", "model: 2", "follow_up: third", "model: 3"]
    );
}

// Row 5: a tool fails.

#[tokio::test]
async fn row_05_errors_and_panics_leave_siblings_and_the_run_alone() {
    let told = Scenario::new([
        Reply::call("fails", json!({})).and_call("panics", json!({})).and_call("echo", json!({"n": 1})),
        Reply::text("ok"),
    ])
    .build(|builder| {
        builder
            .tool(tool("fails", |_, _| Box::pin(async { Err(ToolError::new("no such file")) })))
            .tool(tool("panics", |_, _| Box::pin(async { panic!("boom") })))
            .tool(echo())
    })
    .tell_all()
    .await;
    assert_eq!(
        told.transcript()[2],
        "results: error! no such file | error! The tool `panics` failed unexpectedly. | ok {\"n\":1}"
    );
    let errors: Vec<_> = told.events.iter().filter(|e| e.starts_with("tool:error")).collect();
    assert_eq!(errors, ["tool:error fails error", "tool:error panics error"]);
}

// Row 6: calls that cannot run.

#[tokio::test]
async fn row_06_unknown_tools_and_bad_arguments_are_told_to_the_model() {
    let told = Scenario::new([
        Reply::call("nope", json!({})).raw_call(None, "add", "{\"a\": 1,").raw_call(None, "add", "{\"a\": \"x\"}"),
        Reply::text("ok"),
    ])
    .build(|builder| {
        let mut add = forbidden("add");
        add.spec = add.spec.input_schema(json!({
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"]
        }));
        builder.tool(add)
    })
    .tell_all()
    .await;
    let results: Vec<_> = told.outcome().turns[2].tool_results().cloned().collect();
    let text = |i: usize| zidane::types::tool_result_to_text(&results[i].output).into_owned();
    assert_eq!(results[0].status, ToolStatus::UnknownTool);
    assert_eq!(text(0), "There is no tool named `nope`. Available tools: `add`.");
    assert_eq!(results[1].status, ToolStatus::Invalid);
    assert!(text(1).contains("not valid JSON"), "{}", text(1));
    assert_eq!(results[2].status, ToolStatus::Invalid);
    assert!(text(2).contains("/a") && text(2).contains("/b"), "{}", text(2));
    assert!(!told.events.iter().any(|e| e.starts_with("tool:gate")), "{:?}", told.events);
    assert_eq!(told.events.iter().filter(|e| e.starts_with("tool:error")).count(), 3);
}

#[tokio::test]
async fn row_06_too_many_failing_batches_end_the_run() {
    let told = Scenario::new((0..10).map(|_| Reply::call("nope", json!({}))))
        .build(|builder| builder.max_consecutive_failures(2))
        .tell_all()
        .await;
    assert_eq!(told.outcome().stop, StopCause::ToolFailures);
    assert_eq!(told.outcome().stats.turns, 3);
}

// Row 7: parallel calls.

#[tokio::test]
async fn row_07_exclusive_calls_are_barriers() {
    let notes = Notes::default();
    let log = notes.clone();
    let make = move |name: &'static str, concurrency| {
        let log = log.clone();
        let mut made = tool(name, move |_, _| {
            let log = log.clone();
            Box::pin(async move {
                log.add(format!("{name} starts"));
                tokio::time::sleep(Duration::from_millis(5)).await;
                log.add(format!("{name} ends"));
                Ok(name.into())
            })
        });
        made.spec.concurrency = concurrency;
        made
    };
    let told = Scenario::new([
        Reply::call("read", json!({}))
            .and_call("look", json!({}))
            .and_call("write", json!({}))
            .and_call("nope", json!({}))
            .and_call("read", json!({})),
        Reply::text("ok"),
    ])
    .build(move |builder| {
        builder
            .tool(make("read", Some(Concurrency::Shared)))
            .tool(make("look", Some(Concurrency::Shared)))
            .tool(make("write", None))
    })
    .tell()
    .await;
    assert_eq!(told.outcome().stop, StopCause::Stop);
    let all = notes.all();
    assert_eq!(all[..2], ["read starts", "look starts"]);
    assert_eq!(all[4..], ["write starts", "write ends", "read starts", "read ends"]);
    let order: Vec<_> = told.outcome().turns[2].tool_results().map(|r| r.name.clone()).collect();
    assert_eq!(order, ["read", "look", "write", "nope", "read"]);
}

#[tokio::test]
async fn row_07_the_host_may_force_one_at_a_time_or_set_a_cap() {
    for (execution, cap, most) in
        [(ToolExecution::Sequential, 64, 1), (ToolExecution::Parallel, 64, 6), (ToolExecution::Parallel, 2, 2)]
    {
        let counts = std::sync::Arc::new(std::sync::Mutex::new((0usize, 0usize)));
        let seen = std::sync::Arc::clone(&counts);
        let calls = (0..6).fold(Reply::empty(), |reply, n| reply.and_call("busy", json!({ "n": n })));
        let told = Scenario::new([calls, Reply::text("ok")])
            .build(move |builder| {
                let counts = std::sync::Arc::clone(&counts);
                let busy = tool("busy", move |_, _| {
                    let counts = std::sync::Arc::clone(&counts);
                    Box::pin(async move {
                        {
                            let mut now = counts.lock().unwrap();
                            now.0 += 1;
                            now.1 = now.1.max(now.0);
                        }
                        tokio::time::sleep(Duration::from_millis(5)).await;
                        counts.lock().unwrap().0 -= 1;
                        Ok("".into())
                    })
                });
                builder.tool(busy).tool_execution(execution).max_parallel_tools(cap)
            })
            .tell()
            .await;
        assert_eq!(told.outcome().stop, StopCause::Stop);
        assert_eq!(seen.lock().unwrap().1, most, "{execution:?} {cap}");
    }
}

#[tokio::test]
async fn row_07_after_fires_as_results_become_final_and_results_keep_call_order() {
    let calls = Reply::call("wait", json!({"ms": 30})).and_call("wait", json!({"ms": 1}));
    let notes = Notes::default();
    let log = notes.clone();
    let told = Scenario::new([calls, Reply::text("ok")])
        .build(|builder| {
            let wait = tool("wait", |input, _| {
                Box::pin(async move {
                    tokio::time::sleep(Duration::from_millis(input["ms"].as_u64().unwrap())).await;
                    Ok(input.into())
                })
            });
            builder.tool(wait).tool_execution(ToolExecution::Parallel)
        })
        .hooks(move |agent| {
            let log = log.clone();
            agent.hooks().on::<ToolAfter>(move |cx| log.add(cx.input().unwrap()["ms"].to_string()));
        })
        .tell()
        .await;
    assert_eq!(notes.all(), ["1", "30"]);
    assert_eq!(told.transcript()[2], "results: ok {\"ms\":30} | ok {\"ms\":1}");
}

// Row 8: length.

#[tokio::test]
async fn row_08_a_cut_answer_executes_none_of_its_calls() {
    let cut = Reply::text("Half")
        .and_call("echo", json!({}))
        .partial_call("echo", "{")
        .finish(TurnFinishReason::Length, Some("max_tokens"));
    let told = Scenario::new([cut]).build(|builder| builder.tool(forbidden("echo"))).tell_all().await;
    assert_eq!(told.outcome().stop, StopCause::Length);
    assert_eq!(told.outcome().text, "Half");
    assert_eq!(
        told.transcript()[2],
        "results: not_started! This call was not executed: the answer that made it was cut "
    );
}

#[tokio::test]
async fn row_08_a_cut_answer_may_be_continued_once() {
    let cut = || Reply::text("Half").finish(TurnFinishReason::Length, None);
    let told = Scenario::new([cut(), cut()]).build(|builder| builder.continue_after_length(true)).tell_all().await;
    assert_eq!(told.outcome().stop, StopCause::Length);
    assert_eq!(told.transcript(), ["prompt: Go", "model: Half", "continue: Please continue.", "model: Half"]);
}

// Row 9: pause.

#[tokio::test]
async fn row_09_a_pause_is_continued_by_text_or_as_it_is() {
    let paused = || Reply::text("Thinking on.").finish(TurnFinishReason::Pause, Some("pause_turn"));
    let told = Scenario::new([paused(), Reply::text("Done.")]).tell_all().await;
    assert_eq!(told.transcript(), ["prompt: Go", "model: Thinking on.", "pause: Please continue.", "model: Done."]);
    assert_eq!(told.outcome().stats.turn_usage.len(), 2);
    let told =
        Scenario::new([paused(), Reply::text("Done.")]).model(|model| model.resume(Resume::AsIs)).tell_all().await;
    assert_eq!(told.transcript(), ["prompt: Go", "model: Thinking on.", "model: Done."]);
}

#[tokio::test]
async fn row_09_a_pause_that_only_the_host_can_end_ends_the_run() {
    let paused = Reply::text("May I?").finish(TurnFinishReason::Pause, None);
    let told = Scenario::new([paused, Reply::text("Done.")]).model(|model| model.resume(Resume::Host)).tell_all().await;
    assert_eq!(told.outcome().stop, StopCause::Paused);
    assert_eq!(told.transcript(), ["prompt: Go", "model: May I?"]);
}

#[tokio::test]
async fn row_09_no_steering_while_a_server_call_is_unresolved() {
    let paused = Reply::text("Searching.").finish(TurnFinishReason::Pause, None);
    let told = Scenario::new([paused, Reply::text("Done."), Reply::text("And more.")])
        .model(|model| model.resume(Resume::AsIs))
        .hooks(|agent| {
            agent.hooks().on::<StreamText>(|cx| {
                if cx.delta() == "Searching." {
                    cx.agent().steer("quick").unwrap();
                }
            });
        })
        .tell()
        .await;
    assert_eq!(told.transcript()[1..], ["model: Searching.", "model: Done.", "steering: quick", "model: And more."]);
}

#[tokio::test]
async fn row_09_pauses_are_capped() {
    let told =
        Scenario::new((0..20).map(|_| Reply::text("Hm.").finish(TurnFinishReason::Pause, None))).tell_all().await;
    assert_eq!(told.outcome().stop, StopCause::PauseLimit);
    assert_eq!(told.outcome().stats.turns, 9);
}

// Row 10: content filter.

#[tokio::test]
async fn row_10_a_refusal_ends_the_run_and_answers_its_calls() {
    let refused =
        Reply::text("I can").and_call("echo", json!({})).finish(TurnFinishReason::ContentFilter, Some("refusal"));
    let told = Scenario::new([refused]).build(|builder| builder.tool(forbidden("echo"))).tell_all().await;
    assert_eq!(told.outcome().stop, StopCause::ContentFilter);
    assert_eq!(told.transcript()[1], "model: I can | call echo {}");
    assert!(told.transcript()[2].starts_with("results: not_started!"));
    assert_eq!(told.outcome().stats.turn_usage[0].raw_finish_reason.as_deref(), Some("refusal"));
}

// Row 11: finish `error`, and unknown reasons.

#[tokio::test(start_paused = true)]
async fn row_11_a_turn_the_provider_calls_failed_is_not_stored() {
    let failed = || Reply::text("garbage").finish(TurnFinishReason::Error, Some("MALFORMED_FUNCTION_CALL"));
    let told = Scenario::new([failed()]).build(|builder| builder.retry(RetryPolicy::never())).tell_all().await;
    let RunErrorKind::Provider(error) = &told.error().kind else { panic!("{}", told.error()) };
    assert_eq!(error.code.as_deref(), Some("MALFORMED_FUNCTION_CALL"));
    assert_eq!(told.transcript(), ["prompt: Go"]);
    assert_eq!(told.error().stats.total_in, 10, "it was paid for");
}

#[tokio::test]
async fn row_11_an_unknown_reason_is_other() {
    let told = Scenario::new([Reply::text("Hm").finish(TurnFinishReason::Other, Some("sideways"))]).tell_all().await;
    assert_eq!(told.outcome().stop, StopCause::Other);
}

// Row 12: errors before the first delta.

#[tokio::test(start_paused = true)]
async fn row_12_a_failed_request_is_made_again() {
    let told = Scenario::new([
        Reply::fails(ProviderErrorKind::Overloaded),
        Reply::fails(ProviderErrorKind::Transport),
        Reply::text("Hello"),
    ])
    .tell_all()
    .await;
    assert_eq!(told.outcome().text, "Hello");
    assert_eq!(told.outcome().stats.turn_usage[0].attempts, 3);
    assert_eq!(told.outcome().stats.turns, 1);
}

#[tokio::test(start_paused = true)]
async fn row_12_retries_end_and_hopeless_errors_are_not_retried() {
    let told = Scenario::new((0..10).map(|_| Reply::fails(ProviderErrorKind::Server))).tell_all().await;
    assert_eq!(told.model.requests().len(), 4);
    assert!(matches!(&told.error().kind, RunErrorKind::Provider(e) if e.kind == ProviderErrorKind::Server));
    let told = Scenario::new((0..10).map(|_| Reply::fails(ProviderErrorKind::Auth))).tell_all().await;
    assert_eq!(told.model.requests().len(), 1);
}

// Row 13: errors after a delta.

#[tokio::test]
async fn row_13_a_cut_stream_keeps_what_arrived() {
    let broken = Reply::text("Half").and_call("echo", json!({})).then_error(cut(ProviderErrorKind::TruncatedStream));
    let told = Scenario::new([broken]).build(|builder| builder.tool(forbidden("echo"))).tell_all().await;
    assert!(matches!(&told.error().kind, RunErrorKind::Provider(e) if e.kind == ProviderErrorKind::TruncatedStream));
    assert_eq!(told.transcript()[1], "model (interrupted): Half | call echo {}");
    assert!(told.transcript()[2].starts_with("results: not_started!"));
    assert_eq!(told.error().turns.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn row_13_a_retry_after_output_tells_that_the_stream_is_void() {
    let broken = Reply::text("Half")
        .event(zidane::provider::StreamEvent::Usage(zidane::provider::UsageSnapshot::new(zidane::types::TokenUsage {
            input: 7,
            ..Default::default()
        })))
        .then_error(cut(ProviderErrorKind::TruncatedStream));
    let told = Scenario::new([broken, Reply::text("Whole")])
        .build(|builder| builder.retry(RetryPolicy::default().after_output(true)))
        .tell_all()
        .await;
    assert_eq!(told.transcript(), ["prompt: Go", "model: Whole"]);
    assert!(told.events.contains(&"stream:reset".to_owned()));
    assert_eq!(told.outcome().stats.total_in, 17, "the lost attempt was paid for");
}

// Row 14: max turns.

#[tokio::test]
async fn row_14_max_turns_ends_the_run_with_every_call_answered() {
    let told = Scenario::new((0..10).map(|_| Reply::call("echo", json!({}))))
        .build(|builder| builder.tool(echo()).max_turns(2))
        .tell_all()
        .await;
    assert_eq!(told.outcome().stop, StopCause::MaxTurns);
    assert_eq!(told.outcome().stats.turns, 2);
    let told = Scenario::new((0..60).map(|n| if n < 59 { Reply::call("echo", json!({})) } else { Reply::text("end") }))
        .build(|builder| builder.tool(echo()))
        .run(|run| run.max_turns(None))
        .tell()
        .await;
    assert_eq!(told.outcome().stats.turns, 60);
}

// Row 16: resume with dangling calls.

#[tokio::test]
async fn row_16_calls_left_open_are_settled_when_a_run_starts() {
    use zidane::types::ToolCallBlock;
    let call = |id: &str| {
        SessionContentBlock::ToolCall(ToolCallBlock { id: id.into(), name: "echo".into(), ..Default::default() })
    };
    let history = vec![
        SessionTurn::new("a", Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text("Hi")]),
        SessionTurn::new("b", Role::Assistant, TurnOrigin::Model, vec![call("1"), call("2")]),
    ];
    let told = Scenario::new([Reply::text("ok")]).history(history).tell_all().await;
    assert_eq!(
        told.transcript()[2..],
        [
            "repair: interrupted! This call was interrupted before its result was recorded. It | interrupted! This call was interrupted before its result was recorded. It",
            "prompt: Go",
            "model: ok"
        ]
    );
    assert!(told.events.contains(&"session:repaired 1,2".to_owned()));
}

#[tokio::test]
async fn row_16_a_dropped_run_leaves_finished_results_behind() {
    let scenario = Scenario::new([Reply::call("fast", json!({})).and_call("never", json!({}))]);
    let model = zidane::testing::ScriptedProvider::new(scenario.replies.clone());
    let agent = zidane::Agent::builder()
        .provider(model.clone())
        .model("test")
        .tool(tool("fast", |_, _| Box::pin(async { Ok("done".into()) })))
        .tool(tool("never", |_, _| Box::pin(std::future::pending())))
        .build()
        .unwrap();
    let dropped = tokio::time::timeout(Duration::from_millis(50), agent.run("Go")).await;
    assert!(dropped.is_err());
    assert!(!agent.is_running());
    model.push(Reply::text("ok"));
    let outcome = agent.run("And now?").await.unwrap();
    let lines: Vec<_> = outcome.turns.iter().map(|turn| harness::line(turn)).collect();
    assert_eq!(lines[0], "repair: ok done | interrupted! This call was interrupted before its result was recorded. It");
    assert_eq!(lines[1..], ["prompt: And now?", "model: ok"]);
}

// Row 17: calls that wait for the host.

/// Defers calls of the tool `ask`.
fn asking(agent: &zidane::Agent) {
    agent.hooks().on::<ToolGate>(|cx| {
        if cx.name() == "ask" {
            cx.defer("a person must see this");
        }
    });
}

fn deferred(stop: &StopCause) -> Vec<&str> {
    match stop {
        StopCause::Deferred(calls) => calls.iter().map(|call| call.call_id.as_str()).collect(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn row_17_a_deferred_call_ends_the_run_and_nothing_is_sent() {
    let notes = Notes::default();
    let log = notes.clone();
    let told = Scenario::new([Reply::text("Well.")
        .and_call("side", json!({"n": 1}))
        .and_call("ask", json!({"path": "/"}))
        .and_call("side", json!({"n": 2}))
        .and_call("late", json!({}))
        .and_call("side", json!({"n": 3}))])
    .build(move |builder| {
        let log = log.clone();
        let mut side = tool("side", move |input, _| {
            log.add(input["n"].to_string());
            Box::pin(async move { Ok("done".into()) })
        });
        side.spec.concurrency = Some(Concurrency::Shared);
        let mut ask = forbidden("ask");
        ask.spec.concurrency = Some(Concurrency::Shared);
        builder.tool(side).tool(ask).tool(forbidden("late"))
    })
    .hooks(asking)
    .tell_all()
    .await;
    let outcome = told.outcome();
    assert_eq!(deferred(&outcome.stop), ["call_2"]);
    let StopCause::Deferred(calls) = &outcome.stop else { unreachable!() };
    assert_eq!(
        (calls[0].name.as_str(), &calls[0].input, calls[0].reason.as_str()),
        ("ask", &json!({"path": "/"}), "a person must see this")
    );
    assert_eq!(told.model.requests().len(), 1);
    assert_eq!(told.transcript()[2..], ["results: ok done | ok done"]);
    let pending: Vec<_> = outcome.turns[1].pending.iter().map(|call| (call.call_id.as_str(), call.deferred)).collect();
    assert_eq!(pending, [("call_2", true), ("call_4", true), ("call_5", true)]);
    assert_eq!(notes.all()[..2], ["1", "2"], "what is beside it runs, what is after it does not");
    assert!(!notes.all().contains(&"3".to_owned()));
    assert_eq!(told.gates, 3, "segments that wait are not gated");
}

/// A conversation that ends in calls which wait.
fn waiting(calls: &[(&str, &str)]) -> Vec<SessionTurn> {
    use zidane::types::{PendingCall, ToolCallBlock};
    let call = |(id, name): &(&str, &str)| {
        let call =
            ToolCallBlock { id: (*id).into(), name: (*name).into(), arguments: "{}".into(), ..Default::default() };
        SessionContentBlock::ToolCall(call)
    };
    let prompt = vec![SessionContentBlock::text("Hi")];
    let mut turn = SessionTurn::new("b", Role::Assistant, TurnOrigin::Model, calls.iter().map(call).collect());
    turn.run_id = "before".into();
    turn.pending = calls.iter().map(|(id, _)| PendingCall::deferred(*id)).collect();
    vec![SessionTurn::new("a", Role::User, TurnOrigin::Prompt, prompt), turn]
}

fn approve(id: &str, name: &str) -> DeferredResult {
    DeferredResult::approve(id, DeferredCall::digest_of(name, "{}", &json!({})))
}

#[tokio::test]
async fn row_17_answers_settle_the_calls_and_the_model_reads_them() {
    let told = Scenario::new([Reply::text("ok")])
        .prompt("")
        .history(waiting(&[("1", "key"), ("2", "key"), ("3", "key")]))
        .build(|builder| builder.tool(tool("key", |_, cx| Box::pin(async move { Ok(cx.idempotency_key().into()) }))))
        .hooks(|agent| {
            agent.hooks().on::<ToolGate>(|cx| cx.defer("always"));
        })
        .run(|run| {
            run.resume([
                DeferredResult::deny("3", "not today"),
                approve("1", "key"),
                DeferredResult::result("2", ToolOutput::error("elsewhere")),
            ])
        })
        .tell_all()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Stop);
    assert_eq!(
        told.transcript()[2..],
        ["results: ok before:1 | ok! elsewhere | blocked! not today", "model: ok"],
        "in call order, and with the key of the call as it was first made"
    );
    assert_eq!(told.outcome().denials.len(), 1);
}

#[tokio::test]
async fn row_17_while_one_is_open_nothing_is_sent() {
    let told = Scenario::new([])
        .prompt("")
        .history(waiting(&[("1", "echo"), ("2", "echo")]))
        .build(|builder| builder.tool(echo()))
        .run(|run| run.resume([approve("1", "echo")]))
        .tell_all()
        .await;
    assert_eq!(deferred(&told.outcome().stop), ["2"]);
    assert_eq!((told.transcript()[2].as_str(), told.model.requests().len()), ("results: ok {}", 0));
}

#[tokio::test]
async fn row_17_a_new_prompt_waits_unless_the_calls_are_given_up() {
    let scenario =
        || Scenario::new([Reply::text("ok")]).history(waiting(&[("1", "echo")])).build(|b| b.tool(forbidden("echo")));
    let told = scenario().tell().await;
    match &told.error().kind {
        RunErrorKind::Pending { run_id, calls } => {
            assert_eq!((run_id.as_str(), &calls[..]), ("before", &["1".into()][..]))
        }
        other => panic!("{other}"),
    }
    assert_eq!((told.transcript().len(), told.model.requests().len()), (2, 0));
    let told = scenario().run(|run| run.abandon(true)).tell_all().await;
    assert_eq!(
        told.transcript()[2..],
        [
            "repair: not_started! This call waited for the host, which gave it up. It was not ",
            "prompt: Go",
            "model: ok"
        ]
    );
}

#[tokio::test]
async fn row_17_an_abort_answers_calls_that_wait_with_not_started() {
    let told = Scenario::new([Reply::call("ask", json!({})).and_call("stop", json!({})).and_call("late", json!({}))])
        .build(|builder| {
            let stop = tool("stop", |_, cx| {
                cx.agent().abort();
                Box::pin(async { Ok("stopped".into()) })
            });
            let (mut ask, mut stop) = (forbidden("ask"), stop);
            (ask.spec.concurrency, stop.spec.concurrency) = (Some(Concurrency::Shared), Some(Concurrency::Shared));
            builder.tool(ask).tool(stop).tool(forbidden("late"))
        })
        .hooks(asking)
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Aborted);
    assert_eq!(
        told.transcript()[2],
        "results: not_started! This call was not started: the run was stopped. It had no ef | ok stopped | \
         not_started! This call was not started: the run was stopped. It had no ef"
    );
}

// Row 18: an empty answer.

#[tokio::test]
async fn row_18_an_empty_answer_after_results_is_asked_about_once() {
    let told = Scenario::new([Reply::call("echo", json!({})), Reply::empty(), Reply::empty()])
        .build(|builder| builder.tool(echo()))
        .tell_all()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Stop);
    assert_eq!(told.transcript()[3..], ["model: ", "continue: Please continue.", "model: "]);
    let told = Scenario::new([Reply::empty()]).tell_all().await;
    assert_eq!(told.transcript(), ["prompt: Go", "model: "]);
}

// Row 19: nothing to send.

#[tokio::test]
async fn row_19_nothing_to_do_is_an_error() {
    let told = Scenario::new([]).prompt("").tell_all().await;
    assert!(matches!(told.error().kind, RunErrorKind::NothingToDo), "{}", told.error());
    let told = Scenario::new([Reply::text("Hi"), Reply::text("ok")]).tell().await;
    let error = told.agent.run(zidane::types::Prompt::none()).await.unwrap_err();
    assert!(matches!(error.kind, RunErrorKind::NothingToDo), "{error}");
    told.agent.follow_up("More").unwrap();
    assert_eq!(told.agent.run(zidane::types::Prompt::none()).await.unwrap().text, "ok");
}

// Row 20: hooks fail, each class in its way.

#[tokio::test]
async fn row_20_a_failing_gate_blocks() {
    for panics in [false, true] {
        let told = Scenario::new([Reply::call("echo", json!({})), Reply::text("ok")])
            .build(|builder| builder.tool(forbidden("echo")))
            .hooks(move |agent| {
                agent.hooks().on::<ToolGate>(move |_| -> Result<(), &str> {
                    assert!(!panics, "boom");
                    Err("database is down")
                });
            })
            .tell_all()
            .await;
        assert!(told.transcript()[2].starts_with("results: blocked! This call was blocked: its gate failed"));
        assert!(told.events.contains(&"hook:error tool:gate".to_owned()));
        assert_eq!(told.outcome().denials.len(), 1);
    }
}

#[tokio::test]
async fn row_20_a_failing_shape_ends_the_run_before_anything_is_sent() {
    let told = Scenario::new([Reply::text("never")])
        .hooks(|agent| {
            agent.hooks().on::<TurnBefore>(|_| Err::<(), _>("no"));
        })
        .tell_all()
        .await;
    assert!(matches!(&told.error().kind, RunErrorKind::Hook { hook, .. } if hook == "turn:before"));
    assert!(told.model.requests().is_empty());
    let told = Scenario::new([Reply::text("never")])
        .hooks(|agent| {
            agent.hooks().on_async::<SystemBefore>(|_| Box::pin(async { Err::<(), _>("no") }));
        })
        .tell_all()
        .await;
    assert!(matches!(&told.error().kind, RunErrorKind::Hook { hook, .. } if hook == "system:before"));
}

#[tokio::test]
async fn row_20_a_failing_transform_withholds_the_output() {
    let told = Scenario::new([Reply::call("secret", json!({})), Reply::text("ok")])
        .build(|builder| builder.tool(tool("secret", |_, _| Box::pin(async { Ok("hunter2".into()) }))))
        .hooks(|agent| {
            agent.hooks().on::<ToolTransform>(|_| panic!("boom"));
        })
        .tell_all()
        .await;
    assert!(!told.stored().contains("hunter2"));
    assert_eq!(told.transcript()[2], "results: ok! The result of this call was withheld: a hook failed.");
}

#[tokio::test]
async fn row_20_a_failing_observer_changes_nothing() {
    let told = Scenario::new([Reply::call("echo", json!({})), Reply::text("ok")])
        .build(|builder| builder.tool(echo()))
        .hooks(|agent| {
            agent.hooks().on::<ToolAfter>(|_| panic!("boom"));
            agent.hooks().on::<TurnAfter>(|_| Err::<(), _>("no"));
        })
        .tell_all()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Stop);
    assert_eq!(told.events.iter().filter(|e| e.starts_with("hook:error")).count(), 3);
}

// Row 21: a context transform.

#[tokio::test]
async fn row_21_a_transform_that_breaks_the_history_sends_nothing() {
    let told = Scenario::new([Reply::call("echo", json!({})), Reply::text("never")])
        .build(|builder| builder.tool(echo()))
        .hooks(|agent| {
            agent.hooks().on::<ContextTransform>(|cx| {
                if cx.turns().len() > 1 {
                    cx.turns_mut().pop();
                }
            });
        })
        .tell_all()
        .await;
    let RunErrorKind::Transcript(error) = &told.error().kind else { panic!("{}", told.error()) };
    assert_eq!(error.turn, 1);
    assert_eq!(told.model.requests().len(), 1);
}

#[tokio::test]
async fn row_21_a_transform_is_a_view_and_is_never_stored() {
    let told = Scenario::new([Reply::text("1"), Reply::text("2")])
        .hooks(|agent| {
            agent.follow_up("again").unwrap();
            agent.hooks().on::<ContextTransform>(|cx| {
                if cx.turns().len() > 1 {
                    cx.turns_mut().drain(..2);
                }
            });
        })
        .model(|model| model.allow_prefix_breaks())
        .tell()
        .await;
    assert_eq!(told.model.requests()[1].turns.len(), 1);
    assert_eq!(told.transcript().len(), 4);
}

// What rows share: gates rewrite and substitute, the budget nudges, outcomes are reported, drain stops.

#[tokio::test]
async fn gates_rewrite_input_which_is_validated_and_gated_again() {
    let seen = Notes::default();
    let log = seen.clone();
    let told = Scenario::new([Reply::call("echo", json!({"n": 1})), Reply::text("ok")])
        .build(|builder| {
            let mut echo = echo();
            echo.spec = echo.spec.input_schema(json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
            builder.tool(echo)
        })
        .hooks(move |agent| {
            let log = log.clone();
            agent.hooks().on::<ToolGate>(move |cx| log.add(cx.input().to_string()));
            agent.hooks().on::<ToolGate>(|cx| {
                if cx.input()["n"] == 1 {
                    cx.rewrite(json!({"n": 2}));
                }
            });
        })
        .tell()
        .await;
    assert_eq!(seen.all(), ["{\"n\":1}", "{\"n\":2}"]);
    assert_eq!(told.transcript()[2], "results: ok {\"n\":2}");
    assert_eq!(told.transcript()[1], "model: call echo {\"n\":1}", "what the model wrote stays");

    let told = Scenario::new([Reply::call("echo", json!({"n": 1})), Reply::text("ok")])
        .build(|builder| {
            let mut echo = forbidden("echo");
            echo.spec = echo.spec.input_schema(json!({"type": "object", "properties": {"n": {"type": "integer"}}}));
            builder.tool(echo)
        })
        .hooks(|agent| {
            agent.hooks().on::<ToolGate>(|cx| cx.rewrite(json!({"n": "x"})));
        })
        .tell_all()
        .await;
    assert!(told.transcript()[2].starts_with("results: invalid!"));

    let told = Scenario::new([Reply::call("echo", json!({"n": 1})), Reply::text("ok")])
        .build(|builder| builder.tool(forbidden("echo")))
        .hooks(|agent| {
            agent.hooks().on::<ToolGate>(|cx| {
                let n = cx.input()["n"].as_u64().unwrap_or(0);
                cx.rewrite(json!({"n": n + 1}));
            });
        })
        .tell_all()
        .await;
    assert!(told.transcript()[2].starts_with("results: blocked!"), "gates that never agree block");
}

#[tokio::test]
async fn a_gate_may_answer_in_the_tools_place() {
    let told = Scenario::new([Reply::call("echo", json!({})), Reply::text("ok")])
        .build(|builder| builder.tool(forbidden("echo")))
        .hooks(|agent| {
            agent.hooks().on::<ToolGate>(|cx| cx.substitute("from the cache"));
        })
        .tell_all()
        .await;
    assert_eq!(told.transcript()[2], "results: ok from the cache");
}

#[tokio::test]
async fn transforms_see_every_result_and_sizes_are_recomputed_between_them() {
    let notes = Notes::default();
    let log = notes.clone();
    let told = Scenario::new([Reply::call("echo", json!({"n": 1})).and_call("nope", json!({})), Reply::text("ok")])
        .build(|builder| builder.tool(echo()))
        .hooks(move |agent| {
            let (first, second) = (log.clone(), log.clone());
            agent.hooks().on::<ToolTransform>(move |cx| {
                first.add(format!("{} {}", cx.name(), cx.status().as_str()));
                cx.set_result("1234");
            });
            agent.hooks().on::<ToolTransform>(move |cx| second.add(cx.output_bytes().to_string()));
        })
        .tell()
        .await;
    let mut all = notes.all();
    all.sort();
    assert_eq!(all, ["4", "4", "echo ok", "nope unknown_tool"]);
    assert_eq!(told.transcript()[2], "results: ok 1234 | unknown_tool 1234");
}

#[tokio::test]
async fn too_much_output_is_followed_by_a_stored_nudge() {
    let told = Scenario::new([Reply::call("read", json!({})).and_call("read", json!({})), Reply::text("ok")])
        .build(|builder| {
            builder.tool(tool("read", |_, _| Box::pin(async { Ok("x".repeat(600).into()) }))).tool_output_budget(1000)
        })
        .tell_all()
        .await;
    let budget = told.transcript().into_iter().find(|line| line.starts_with("budget: ")).unwrap();
    assert!(budget.contains("1200 bytes, 200 over the budget of 1000"), "{budget}");
    assert!(told.events.contains(&"tool-budget:exceeded 1200 of 1000".to_owned()));
}

#[tokio::test]
async fn outcomes_and_state_travel_with_the_result() {
    let told = Scenario::new([Reply::call("write", json!({})), Reply::call("read", json!({})), Reply::text("ok")])
        .build(|builder| {
            let write = tool("write", |_, cx| {
                Box::pin(async move {
                    cx.state().set("k", json!(7))?;
                    cx.report_outcome(ToolOutcome::Created)?;
                    cx.report_outcome(ToolOutcome::Noop)?;
                    Ok("written".into())
                })
            });
            let read = tool("read", |_, cx| {
                Box::pin(async move { Ok(ToolOutput::from(cx.state().get("k").map_or(json!(null), |v| (*v).clone()))) })
            });
            builder.tool(write).tool(read)
        })
        .tell_all()
        .await;
    let result = told.outcome().turns[2].tool_results().next().unwrap().clone();
    assert_eq!(result.outcome, Some(ToolOutcome::Noop));
    assert_eq!(told.transcript()[4], "results: ok 7");
    assert_eq!(told.agent.tool_state().get("k").as_deref(), Some(&json!(7)));
}

#[tokio::test]
async fn progress_is_told_before_the_result() {
    let told = Scenario::new([Reply::call("slow", json!({})), Reply::text("ok")])
        .build(|builder| {
            builder.tool(tool("slow", |_, cx| {
                Box::pin(async move {
                    for n in 0..3 {
                        cx.progress(json!({ "n": n })).await?;
                    }
                    Ok("done".into())
                })
            }))
        })
        .tell()
        .await;
    let about: Vec<_> =
        told.events.iter().filter(|e| e.starts_with("tool:update") || e.starts_with("tool:after")).cloned().collect();
    assert_eq!(about, ["tool:update slow", "tool:update slow", "tool:update slow", "tool:after slow ok"]);
}

#[tokio::test]
async fn drain_stops_after_the_turn_and_the_next_run_goes_on() {
    let told = Scenario::new([Reply::call("echo", json!({})), Reply::text("rest")])
        .build(|builder| builder.tool(echo()))
        .hooks(|agent| {
            agent.hooks().on::<ToolBefore>(|cx| cx.agent().drain());
        })
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Drained);
    let outcome = told.agent.run(zidane::types::Prompt::none()).await.unwrap();
    assert_eq!(outcome.text, "rest");
}

#[tokio::test]
async fn a_hook_may_change_model_and_tools_for_one_turn() {
    let told = Scenario::new([Reply::call("echo", json!({})), Reply::text("ok")])
        .build(|builder| builder.tool(forbidden("echo")).system("Be brief."))
        .hooks(|agent| {
            agent.hooks().on::<TurnBefore>(|cx| {
                if cx.number() == 1 {
                    cx.set_model("other");
                    cx.retain_tools(|_| false);
                }
            });
            agent.hooks().on::<SystemBefore>(|cx| {
                let text = format!("{} Today is Tuesday.", cx.system().unwrap_or_default());
                cx.set_system(text);
            });
        })
        .tell_all()
        .await;
    let requests = told.model.requests();
    assert_eq!(requests[0].head.model, "other");
    assert_eq!(requests[1].head.model, "test");
    assert_eq!(requests[0].head.system.as_deref(), Some("Be brief. Today is Tuesday."));
    assert_eq!(told.transcript()[2], "results: unknown_tool! There is no tool named `echo`; no tools are available.");
    let models: Vec<_> = told.outcome().stats.by_model().into_iter().map(|(model, _)| model).collect();
    assert_eq!(models, ["other", "test"]);
}

#[tokio::test]
async fn a_tool_may_not_run_longer_than_it_says() {
    let told = Scenario::new([Reply::call("slow", json!({})), Reply::text("ok")])
        .build(|builder| {
            let mut slow = tool("slow", |_, _| Box::pin(std::future::pending()));
            slow.spec = slow.spec.timeout(Duration::from_millis(20)).cancel_grace(Duration::from_millis(5));
            builder.tool(slow)
        })
        .tell_all()
        .await;
    assert!(told.transcript()[2].starts_with("results: interrupted! This call took longer than 20ms"));
    assert_eq!(told.outcome().stop, StopCause::Stop);
}

// Row 15: limits.

#[tokio::test]
async fn row_15_a_batch_that_would_exceed_a_limit_does_not_run_at_all() {
    use zidane::agent::{Limit, Limits};
    let three = || (0..3).fold(Reply::empty(), |reply, _| reply.and_call("echo", json!({})));
    let told = Scenario::new([three(), three(), Reply::text("never")])
        .build(|builder| builder.tool(echo()).limits(Limits::none().tool_calls(5)))
        .tell_all()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Limit(Limit::ToolCalls));
    let statuses: Vec<_> = told.outcome().turns[4].tool_results().map(|result| result.status).collect();
    assert_eq!(statuses, [ToolStatus::NotStarted; 3]);
    let told = Scenario::new([three(), Reply::text("never")])
        .build(|builder| builder.tool(forbidden("echo")))
        .run(|run| run.limits(Limits::none().tokens(12)))
        .tell_all()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Limit(Limit::Tokens));
    let told = Scenario::new((0..5).map(|_| Reply::call("echo", json!({}))))
        .build(|builder| builder.tool(echo()).limits(Limits::none().turns(2)))
        .tell_all()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Limit(Limit::Turns));
    assert_eq!(told.outcome().stats.turns, 2);
    let told = Scenario::new([Reply::call("echo", json!({}))])
        .build(|builder| builder.tool(forbidden("echo")).limits(Limits::none().wall_clock(Duration::ZERO)))
        .tell_all()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Limit(Limit::WallClock));
    assert!(told.model.requests().is_empty());
}

// Calls that tools make.

#[tokio::test]
async fn a_tool_may_run_another_through_the_same_gate() {
    let notes = Notes::default();
    let log = notes.clone();
    let told = Scenario::new([Reply::call("outer", json!({})), Reply::text("ok")])
        .build(|builder| {
            let outer = tool("outer", |_, cx| {
                Box::pin(async move {
                    cx.state().set("outer", json!(1))?;
                    let inner = cx.run_tool("inner", json!({"n": 1})).await?;
                    let blocked = cx.run_tool("forbidden", json!({})).await?;
                    let unknown = cx.run_tool("nope", json!({})).await?;
                    let text = |output: &ToolOutput| zidane::types::tool_result_to_text(&output.body).into_owned();
                    assert!(blocked.is_error && unknown.is_error && !inner.is_error);
                    Ok(format!("{}; {}", text(&inner), text(&blocked)).into())
                })
            });
            let inner = tool("inner", |input, cx| {
                Box::pin(async move {
                    assert_eq!(cx.state().get("outer").as_deref(), Some(&json!(1)));
                    cx.state().set("inner", input["n"].clone())?;
                    Ok(ToolOutput::from(format!("{} by {}", input["n"], cx.call_id())))
                })
            });
            builder.tool(outer).tool(inner).tool(forbidden("forbidden"))
        })
        .hooks(move |agent| {
            let log = log.clone();
            agent.hooks().on::<ToolGate>(|cx| {
                if cx.name() == "forbidden" {
                    cx.block("not here");
                }
            });
            agent.hooks().on::<ToolAfter>(move |cx| log.add(format!("{} {}", cx.name(), cx.status().as_str())));
        })
        .tell()
        .await;
    assert_eq!(told.transcript()[2], "results: ok 1 by call_1/1; not here");
    assert_eq!(notes.all(), ["inner ok", "forbidden blocked", "nope unknown_tool", "outer ok"]);
    assert_eq!(told.outcome().denials.len(), 1);
    let state = told.agent.tool_state();
    assert_eq!(state.get("inner").as_deref(), Some(&json!(1)));
}

#[tokio::test]
async fn calls_of_tools_nest_only_so_deep() {
    let told = Scenario::new([Reply::call("deeper", json!({})), Reply::text("ok")])
        .build(|builder| {
            builder.tool(tool("deeper", |_, cx| {
                Box::pin(async move {
                    let mut output = cx.run_tool("deeper", json!({})).await?;
                    output.is_error = false;
                    Ok(output)
                })
            }))
        })
        .tell()
        .await;
    assert_eq!(told.transcript()[2], "results: ok Calls nest at most 8 deep.");
}

#[tokio::test]
async fn a_run_from_inside_a_tool_of_the_same_agent_is_refused() {
    let slot = std::sync::Arc::new(std::sync::OnceLock::<zidane::Agent>::new());
    let inside = std::sync::Arc::clone(&slot);
    let told = Scenario::new([Reply::call("again", json!({})), Reply::text("ok")])
        .build(move |builder| {
            let inside = std::sync::Arc::clone(&inside);
            builder.tool(tool("again", move |_, _| {
                let agent = inside.get().unwrap().clone();
                Box::pin(async move { Ok(agent.run("me too").await.unwrap_err().to_string().into()) })
            }))
        })
        .hooks(move |agent| {
            drop(slot.set(agent.clone()));
        })
        .tell()
        .await;
    assert_eq!(told.transcript()[2], "results: ok the agent is already running");
}

// The loop guard.

#[tokio::test]
async fn the_loop_guard_steers_and_then_stops() {
    let told = Scenario::new((0..10).map(|_| Reply::call("poll", json!({"job": 1}))))
        .build(|builder| builder.tool(tool("poll", |_, _| Box::pin(async { Ok("pending".into()) }))))
        .hooks(|agent| {
            zidane::agent::LoopGuard::new().steer_at(2).stop_at(4).message("Stop that.").attach(agent);
        })
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::LoopGuard);
    assert_eq!(told.outcome().stats.turns, 4);
    let steered: Vec<_> = told.transcript().into_iter().filter(|line| line.starts_with("steering")).collect();
    assert_eq!(steered, ["steering: Stop that."]);
}

#[tokio::test]
async fn the_loop_guard_leaves_progress_alone_and_counts_what_changes_nothing() {
    let counter = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let told = Scenario::new((0..9).map(|_| Reply::call("work", json!({}))).chain([Reply::text("done")]))
        .build(move |builder| {
            let counter = std::sync::Arc::clone(&counter);
            builder.tool(tool("work", move |_, _| {
                let n = counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Box::pin(async move { Ok(n.to_string().into()) })
            }))
        })
        .hooks(|agent| {
            zidane::agent::LoopGuard::new().attach(agent);
        })
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::Stop);
    let told = Scenario::new((0..9).map(|n| Reply::call("edit", json!({})).and_text(n.to_string())))
        .build(|builder| {
            let tries = std::sync::atomic::AtomicU64::new(0);
            builder.tool(tool("edit", move |_, cx| {
                let n = tries.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Box::pin(async move {
                    cx.report_outcome(ToolOutcome::Noop)?;
                    Ok(format!("nothing to change, try {n}").into())
                })
            }))
        })
        .hooks(|agent| {
            zidane::agent::LoopGuard::new().steer_at(0).stop_at(3).attach(agent);
        })
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::LoopGuard);
    assert_eq!(told.outcome().stats.turns, 3);
}

#[tokio::test]
async fn the_loop_guard_sees_through_a_cycle_of_two() {
    let told = Scenario::new((0..20).map(|n| Reply::call(if n % 2 == 0 { "ask" } else { "tell" }, json!({}))))
        .build(|builder| {
            builder
                .tool(tool("ask", |_, _| Box::pin(async { Ok("a".into()) })))
                .tool(tool("tell", |_, _| Box::pin(async { Ok("b".into()) })))
        })
        .hooks(|agent| {
            zidane::agent::LoopGuard::new().steer_at(0).stop_at(3).attach(agent);
        })
        .tell()
        .await;
    assert_eq!(told.outcome().stop, StopCause::LoopGuard);
    assert_eq!(told.outcome().stats.turns, 5);
}

// Fallback models.

#[tokio::test(start_paused = true)]
async fn another_model_answers_when_the_usual_one_cannot() {
    use zidane::testing::ScriptedProvider;
    let spare = ScriptedProvider::new([Reply::text("from the spare")]).id("spare");
    let asked = spare.clone();
    let told = Scenario::new([
        Reply::fails(ProviderErrorKind::Overloaded),
        Reply::fails(ProviderErrorKind::Overloaded),
        Reply::text("back again"),
    ])
    .build(move |builder| builder.retry(RetryPolicy::default().max_retries(1)).fallback(spare.clone(), "spare-model"))
    .hooks(|agent| {
        agent.follow_up("And now?").unwrap();
    })
    .tell()
    .await;
    assert_eq!(told.transcript(), ["prompt: Go", "model: from the spare", "follow_up: And now?", "model: back again"]);
    assert_eq!(asked.requests()[0].head.model, "spare-model");
    let usage = &told.outcome().stats.turn_usage;
    assert_eq!(
        (usage[0].provider.as_str(), usage[0].requested_model.as_str(), usage[0].attempts),
        ("spare", "spare-model", 3)
    );
    assert_eq!((usage[1].provider.as_str(), usage[1].attempts), ("scripted", 1));
}

#[tokio::test]
async fn only_the_kinds_named_and_only_before_output_fall_back() {
    use zidane::testing::ScriptedProvider;
    for first in
        [Reply::fails(ProviderErrorKind::Invalid), Reply::text("Half").then_error(cut(ProviderErrorKind::Overloaded))]
    {
        let spare = ScriptedProvider::new([Reply::text("never")]);
        let asked = spare.clone();
        let told = Scenario::new([first])
            .build(move |builder| builder.retry(RetryPolicy::never()).fallback(spare.clone(), "spare"))
            .tell()
            .await;
        assert!(told.result.is_err());
        assert!(asked.requests().is_empty());
    }
}

// Reasoning that an API refuses.

#[tokio::test]
async fn refused_reasoning_is_dropped_once_and_stays_dropped() {
    let refusal = || {
        let text = "messages.1.content.0: Invalid `signature` in `thinking` block: bound to a different conversation";
        Reply::error(ProviderError::new(ProviderErrorKind::Invalid, "scripted", text))
    };
    let told = Scenario::new([
        Reply::empty().and_thinking("Hm.", Some("sig")).and_text("One."),
        refusal(),
        Reply::text("Two."),
        Reply::empty().and_thinking("Hm again.", Some("sig2")).and_text("Three."),
        Reply::text("Four."),
    ])
    .model(|model| model.allow_prefix_breaks())
    .hooks(|agent| {
        for text in ["2", "3", "4"] {
            agent.follow_up(text).unwrap();
        }
    })
    .tell()
    .await;
    assert_eq!(told.outcome().text, "Four.");
    let thoughts: Vec<usize> = told
        .model
        .requests()
        .iter()
        .map(|request| {
            let blocks = request.turns.iter().flat_map(|turn| &turn.content);
            blocks.filter(|block| matches!(block, SessionContentBlock::Thinking(_))).count()
        })
        .collect();
    assert_eq!(thoughts, [0, 1, 0, 0, 1], "the refused reasoning never goes again, later reasoning does");
    assert!(told.stored().contains("\"sig\""), "the session keeps it");
    let told = Scenario::new([refusal(), refusal(), Reply::text("never")]).tell().await;
    assert!(matches!(&told.error().kind, RunErrorKind::Provider(error) if error.refuses_reasoning()));
    assert_eq!(told.model.requests().len(), 2);
}

// Long output.

#[tokio::test]
async fn long_output_is_cut_on_request_and_kept_whole() {
    use zidane::agent::OutputSpill;
    use zidane::session::{BlobStore as _, MemoryBlobStore};
    let blobs = std::sync::Arc::new(MemoryBlobStore::new());
    let kept = blobs.clone();
    let told = Scenario::new([Reply::call("read", json!({})).and_call("echo", json!({})), Reply::text("ok")])
        .build(move |builder| {
            let read = tool("read", |_, _| Box::pin(async { Ok(format!("start{}end", "é".repeat(1000)).into()) }));
            builder.tool(read).tool(echo()).output_spill(OutputSpill::new(21, blobs.clone()))
        })
        .tell()
        .await;
    let results: Vec<_> = told.outcome().turns[2].tool_results().cloned().collect();
    let text = zidane::types::tool_result_to_text(&results[0].output).into_owned();
    assert!(text.starts_with("starté") && text.ends_with("éend"), "{text}");
    assert!(text.contains("bytes left out here; all 2008 are kept as ref "), "{text}");
    let key = text.split("ref ").nth(1).unwrap().split(']').next().unwrap();
    let whole = kept.get(key, 1 << 20).await.unwrap().unwrap();
    assert_eq!(whole.len(), 2008);
    assert_eq!(results[1].output, "{}".into());
}

// Row 23: the conversation nears the window, or is refused as too long.

fn long_talk() -> Vec<SessionTurn> {
    let turn = |n: usize| {
        let (role, origin) =
            if n.is_multiple_of(2) { (Role::User, TurnOrigin::Prompt) } else { (Role::Assistant, TurnOrigin::Model) };
        SessionTurn::new(n.to_string(), role, origin, vec![SessionContentBlock::text("abc ".repeat(100))])
    };
    (0..6).map(turn).collect()
}

#[tokio::test]
async fn row_23_a_summary_stands_in_before_the_window_is_full() {
    let told = Scenario::new([Reply::text("Abc."), Reply::call("echo", json!({})), Reply::text("Done.")])
        .history(long_talk())
        .build(|builder| builder.tool(echo()).compaction(Compaction::new().tokens(500).keep(10)))
        .tell_all()
        .await;
    let transcript = told.transcript();
    assert!(transcript[0].starts_with("summary: This is a summary") && transcript[0].ends_with("Abc."));
    assert_eq!(transcript[1..], ["prompt: Go", "model: call echo {}", "results: ok {}", "model: Done."]);
    assert_eq!(told.outcome().stats.turns, 2);
}

#[tokio::test]
async fn row_23_a_refused_conversation_is_sent_once_more() {
    let refusal = || Reply::fails(ProviderErrorKind::ContextOverflow);
    let build = |builder: AgentBuilder| builder.compaction(Compaction::new().keep(10));
    let told = Scenario::new([refusal(), Reply::text("Abc."), Reply::text("Done.")]);
    let told = told.history(long_talk()).build(build).tell_all().await;
    assert_eq!(told.outcome().text, "Done.");
    let told = Scenario::new([refusal(), Reply::text("Abc."), refusal()]);
    let told = told.history(long_talk()).build(build).tell_all().await;
    assert!(matches!(&told.error().kind, RunErrorKind::Provider(e) if e.kind == ProviderErrorKind::ContextOverflow));
    let told = Scenario::new([refusal()]).history(long_talk()).tell_all().await;
    assert_eq!((told.model.requests().len(), told.agent.history().len()), (1, 7), "never without the option");
}
