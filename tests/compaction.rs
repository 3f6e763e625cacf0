//! Compaction: when it is due, what it keeps, what it costs, and that it never goes in circles. The scripted provider
//! refuses a request that does not begin with the one before it, unless it begins with another summary.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "harness/faulty.rs"]
mod faulty;
mod harness;
#[path = "compaction/on_record.rs"]
mod on_record;
#[path = "compaction/stored.rs"]
mod stored;

use std::sync::Arc;
use std::time::Duration;

use faulty::{Fault, FaultyStore, settled};
use futures::StreamExt as _;
use harness::{Notes, Scenario, Told, echo, tool};
use serde_json::json;
use zidane::agent::{Compaction, Limit, Limits};
use zidane::hooks::{CompactionFailed, HistoryReplaced};
use zidane::provider::{
    Capabilities, HistoryTurn, ProviderError, ProviderErrorKind, Rates, Resume, RetryPolicy, StreamEvent, UsageSnapshot,
};
use zidane::session::{SessionEntry, StoredSession, SummaryEntry, fold};
use zidane::testing::{EventRecorder, Reply, ScriptedProvider, VirtualClock, validate_transcript};
use zidane::types::{
    Media, NanoUsd, PromptPart, Role, SessionContentBlock, SessionTurn, TokenUsage, TurnFinishReason, TurnOrigin,
    UsageKind, fold_totals,
};
use zidane::{Agent, AgentBuilder, AgentEvent, RunErrorKind, StopCause};

const PREFACE: &str = "This is a summary of the conversation so far";

fn used(input: u64, output: u64) -> TokenUsage {
    TokenUsage { input, output, ..TokenUsage::default() }
}

/// A text of about so many tokens.
fn words(tokens: usize) -> String {
    "abc ".repeat(tokens)
}

fn says(tokens: usize) -> Reply {
    Reply::text(words(tokens)).without_usage()
}

fn too_long() -> Reply {
    Reply::fails(ProviderErrorKind::ContextOverflow)
}

fn writer(summary: &str) -> ScriptedProvider {
    ScriptedProvider::repeating(Reply::text(summary).usage(used(100, 10))).id("writer").allow_prefix_breaks()
}

/// Compacts at 1,000 tokens and keeps 200, with summaries of its own writer.
fn policy(writer: &ScriptedProvider) -> Compaction {
    Compaction::new().tokens(1_000).keep(200).model(writer.clone(), "small")
}

fn builder(model: &ScriptedProvider) -> AgentBuilder {
    Agent::builder().provider(model.clone()).model("large")
}

/// A conversation of `n` prompts and answers of 100 tokens each.
fn talk(n: usize) -> Vec<SessionTurn> {
    let turn = |id: String, role, origin| {
        let text = format!("{id} {}", words(99));
        let mut turn = SessionTurn::new(id, role, origin, vec![SessionContentBlock::text(text)]);
        turn.finish_reason = (role == Role::Assistant).then_some(TurnFinishReason::Stop);
        turn
    };
    (0..n)
        .flat_map(|i| {
            [
                turn(format!("p{i}"), Role::User, TurnOrigin::Prompt),
                turn(format!("a{i}"), Role::Assistant, TurnOrigin::Model),
            ]
        })
        .collect()
}

fn ids(turns: &[SessionTurn]) -> Vec<&str> {
    turns.iter().map(|turn| if turn.id.len() > 3 { "new" } else { turn.id.as_str() }).collect()
}

fn is_summary(turn: &SessionTurn) -> bool {
    turn.origin == TurnOrigin::Summary && turn.role == Role::User && turn.text().starts_with(PREFACE)
}

