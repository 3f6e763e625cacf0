use serde::{Deserialize, Serialize};

use super::DecisionFailure;
use crate::types::DecisionUsage;

/// What a decision comes to: an answer to each question, or why there are none.
pub type Decision = Result<Answers, DecisionFailure>;

/// The answers, one per question, in the order of the questions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Answers {
    /// Question and answer.
    pub answers: Vec<QuestionAnswer>,
    /// The id of the provider that answered.
    pub provider: String,
    /// The model that answered, as it names itself.
    pub model_id: Option<String>,
    /// What was used, one entry for each provider that was asked and said so.
    pub usage: Vec<DecisionUsage>,
}

/// The answer to one question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct QuestionAnswer {
    /// The question's id.
    pub id: String,
    /// The answer.
    pub answer: Answer,
}

impl QuestionAnswer {
    /// The answer to a question.
    pub fn new(id: impl Into<String>, answer: Answer) -> Self {
        Self { id: id.into(), answer }
    }
}

/// An answer. Probabilities are between 0 and 1, and there where the wire gives them.
///
/// How confidence is computed differs between servers, so that a threshold for one does not fit another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Answer {
    /// Yes or no.
    Bool {
        /// Whether it is yes: more probable than not.
        value: bool,
        /// The probability of yes.
        probability: Option<f64>,
    },
    /// One of the options.
    Choice {
        /// The option.
        value: String,
        /// How sure that is.
        confidence: Option<f64>,
        /// Each option with its probability, in the order of the question; empty where they are not known.
        probabilities: Vec<(String, f64)>,
    },
    /// A place on the scale.
    Score {
        /// The mean of the level's numbers, from 0, weighed by their probabilities; a whole number where those are not
        /// known.
        value: f64,
        /// How sure that is.
        confidence: Option<f64>,
        /// The probability of each level, lowest first; empty where they are not known.
        probabilities: Vec<f64>,
    },
    /// The model refused this question. Never to be read as a no.
    Refused,
}

impl Answers {
    /// The answer to a question.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<&Answer> {
        self.answers.iter().find(|answer| answer.id == id).map(|answer| &answer.answer)
    }

    /// Yes or no; `None` for any other answer, a refusal included.
    #[must_use]
    pub fn bool(&self, id: &str) -> Option<bool> {
        match self.get(id)? {
            Answer::Bool { value, .. } => Some(*value),
            _ => None,
        }
    }

    /// Whether the answer is a clear yes: a yes whose probability is at least `least`, or is not known. Anything else,
    /// a refusal and a question that was not asked included, is not.
    #[must_use]
    pub fn is_yes(&self, id: &str, least: f64) -> bool {
        match self.get(id) {
            Some(Answer::Bool { value: true, probability }) => probability.is_none_or(|known| known >= least),
            _ => false,
        }
    }

    /// The option that was chosen; `None` for any other answer.
    #[must_use]
    pub fn choice(&self, id: &str) -> Option<&str> {
        match self.get(id)? {
            Answer::Choice { value, .. } => Some(value),
            _ => None,
        }
    }

    /// The place on the scale, from 0; `None` for any other answer.
    #[must_use]
    pub fn score(&self, id: &str) -> Option<f64> {
        match self.get(id)? {
            Answer::Score { value, .. } => Some(*value),
            _ => None,
        }
    }

    /// Whether the model refused a question.
    #[must_use]
    pub fn is_refused(&self, id: &str) -> bool {
        matches!(self.get(id), Some(Answer::Refused))
    }
}
