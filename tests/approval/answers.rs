//! Answers, and those that cannot be taken.

use std::sync::Arc;

use serde_json::json;
use zidane::agent::{AnswerError, DeferredResult, Limits, Spawn};
use zidane::hooks::ToolGate;
use zidane::session::MemorySessionStore;
use zidane::testing::{Reply, ScriptedProvider, validate_transcript};
use zidane::tool::ToolOutput;
use zidane::types::ToolStatus;
use zidane::{Agent, RunErrorKind, StopCause};

use crate::harness::{Notes, line, tool};
use crate::{builder, deferred, deferring, kept, mixed, statuses};

fn refused(result: Result<zidane::RunOutcome, zidane::RunError>) -> (String, AnswerError) {
    match result.unwrap_err().kind {
        RunErrorKind::Answer { call_id, error } => (call_id, error),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn answers_that_do_not_fit_do_nothing() {
    let model = ScriptedProvider::new([mixed(), Reply::text("Done.")]);
    let notes = Notes::default();
    let store = Arc::new(MemorySessionStore::new());
    let agent = kept(&model, &notes, &store);
    let calls = deferred(agent.run("Go").await.unwrap().stop);
    let first = calls[0].clone();
    let before = agent.session().await.unwrap().unwrap();
    assert_eq!(before.deferred, calls, "another process finds them in the session");
    for (answers, call, error) in [
        (vec![DeferredResult::approve("call_9", &*first.digest)], "call_9", AnswerError::Unknown),
        (vec![DeferredResult::deny("", "no")], "", AnswerError::Unknown),
        (vec![first.approve(), first.deny("no")], "call_1", AnswerError::Twice),
        (vec![DeferredResult::approve("call_1", "")], "call_1", AnswerError::Changed),
        (vec![first.approve(), DeferredResult::approve("call_3", &*first.digest)], "call_3", AnswerError::Changed),
        (vec![DeferredResult::result("call_2", "mine")], "call_2", AnswerError::Answered),
        (vec![DeferredResult::deny("call_4", "no")], "call_4", AnswerError::NotAsked),
    ] {
        assert_eq!(refused(agent.resume(answers).await), (call.to_owned(), error));
    }
    assert_eq!(agent.session().await.unwrap().unwrap(), before, "nothing was stored");
    assert_eq!((notes.all().len(), model.requests().len()), (1, 1), "nothing was run or sent");
    match agent.run("And?").resume([first.approve()]).abandon(true).await.unwrap_err().kind {
        RunErrorKind::Pending { run_id, calls } => assert_eq!((run_id, calls.len()), (first_run(&before), 2)),
        other => panic!("{other}"),
    }
    let outcome = agent.resume(calls.iter().map(|call| call.approve())).await.unwrap();
    assert_eq!(outcome.text, "Done.");
    // An answer that comes again.
    assert_eq!(refused(agent.resume([first.approve()]).await), ("call_1".into(), AnswerError::Answered));
    assert_eq!(notes.all().len(), 4);
}

fn first_run(session: &zidane::session::Session) -> String {
    session.runs[0].id.clone()
}

#[tokio::test]
async fn answers_come_a_few_at_a_time_and_what_is_after_them_goes_on() {
    for store in [None, Some(Arc::new(MemorySessionStore::new()))] {
        let model = ScriptedProvider::new([mixed(), Reply::text("Done.")]);
        let notes = Notes::default();
        let mut building = builder(&model, &notes);
        if let Some(store) = &store {
            building = building.session_store(Arc::clone(store));
        }
        let agent = deferring(building.build().unwrap());
        let outcome = agent.run("Go").run_id("r").await.unwrap();
        let calls = deferred(outcome.stop);
        assert_eq!(calls.iter().map(|call| &*call.call_id).collect::<Vec<_>>(), ["call_1", "call_3"]);
        let history = agent.history();
        validate_transcript(history.iter()).unwrap();

        let outcome = agent.resume([calls[1].approve()]).await.unwrap();
        assert_eq!(deferred(outcome.stop), calls[..1]);
        assert!(outcome.turns.is_empty() && outcome.stats.turns == 0);
        validate_transcript(agent.history().iter()).unwrap();
        assert_eq!(statuses(agent.history().last().unwrap()), [ToolStatus::Ok, ToolStatus::Ok]);

        let outcome = agent.resume([calls[0].approve()]).await.unwrap();
        assert_eq!(outcome.stop, StopCause::Stop);
        let results = "ok ask {\"n\":1} | ok side {\"n\":2} | ok ask {\"n\":3} | ok late {\"n\":4}";
        let lines: Vec<_> = outcome.turns.iter().map(|turn| line(turn)).collect();
        assert_eq!(lines, [format!("results: {results}"), "model: Done.".into()]);
        assert_eq!(
            notes.all(),
            ["side {\"n\":2} r:call_2", "ask {\"n\":3} r:call_3", "ask {\"n\":1} r:call_1", "late {\"n\":4} r:call_4"],
            "each once, with the key it had"
        );
        assert_eq!(model.requests().len(), 2);
        if store.is_some() {
            let session = agent.session().await.unwrap().unwrap();
            assert!(session.deferred.is_empty() && session.open.is_empty());
            let told: Vec<_> = session.turns.iter().map(|turn| line(turn)).collect();
            assert_eq!(told, agent.history().iter().map(line).collect::<Vec<_>>());
            let resumed: Vec<_> = session.runs.iter().map(|run| run.resumes.len()).collect();
            assert_eq!(resumed, [0, 1, 1]);
        }
    }
}

#[tokio::test]
async fn an_approval_may_change_the_input() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Path {
        path: String,
    }
    let model = ScriptedProvider::new([Reply::call("open", json!({"path": "/etc"})), Reply::text("Done.")]);
    let open = zidane::tool_fn("open", "Opens", |input: Path, _cx| async move { Ok(input.path) });
    let agent = Agent::builder().provider(model.clone()).model("test").tool(open).build().unwrap();
    agent.hooks().on::<ToolGate>(|cx| cx.defer("look"));
    let calls = deferred(agent.run("Go").await.unwrap().stop);
    let (id, error) = refused(agent.resume([calls[0].approve_with(json!({"path": 1}))]).await);
    assert!(id == "call_1" && matches!(&error, AnswerError::Input(text) if text.contains("path")), "{error}");
    let outcome = agent.resume([calls[0].approve_with(json!({"path": "/tmp"}))]).await.unwrap();
    assert_eq!(line(&outcome.turns[0]), "results: ok /tmp");
    let result = outcome.turns[0].tool_results().next().unwrap();
    assert_eq!(result.input, Some(json!({"path": "/tmp"})));
}

#[tokio::test]
async fn an_approval_stands_for_the_gate_that_deferred_and_for_no_other() {
    let replies = || ScriptedProvider::new([Reply::call("ask", json!({"n": 1})), Reply::text("Done.")]);
    let notes = Notes::default();
    // One blocks.
    let agent = deferring(builder(&replies(), &notes).build().unwrap());
    let calls = deferred(agent.run("Go").await.unwrap().stop);
    let seen = notes.clone();
    agent.hooks().on::<ToolGate>(move |cx| {
        seen.add(format!("approved {}", cx.is_approved()));
        cx.block("not on Sundays");
    });
    let outcome = agent.resume([calls[0].approve()]).await.unwrap();
    assert_eq!(line(&outcome.turns[0]), "results: blocked! not on Sundays");
    assert_eq!(notes.all(), ["approved true"]);
    // One changes the input: nobody has approved that.
    let agent = deferring(builder(&replies(), &notes).build().unwrap());
    agent.hooks().on::<ToolGate>(|cx| {
        if cx.input()["n"] == 1 {
            cx.rewrite(json!({"n": 2}));
        }
    });
    let calls = deferred(agent.run("Go").await.unwrap().stop);
    assert_eq!(calls[0].input, json!({"n": 2}), "what is approved is what the gates made of it");
    let again = deferred(agent.resume([calls[0].approve_with(json!({"n": 1}))]).await.unwrap().stop);
    assert_eq!((&again[0].input, again[0].reason.is_empty()), (&json!({"n": 2}), false));
    assert_eq!(notes.all().len(), 1);
    agent.resume([again[0].approve()]).await.unwrap();
    assert_eq!(notes.all().len(), 2);
    // A later gate blocks: nobody need be asked.
    let agent = deferring(builder(&replies(), &notes).build().unwrap());
    agent.hooks().on::<ToolGate>(|cx| {
        assert!(cx.is_deferred());
        cx.substitute("made up");
        cx.block("never");
        cx.defer("too late");
    });
    let outcome = agent.run("Go").await.unwrap();
    assert_eq!((outcome.stop, outcome.denials.len()), (StopCause::Stop, 1));
}

#[tokio::test]
async fn tools_that_are_gone_and_limits_answer_the_call() {
    let model = ScriptedProvider::new([Reply::call("ask", json!({"n": 1})), Reply::text("Done.")]);
    let notes = Notes::default();
    let agent = deferring(builder(&model, &notes).build().unwrap());
    let calls = deferred(agent.run("Go").await.unwrap().stop);
    let history: Vec<_> = agent.history().iter().cloned().collect();
    let without = Agent::builder().provider(model.clone()).model("test").history(history).build().unwrap();
    let outcome = without.resume([calls[0].approve()]).await.unwrap();
    assert_eq!(statuses(&outcome.turns[0]), [ToolStatus::UnknownTool]);
    let outcome = agent.resume([calls[0].approve()]).limits(Limits::none().tool_calls(0)).await.unwrap();
    assert!(matches!(outcome.stop, StopCause::Limit(_)));
    assert_eq!(statuses(&outcome.turns[0]), [ToolStatus::NotStarted]);
    assert!(notes.all().is_empty());
}

#[tokio::test]
async fn a_history_that_is_handed_on_keeps_what_was_done() {
    let model = ScriptedProvider::new([mixed()]);
    let notes = Notes::default();
    let first = deferring(builder(&model, &notes).build().unwrap());
    let calls = deferred(first.run("Go").await.unwrap().stop);
    let turns: Vec<_> = first.history().iter().cloned().collect();
    for kept in [false, true] {
        let model = ScriptedProvider::new([Reply::text("Done.")]);
        let mut building = builder(&model, &notes).history(turns.clone());
        if kept {
            building = building.session_store(Arc::new(MemorySessionStore::new()));
        }
        let second = building.build().unwrap();
        // The turns alone do not say that nobody was asked about the last one: it takes an answer like the others.
        let outcome = second.resume(calls.iter().map(|call| call.deny("no"))).await.unwrap();
        let last = deferred(outcome.stop);
        assert_eq!(last.len(), 1);
        let outcome = second.resume([last[0].approve()]).await.unwrap();
        assert_eq!(
            line(&outcome.turns[0]),
            "results: blocked! no | ok side {\"n\":2} | blocked! no | ok late {\"n\":4}"
        );
        validate_transcript(second.history().iter()).unwrap();
    }
}

#[tokio::test]
async fn a_call_that_a_tool_makes_cannot_wait() {
    let model = ScriptedProvider::new([Reply::call("outer", json!({})), Reply::text("Done.")]);
    let notes = Notes::default();
    let outer = tool("outer", |_, cx| Box::pin(async move { Ok(cx.run_tool("ask", json!({"n": 1})).await?) }));
    let agent = deferring(builder(&model, &notes).tool(outer).build().unwrap());
    let outcome = agent.run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop);
    assert!(line(&outcome.turns[2]).contains("it would have to wait"), "{}", line(&outcome.turns[2]));
    assert!(notes.all().is_empty());
}