#[tokio::test]
async fn a_summary_stands_in_for_the_older_turns_when_the_conversation_nears_the_window() {
    let model = ScriptedProvider::new([Reply::text("Sure.").usage(used(300, 10)), Reply::text("Yes.")]);
    let writer = writer("The user says abc.");
    let share = Compaction::new().window(1_250).keep(200).model(writer.clone(), "small");
    let agent = builder(&model).history(talk(5)).compaction(share).build().unwrap();
    let recorder = EventRecorder::attach(&agent);
    let told = Notes::default();
    let note = told.clone();
    agent.hooks().on::<HistoryReplaced>(move |cx| {
        assert!(is_summary(cx.summary()) && cx.usage().kind == UsageKind::Compaction);
        let (before, after) = (cx.tokens_before(), cx.tokens_after());
        note.add(format!("{} through {} from {before} to {after}", cx.reason().as_str(), cx.through()));
    });
    let outcome = agent.run("Go on.").await.unwrap();

    let asked = &writer.requests()[0];
    assert_eq!((asked.head.model.as_str(), asked.head.tools.len(), asked.turns.len()), ("small", 0, 1));
    assert!(asked.head.system.as_deref().unwrap().contains("summar"));
    let record = asked.turns[0].text();
    assert!(record.contains("[user]\np0") && record.contains("[assistant]\na3") && !record.contains("a4"), "{record}");
    let sent = &model.requests()[0].turns;
    assert!(is_summary(&sent[0]) && sent[0].text().ends_with("\n\nThe user says abc."));
    assert_eq!(ids(&sent[1..]), ["a4", "new"], "the last 200 tokens, from a place that parts nothing");
    assert_eq!(told.all(), ["threshold through p4 from 1002 to 131"]);
    assert_eq!(recorder.count("history:replaced threshold"), 1);

    let usage: Vec<_> = outcome.stats.turn_usage.iter().map(|u| (u.kind, &*u.requested_model, &*u.provider)).collect();
    assert_eq!(usage, [(UsageKind::Compaction, "small", "writer"), (UsageKind::Turn, "large", "scripted")]);
    assert_eq!((outcome.stats.turns, outcome.stats.total_in, outcome.stats.total_out), (1, 400, 20));
    assert_eq!(outcome.stats.totals(), fold_totals(&outcome.stats));
    let added: Vec<_> = outcome.turns.iter().map(|turn| turn.origin).collect();
    assert_eq!(added, [TurnOrigin::Prompt, TurnOrigin::Summary, TurnOrigin::Model], "in the order they were made");
    assert_eq!(agent.history().turns()[0].usage.as_ref(), Some(&outcome.stats.turn_usage[0]));

    // Nothing moves until the next one; the scripted provider holds this request against the one before.
    agent.run("Again?").await.unwrap();
    assert_eq!(model.requests()[1].turns[..4], agent.history().iter().cloned().collect::<Vec<_>>()[..4]);
    assert_eq!(writer.requests().len(), 1);
}

#[tokio::test]
async fn nothing_happens_below_the_threshold_nor_without_opting_in() {
    let model = ScriptedProvider::new([Reply::text("Sure.")]);
    let writer = writer("never");
    let agent = builder(&model).history(talk(4)).compaction(policy(&writer)).build().unwrap();
    agent.run("Go on.").await.unwrap();
    let alone = ScriptedProvider::new([Reply::text("Sure.")]);
    let agent = builder(&alone).history(talk(50)).build().unwrap();
    agent.run("Go on.").await.unwrap();
    assert_eq!((writer.requests().len(), alone.requests()[0].turns.len()), (0, 101));
}

#[tokio::test]
async fn what_the_provider_reports_wins_over_the_estimate() {
    // Little text, and many tokens: a system prompt of the provider's own, say.
    let model = ScriptedProvider::new([
        Reply::text(words(10)).usage(TokenUsage {
            input: 100,
            cache_read: 500,
            cache_write: 290,
            output: 100,
            reasoning: None,
        }),
        Reply::text("Fine.").usage(used(300, 10)),
        Reply::text("Fine.").usage(used(400, 10)),
    ]);
    let writer = writer("Short.");
    let agent = builder(&model).history(talk(1)).compaction(policy(&writer)).build().unwrap();
    agent.run("One.").await.unwrap();
    assert!(writer.requests().is_empty(), "990 of 1,000");
    agent.run(words(20)).await.unwrap();
    assert_eq!(writer.requests().len(), 1, "990 reported and 20 since");
    // Now the report is 310, although the turns that were kept once came to 990.
    agent.run("Three.").await.unwrap();
    assert_eq!(writer.requests().len(), 1);
}

#[tokio::test]
async fn the_window_is_known_by_model_and_provider() {
    let model = ScriptedProvider::repeating(Reply::text("Sure.")).id("anthropic").allow_prefix_breaks();
    let writer = writer("Short.");
    let agent = |model_id: &str| {
        let policy = Compaction::new().share(0.1).model(writer.clone(), "small").keep(1_000);
        Agent::builder().provider(model.clone()).model(model_id).history(talk(110)).compaction(policy).build().unwrap()
    };
    // 22,000 tokens: a tenth of 200,000 is reached, a tenth of a million is not.
    agent("claude-haiku-4-5-20251001").run("Go.").await.unwrap();
    assert_eq!(writer.requests().len(), 1);
    agent("claude-opus-5").run("Go.").await.unwrap();
    assert_eq!(writer.requests().len(), 1);
}

