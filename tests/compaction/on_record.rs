//! Compaction in runs whose steps are recorded: nothing on record is asked for again.

use super::*;

fn compacting(builder: AgentBuilder) -> AgentBuilder {
    builder.tool(echo()).compaction(Compaction::new().tokens(1_000).keep(200))
}

fn origins(told: &Told) -> Vec<TurnOrigin> {
    told.agent.history().iter().map(|turn| turn.origin).collect()
}

#[tokio::test]
async fn compactions_are_on_record() {
    let told = Scenario::new([
        Reply::text("Short."),
        Reply::call("echo", json!({ "text": words(600) })).without_usage(),
        Reply::call("echo", json!({ "text": words(200) })).without_usage(),
        Reply::text("Shorter."),
        Reply::text("End.").usage(used(300, 10)),
    ])
    .history(talk(5))
    .build(compacting)
    .tell_all()
    .await;
    assert_eq!(told.outcome().text, "End.");
    assert_eq!(told.events.iter().filter(|event| event.starts_with("history:replaced threshold")).count(), 2);
    // What is in the way at first is one pair that is larger than everything before it.
    assert_eq!(told.events.iter().filter(|event| event.starts_with("compaction:failed threshold too")).count(), 1);
    assert_eq!(origins(&told), [TurnOrigin::Summary, TurnOrigin::Model, TurnOrigin::Results, TurnOrigin::Model]);
}

#[tokio::test]
async fn a_refusal_and_what_came_of_it_are_on_record() {
    let told = Scenario::new([too_long(), Reply::text("Short."), Reply::call("echo", json!({})), Reply::text("End.")])
        .history(talk(3))
        .build(compacting)
        .tell_all()
        .await;
    assert_eq!(told.outcome().stats.turns, 2);
    assert_eq!(told.events.iter().filter(|event| event.starts_with("history:replaced overflow")).count(), 1);
}

#[tokio::test]
async fn a_summary_that_failed_is_on_record() {
    let told =
        Scenario::new([Reply::fails(ProviderErrorKind::Auth), Reply::call("echo", json!({})), Reply::text("End.")])
            .history(talk(5))
            .build(compacting)
            .tell_all()
            .await;
    assert_eq!(told.outcome().text, "End.");
    assert_eq!(told.events.iter().filter(|event| event.starts_with("compaction:failed")).count(), 1);

    let told = Scenario::new([too_long(), Reply::fails(ProviderErrorKind::Auth)])
        .history(talk(3))
        .build(compacting)
        .tell_all()
        .await;
    assert!(
        matches!(&told.error().kind, RunErrorKind::Provider(error) if error.kind == ProviderErrorKind::ContextOverflow)
    );
}

#[tokio::test]
async fn a_run_goes_on_by_the_rules_it_began_with() {
    use zidane::durable::{DurableRuntime, StepKind};
    use zidane::testing::StepJournal;
    let run = |journal: StepJournal, replies: Vec<Reply>, policy: Option<Compaction>| async move {
        let model = ScriptedProvider::new(replies);
        let mut builder =
            builder(&model).history(talk(5)).tool(echo()).durable(Arc::new(journal) as Arc<dyn DurableRuntime>);
        if let Some(policy) = policy {
            builder = builder.compaction(policy);
        }
        builder.build().unwrap().run("Go.").run_id("run").await
    };
    let journal = StepJournal::new();
    let replies = || vec![Reply::text("Short."), Reply::call("echo", json!({})), Reply::text("End.")];
    run(journal.clone(), replies(), Some(Compaction::new().tokens(1_000).keep(200))).await.unwrap();
    let keys = journal.keys("run");
    assert_eq!(keys.iter().filter(|key| key.name == "t1/compact").count(), 1);
    for kept in 1..keys.len() {
        let asked = keys[..kept].iter().filter(|key| key.kind == StepKind::Model).count();
        for policy in [None, Some(Compaction::new().tokens(1)), Some(Compaction::new())] {
            let outcome = run(journal.prefix(kept), replies().split_off(asked), policy).await.unwrap();
            assert_eq!(outcome.text, "End.", "from {kept} of {}", keys.len());
        }
    }
}
