//! What an agent finds in a store: open calls, calls that wait, images, media, a history of its own, a run half done.

use std::sync::Arc;

use serde_json::{Value, json};
use zidane::durable::{DurableError, DurableRuntime};
use zidane::provider::Capabilities;
use zidane::session::{
    BlobError, BlobStore, DirectoryBlobStore, JsonlSessionStore, MemoryBlobStore, MemorySessionStore, ResultEntry,
    RunEnd, RunEntry, SessionEntry, SessionError, SessionStore,
};
use zidane::testing::{EventRecorder, Reply, ScriptedProvider, StepJournal, VirtualClock};
use zidane::tool_state::MemoryToolStateStore;
use zidane::types::{
    DeferredCall, Media, MediaSource, PendingCall, PromptPart, Role, SessionContentBlock, SessionTurn, Timestamp,
    ToolCallBlock, ToolResultContent, ToolStatus, TurnOrigin,
};
use zidane::{Agent, RunErrorKind};

use crate::agents::{agent, same};
use crate::faulty::{FaultyStore, settled};
use crate::folder::Folder;
use crate::harness::tool;

fn prompt(id: &str, text: &str) -> SessionTurn {
    SessionTurn::new(id, Role::User, TurnOrigin::Prompt, vec![SessionContentBlock::text(text)])
}

fn calls(id: &str, ids: &[&str]) -> SessionTurn {
    let call = |id: &&str| ToolCallBlock { id: (*id).into(), name: "echo".into(), ..ToolCallBlock::default() };
    let content = ids.iter().map(call).map(SessionContentBlock::ToolCall).collect();
    let mut turn = SessionTurn::new(id, Role::Assistant, TurnOrigin::Model, content);
    turn.run_id = "old".into();
    turn.pending = ids.iter().map(|id| PendingCall::open(*id)).collect();
    turn
}

fn result(turn: &SessionTurn, call: &str) -> SessionEntry {
    let result = zidane::types::ToolResultBlock {
        call_id: call.into(),
        name: "echo".into(),
        input: None,
        output: "was there".into(),
        is_error: false,
        status: ToolStatus::Ok,
        outcome: None,
        structured: None,
        extra: Default::default(),
    };
    SessionEntry::Result(ResultEntry::new(turn.id.as_str(), "old", Timestamp(5), result))
}

fn start(run: &str, durable: bool) -> SessionEntry {
    let mut entry = RunEntry::start(run, Timestamp(1));
    entry.durable = durable;
    SessionEntry::Run(Box::new(entry))
}

async fn storing(entries: Vec<SessionEntry>) -> FaultyStore {
    let store = FaultyStore::default();
    store.append("s", 0, entries).await.unwrap();
    store
}