#[tokio::test]
async fn a_tool_loop_outgrows_the_window_within_one_run() {
    let calls = (0..30).map(|n| Reply::call("read", json!({ "n": n })).without_usage());
    let model = ScriptedProvider::new(calls.chain([Reply::text("Done.")]));
    let writer = writer("Read a few things; go on reading.");
    let read = tool("read", |_, _| Box::pin(async { Ok(words(90).into()) }));
    let agent = builder(&model).tool(read).compaction(policy(&writer)).build().unwrap();
    let outcome = agent.run("Read everything.").await.unwrap();
    assert_eq!((outcome.stop.clone(), outcome.stats.turns), (StopCause::Stop, 31));
    let requests = model.requests();
    assert_eq!(requests.len(), 31);
    for request in &requests {
        validate_transcript(&request.turns).unwrap();
        // 10 pairs of about 100 come to the threshold.
        assert!(request.turns.len() <= 2 * 12, "{}", request.turns.len());
        assert!(!request.turns.iter().skip(1).any(is_summary));
    }
    let written = writer.requests();
    assert!((3..=6).contains(&written.len()), "{}", written.len());
    assert!(written[0].turns[0].text().contains("Read everything."), "the only prompt is summarised too");
    assert!(written[1].turns[0].text().contains("[summary of what came before]\nThis is a summary"));
    let made: Vec<_> = outcome.turns.iter().map(|turn| turn.id.as_str()).collect();
    assert_eq!(made.len(), 1 + 2 * 30 + 1 + written.len(), "no turn of the run is missing from its outcome");
    assert_eq!(made.iter().collect::<std::collections::HashSet<_>>().len(), made.len(), "nor there twice");
    let sides = outcome.stats.turn_usage.iter().filter(|usage| usage.kind == UsageKind::Compaction).count();
    assert_eq!(sides, written.len());
    validate_transcript(agent.history().iter()).unwrap();
}

