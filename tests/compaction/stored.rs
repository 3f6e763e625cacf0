//! Compaction of a conversation that is kept in a store.

use super::*;

/// A run that reads twelve things of 90 tokens, which is compacted twice or so.
fn reader(store: &FaultyStore) -> (Agent, ScriptedProvider) {
    let calls = (0..12).map(|n| Reply::call("read", json!({ "n": n })).without_usage());
    let model = ScriptedProvider::new(calls.chain(std::iter::repeat_n(says(5), 12)));
    let read = tool("read", |_, _| Box::pin(async { Ok(words(90).into()) }));
    let builder = builder(&model).session_id("s").session_store(store.clone()).tool(read);
    (builder.compaction(policy(&writer("Reading on.")).tokens(500)).build().unwrap(), model)
}

async fn same_in_store(agent: &Agent) {
    let session = agent.session().await.unwrap().unwrap();
    assert!(session.notes.is_empty() && session.open.is_empty());
    assert_eq!(settled(session.history().iter()), settled(agent.history().iter()));
    validate_transcript(session.turns.iter().map(|turn| &***turn)).unwrap();
    validate_transcript(agent.history().iter()).unwrap();
}

#[tokio::test]
async fn a_summary_is_an_entry_and_the_session_is_taken_up_with_it() {
    let store = FaultyStore::default();
    let (agent, model) = reader(&store);
    let outcome = agent.run("Read.").await.unwrap();
    same_in_store(&agent).await;
    let session = agent.session().await.unwrap().unwrap();
    assert!(session.summaries.len() >= 2, "{}", session.summaries.len());
    assert_eq!(session.turns.len(), 26, "all turns are kept");
    assert_eq!(outcome.turns.len(), 26 + session.summaries.len());
    assert_eq!(store.appends()[0], ["start", "prompt"]);
    let appends = store.appends().concat();
    let place = |kind: &str| appends.iter().position(|entry| entry == kind).unwrap();
    assert!(place("summary") > place("result call_3"));

    // Taken up by another agent, which sends what this one would have sent.
    let (taken_up, again) = reader(&store);
    again.skip(12);
    taken_up.run("Next.").await.unwrap();
    same_in_store(&taken_up).await;
    let sent = again.requests()[0].turns.clone();
    assert!(is_summary(&sent[0]));
    let before = settled(agent.history().iter());
    assert_eq!(settled(&sent)[..before.len()], before);
    assert!(model.requests().len() == 13 && again.requests().len() == 1);
}

#[tokio::test]
async fn nothing_is_asked_on_what_is_not_stored() {
    for replies in [vec![says(5)], vec![too_long(), says(5)]] {
        let overflows = replies.len() == 2;
        let (model, store) = (ScriptedProvider::new(replies), FaultyStore::default());
        let policy = policy(&writer("Short.")).tokens(if overflows { 100_000 } else { 1_000 });
        let builder = builder(&model).session_id("s").session_store(store.clone()).history(talk(5));
        builder.compaction(policy).build().unwrap().run("Go.").await.unwrap();
        let appends = store.appends();
        assert_eq!(appends[1..], [vec!["start", "prompt"], vec!["summary"], vec!["model"], vec!["end"]]);
    }
}

#[tokio::test]
async fn whichever_append_fails_the_session_can_be_gone_on_with() {
    let (whole, appends) = {
        let store = FaultyStore::default();
        let (agent, _) = reader(&store);
        agent.run("Read.").await.unwrap();
        (agent.session().await.unwrap().unwrap().turns.len(), store.appends())
    };
    assert!(appends.iter().any(|append| append.contains(&"summary".to_owned())));
    for number in 0..appends.len() {
        for fault in [Fault::Refused, Fault::Unheard, Fault::Panics] {
            let store = FaultyStore::default().fail(number, fault);
            let (agent, _) = reader(&store);
            let error = agent.run("Read.").await.unwrap_err();
            assert!(matches!(error.kind, RunErrorKind::Session(_)), "{number}, {fault:?}: {error}");
            let outcome = agent.run("Go on.").await.unwrap();
            assert_eq!(outcome.stop, StopCause::Stop);
            same_in_store(&agent).await;
            let turns = agent.session().await.unwrap().unwrap().turns.len();
            assert!(turns > whole / 4, "{turns}");
        }
    }
}
