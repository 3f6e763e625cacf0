//! The conversation, and its way through the wires.

use serde_json::{Value, json};
use zidane::hooks::StreamText;
use zidane::testing::validate_transcript;
use zidane::tool::{Tool, ToolContext, ToolError, ToolOutput, ToolSpec};
use zidane::types::{Document, Media, PromptPart, SessionTurn, ToolResultContent};
use zidane::{Agent, AgentBuilder, StopCause};

use super::kept;
use super::prefix;
use super::wire::{Answer, End, Step, WIRES};

pub(crate) const LOOK: &str = "Looks, and gives a picture.";
pub(crate) const FAIL: &str = "Fails.";
pub(crate) const EMPTY: &str = "Says nothing.";
pub(crate) const ODD: &str = "Has a name that few wires take.";
const ODD_NAME: &str = "weather.station/überblick 🌦";

pub(crate) fn png(n: u8) -> Vec<u8> {
    [&b"\x89PNG\r\n\x1a\n"[..], &[n; 9]].concat()
}

fn pdf() -> Vec<u8> {
    b"%PDF-1.7\n1 0 obj".to_vec()
}

struct Eye;

#[zidane::async_trait]
impl Tool for Eye {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}, "steer": {"type": "string"},
            "where": {"$ref": "#/$defs/place"}}, "$defs": {"place": {"type": "string", "minLength": 1}}});
        ToolSpec::new("look", LOOK).input_schema(schema)
    }

    async fn call(&self, input: Value, cx: ToolContext) -> Result<ToolOutput, ToolError> {
        if let Some(text) = input["steer"].as_str() {
            cx.agent().steer(text).unwrap();
        }
        let n = input["n"].as_u64().unwrap_or_default();
        let picture = Media::bytes("image/png", png(u8::try_from(n).unwrap_or(255)));
        Ok(vec![ToolResultContent::text(format!("seen {n}")), ToolResultContent::Image(picture)].into())
    }
}

struct Plain(&'static str, &'static str, Result<&'static str, &'static str>);

#[zidane::async_trait]
impl Tool for Plain {
    fn spec(&self) -> ToolSpec {
        let schema = json!({"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
            "properties": {"n": {"oneOf": [{"type": "integer", "multipleOf": 1}, {"type": "string", "const": "all"}]},
                "list": {"type": "array", "items": {"allOf": [{"type": "string"}, {"maxLength": 9}]}}},
            "additionalProperties": false});
        ToolSpec::new(self.0, self.1).input_schema(schema)
    }

    async fn call(&self, _input: Value, _cx: ToolContext) -> Result<ToolOutput, ToolError> {
        match self.2 {
            Ok(text) => Ok(text.into()),
            Err(text) => Ok(ToolOutput::error(text)),
        }
    }
}

pub(crate) fn tools(builder: AgentBuilder) -> AgentBuilder {
    builder
        .tool(Eye)
        .tool(Plain("fail", FAIL, Err("it broke")))
        .tool(Plain("nothing", EMPTY, Ok("")))
        .tool(Plain(ODD_NAME, ODD, Ok("17 °C")))
        .tool_aliases([("look", "peek")])
}

pub(crate) fn say(number: usize, thinking: &'static str, text: &str, calls: Vec<(&'static str, Value)>) -> Step {
    Step::Say(Answer { number, thinking, text: text.into(), calls, ..Answer::default() })
}

async fn stretch(end: End, history: &str, steps: Vec<Step>, prompts: Vec<Vec<PromptPart>>) -> (String, Vec<Vec<u8>>) {
    stretch_with(end, history, steps, prompts, |builder| builder).await
}

/// One stretch of the conversation on one wire, from a stored history. Gives what is stored then, and what was sent.
pub(crate) async fn stretch_with(
    end: End,
    history: &str,
    steps: Vec<Step>,
    prompts: Vec<Vec<PromptPart>>,
    build: impl Fn(AgentBuilder) -> AgentBuilder,
) -> (String, Vec<Vec<u8>>) {
    let history: Vec<SessionTurn> = serde_json::from_str(history).unwrap();
    let server = end.server(steps).await;
    let agent: Agent = build(tools(end.builder(&server).history(history))).build().unwrap();
    agent.hooks().on::<StreamText>(|cx| {
        if cx.delta().contains("cut here") {
            cx.agent().abort();
        }
    });
    for prompt in prompts {
        let outcome = agent.run(prompt).await.unwrap_or_else(|error| panic!("{end:?}: {error}"));
        assert!(matches!(outcome.stop, StopCause::Stop | StopCause::Aborted), "{end:?}: {:?}", outcome.stop);
    }
    validate_transcript(agent.history().iter()).unwrap();
    let stored = serde_json::to_string(&agent.history().iter().collect::<Vec<_>>()).unwrap();
    (stored, server.requests().iter().map(|request| request.body.to_vec()).collect())
}