#[tokio::test]
async fn a_reloaded_session_goes_on_where_the_agent_was() {
    let replies = || [says(50), says(50), says(50), Reply::text("End.")];
    let model = ScriptedProvider::new(replies());
    let writer = writer("Short.");
    let agent = builder(&model).history(talk(5)).compaction(policy(&writer)).build().unwrap();
    let through = Notes::default();
    let note = through.clone();
    agent.hooks().on::<HistoryReplaced>(move |cx| note.add(cx.through()));
    let mut entries: Vec<SessionEntry> = talk(5).into_iter().map(SessionEntry::from).collect();
    for prompt in ["One.", "Two."] {
        for turn in agent.run(prompt).await.unwrap().turns {
            entries.push(match turn.origin {
                TurnOrigin::Summary => SessionEntry::Summary(SummaryEntry::new(through.all()[0].as_str(), turn)),
                _ => SessionEntry::Turn(turn),
            });
        }
    }
    assert_eq!(through.all().len(), 1);
    let stored = StoredSession::new(entries);
    let session = fold("s", stored);
    assert!(session.notes.is_empty());
    let live: Vec<_> = agent.history().turns().to_vec();
    assert_eq!(session.history().turns(), live);
    assert_eq!(session.turns.len(), 10 + 4, "all turns stay in the session");

    // Sent on by another agent, it begins with the same bytes.
    let again = ScriptedProvider::new([Reply::text("On.")]);
    let history: Vec<SessionTurn> = session.history().iter().cloned().collect();
    let agent = builder(&again).history(history).compaction(policy(&writer)).build().unwrap();
    agent.run("Three.").await.unwrap();
    assert_eq!(again.requests()[0].turns[..live.len()], live.iter().map(|turn| (***turn).clone()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_refused_conversation_is_compacted_once_and_sent_again() {
    let model = ScriptedProvider::new([too_long(), Reply::text("Sure.").usage(used(300, 10))]);
    let writer = writer("Short.");
    // No window is known: a refusal is all there is to go by.
    let policy = Compaction::new().keep(250).model(writer.clone(), "small");
    let agent = builder(&model).history(talk(5)).compaction(policy).build().unwrap();
    let recorder = EventRecorder::attach(&agent);
    let outcome = agent.run("Go.").await.unwrap();
    assert_eq!(outcome.text, "Sure.");
    let requests = model.requests();
    assert_eq!(requests.len(), 2);
    assert!(is_summary(&requests[1].turns[0]));
    assert_eq!(ids(&requests[1].turns[1..]), ["p4", "a4", "new"]);
    assert_eq!(recorder.count("history:replaced overflow"), 1);
    assert_eq!(recorder.count("turn:after"), 1);
    let turn = &outcome.stats.turn_usage[1];
    assert_eq!((turn.kind, turn.attempts, turn.complete), (UsageKind::Turn, 2, true));
    assert_eq!(
        (outcome.stats.turns, outcome.stats.total_in, outcome.stats.totals()),
        (1, 400, fold_totals(&outcome.stats))
    );
}

#[tokio::test]
async fn a_second_refusal_of_the_same_turn_stands() {
    let model = ScriptedProvider::repeating(too_long());
    let writer = writer("Short.");
    let agent = builder(&model)
        .system(words(700))
        .history(talk(5))
        .compaction(Compaction::new().keep(250).model(writer.clone(), "small"))
        .build()
        .unwrap();
    let error = agent.run("Go.").await.unwrap_err();
    let RunErrorKind::Provider(refusal) = &error.kind else { panic!("{error}") };
    assert_eq!(refusal.kind, ProviderErrorKind::ContextOverflow);
    assert!(refusal.message.contains("estimated: 700 tokens of system text and tools, 22"), "{refusal}");
    assert_eq!((model.requests().len(), writer.requests().len()), (2, 1));
    assert_eq!(error.stats.totals(), fold_totals(&error.stats));

    // Nothing has come since but a prompt: one more try, which cuts what there is, and then no more.
    for (prompt, requests) in [("Again.", 4), ("And again.", 5), ("Please.", 6)] {
        agent.run(prompt).await.unwrap_err();
        assert!(model.requests().len() <= requests, "{}", model.requests().len());
    }
    assert!(writer.requests().len() <= 2, "{}", writer.requests().len());
}

#[tokio::test]
async fn what_a_refused_attempt_cost_is_counted() {
    let usage = StreamEvent::Usage(UsageSnapshot::new(used(50, 0)));
    let refused = Reply::empty().event(usage).then_error(ProviderError::new(
        ProviderErrorKind::ContextOverflow,
        "scripted",
        "too long after all",
    ));
    let model = ScriptedProvider::new([refused, Reply::text("Sure.").usage(used(300, 10))]);
    let policy = Compaction::new().keep(250).model(writer("Short."), "small");
    let agent = builder(&model).history(talk(5)).compaction(policy).build().unwrap();
    let outcome = agent.run("Go.").await.unwrap();
    assert_eq!((outcome.stats.turns, outcome.stats.total_in), (1, 100 + 50 + 300));
    assert_eq!(outcome.stats.totals(), fold_totals(&outcome.stats));
}

#[tokio::test]
async fn never_twice_without_an_answer_in_between() {
    // Over the threshold, and then the model fails.
    let model = ScriptedProvider::new([Reply::fails(ProviderErrorKind::Auth), says(10), says(10)]);
    let writer = writer("Short.");
    let clock = VirtualClock::default();
    let builder = || builder(&model).history(talk(5)).clock(clock.clone());
    let agent = builder().compaction(policy(&writer)).build().unwrap();
    agent.run("Go.").await.unwrap_err();
    assert!(is_summary(&agent.history().turns()[0]));
    // What was made after the summary is told by its time.
    clock.advance(Duration::from_millis(1));
    agent.run(words(900)).await.unwrap();
    assert_eq!(writer.requests().len(), 1, "nothing was answered since");
    agent.run(words(10)).await.unwrap();
    assert_eq!(writer.requests().len(), 2);

    // Refused, compacted, refused; and asked again as it is.
    let model = ScriptedProvider::repeating(too_long());
    let policy = Compaction::new().keep(250).model(writer.clone(), "small");
    let agent = self::builder(&model).history(talk(5)).compaction(policy).build().unwrap();
    agent.run("Go.").await.unwrap_err();
    assert_eq!((model.requests().len(), writer.requests().len()), (2, 3));
    agent.run("").await.unwrap_err();
    assert_eq!((model.requests().len(), writer.requests().len()), (3, 3));
}

#[tokio::test]
async fn where_little_can_be_cut_the_refusal_stands_and_no_summary_is_asked_for() {
    let writer = writer("never");
    for (system, history) in [(words(10), Vec::new()), (words(5_000), talk(2))] {
        let model = ScriptedProvider::repeating(too_long());
        let policy = Compaction::new().model(writer.clone(), "small");
        let agent = builder(&model).system(system).history(history).compaction(policy).build().unwrap();
        let recorder = EventRecorder::attach(&agent);
        let error = agent.run("Go.").await.unwrap_err();
        assert!(
            matches!(&error.kind, RunErrorKind::Provider(error) if error.kind == ProviderErrorKind::ContextOverflow)
        );
        assert_eq!((model.requests().len(), recorder.count("compaction:failed overflow too little")), (1, 1));
    }
    assert!(writer.requests().is_empty());
}

#[tokio::test]
async fn a_compaction_that_does_not_help_is_not_made_over_and_over() {
    // System text and tools alone are over the threshold, as the provider sees it.
    let calls = (0..20).map(|n| Reply::call("read", json!({ "n": n })).usage(used(1_100 + 10 * n, 10)));
    let model = ScriptedProvider::new(calls.chain([Reply::text("Done.")]));
    let writer = writer("Short.");
    let read = tool("read", |_, _| Box::pin(async { Ok(words(5).into()) }));
    let agent = builder(&model).tool(read).compaction(policy(&writer)).build().unwrap();
    let outcome = agent.run(words(100)).await.unwrap();
    assert_eq!(outcome.stats.turns, 21);
    // From 1,100 to 1,300 there are two steps of a tenth of the threshold.
    assert!((1..=3).contains(&writer.requests().len()), "{}", writer.requests().len());

    // And where growth is no bar, the number is.
    let calls = (0..20).map(|n| Reply::call("read", json!({ "n": n })).usage(used(1_000 << n, 10)));
    let model = ScriptedProvider::new(calls.chain([Reply::text("Done.")]));
    let counted = self::writer("Short.");
    let read = tool("read", |_, _| Box::pin(async { Ok(words(100).into()) }));
    let agent = builder(&model).tool(read).compaction(policy(&counted).max_per_run(4)).build().unwrap();
    agent.run("Go.").await.unwrap();
    assert_eq!(counted.requests().len(), 4);
}

#[tokio::test]
async fn a_summary_as_long_as_what_it_stands_in_for_is_not_used() {
    let model = ScriptedProvider::repeating(Reply::text("Sure."));
    let writer = writer(&words(2_000));
    let agent = builder(&model).history(talk(5)).compaction(policy(&writer)).build().unwrap();
    let recorder = EventRecorder::attach(&agent);
    let outcome = agent.run("Go.").await.unwrap();
    assert_eq!((outcome.stop, agent.history().len()), (StopCause::Stop, 12));
    assert_eq!(recorder.count("compaction:failed threshold the summary is no shorter"), 1);
    assert_eq!(outcome.stats.turn_usage[0].kind, UsageKind::Compaction, "what it used is filed all the same");
}

#[tokio::test]
async fn when_no_summary_can_be_had_the_run_goes_on_without() {
    let failing = [
        (Reply::fails(ProviderErrorKind::Auth), "scripted: auth: scripted failure"),
        (Reply::text(" "), "the model wrote no summary"),
        (Reply::text("No.").finish(TurnFinishReason::ContentFilter, None), "the summary ended with content-filter"),
    ];
    for (reply, why) in failing {
        let writer = ScriptedProvider::repeating(reply).id("writer").allow_prefix_breaks();
        let calls = (0..8).map(|n| Reply::call("echo", json!({ "n": n })).without_usage());
        let model = ScriptedProvider::new(calls.chain([Reply::text("Done.")]));
        let agent = builder(&model).tool(echo()).history(talk(5)).compaction(policy(&writer)).build().unwrap();
        let reasons = Notes::default();
        let note = reasons.clone();
        agent.hooks().on::<CompactionFailed>(move |cx| {
            assert!(cx.usage().is_some());
            note.add(cx.error());
        });
        let outcome = agent.run("Go.").await.unwrap();
        assert_eq!((outcome.stop, outcome.stats.turns), (StopCause::Stop, 9));
        assert_eq!(reasons.all(), [why], "once, not before every turn");
        assert_eq!(agent.history().len(), 10 + 1 + 17);
        assert_eq!(outcome.stats.totals(), fold_totals(&outcome.stats));
    }
}

#[tokio::test]
async fn when_no_summary_can_be_had_a_refusal_stands() {
    let writer = ScriptedProvider::repeating(Reply::fails(ProviderErrorKind::Auth));
    let model = ScriptedProvider::repeating(too_long());
    let policy = Compaction::new().keep(250).model(writer.clone(), "small");
    let agent = builder(&model).history(talk(5)).compaction(policy).build().unwrap();
    let error = agent.run("Go.").await.unwrap_err();
    assert!(matches!(&error.kind, RunErrorKind::Provider(error) if error.kind == ProviderErrorKind::ContextOverflow));
    assert_eq!((model.requests().len(), writer.requests().len(), agent.history().len()), (1, 1, 11));
}

#[tokio::test]
async fn a_failed_request_for_a_summary_is_made_again() {
    let model = ScriptedProvider::repeating(Reply::text("Sure."));
    let writer = ScriptedProvider::new([Reply::fails(ProviderErrorKind::Overloaded), Reply::text("Short.")]);
    let retry = RetryPolicy::default().base_delay(Duration::from_millis(1));
    let agent = builder(&model).history(talk(5)).retry(retry).compaction(policy(&writer)).build().unwrap();
    let outcome = agent.run("Go.").await.unwrap();
    assert!(is_summary(&agent.history().turns()[0]));
    assert_eq!(outcome.stats.turn_usage[0].attempts, 2);
}

#[tokio::test]
async fn the_request_for_a_summary_fits_its_own_window() {
    // The agent's own model writes, and its window is known.
    let model = ScriptedProvider::new([Reply::text("Short."), Reply::text("Sure.")]);
    let policy = Compaction::new().window(2_000).keep(200);
    let agent = builder(&model).history(talk(20)).compaction(policy).build().unwrap();
    agent.run("Go.").await.unwrap();
    let asked = &model.requests()[0];
    let bytes = asked.turns[0].text().len() + asked.head.system.as_ref().unwrap().len();
    assert_eq!(asked.head.max_tokens, Some(500));
    assert!(bytes < (2_000 - 500) * 4, "{bytes}");
    assert!(asked.turns[0].text().contains("bytes left out here"));

    // Where it is not known, less is sent when that is refused.
    let model = ScriptedProvider::new([Reply::text("Sure.")]);
    let writer = ScriptedProvider::new([too_long(), too_long(), Reply::text("Short.")]).allow_prefix_breaks();
    let agent = builder(&model).history(talk(20)).compaction(self::policy(&writer)).build().unwrap();
    let outcome = agent.run("Go.").await.unwrap();
    let sizes: Vec<_> = writer.requests().iter().map(|request| request.turns[0].text().len()).collect();
    assert!(sizes[1] < sizes[0] * 6 / 10 && sizes[2] < sizes[1] * 6 / 10, "{sizes:?}");
    assert_eq!(outcome.stats.turn_usage[0].attempts, 3);
    assert!(is_summary(&agent.history().turns()[0]));
}

#[tokio::test]
async fn the_hosts_instructions_and_limits_are_used() {
    let model = ScriptedProvider::new([Reply::text("Sure.")]);
    let writer = writer("Short.");
    let policy = policy(&writer).instructions("Sum it up.").max_tokens(77);
    builder(&model).history(talk(5)).compaction(policy).build().unwrap().run("Go.").await.unwrap();
    let asked = &writer.requests()[0];
    assert_eq!((asked.head.system.as_deref(), asked.head.max_tokens), (Some("Sum it up."), Some(77)));
}

#[tokio::test]
async fn a_summary_counts_toward_the_limits_and_not_toward_the_turns() {
    let prices = || zidane::provider::PriceBook::empty().set("writer", "small", Rates::usd(1.0, 1.0));
    let run = |limits: Limits| {
        let model = ScriptedProvider::repeating(Reply::text("Sure."));
        let writer = writer("Short.");
        let agent = builder(&model).history(talk(5)).prices(prices()).compaction(policy(&writer)).build().unwrap();
        async move { (agent.run("Go.").limits(limits).max_turns(1).await.unwrap(), model.requests().len(), agent) }
    };
    let (outcome, ..) = run(Limits::none().turns(1)).await;
    assert_eq!(outcome.stop, StopCause::Stop);
    assert_eq!(outcome.stats.total_cost, NanoUsd(110_000), "110 tokens at a dollar a million");
    let (outcome, requests, agent) = run(Limits::none().tokens(110)).await;
    assert_eq!((outcome.stop, requests), (StopCause::Limit(Limit::Tokens), 0));
    assert!(is_summary(&agent.history().turns()[0]));
    let (outcome, requests, agent) = run(Limits::none().tokens(0)).await;
    assert_eq!((outcome.stop, requests), (StopCause::Limit(Limit::Tokens), 0));
    assert_eq!((outcome.stats.turn_usage.len(), agent.history().len()), (0, 11), "none is asked for either");
}

#[tokio::test(start_paused = true)]
async fn an_abort_while_the_summary_is_written_ends_the_run_as_ever() {
    let model = ScriptedProvider::repeating(Reply::text("never"));
    let writer = ScriptedProvider::repeating(Reply::text("Half a").then_stall());
    let agent = builder(&model).history(talk(5)).compaction(policy(&writer)).build().unwrap();
    let recorder = EventRecorder::attach(&agent);
    let handle = agent.handle().clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        handle.abort();
    });
    let outcome = agent.run("Go.").await.unwrap();
    assert_eq!((outcome.stop, model.requests().len(), agent.history().len()), (StopCause::Aborted, 0, 11));
    assert_eq!((recorder.count("agent:abort"), recorder.count("history:replaced")), (1, 0));
    assert!(!outcome.stats.turn_usage[0].complete);
}

#[tokio::test(start_paused = true)]
async fn an_abort_after_a_refusal_ends_the_run_as_ever() {
    let model = ScriptedProvider::repeating(too_long());
    let writer = ScriptedProvider::repeating(Reply::text("Half a").then_stall());
    let policy = Compaction::new().keep(250).model(writer, "small");
    let agent = builder(&model).history(talk(5)).compaction(policy).build().unwrap();
    let handle = agent.handle().clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(10)).await;
        handle.abort();
    });
    let outcome = agent.run("Go.").await.unwrap();
    assert_eq!((outcome.stop, model.requests().len(), agent.history().len()), (StopCause::Aborted, 1, 11));
}