#[tokio::test]
async fn what_is_given_up_is_answered_and_the_rest_goes_on() {
    let model = ScriptedProvider::new([mixed(), Reply::text("Done.")]);
    let notes = Notes::default();
    let agent = deferring(builder(&model, &notes).build().unwrap());
    let calls = deferred(agent.run("Go").await.unwrap().stop);
    let outcome = agent.resume([calls[0].result(ToolOutput::from("by hand"))]).abandon(true).await.unwrap();
    assert_eq!(statuses(&outcome.turns[0]), [ToolStatus::Ok, ToolStatus::Ok, ToolStatus::NotStarted, ToolStatus::Ok]);
    assert_eq!(notes.all().len(), 2);
}

#[tokio::test]
async fn a_call_of_a_sub_agent_cannot_wait() {
    let notes = Notes::default();
    let ran = notes.clone();
    let child = move || {
        builder(&ScriptedProvider::new([Reply::call("ask", json!({"n": 1})), Reply::text("It was refused.")]), &ran)
    };
    let model = ScriptedProvider::new([Reply::call("sub", json!({"task": "Ask."})), Reply::text("Done.")]);
    let spawn = Spawn::new("sub", "Gives a task to another agent", child);
    let agent = deferring(builder(&model, &notes).tool(spawn).build().unwrap());
    let outcome = agent.run("Go").await.unwrap();
    assert_eq!(outcome.stop, StopCause::Stop);
    assert!(line(&outcome.turns[2]).contains("It was refused."), "{}", line(&outcome.turns[2]));
    assert!(notes.all().is_empty(), "the root's gate holds, and nothing runs");
    // The call that would spawn it can wait like any other.
    let agent =
        builder(&ScriptedProvider::new([Reply::call("sub", json!({"task": "Ask."})), Reply::text("Done.")]), &notes)
            .tool(Spawn::new("sub", "Gives a task to another agent", || {
                Agent::builder().provider(ScriptedProvider::new([Reply::text("Here.")])).model("test")
            }))
            .build()
            .unwrap();
    agent.hooks().on::<ToolGate>(|cx| cx.defer("look"));
    let calls = deferred(agent.run("Go").await.unwrap().stop);
    let outcome = agent.resume([calls[0].approve()]).await.unwrap();
    assert_eq!(outcome.text, "Done.");
    assert_eq!(zidane::types::walk_turns(&outcome.stats).count(), 2, "the child's usage is in the run that went on");
}
