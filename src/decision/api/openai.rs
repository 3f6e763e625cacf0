//! OpenAI's contract: `input` and a list of questions, answers in the same order.

use serde::Serialize;
use serde_json::{Map, Value};

use super::answer::{Fields, choice, score};
use super::parts::{Part, parts};
use super::profile::DecisionProfile;
use crate::decision::{
    Answer, ChoiceOption, DecisionEvidence, DecisionFailure, DecisionRequest, Question, QuestionAnswer, QuestionKind,
};

#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    input: Input<'a>,
    questions: Vec<WireQuestion<'a>>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Input<'a> {
    Text(&'a str),
    Items([Message<'a>; 1]),
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Content<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type")]
enum Content<'a> {
    #[serde(rename = "input_text")]
    Text { text: std::borrow::Cow<'a, str> },
    #[serde(rename = "input_image")]
    Image { image_url: String },
    #[serde(rename = "input_json")]
    Json { data: &'a Value },
}

#[derive(Serialize)]
struct WireQuestion<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    name: &'a str,
    instructions: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    choices: Option<Vec<Choice<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    levels: Option<Vec<Level<'a>>>,
}

#[derive(Serialize)]
struct Choice<'a> {
    value: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
}

#[derive(Serialize)]
struct Level<'a> {
    label: &'a str,
}

/// The body of a request.
///
/// # Errors
/// `unsupported`, naming the part that cannot be said.
pub(super) fn encode(
    profile: &DecisionProfile,
    model: &str,
    request: &DecisionRequest,
) -> Result<serde_json::Result<Vec<u8>>, DecisionFailure> {
    let input = match &request.evidence {
        DecisionEvidence::Text(text) => Input::Text(text),
        DecisionEvidence::Json(data) => message(vec![Content::Json { data }]),
        DecisionEvidence::Parts(given) => message(parts(profile, given)?.into_iter().map(content).collect()),
    };
    let questions = request.questions.iter().map(question).collect();
    let model = profile.sends_model.then_some(model);
    Ok(serde_json::to_vec(&Body { model, input, questions, extra: &profile.extra }))
}

fn message(content: Vec<Content<'_>>) -> Input<'_> {
    Input::Items([Message { role: "user", content }])
}

fn content(part: Part<'_>) -> Content<'_> {
    match (part.url(), part) {
        (Some(image_url), _) => Content::Image { image_url },
        (None, Part::Text(text)) => Content::Text { text },
        (None, _) => Content::Text { text: "".into() },
    }
}

fn question<'a>(question: &'a Question) -> WireQuestion<'a> {
    let wire =
        |kind, instructions| WireQuestion { kind, name: &question.id, instructions, choices: None, levels: None };
    let instructions = question.instructions.clone();
    match &question.kind {
        QuestionKind::Bool { yes, no } => wire("predicate", with_criteria(instructions, yes.as_deref(), no.as_deref())),
        QuestionKind::Choice { options } => {
            let choice =
                |option: &'a ChoiceOption| Choice { value: &option.value, description: option.criteria.as_deref() };
            WireQuestion { choices: Some(options.iter().map(choice).collect()), ..wire("choice", instructions) }
        }
        QuestionKind::Score { levels } => {
            let levels = levels.iter().map(|label| Level { label }).collect();
            WireQuestion { levels: Some(levels), ..wire("score", instructions) }
        }
    }
}

/// A predicate has no place for criteria of its own.
pub(super) fn with_criteria(mut instructions: String, yes: Option<&str>, no: Option<&str>) -> String {
    for (word, criteria) in [("True", yes), ("False", no)] {
        if let Some(criteria) = criteria {
            instructions.push_str(&format!("\n{word} means: {criteria}"));
        }
    }
    instructions
}

/// The answers of a body.
///
/// # Errors
/// What is wrong with it, naming the question.
pub(super) fn decode(questions: &[Question], body: &Map<String, Value>) -> Result<Vec<QuestionAnswer>, String> {
    let Some(Value::Array(given)) = body.get("answers") else { return Err("there is no list of answers".to_owned()) };
    let mut answers = Vec::with_capacity(given.len());
    for (place, answer) in given.iter().enumerate() {
        // A question that was sent without a name is answered without one; ours all have one, but not every server
        // repeats it.
        let name = answer.get("name").and_then(Value::as_str);
        let question = match name {
            Some(name) => questions.iter().find(|question| question.id == name),
            None => questions.get(place),
        };
        let Some(question) = question else {
            let name = name.map_or_else(|| format!("number {place}"), |name| format!("{name:?}"));
            return Err(format!("there is an answer to {name}, which was not asked"));
        };
        let read = read(question, answer).map_err(|fault| format!("question {:?}: {fault}", question.id))?;
        answers.push(QuestionAnswer::new(&*question.id, read));
    }
    Ok(answers)
}

fn read(question: &Question, answer: &Value) -> Result<Answer, String> {
    let fields = Fields(answer);
    let kind = fields.text("type").ok_or("the answer has no type")?;
    match (kind, &question.kind) {
        ("refusal", _) => Ok(Answer::Refused),
        ("predicate", QuestionKind::Bool { .. }) => {
            let probability = fields.number("probability")?.ok_or("the answer has no probability")?;
            Ok(Answer::Bool { value: probability > 0.5, probability: Some(probability) })
        }
        ("choice", QuestionKind::Choice { options }) => choice(options, fields),
        ("score", QuestionKind::Score { levels }) => score(levels, fields),
        (kind, _) => Err(format!("it is a {}, and the answer is a {kind:?}", question.kind.as_str())),
    }
}