#[tokio::test(start_paused = true)]
async fn a_drop_while_the_summary_is_written_leaves_the_conversation_as_it_was() {
    let model = ScriptedProvider::repeating(Reply::text("Sure."));
    let writer =
        ScriptedProvider::new([Reply::text("Half a").then_stall(), Reply::text("Short.")]).allow_prefix_breaks();
    let agent = builder(&model).history(talk(5)).compaction(policy(&writer)).build().unwrap();
    tokio::time::timeout(Duration::from_millis(10), agent.run("Go.")).await.unwrap_err();
    assert!(!agent.is_running());
    assert_eq!(agent.history().last().map(|turn| turn.origin), Some(TurnOrigin::Prompt));
    assert_eq!(agent.history().len(), 11);
    let outcome = agent.run("Go on.").await.unwrap();
    assert_eq!((outcome.text.as_str(), writer.requests().len()), ("Sure.", 2));
    assert!(is_summary(&agent.history().turns()[0]));
}

#[tokio::test]
async fn a_paused_answer_goes_back_before_anything_is_compacted() {
    let pause = |tokens| says(tokens).finish(TurnFinishReason::Pause, None);
    let model = ScriptedProvider::new([pause(600), pause(600), says(600), Reply::text("End.")]).resume(Resume::AsIs);
    let writer = writer("Short.");
    let agent = builder(&model).compaction(policy(&writer)).build().unwrap();
    agent.run("Go.").await.unwrap();
    assert!(writer.requests().is_empty());
    agent.run("And?").await.unwrap();
    assert_eq!(writer.requests().len(), 1);
    let sent = &model.requests()[3].turns;
    assert!(is_summary(&sent[0]) && sent.len() == 2, "the paused answers went together: {}", sent.len());

    // Nor where a run begins with it.
    let mut history = talk(6);
    history.last_mut().unwrap().finish_reason = Some(TurnFinishReason::Pause);
    let model = ScriptedProvider::new([Reply::text("Well.")]).resume(Resume::AsIs);
    let agent = builder(&model).history(history.clone()).compaction(policy(&writer)).build().unwrap();
    agent.run("").await.unwrap();
    assert_eq!(model.requests()[0].turns, history);
}

