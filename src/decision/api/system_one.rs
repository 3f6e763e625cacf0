//! System One: `state` and questions by name, answers by name.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::{Map, Value, json};

use super::answer::{Fields, choice, score};
use super::openai::with_criteria;
use super::parts::{Part, parts};
use super::profile::{DecisionImages, DecisionProfile};
use crate::decision::{
    Answer, DecisionEvidence, DecisionFailure, DecisionFailureReason, DecisionRequest, Question, QuestionAnswer,
    QuestionKind,
};

#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    state: State<'a>,
    questions: Questions<'a>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    assets: BTreeMap<String, Asset<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<String>,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum State<'a> {
    Text(std::borrow::Cow<'a, str>),
    Json(&'a Value),
    List(Vec<Value>),
}

#[derive(Serialize)]
struct Asset<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    format: &'static str,
    data_base64: &'a str,
}

/// The questions in their order.
struct Questions<'a> {
    questions: &'a [Question],
    both_sides: bool,
}

impl Serialize for Questions<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.questions.len()))?;
        for question in self.questions {
            map.serialize_entry(&question.id, &WireQuestion { question, both_sides: self.both_sides })?;
        }
        map.end()
    }
}

struct WireQuestion<'a> {
    question: &'a Question,
    both_sides: bool,
}

impl Serialize for WireQuestion<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Question { instructions, kind, .. } = self.question;
        let mut map = serializer.serialize_map(None)?;
        match kind {
            QuestionKind::Bool { yes, no } => {
                let one_sided = yes.is_some() != no.is_some();
                map.serialize_entry("type", "noul")?;
                if one_sided && self.both_sides {
                    let whole = with_criteria(instructions.clone(), yes.as_deref(), no.as_deref());
                    map.serialize_entry("instructions", &whole)?;
                } else {
                    map.serialize_entry("instructions", instructions)?;
                    if yes.is_some() || no.is_some() {
                        map.serialize_entry("criteria", &json!({"true": yes, "false": no}))?;
                    }
                }
            }
            QuestionKind::Choice { options } => {
                struct Options<'a>(&'a [crate::decision::ChoiceOption]);
                impl Serialize for Options<'_> {
                    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                        serializer.collect_map(self.0.iter().map(|option| (&option.value, &option.criteria)))
                    }
                }
                map.serialize_entry("type", "choice")?;
                map.serialize_entry("instructions", instructions)?;
                map.serialize_entry("criteria", &Options(options))?;
            }
            QuestionKind::Score { levels } => {
                map.serialize_entry("type", "score")?;
                map.serialize_entry("instructions", instructions)?;
                map.serialize_entry("criteria", levels)?;
            }
        }
        map.end()
    }
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
    let (mut assets, mut images) = (BTreeMap::new(), Vec::new());
    let state = match &request.evidence {
        DecisionEvidence::Text(text) => State::Text(text.into()),
        DecisionEvidence::Json(value) => State::Json(value),
        DecisionEvidence::Parts(given) => {
            let read = parts(profile, given)?;
            let texts: Vec<&str> = read.iter().filter_map(|part| part.text()).collect();
            let has_images = texts.len() < read.len();
            match profile.images {
                // Text alone needs no list, which not every server reads.
                _ if !has_images => State::Text(texts.join("\n\n").into()),
                DecisionImages::DataUrls => {
                    images.extend(read.iter().filter_map(Part::url));
                    State::Text(texts.join("\n\n").into())
                }
                DecisionImages::Assets => State::List(with_assets(request, &read, &mut assets)?),
                DecisionImages::Parts | DecisionImages::None => State::List(read.iter().map(listed).collect()),
            }
        }
    };
    let questions = Questions { questions: &request.questions, both_sides: profile.both_sides };
    let model = profile.sends_model.then_some(model);
    Ok(serde_json::to_vec(&Body { model, state, questions, assets, images, extra: &profile.extra }))
}

impl<'a> Part<'a> {
    fn text(&'a self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Image { .. } | Self::Url(_) => None,
        }
    }
}

fn listed(part: &Part<'_>) -> Value {
    match part.url() {
        Some(url) => json!({"type": "image_url", "image_url": {"url": url}}),
        None => json!({"type": "text", "text": part.text()}),
    }
}

