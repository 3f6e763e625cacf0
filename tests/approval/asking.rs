//! The helper that asks somebody.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use zidane::hooks::{Approval, Approvals, ToolGate};
use zidane::testing::{Reply, ScriptedProvider};
use zidane::types::ToolStatus;
use zidane::{RunOutcome, StopCause};

use crate::harness::{Notes, line};
use crate::{builder, deferred, statuses};

fn thrice() -> ScriptedProvider {
    let call = |n| Reply::call("ask", json!({"n": n}));
    ScriptedProvider::new([call(1), call(2), call(2).and_call("side", json!({})), Reply::text("Done.")])
}

fn results(outcome: &RunOutcome) -> Vec<ToolStatus> {
    outcome.turns.iter().flat_map(|turn| statuses(turn)).collect()
}

#[tokio::test]
async fn allowed_once_for_the_session_or_denied() {
    use ToolStatus::{Blocked, Ok as Done};
    for (answer, asked, came_to) in [
        (Approval::Once, 4, vec![Done, Done, Done, Done]),
        (Approval::Session, 2, vec![Done, Done, Done, Done]),
        (Approval::Deny("no".into()), 4, vec![Blocked, Blocked, Blocked, Blocked]),
    ] {
        let (notes, ran) = (Notes::default(), Notes::default());
        let agent = builder(&thrice(), &ran).build().unwrap();
        let (log, given) = (notes.clone(), answer.clone());
        Approvals::ask(move |request| {
            log.add(format!("{} {}", request.name, request.input));
            let given = given.clone();
            async move { Ok::<_, std::io::Error>(given) }
        })
        .attach(agent.hooks());
        let outcome = agent.run("Go").await.unwrap();
        assert_eq!((notes.all().len(), results(&outcome)), (asked, came_to), "{answer:?}");
        assert_eq!(ran.all().len(), if matches!(answer, Approval::Deny(_)) { 0 } else { 4 });
        if matches!(answer, Approval::Deny(_)) {
            assert_eq!(line(&outcome.turns[2]), "results: blocked! no");
        }
    }
}

#[tokio::test]
async fn the_key_says_what_is_allowed_together_and_only_what_is_asked_about() {
    let (notes, ran) = (Notes::default(), Notes::default());
    let agent = builder(&thrice(), &ran).build().unwrap();
    let log = notes.clone();
    let approvals = Approvals::ask(move |request| {
        log.add(request.input.to_string());
        async { Ok::<_, std::io::Error>(Approval::Session) }
    })
    .only(|request| request.name == "ask")
    .key(|request| request.input.to_string());
    approvals.clone().attach(agent.hooks());
    agent.run("Go").await.unwrap();
    assert_eq!(notes.all(), ["{\"n\":1}", "{\"n\":2}"]);
    approvals.revoke("another");
    assert!(format!("{approvals:?}").contains("allowed: 2"));
    approvals.revoke("s");
    assert!(format!("{approvals:?}").contains("allowed: 0"));
}

#[tokio::test(start_paused = true)]
async fn without_an_answer_the_call_is_blocked() {
    #[derive(Clone, Copy, Debug)]
    enum Fault {
        Silence,
        Error,
        Panic,
    }
    for fault in [Fault::Silence, Fault::Error, Fault::Panic] {
        let ran = Notes::default();
        let agent = builder(&thrice(), &ran).build().unwrap();
        Approvals::ask(move |_| async move {
            match fault {
                Fault::Silence => std::future::pending().await,
                Fault::Error => Err("token sk-123 is wrong"),
                Fault::Panic => panic!("broken"),
            }
        })
        .timeout(Duration::from_secs(5))
        .attach(agent.hooks());
        let outcome = agent.run("Go").await.unwrap();
        assert_eq!(results(&outcome), [ToolStatus::Blocked; 4], "{fault:?}");
        assert!(ran.all().is_empty());
        assert!(outcome.turns.iter().all(|turn| !line(turn).contains("sk-123")), "the model reads no cause");
    }
}

#[tokio::test]
async fn a_call_that_gates_see_twice_is_asked_about_once() {
    let (notes, ran) = (Notes::default(), Notes::default());
    let agent = builder(&thrice(), &ran).build().unwrap();
    agent.hooks().on::<ToolGate>(|cx| {
        if cx.input()["n"] == 1 {
            cx.rewrite(json!({"n": 7}));
        }
    });
    let log = notes.clone();
    Approvals::ask(move |request| {
        log.add(request.input.to_string());
        async { Ok::<_, std::io::Error>(Approval::Once) }
    })
    .attach(agent.hooks());
    agent.run("Go").await.unwrap();
    assert_eq!(notes.all(), ["{\"n\":7}", "{\"n\":2}", "{\"n\":2}", "{}"]);
}

#[tokio::test]
async fn calls_are_left_to_the_host_until_it_allows_them() {
    let ran = Notes::default();
    let agent = builder(&thrice(), &ran).build().unwrap();
    let approvals = Approvals::defer().only(|request| request.name == "ask");
    approvals.clone().attach(agent.hooks());
    let calls = deferred(agent.run("Go").await.unwrap().stop);
    assert_eq!(calls[0].reason, "This call needs to be approved.");
    let calls = deferred(agent.resume([calls[0].approve()]).await.unwrap().stop);
    approvals.allow("s", "ask");
    let outcome = agent.resume([calls[0].approve()]).await.unwrap();
    assert_eq!((outcome.stop, ran.all().len()), (StopCause::Stop, 4));
}

#[tokio::test]
async fn an_abort_does_not_wait_for_an_answer() {
    let ran = Notes::default();
    let agent = builder(&thrice(), &ran).build().unwrap();
    let handle = Arc::new(agent.handle().clone());
    Approvals::ask(move |_| {
        handle.abort();
        std::future::pending::<Result<Approval, std::io::Error>>()
    })
    .attach(agent.hooks());
    let outcome = tokio::time::timeout(Duration::from_secs(5), agent.run("Go")).await.unwrap().unwrap();
    assert_eq!((outcome.stop, ran.all().len()), (StopCause::Aborted, 0));
}