#[tokio::test]
async fn open_calls_are_settled_once_and_for_good() {
    let turn = calls("a", &["c1", "c2", "c3"]);
    let entries = vec![start("old", false), prompt("u", "go").into(), turn.clone().into(), result(&turn, "c2")];
    let store = storing(entries).await;
    let model = ScriptedProvider::new([Reply::text("Yes."), Reply::text("Sure."), Reply::text("Fine.")]);
    let one = agent(&model, &store).build().unwrap();
    let events = EventRecorder::attach(&one);
    let outcome = one.run("Go on").await.unwrap();
    assert_eq!(outcome.turns.len(), 3, "results, prompt and answer");
    assert_eq!(events.count("session:repaired c1,c3"), 1);
    assert_eq!(store.appends()[1], ["start", "result c1", "result c3", "repair"]);
    let status: Vec<_> = one.history().turns()[2].tool_results().map(|result| result.status).collect();
    assert_eq!(status, [ToolStatus::Interrupted, ToolStatus::Ok, ToolStatus::Interrupted]);
    same(&one).await;
    let repaired = one.history().turns()[2].clone();
    // Neither this agent nor another one does it again.
    one.run("And?").await.unwrap();
    let two = agent(&model, &store).build().unwrap();
    two.run("Still?").await.unwrap();
    assert_eq!(store.appends().concat().iter().filter(|kind| *kind == "repair").count(), 1);
    assert_eq!(two.history().turns()[2], repaired);
    same(&two).await;
    let session = two.session().await.unwrap().unwrap();
    assert_eq!(session.repairs[0].answered, ["c1", "c3"]);
    assert!(session.runs[0].end.is_none(), "nobody knows how the first run ended");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_hangs_while_it_is_read_does_not_hold_up_an_abort() {
    let turn = calls("a", &["c1", "c2"]);
    // At the first read the run knows nothing; at the second it has settled the calls and wants to know it as stored.
    for (reads, appends) in [(0, 1), (1, 3)] {
        let store = storing(vec![prompt("u", "go").into(), turn.clone().into(), result(&turn, "c2")]).await;
        let model = ScriptedProvider::new([Reply::text("Fine.")]);
        let agent = agent(&model, &store).build().unwrap();
        store.hold_reads_at(reads);
        let run = tokio::spawn(agent.run("Go on"));
        tokio::time::sleep(std::time::Duration::from_secs(3_600)).await;
        assert_eq!(store.loads(), reads + 1);
        agent.abort();
        let asked = tokio::time::Instant::now();
        assert_eq!(run.await.unwrap().unwrap().stop, zidane::StopCause::Aborted);
        assert!(asked.elapsed() < std::time::Duration::from_millis(250));
        assert_eq!(store.appends().len(), appends, "{:?}", store.appends());
        assert!(model.requests().is_empty());
        store.hold_reads_at(usize::MAX);
        agent.run("Now").await.unwrap();
        same(&agent).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_abort_while_a_durable_run_reads_its_session_leaves_it_to_be_taken_up() {
    let store = FaultyStore::over(with_a_past().await);
    let journal = StepJournal::new();
    let model = ScriptedProvider::new([Reply::text("Fine.")]);
    let agent = agent(&model, &store).durable(Arc::new(journal.clone()) as Arc<dyn DurableRuntime>).build().unwrap();
    store.hold_reads_at(0);
    let run = tokio::spawn(agent.run("Go on").run_id("r"));
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    agent.abort();
    let kind = run.await.unwrap().unwrap_err().kind;
    assert!(matches!(kind, RunErrorKind::Durable(DurableError::Interrupted { .. })), "{kind}");
    assert!(journal.records("r").is_empty());
    store.hold_reads_at(usize::MAX);
    assert_eq!(agent.run("Go on").run_id("r").await.unwrap().text, "Fine.");
    same(&agent).await;
}

#[tokio::test]
async fn results_that_are_all_there_need_no_repair() {
    let turn = calls("a", &["c1", "c2"]);
    let store =
        storing(vec![prompt("u", "go").into(), turn.clone().into(), result(&turn, "c2"), result(&turn, "c1")]).await;
    let model = ScriptedProvider::new([Reply::text("Yes.")]);
    let agent = agent(&model, &store).build().unwrap();
    let events = EventRecorder::attach(&agent);
    agent.run("").await.unwrap();
    assert_eq!(events.count("session:repaired"), 0);
    assert_eq!(agent.history().len(), 4);
    same(&agent).await;
}

#[tokio::test]
async fn calls_that_wait_are_not_touched() {
    let mut marked = calls("a", &["c1", "c2"]);
    marked.pending[1].deferred = true;
    let plain = calls("a", &["c1", "c2"]);
    let ended = |deferred: &[&str]| {
        let mut end = RunEnd::new(Timestamp(9), "deferred");
        end.deferred = deferred.iter().map(|id| DeferredCall::new(*id)).collect();
        SessionEntry::Run(Box::new(RunEntry::start("old", Timestamp(1)).ended(end)))
    };
    let begun =
        |durable, turn: &SessionTurn| vec![start("old", durable), prompt("u", "go").into(), turn.clone().into()];
    let with = |mut entries: Vec<SessionEntry>, more: Vec<SessionEntry>| {
        entries.extend(more);
        entries
    };
    for (entries, waiting) in [
        (with(begun(false, &marked), vec![result(&marked, "c1")]), Some(vec!["c2"])),
        (with(begun(false, &plain), vec![result(&plain, "c1"), ended(&["c2"])]), Some(vec!["c2"])),
        (begun(true, &plain), Some(vec!["c1", "c2"])),
        (with(begun(true, &plain), vec![result(&plain, "c2")]), Some(vec!["c1"])),
        (with(begun(true, &plain), vec![ended(&[])]), None),
        (begun(false, &plain), None),
    ] {
        let store = storing(entries).await;
        let model = ScriptedProvider::new([Reply::text("Yes.")]);
        let agent = agent(&model, &store).build().unwrap();
        match (agent.run("Go on").await.map_err(|error| error.kind), waiting) {
            (Ok(_), None) => assert_eq!(model.requests().len(), 1),
            (Err(RunErrorKind::Pending { run_id, calls }), Some(waiting)) => {
                assert_eq!((run_id.as_str(), calls), ("old", waiting.into_iter().map(str::to_owned).collect()));
                assert_eq!((model.requests().len(), store.appends().len()), (0, 1), "nothing was sent or stored");
            }
            (other, waiting) => panic!("{other:?}, not {waiting:?}"),
        }
    }
}

#[tokio::test]
async fn a_history_is_what_a_new_session_begins_with() {
    let seed =
        vec![prompt("u", "Hi"), SessionTurn::new("m", Role::Assistant, TurnOrigin::Model, vec!["Hello".into_block()])];
    let model = ScriptedProvider::new([Reply::text("One."), Reply::text("Two."), Reply::text("Three.")]);
    let store = FaultyStore::default().fail(1, crate::faulty::Fault::Refused);
    let first = agent(&model, &store).history(seed.clone()).build().unwrap();
    assert!(first.run("Go").await.is_err());
    first.run("Go").await.unwrap();
    assert_eq!(first.history().len(), 4);
    same(&first).await;
    // The same builder on another day.
    let second = agent(&model, &store).history(seed.clone()).build().unwrap();
    second.run("On").await.unwrap();
    assert_eq!(second.history().len(), 6);
    same(&second).await;
    for other in [vec![prompt("u2", "Hi")], vec![seed[1].clone()], [seed.clone(), seed.clone(), seed].concat()] {
        let other = agent(&model, &store).history(other).build().unwrap();
        let error = other.run("Hi").await.unwrap_err();
        assert!(matches!(error.kind, RunErrorKind::Session(SessionError::Begun { .. })), "{error}");
    }
    assert_eq!(model.requests().len(), 2);
}

trait IntoBlock {
    fn into_block(self) -> SessionContentBlock;
}

impl IntoBlock for &str {
    fn into_block(self) -> SessionContentBlock {
        SessionContentBlock::text(self)
    }
}

fn picture(size: usize) -> Media {
    let mut bytes = vec![0x89, b'P', b'N', b'G', 13, 10, 26, 10];
    bytes.resize(size, 7);
    Media::bytes("image/png", bytes)
}

fn camera(size: usize) -> impl zidane::Tool + 'static {
    tool("shoot", move |_, _| Box::pin(async move { Ok(vec![ToolResultContent::Image(picture(size))].into()) }))
}

#[tokio::test]
async fn large_media_is_kept_beside_the_session_and_comes_back() {
    let folder = Folder::new("media");
    let store = Arc::new(JsonlSessionStore::new(folder.join("sessions")));
    let blobs = Arc::new(DirectoryBlobStore::new(folder.join("blobs")));
    let model =
        ScriptedProvider::new([Reply::call("shoot", json!({})), Reply::text("Nice."), Reply::text("As I said.")]);
    let build = |model: &ScriptedProvider| {
        let builder = agent(model, &store).blob_store(Arc::clone(&blobs));
        builder.tool(camera(200_000)).build().unwrap()
    };
    let small = picture(64 * 1024);
    let one = build(&model);
    let parts = [PromptPart::text("Look"), PromptPart::Image(small.clone()), PromptPart::Image(picture(70_000))];
    one.run(parts).await.unwrap();
    // In memory it is as it was.
    assert_eq!(one.history().turns()[2].tool_results().count(), 1);
    let live = serde_json::to_string(&one.history().iter().collect::<Vec<_>>()).unwrap();
    assert!(live.len() > 400_000 && !live.contains("\"ref\""));
    let stored = std::fs::metadata(store.path("s")).unwrap().len();
    assert!((80_000..110_000).contains(&stored), "{stored}: only what is small is in the file");
    let session = one.session().await.unwrap().unwrap();
    let source = |block: &SessionContentBlock| match block {
        SessionContentBlock::Image(media) => media.source.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(source(&session.turns[0].content[1]), small.source);
    let MediaSource::Ref(key) = source(&session.turns[0].content[2]) else { panic!("not moved") };
    // Another agent has it all again; the scripted model holds its request against the one before.
    let two = build(&model);
    two.run("And?").await.unwrap();
    assert_eq!(settled(two.history().iter().take(4)), settled(one.history().iter()));
    // A blob that is gone leaves its reference, and nothing else is lost.
    assert!(blobs.delete(&key).await.unwrap());
    let blind = ScriptedProvider::new([Reply::text("Gone.")]);
    let three = build(&blind);
    three.run("And?").await.unwrap();
    assert_eq!(source(&three.history().turns()[0].content[2]), MediaSource::Ref(key));
    assert_eq!(source(&three.history().turns()[0].content[1]), small.source);
}

struct NoRoom;

#[zidane::async_trait]
impl BlobStore for NoRoom {
    async fn put(&self, bytes: Vec<u8>) -> Result<String, BlobError> {
        Err(BlobError::Other { key: "new".into(), message: format!("no room for {} bytes", bytes.len()) })
    }
    async fn get(&self, _: &str, _: u64) -> Result<Option<Vec<u8>>, BlobError> {
        Ok(None)
    }
    async fn delete(&self, _: &str) -> Result<bool, BlobError> {
        Ok(false)
    }
}

#[tokio::test]
async fn media_that_cannot_be_kept_fails_the_run_before_it_is_referred_to() {
    let (model, store) = (ScriptedProvider::new([Reply::text("Fine.")]), FaultyStore::default());
    let agent = agent(&model, &store).blob_store(NoRoom).blob_threshold(100).build().unwrap();
    let error = agent.run([PromptPart::text("Look"), PromptPart::Image(picture(103))]).await.unwrap_err();
    assert!(matches!(error.kind, RunErrorKind::Session(SessionError::Blob(_))), "{error}");
    assert!(store.appends().is_empty() && model.requests().is_empty());
    agent.run([PromptPart::text("Look"), PromptPart::Image(picture(99))]).await.unwrap();
    same(&agent).await;
}

#[tokio::test]
async fn results_that_were_open_get_their_media_back() {
    let blobs = Arc::new(MemoryBlobStore::new());
    let model = ScriptedProvider::new([Reply::call("shoot", json!({})).and_call("nap", json!({}))]);
    // The second result is lost, so that the first is all there is.
    let store = FaultyStore::default().fail(3, crate::faulty::Fault::Refused);
    let build = |model: &ScriptedProvider| {
        let builder = agent(model, &store).blob_store(Arc::clone(&blobs)).blob_threshold(1000);
        builder.tool(camera(5_000)).build().unwrap()
    };
    assert!(build(&model).run("Go").await.is_err());
    let after = ScriptedProvider::new([Reply::text("Well.")]);
    let two = build(&after);
    two.run("On").await.unwrap();
    let results: Vec<_> = two.history().turns()[2].tool_results().cloned().collect();
    assert_eq!((results[0].status, results[1].status), (ToolStatus::Ok, ToolStatus::Interrupted));
    assert_eq!(results[0].output, vec![ToolResultContent::Image(picture(5_000))].into());
}

#[tokio::test]
async fn an_image_is_described_once_in_the_life_of_a_session() {
    let store = FaultyStore::default();
    for (prompt, asked) in [("Look", 1), ("Again", 0)] {
        let eyes = ScriptedProvider::new([Reply::text("a red square")]).id("eyes");
        let model = ScriptedProvider::new([Reply::text("I see.")]).capabilities(Capabilities::TEXT);
        let agent = agent(&model, &store).vision_fallback(eyes.clone(), "seeing").build().unwrap();
        let mut parts = vec![PromptPart::text(prompt)];
        parts.extend((asked == 1).then(|| PromptPart::Image(picture(50))));
        agent.run(parts).await.unwrap();
        assert_eq!(eyes.requests().len(), asked, "{prompt}");
        let sent = serde_json::to_string(&model.requests()[0].turns).unwrap();
        assert!(sent.contains("a red square") && !sent.contains("could not be described"));
        same(&agent).await;
    }
    assert_eq!(store.appends()[1], ["vision", "model"]);
    let session = Agent::builder()
        .provider(ScriptedProvider::new([]))
        .model("test")
        .session_store(store)
        .session_id("s")
        .build()
        .unwrap()
        .session()
        .await
        .unwrap()
        .unwrap();
    let vision = session.visions.values().next().unwrap();
    assert_eq!(
        (vision.text.as_str(), vision.usage.as_ref().unwrap().requested_model.as_str()),
        ("a red square", "seeing")
    );
}

/// A durable run on a session that has something in it already.
struct Durable {
    store: Arc<MemorySessionStore>,
    model: ScriptedProvider,
    agent: Agent,
}

impl Durable {
    async fn new(store: Arc<MemorySessionStore>, journal: StepJournal, asked: usize) -> Self {
        let model = ScriptedProvider::new([
            Reply::call("echo", json!({"n": 1})).and_call("write", json!({})),
            Reply::call("write", json!({})),
            Reply::text("Done."),
        ]);
        model.skip(asked);
        let write = tool("write", |_, cx| {
            Box::pin(async move {
                let next = cx.state().get("n").and_then(|n| n.as_u64()).unwrap_or_default() + 1;
                cx.state().set("n", next)?;
                Ok(format!("wrote {next}").into())
            })
        });
        let agent = agent(&model, &store)
            .clock(VirtualClock::with_seed(Timestamp(7_000), "durable"))
            .tool(write)
            .tool_state(MemoryToolStateStore::new())
            .durable(Arc::new(journal) as Arc<dyn DurableRuntime>)
            .build()
            .unwrap();
        Self { store, model, agent }
    }

    async fn entries(&self) -> Vec<Value> {
        let stored = self.store.load("s").await.unwrap().unwrap();
        stored.entries.iter().map(|entry| serde_json::to_value(entry).unwrap()).collect()
    }
}

async fn with_a_past() -> Arc<MemorySessionStore> {
    let store = Arc::new(MemorySessionStore::new());
    let turn = calls("a", &["c1", "c2"]);
    // An open call as well, so that the run begins with a repair.
    let entries = vec![start("old", false), prompt("u", "go").into(), turn.clone().into(), result(&turn, "c2")];
    store.append("s", 0, entries).await.unwrap();
    store
}

fn requests_on(journal: &StepJournal) -> usize {
    journal.keys("r").iter().filter(|key| key.kind == zidane::durable::StepKind::Model).count()
}

#[tokio::test]
async fn a_durable_run_appends_the_same_again_wherever_it_is_taken_up() {
    let journal = StepJournal::new();
    let whole = Durable::new(with_a_past().await, journal.clone(), 0).await;
    whole.agent.run("Go on").run_id("r").await.unwrap();
    let expected = whole.entries().await;
    same(&whole.agent).await;
    let records = journal.records("r").len();
    assert!(records > 8 && expected.len() > 12, "{records} {}", expected.len());
    for kept in 0..=records {
        let store = with_a_past().await;
        let first = StepJournal::new().stop_at(kept);
        let stopped = Durable::new(Arc::clone(&store), first.clone(), 0).await;
        let result = stopped.agent.run("Go on").run_id("r").await;
        let found = stopped.entries().await;
        assert_eq!(found, expected[..found.len()], "stopped after {kept}");
        if kept < records {
            let kind = result.unwrap_err().kind;
            assert!(matches!(kind, RunErrorKind::Durable(DurableError::Interrupted { .. })), "{kind}");
            assert!(found.len() < expected.len(), "a run that is interrupted has not ended");
        }
        let journal = first.prefix(records);
        let asked = requests_on(&journal);
        let resumed = Durable::new(store, journal, asked).await;
        let outcome = resumed.agent.run("Go on").run_id("r").await.unwrap_or_else(|error| panic!("{kept}: {error}"));
        assert_eq!((outcome.text.as_str(), outcome.turns.len()), ("Done.", 7), "{kept}");
        assert_eq!(resumed.entries().await, expected, "taken up after {kept}");
        assert_eq!(resumed.model.requests().len(), 3 - asked);
        same(&resumed.agent).await;
    }
}

#[tokio::test]
async fn a_durable_run_is_not_taken_up_over_what_somebody_else_has_said() {
    let store = with_a_past().await;
    let first = StepJournal::new().stop_at(2);
    let stopped = Durable::new(Arc::clone(&store), first.clone(), 0).await;
    assert!(stopped.agent.run("Go on").run_id("r").await.is_err());
    let version = store.version("s").await.unwrap();
    let note = SessionEntry::metadata("note", serde_json::Map::new());
    store.append("s", version, vec![note]).await.unwrap();
    // A note of the host is no matter.
    let journal = first.prefix(100);
    let asked = requests_on(&journal);
    let resumed = Durable::new(Arc::clone(&store), first.prefix(2).stop_at(4), asked).await;
    let kind = resumed.agent.run("Go on").run_id("r").await.unwrap_err().kind;
    assert!(matches!(kind, RunErrorKind::Durable(DurableError::Interrupted { .. })), "{kind}");
    let version = store.version("s").await.unwrap();
    store.append("s", version, vec![prompt("x", "Me too").into()]).await.unwrap();
    let resumed = Durable::new(Arc::clone(&store), journal, asked).await;
    let kind = resumed.agent.run("Go on").run_id("r").await.unwrap_err().kind;
    assert!(matches!(kind, RunErrorKind::Session(SessionError::Conflict { expected: 4, .. })), "{kind}");
    assert!(resumed.model.requests().is_empty());
}