/// The parts as a list of texts, in which placeholders stand for the images.
fn with_assets<'a>(
    request: &DecisionRequest,
    read: &[Part<'a>],
    assets: &mut BTreeMap<String, Asset<'a>>,
) -> Result<Vec<Value>, DecisionFailure> {
    let mark = unused_mark(request, read)?;
    let mut list = Vec::with_capacity(read.len());
    for part in read {
        match part {
            Part::Text(text) => list.push(json!(text)),
            Part::Image { media_type, data } => {
                let format = match *media_type {
                    "image/png" => "png",
                    "image/jpeg" | "image/jpg" => "jpeg",
                    other => {
                        let message = format!("an image of the evidence is {other}; PNG and JPEG are taken");
                        return Err(DecisionFailure::new(DecisionFailureReason::Unsupported, message));
                    }
                };
                let placeholder = format!("<{mark} {}>", assets.len() + 1);
                list.push(json!(placeholder));
                assets.insert(placeholder, Asset { kind: "image", format, data_base64: data });
            }
            Part::Url(_) => {
                let message = "an image of the evidence is an address, and bytes are taken";
                return Err(DecisionFailure::new(DecisionFailureReason::Unsupported, message));
            }
        }
    }
    Ok(list)
}

/// A word for placeholders that stands nowhere else: where it did, the server would put the image there too.
fn unused_mark(request: &DecisionRequest, read: &[Part<'_>]) -> Result<String, DecisionFailure> {
    let questions = serde_json::to_string(&request.questions).unwrap_or_default();
    for number in 0..100 {
        let mark = if number == 0 { "image".to_owned() } else { format!("image-{number}") };
        let start = format!("<{mark} ");
        let stands = |text: &str| text.contains(&start);
        if !stands(&questions) && !read.iter().filter_map(|part| part.text()).any(stands) {
            return Ok(mark);
        }
    }
    Err(DecisionFailure::invalid("the evidence holds all placeholders that an image could have"))
}

/// The answers of a body.
///
/// # Errors
/// What is wrong with it, naming the question.
pub(super) fn decode(questions: &[Question], body: &Map<String, Value>) -> Result<Vec<QuestionAnswer>, String> {
    let Some(Value::Object(given)) = body.get("answers") else {
        return Err("there is no object of answers".to_owned());
    };
    let mut answers = Vec::with_capacity(given.len());
    for question in questions {
        // One that is missing is found by whoever checks them.
        let Some(answer) = given.get(&question.id) else { continue };
        let read = read(question, answer).map_err(|fault| format!("question {:?}: {fault}", question.id))?;
        answers.push(QuestionAnswer::new(&*question.id, read));
    }
    let known: std::collections::HashSet<&str> = questions.iter().map(|question| question.id.as_str()).collect();
    // Extensions begin so.
    match given.keys().find(|name| !known.contains(name.as_str()) && !name.starts_with("x_")) {
        Some(other) => Err(format!("there is an answer to {other:?}, which was not asked")),
        None => Ok(answers),
    }
}

fn read(question: &Question, answer: &Value) -> Result<Answer, String> {
    let fields = Fields(answer);
    if !answer.is_object() {
        return Err("the answer is no object".to_owned());
    }
    let own = match &question.kind {
        QuestionKind::Bool { .. } => "noul",
        QuestionKind::Choice { .. } => "choice",
        QuestionKind::Score { .. } => "score",
    };
    match fields.text("type") {
        Some("refusal") => return Ok(Answer::Refused),
        Some(kind) if kind != own => {
            return Err(format!("it is a {}, and the answer is a {kind:?}", question.kind.as_str()));
        }
        _ => {}
    }
    match &question.kind {
        QuestionKind::Bool { .. } => {
            let probability = match fields.number("noul")? {
                Some(noul) => noul,
                None => fields.number("probability")?.ok_or("the answer has no noul")?,
            };
            Ok(Answer::Bool { value: probability > 0.5, probability: Some(probability) })
        }
        QuestionKind::Choice { options } => choice(options, fields),
        QuestionKind::Score { levels } => score(levels, fields),
    }
}
