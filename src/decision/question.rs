use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::DecisionEvidence;

/// One question about the evidence.
///
/// ```
/// use zidane::decision::Question;
///
/// let questions = [
///     Question::bool("refund", "Does the writer ask for money back?").yes("asks for a refund"),
///     Question::choice("queue", "Which queue fits?", [("shipping", "damage or delay"), ("billing", "money")]),
///     Question::score("urgency", "How urgent is it?", ["can wait", "this week", "today"]),
/// ];
/// # assert_eq!(questions.len(), 3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Question {
    /// Names the question, and its answer. Not empty, and no two the same.
    pub id: String,
    /// The question itself.
    pub instructions: String,
    /// What may be answered.
    pub kind: QuestionKind,
}

/// What may be answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum QuestionKind {
    /// Yes or no.
    Bool {
        /// When yes is right, where the question alone does not say.
        yes: Option<String>,
        /// When no is right.
        no: Option<String>,
    },
    /// One of several options: 2 to 255, or what the wire takes.
    Choice {
        /// The options.
        options: Vec<ChoiceOption>,
    },
    /// A place on a scale: 2 to 10 levels, lowest first.
    Score {
        /// The levels.
        levels: Vec<String>,
    },
}

impl QuestionKind {
    /// The name used in text, e.g. `choice`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Bool { .. } => "bool",
            Self::Choice { .. } => "choice",
            Self::Score { .. } => "score",
        }
    }
}

/// One option of a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChoiceOption {
    /// What is answered. Not empty, and no two the same.
    pub value: String,
    /// When it is right.
    pub criteria: Option<String>,
}

impl From<&str> for ChoiceOption {
    fn from(value: &str) -> Self {
        Self { value: value.to_owned(), criteria: None }
    }
}

impl From<String> for ChoiceOption {
    fn from(value: String) -> Self {
        Self { value, criteria: None }
    }
}

impl<V: Into<String>, C: Into<String>> From<(V, C)> for ChoiceOption {
    fn from((value, criteria): (V, C)) -> Self {
        Self { value: value.into(), criteria: Some(criteria.into()) }
    }
}

impl Question {
    /// A question to be answered with yes or no.
    pub fn bool(id: impl Into<String>, instructions: impl Into<String>) -> Self {
        Self { id: id.into(), instructions: instructions.into(), kind: QuestionKind::Bool { yes: None, no: None } }
    }

    /// A question to be answered with one of several options.
    pub fn choice<O: Into<ChoiceOption>>(
        id: impl Into<String>,
        instructions: impl Into<String>,
        options: impl IntoIterator<Item = O>,
    ) -> Self {
        let options = options.into_iter().map(Into::into).collect();
        Self { id: id.into(), instructions: instructions.into(), kind: QuestionKind::Choice { options } }
    }

    /// A question to be answered with a level, lowest first.
    pub fn score<L: Into<String>>(
        id: impl Into<String>,
        instructions: impl Into<String>,
        levels: impl IntoIterator<Item = L>,
    ) -> Self {
        let levels = levels.into_iter().map(Into::into).collect();
        Self { id: id.into(), instructions: instructions.into(), kind: QuestionKind::Score { levels } }
    }

    /// Says when yes is right. Means nothing for a question of another kind.
    #[must_use]
    pub fn yes(mut self, criteria: impl Into<String>) -> Self {
        if let QuestionKind::Bool { yes, .. } = &mut self.kind {
            *yes = Some(criteria.into());
        }
        self
    }

    /// Says when no is right. Means nothing for a question of another kind.
    #[must_use]
    pub fn no(mut self, criteria: impl Into<String>) -> Self {
        if let QuestionKind::Bool { no, .. } = &mut self.kind {
            *no = Some(criteria.into());
        }
        self
    }
}

/// What is to be decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DecisionRequest {
    /// What the questions are about.
    pub evidence: DecisionEvidence,
    /// The questions; at least one.
    pub questions: Vec<Question>,
    /// How long it may take in all. `None`: as long as the decider allows.
    pub timeout: Option<Duration>,
}

impl DecisionRequest {
    /// Questions about evidence.
    pub fn new(evidence: impl Into<DecisionEvidence>, questions: impl IntoIterator<Item = Question>) -> Self {
        Self { evidence: evidence.into(), questions: questions.into_iter().collect(), timeout: None }
    }
}
