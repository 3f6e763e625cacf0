//! Random calls, deferrals and answers: each call runs at most once, and the conversation is valid at every instant.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use zidane::agent::DeferredResult;
use zidane::hooks::ToolGate;
use zidane::session::MemorySessionStore;
use zidane::testing::{Reply, ScriptedProvider, validate_transcript};
use zidane::types::{DeferredCall, ToolStatus};
use zidane::{Agent, StopCause};

use crate::builder;
use crate::harness::Notes;

/// A call: whether it runs alone, and whether it is deferred.
type Plan = Vec<(bool, bool)>;

fn agent(model: &ScriptedProvider, notes: &Notes, plan: &Plan, store: Option<&Arc<MemorySessionStore>>) -> Agent {
    let mut building = builder(model, notes);
    if let Some(store) = store {
        building = building.session_store(Arc::clone(store));
    }
    let agent = building.build().unwrap();
    let plan = plan.clone();
    agent.hooks().on::<ToolGate>(move |cx| {
        let n = usize::try_from(cx.input()["n"].as_u64().unwrap()).unwrap();
        if plan[n].1 {
            cx.defer("chance");
        }
    });
    agent
}

async fn told(plan: Plan, answers: Vec<(u8, u8)>, keep: bool) {
    let mut reply = Reply::text("Go.");
    for (n, (alone, _)) in plan.iter().enumerate() {
        reply = reply.and_call(if *alone { "late" } else { "side" }, json!({"n": n}));
    }
    let model = ScriptedProvider::new([reply, Reply::text("Done.")]);
    let (notes, store) = (Notes::default(), Arc::new(MemorySessionStore::new()));
    let store = keep.then_some(&store);
    let mut at_work = agent(&model, &notes, &plan, store);
    let mut outcome = at_work.run("Go").await.unwrap();
    let mut given: BTreeMap<String, u8> = BTreeMap::new();
    let mut answers = answers.into_iter().cycle();
    let mut old: Vec<DeferredCall> = Vec::new();
    while let StopCause::Deferred(calls) = outcome.stop {
        validate_transcript(at_work.history().iter()).unwrap();
        assert_eq!(model.requests().len(), 1, "nothing is sent while one is open");
        let ids: Vec<_> = calls.iter().map(|call| call.call_id.clone()).collect();
        assert!(ids.iter().all(|id| !given.contains_key(id)), "an answered call waits again");
        if keep {
            // Another process goes on.
            at_work = agent(&model, &notes, &plan, store);
            assert_eq!(at_work.session().await.unwrap().unwrap().deferred, calls);
        }
        for stale in &old {
            assert!(at_work.resume([stale.approve()]).await.is_err());
        }
        let (pick, kind) = answers.next().unwrap();
        let mut batch: Vec<DeferredResult> = Vec::new();
        for (index, call) in calls.iter().enumerate() {
            if index == usize::from(pick) % calls.len() || (pick >> (index % 8)) & 1 == 1 {
                let kind = (kind as usize + index) % 3;
                batch.push(match kind {
                    0 => call.approve(),
                    1 => call.deny("no"),
                    _ => call.result("by hand"),
                });
                given.insert(call.call_id.clone(), u8::try_from(kind).unwrap());
                old.push(call.clone());
            }
        }
        if pick % 2 == 0 {
            batch.reverse();
        }
        outcome = at_work.resume(batch).await.unwrap();
    }
    assert_eq!((outcome.stop, outcome.text.as_str()), (StopCause::Stop, "Done."));
    validate_transcript(at_work.history().iter()).unwrap();
    let results = at_work.history().turns()[2].clone();
    assert_eq!(results.tool_results().count(), plan.len());
    let mut ran = notes.all();
    ran.sort();
    let mut expected = Vec::new();
    for (n, ((alone, _), result)) in plan.iter().zip(results.tool_results()).enumerate() {
        let runs = given.get(&result.call_id).is_none_or(|kind| *kind == 0);
        let denied = given.get(&result.call_id) == Some(&1);
        assert_eq!(result.status, if denied { ToolStatus::Blocked } else { ToolStatus::Ok });
        if runs {
            let name = if *alone { "late" } else { "side" };
            expected.push(format!("{name} {{\"n\":{n}}} "));
        }
    }
    expected.sort();
    assert_eq!(ran.len(), expected.len(), "{ran:?}");
    assert!(ran.iter().zip(&expected).all(|(ran, expected)| ran.starts_with(expected)), "{ran:?} {expected:?}");
    let keys: std::collections::BTreeSet<_> =
        ran.iter().filter_map(|ran| ran.rsplit(' ').next()?.split(':').next()).collect();
    assert!(keys.len() <= 1, "all under the first run's name");
    if keep {
        let session = at_work.session().await.unwrap().unwrap();
        let stored: Vec<_> = session.turns.iter().map(|turn| turn.content.clone()).collect();
        assert_eq!(stored, at_work.history().iter().map(|turn| turn.content.clone()).collect::<Vec<_>>());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_call_runs_at_most_once(
        plan in proptest::collection::vec((any::<bool>(), any::<bool>()), 1..7),
        answers in proptest::collection::vec((any::<u8>(), any::<u8>()), 1..6),
        keep in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(told(plan, answers, keep));
    }
}