#[tokio::test]
async fn the_host_may_ask_for_it() {
    let model = ScriptedProvider::new([Reply::text("Short."), Reply::text("Sure.")]);
    let agent = builder(&model).history(talk(3)).build().unwrap();
    let mut events = agent.run("Go.").compact().stream();
    let mut told = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            AgentEvent::Compacted { reason, summary, through, before, after, .. } => {
                assert!(is_summary(&summary) && summary.usage.is_some() && through == "a1" && after < before);
                told.push(reason.as_str());
            }
            AgentEvent::TurnStart { .. } => told.push("turn"),
            AgentEvent::Text { .. } => told.push("text"),
            AgentEvent::Done(result) => assert_eq!(result.unwrap().text, "Sure."),
            _ => {}
        }
    }
    assert_eq!(told, ["manual", "turn", "text"], "the summary itself is not streamed");
    assert_eq!(ids(&model.requests()[1].turns[1..]), ["p2", "a2", "new"], "half of it is kept");

    let model = ScriptedProvider::new([Reply::text("Sure.")]);
    let agent = builder(&model).build().unwrap();
    let mut events = agent.run("Go.").compact().stream();
    let mut failed = 0;
    while let Some(event) = events.next().await {
        failed += u32::from(matches!(event, AgentEvent::CompactionFailed { .. }));
    }
    assert_eq!((failed, model.requests().len()), (1, 1), "there is nothing to compact yet");
}

