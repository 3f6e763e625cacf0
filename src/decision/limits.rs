use std::collections::HashSet;

use serde_json::Value;

use super::{DecisionEvidence, DecisionFailure, DecisionFailureReason, DecisionRequest, Question, QuestionKind};

/// What a wire takes of one request. Checked before anything is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DecisionLimits {
    /// Questions of a request. Default 400.
    pub questions: usize,
    /// Options of a choice; there are always at least 2. Default 255.
    pub options: usize,
    /// Levels of a score; there are always at least 2. Default 10.
    pub levels: usize,
    /// Bytes of text or JSON of the evidence. Default 16 MiB, more than any model reads.
    pub evidence_bytes: usize,
    /// Images of a request; 0 where the wire takes none. Default 128.
    pub images: usize,
    /// Bytes of all images, in base64. Default 64 MiB.
    pub image_bytes: usize,
    /// Bytes of JSON evidence as it is sent, how deep it nests, and how many values it has.
    pub json: JsonLimits,
}

/// What a wire takes of a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JsonLimits {
    /// Bytes. Default: as the evidence's.
    pub bytes: usize,
    /// Levels of nesting. Default 128.
    pub depth: usize,
    /// Values in all. Default: no limit.
    pub values: usize,
}

impl Default for DecisionLimits {
    fn default() -> Self {
        Self {
            questions: 400,
            options: 255,
            levels: 10,
            evidence_bytes: 16 << 20,
            images: 128,
            image_bytes: 64 << 20,
            json: JsonLimits { bytes: usize::MAX, depth: 128, values: usize::MAX },
        }
    }
}

impl DecisionLimits {
    /// Checks a request.
    ///
    /// # Errors
    /// `invalid`, naming the question or the evidence and both numbers; `unsupported` for images on a wire without.
    pub fn check(&self, request: &DecisionRequest) -> Result<(), DecisionFailure> {
        let count = request.questions.len();
        if count == 0 {
            return Err(DecisionFailure::invalid("there are no questions"));
        }
        at_most("questions", count, self.questions)?;
        self.check_evidence(&request.evidence)?;
        let words = request.questions.iter().map(question_bytes).fold(0, usize::saturating_add);
        at_most("bytes of questions", words, self.evidence_bytes)?;
        let mut ids = HashSet::with_capacity(count);
        for (index, question) in request.questions.iter().enumerate() {
            if question.id.is_empty() {
                return Err(DecisionFailure::invalid(format!("question {index} has no id")));
            }
            if !ids.insert(question.id.as_str()) {
                return Err(DecisionFailure::invalid(format!("two questions have the id {:?}", question.id)));
            }
            self.check_question(question)
                .map_err(|fault| DecisionFailure::invalid(format!("question {:?}: {fault}", question.id)))?;
        }
        Ok(())
    }

    fn check_evidence(&self, evidence: &DecisionEvidence) -> Result<(), DecisionFailure> {
        if evidence.is_empty() {
            return Err(DecisionFailure::invalid("the evidence is empty"));
        }
        let mut images = (0_usize, 0_usize);
        for media in evidence.images() {
            use crate::types::MediaSource::{Data, Ref, Text, Url};
            let (Data(text) | Text(text) | Url(text) | Ref(text)) = &media.source;
            images = (images.0 + 1, images.1.saturating_add(text.len()));
        }
        if images.0 > 0 && self.images == 0 {
            let message = "the evidence has an image, which this wire does not take";
            return Err(DecisionFailure::new(DecisionFailureReason::Unsupported, message));
        }
        at_most("images in the evidence", images.0, self.images)?;
        at_most("bytes of images in the evidence", images.1, self.image_bytes)?;
        let DecisionEvidence::Json(value) = evidence else {
            return at_most("bytes of evidence", evidence.bytes().saturating_sub(images.1), self.evidence_bytes);
        };
        if !value.is_object() {
            return Err(DecisionFailure::invalid("the evidence is JSON, but no object"));
        }
        // The depth first: what measures the size goes down to it.
        let (depth, values) = extent(value);
        at_most("levels of nesting in the evidence", depth, self.json.depth)?;
        at_most("values in the evidence", values, self.json.values)?;
        at_most("bytes of JSON evidence", evidence.bytes(), self.json.bytes.min(self.evidence_bytes))
    }

    fn check_question(&self, question: &Question) -> Result<(), String> {
        if question.instructions.trim().is_empty() {
            return Err("it has no instructions".to_owned());
        }
        match &question.kind {
            QuestionKind::Bool { .. } => Ok(()),
            QuestionKind::Choice { options } => {
                between("options", options.len(), self.options)?;
                distinct("options", options.iter().map(|option| option.value.as_str()))
            }
            QuestionKind::Score { levels } => {
                between("levels", levels.len(), self.levels)?;
                distinct("levels", levels.iter().map(String::as_str))
            }
        }
    }
}

fn question_bytes(question: &Question) -> usize {
    let kind: usize = match &question.kind {
        QuestionKind::Bool { yes, no } => [yes, no].into_iter().flatten().map(String::len).sum(),
        QuestionKind::Choice { options } => {
            options.iter().map(|option| option.value.len() + option.criteria.as_ref().map_or(0, String::len)).sum()
        }
        QuestionKind::Score { levels } => levels.iter().map(String::len).sum(),
    };
    question.id.len() + question.instructions.len() + kind
}

fn at_most(what: &str, count: usize, most: usize) -> Result<(), DecisionFailure> {
    if count <= most {
        return Ok(());
    }
    Err(DecisionFailure::invalid(format!("{count} {what}, and at most {most} are taken")))
}

fn between(what: &str, count: usize, most: usize) -> Result<(), String> {
    if (2..=most).contains(&count) { Ok(()) } else { Err(format!("it has {count} {what}, and 2 to {most} are taken")) }
}

fn distinct<'a>(what: &str, values: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let mut seen = HashSet::new();
    for value in values {
        if value.trim().is_empty() {
            return Err(format!("one of its {what} is empty"));
        }
        if !seen.insert(value) {
            return Err(format!("two of its {what} are {value:?}"));
        }
    }
    Ok(())
}

/// How deep a value nests, and how many values it has. Without recursion: the depth is not ours.
fn extent(value: &Value) -> (usize, usize) {
    let (mut depth, mut values) = (0, 0);
    let mut open = vec![(value, 1_usize)];
    while let Some((value, level)) = open.pop() {
        values += 1;
        match value {
            Value::Object(map) => {
                depth = depth.max(level);
                open.extend(map.values().map(|value| (value, level + 1)));
            }
            Value::Array(items) => {
                depth = depth.max(level);
                open.extend(items.iter().map(|value| (value, level + 1)));
            }
            _ => {}
        }
    }
    (depth, values)
}