fn first_prompts() -> Vec<Vec<PromptPart>> {
    vec![
        vec![
            PromptPart::text("What is in these?"),
            PromptPart::Image(Media::bytes("image/png", png(1))),
            PromptPart::Document(Document::pdf("paper.pdf", pdf())),
            PromptPart::Document(Document::text("notes.md", "# Notes in a file")),
        ],
        vec![PromptPart::text("Go on at length.")],
    ]
}

pub(crate) async fn first(end: End) -> (String, Vec<Vec<u8>>) {
    let steps = vec![
        say(
            1,
            "I should look at all of it.",
            "Let me look.",
            vec![
                (LOOK, json!({"n": 2, "steer": "Be brief, please."})),
                (FAIL, json!({"n": "all", "list": ["é", "\u{1f600}"]})),
                (EMPTY, json!({})),
            ],
        ),
        say(2, "", "", vec![(ODD, json!({"n": 9_007_199_254_740_993_u64}))]),
        Step::Say(Answer {
            number: 3,
            thinking: "That was all.",
            text: "A red square and a paper.".into(),
            searches: true,
            ..Answer::default()
        }),
        Step::Say(Answer {
            number: 4,
            thinking: "A long one.",
            text: "It begins well, cut here".into(),
            calls: vec![(LOOK, json!({"n": 250, "where": "nowhere"}))],
            stalls: true,
            ..Answer::default()
        }),
    ];
    stretch(end, "[]", steps, first_prompts()).await
}

async fn second(end: End, history: &str) -> (String, Vec<Vec<u8>>) {
    let steps = vec![
        say(5, "Another model's thoughts.", "Another look.", vec![(LOOK, json!({"n": 3})), (ODD, json!({"n": 1}))]),
        say(6, "Enough.", "It is warm.", Vec::new()),
    ];
    stretch(end, history, steps, vec![vec![PromptPart::text("And the weather?")]]).await
}

async fn third(end: End, history: &str) -> (String, Vec<Vec<u8>>) {
    let steps = vec![say(7, "Where was I?", "", vec![(FAIL, json!({"n": 4}))]), say(8, "", "Done.", Vec::new())];
    let prompt =
        vec![PromptPart::text("Finish."), PromptPart::Image(Media::bytes("image/jpeg", b"\xff\xd8\xff\xe0jpg"))];
    stretch(end, history, steps, vec![prompt]).await
}

fn judge(end: End, stage: &str, stored: &str, bodies: &[Vec<u8>], found: &mut Vec<String>) {
    let turns: Vec<SessionTurn> = serde_json::from_str(stored).unwrap();
    for (at, body) in bodies.iter().enumerate() {
        let (value, report) = end.check(body);
        let mut faults = report.faults.clone();
        // The last request of a stretch has all but the answer to it.
        if at + 1 == bodies.len() {
            faults.extend(kept::lost(end, &value, &report, &turns[..turns.len() - 1]));
        }
        faults.extend(kept::foreign(end, body));
        found.extend(faults.into_iter().map(|fault| format!("{stage}, request {at}: {fault}")));
    }
    found.extend(prefix::breaks(end, bodies).into_iter().map(|fault| format!("{stage}, {fault}")));
}

async fn pair(from: End, to: End) -> Vec<String> {
    let mut found = Vec::new();
    let way = format!("{from:?} → {to:?}");
    let (stored, bodies) = first(from).await;
    assert_eq!(bodies.len(), 4, "{way}");
    judge(from, &format!("{way}: first"), &stored, &bodies, &mut found);
    let (stored, there) = second(to, &stored).await;
    judge(to, &format!("{way}: second"), &stored, &there, &mut found);
    let (stored, back) = third(from, &stored).await;
    judge(from, &format!("{way}: back"), &stored, &back, &mut found);
    let all: Vec<_> = bodies.into_iter().chain(back).collect();
    found.extend(prefix::breaks(from, &all).into_iter().map(|fault| format!("{way}: over both stretches, {fault}")));
    found
}

async fn from(wire: super::wire::Wire) {
    let mut found = Vec::new();
    for other in WIRES {
        let from = End { wire, second: false };
        let to = End { wire: other, second: wire == other };
        found.extend(pair(from, to).await);
    }
    assert!(found.is_empty(), "{} faults:\n{}", found.len(), found.join("\n"));
}

#[tokio::test]
async fn from_anthropic() {
    from(WIRES[0]).await;
}

#[tokio::test]
async fn from_chat() {
    from(WIRES[1]).await;
}

#[tokio::test]
async fn from_a_router_on_the_chat_wire() {
    from(WIRES[2]).await;
}

#[tokio::test]
async fn from_responses() {
    from(WIRES[3]).await;
}

#[tokio::test]
async fn from_gemini() {
    from(WIRES[4]).await;
}