#[tokio::test]
async fn what_stands_in_for_images_and_refused_reasoning_moves_along() {
    let picture = |n: u8| Media::bytes("image/png", [0x89, b'P', b'N', b'G', 13, 10, 26, 10, n]);
    let eyes = ScriptedProvider::new([Reply::text("one"), Reply::text("two")]).id("eyes").allow_prefix_breaks();
    let refusal = || {
        let text = "Invalid `signature` in `thinking` block";
        Reply::error(ProviderError::new(ProviderErrorKind::Invalid, "scripted", text))
    };
    let thinks = |text: &str| Reply::text(text).and_thinking("hm", Some("sig")).usage(used(1_500, 10));
    // The provider refuses all reasoning once, before and after the compaction.
    let model = ScriptedProvider::new([thinks("A"), refusal(), thinks("B"), thinks("C"), refusal(), thinks("D")])
        .capabilities(Capabilities::TEXT)
        .allow_prefix_breaks();
    let writer = writer("Short.");
    let policy = Compaction::new().tokens(1_000_000).keep(2_000).model(writer.clone(), "small");
    let agent =
        builder(&model).history(talk(3)).vision_fallback(eyes.clone(), "eyes").compaction(policy).build().unwrap();
    agent.run([PromptPart::text("One"), PromptPart::Image(picture(1))]).await.unwrap();
    agent.run([PromptPart::text("Two"), PromptPart::Image(picture(2))]).await.unwrap();
    let thoughts = |request: usize| {
        let turns = &model.requests()[request].turns;
        turns.iter().flat_map(|turn| &turn.content).filter(|b| matches!(b, SessionContentBlock::Thinking(_))).count()
    };
    assert_eq!((thoughts(1), thoughts(2)), (1, 0));
    agent.run("Three").compact().await.unwrap();
    let sent = serde_json::to_string(&model.requests()[3].turns).unwrap();
    assert!(is_summary(&model.requests()[3].turns[0]) && sent.contains("[An image that shows: two]"), "{sent}");
    assert_eq!(thoughts(3), 1, "what came after the refusal still has its reasoning");
    agent.run("Four").await.unwrap();
    assert_eq!((thoughts(4), thoughts(5)), (2, 0), "and loses it when that is refused");
    assert_eq!(eyes.requests().len(), 2);
}

