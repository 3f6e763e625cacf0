//! Floor 3: decisions, typed questions to a model about evidence.
//!
//! In come a [`DecisionRequest`], evidence and [`Question`]s of three kinds; out come [`Answers`] with what probabilities
//! the wire gives, or a [`DecisionFailure`] with one of nine [reasons](DecisionFailureReason). A decision never fails a
//! run, and what it used is known however it ended.
//!
//! Who decides is a [`DecisionProvider`]: a server that speaks OpenAI's `/v1/decisions` or System One's `/v1/systemone`
//! (`DecisionApi`, with the differences of servers as data in a `DecisionProfile`), or any model through structured
//! output ([`ModelDecisions`]). A [`Decider`] asks one, and others after it. Limits are checked before anything is sent,
//! and answers before anybody sees them: exactly one for each question, of its kind, among its options.
//!
//! A decision is asked for by itself ([`Decider::decide`]), of an agent (`Agent::decide`), in a tool
//! (`ToolContext::decide`), or in a hook (`HookBase::decide`).

mod answer;
#[cfg(feature = "http")]
mod api;
mod check;
mod decider;
mod deciding;
mod desk;
mod evidence;
mod failure;
mod ledger;
mod limits;
mod model;
mod provider;
mod question;
mod status;

pub use answer::{Answer, Answers, Decision, QuestionAnswer};
#[cfg(feature = "http")]
pub use api::{DecisionApi, DecisionApiBuilder, DecisionContract, DecisionImages, DecisionProfile};
pub use decider::Decider;
pub use deciding::Deciding;
pub(crate) use desk::{DecisionDesk, never};
pub use evidence::DecisionEvidence;
pub use failure::{DecisionFailure, DecisionFailureReason};
pub(crate) use ledger::DecisionLedger;
pub use limits::{DecisionLimits, JsonLimits};
pub use model::ModelDecisions;
pub use provider::{DecisionCall, DecisionProvider, DecisionReply};
pub use question::{ChoiceOption, DecisionRequest, Question, QuestionKind};