#[tokio::test]
async fn the_record_names_media_and_leaves_long_outputs_out() {
    let model = ScriptedProvider::new([
        Reply::call("dump", json!({"all": true})),
        Reply::text("Sure.").usage(used(5_000, 1)),
        Reply::text("End."),
    ]);
    let writer = writer("Short.");
    let dump = tool("dump", |_, _| Box::pin(async { Ok(format!("start {} end", words(20_000)).into()) }));
    let policy = Compaction::new().tokens(4_000).keep(10).model(writer.clone(), "small");
    let agent = builder(&model).tool(dump).compaction(policy).build().unwrap();
    let image = Media::bytes("image/png", vec![7; 300_000]);
    agent.run([PromptPart::text("See:"), PromptPart::Image(image)]).await.unwrap();
    agent.run("And?").await.unwrap();
    let record = writer.requests().last().unwrap().turns[0].text();
    assert!(record.contains("(an image)") && record.contains("[assistant calls dump]\n{\"all\":true}"), "{record}");
    assert!(record.contains("[result of dump]\nstart") && record.contains(" end") && record.len() < 8_000);
}

#[tokio::test]
async fn odd_settings_do_no_harm() {
    let shares =
        [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0, 1e300].map(|share| Compaction::new().window(1_000).share(share));
    let windows = [0, 1, u64::MAX].map(|window| Compaction::new().window(window));
    let tokens = [0, 1, 9, u64::MAX].map(|tokens| Compaction::new().tokens(tokens));
    for policy in shares.into_iter().chain(windows).chain(tokens) {
        for keep in [0, 1, u64::MAX] {
            for most in [0, 1, u32::MAX] {
                let calls = (0..3).map(|n| Reply::call("echo", json!({ "text": words(50 * n) })).without_usage());
                let model = ScriptedProvider::new(calls.chain([too_long(), says(1), too_long()]));
                let writer = writer("Short.");
                let policy =
                    policy.clone().keep(keep).max_tokens(most).max_per_run(most).model(writer.clone(), "small");
                let agent = builder(&model).tool(echo()).history(talk(3)).compaction(policy).build().unwrap();
                let Err(error) = agent.run("Go.").await else {
                    validate_transcript(agent.history().iter()).unwrap();
                    continue;
                };
                assert!(
                    matches!(&error.kind, RunErrorKind::Provider(e) if e.kind == ProviderErrorKind::ContextOverflow)
                );
                validate_transcript(agent.history().iter()).unwrap();
                assert!(writer.requests().len() <= 5);
            }
        }
    }
}

/// The bytes of requests stay the same between compactions, whatever the turns' sizes.
#[tokio::test]
async fn requests_begin_with_the_one_before_between_compactions() {
    let replies =
        (0..40).map(|n| if n % 3 == 0 { says(40 * (n % 7)).and_call("echo", json!({ "n": n })) } else { says(80) });
    let model = ScriptedProvider::new(replies);
    let writer = writer("Short.");
    let clock = VirtualClock::default();
    let builder = builder(&model).clock(clock.clone()).tool(echo());
    let agent = builder.compaction(policy(&writer)).build().unwrap();
    for n in 0..20 {
        clock.advance(Duration::from_millis(1));
        agent.run(format!("{n}: {}", words(30))).await.unwrap();
    }
    let requests = model.requests();
    let mut anew = 0;
    for pair in requests.windows(2) {
        let (before, after) = (&pair[0].turns, &pair[1].turns);
        if before[0] == after[0] {
            assert_eq!(before[..], after[..before.len()]);
        } else {
            assert!(is_summary(&after[0]));
            anew += 1;
        }
    }
    assert!(anew >= 2 && anew == writer.requests().len(), "{anew}");
    let turns: Vec<Arc<HistoryTurn>> = agent.history().turns().to_vec();
    validate_transcript(turns.iter().map(|turn| &***turn)).unwrap();
}
