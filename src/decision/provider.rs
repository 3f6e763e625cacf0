use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::{DecisionFailure, DecisionLimits, DecisionRequest, QuestionAnswer};
use crate::provider::{PriceBook, UsageSnapshot};
use crate::types::{DecisionUsage, Extra, NanoUsd};

/// Somebody who can make decisions.
///
/// `ask` sends one request, and never retries. Dropping its future ends the request.
#[async_trait]
pub trait DecisionProvider: Send + Sync {
    /// The name under which usage is filed, e.g. `typesafe`.
    fn id(&self) -> &str;

    /// The model that is asked.
    fn model(&self) -> &str;

    /// What it takes; a request is checked against this before `ask`. Default: [`DecisionLimits::default`].
    fn limits(&self) -> DecisionLimits {
        DecisionLimits::default()
    }

    /// Asks. Answers may come in any order: whether they fit the questions is checked by the caller, and what was sent
    /// and used is told to `call` as soon as it is known.
    ///
    /// # Errors
    /// Why there are no answers.
    async fn ask(&self, request: &DecisionRequest, call: &DecisionCall) -> Result<DecisionReply, DecisionFailure>;
}

#[async_trait]
impl<P: DecisionProvider + ?Sized> DecisionProvider for Arc<P> {
    fn id(&self) -> &str {
        (**self).id()
    }

    fn model(&self) -> &str {
        (**self).model()
    }

    fn limits(&self) -> DecisionLimits {
        (**self).limits()
    }

    async fn ask(&self, request: &DecisionRequest, call: &DecisionCall) -> Result<DecisionReply, DecisionFailure> {
        (**self).ask(request, call).await
    }
}

/// What a provider answered, before it is checked.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DecisionReply {
    /// The answers.
    pub answers: Vec<QuestionAnswer>,
    /// The model, as it names itself.
    pub model_id: Option<String>,
}

impl DecisionReply {
    /// Answers of a model.
    #[must_use]
    pub const fn new(answers: Vec<QuestionAnswer>, model_id: Option<String>) -> Self {
        Self { answers, model_id }
    }
}

/// One decision as the providers that are asked see it: where they tell what they have done, so that it is known
/// however the decision ends.
#[derive(Debug)]
pub struct DecisionCall {
    prices: Arc<PriceBook>,
    sent: AtomicBool,
    usage: Mutex<Vec<DecisionUsage>>,
}

impl DecisionCall {
    pub(crate) fn new(prices: Arc<PriceBook>) -> Self {
        Self { prices, sent: AtomicBool::new(false), usage: Mutex::default() }
    }

    /// A request is about to be sent.
    pub fn sending(&self) {
        self.sent.store(true, Ordering::Relaxed);
    }

    /// Whether a request may have been sent.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Relaxed)
    }

    /// What a request has used. Priced here, where the price is known.
    pub fn used(&self, provider: &str, model: &str, model_id: Option<&str>, usage: &UsageSnapshot) {
        let cost = self.prices.cost(provider, model_id, model, usage);
        self.used_at(provider, model, model_id, usage, cost);
    }

    /// The same where output is free, as it is on the decision wires that price only what they read.
    pub fn used_with_free_output(&self, provider: &str, model: &str, model_id: Option<&str>, usage: &UsageSnapshot) {
        let mut billed = *usage;
        billed.tokens.output = 0;
        let cost = self.prices.cost(provider, model_id, model, &billed);
        self.used_at(provider, model, model_id, usage, cost);
    }

    fn used_at(
        &self,
        provider: &str,
        model: &str,
        model_id: Option<&str>,
        usage: &UsageSnapshot,
        cost: Option<NanoUsd>,
    ) {
        let mut entries = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |entry: &&mut DecisionUsage| {
            entry.provider == provider && entry.requested_model == model && entry.model_id.as_deref() == model_id
        };
        // A second request of the same decision.
        if let Some(entry) = entries.last_mut().filter(same) {
            entry.tokens += usage.tokens;
            entry.cost = entry.cost.zip(cost).map(|(before, now)| before + now);
            return;
        }
        entries.push(DecisionUsage {
            tokens: usage.tokens,
            cost,
            model_id: model_id.map(ToOwned::to_owned),
            requested_model: model.to_owned(),
            provider: provider.to_owned(),
            run_id: String::new(),
            extra: Extra::default(),
        });
    }

    /// What was used so far, and forgets it.
    pub(crate) fn take_usage(&self) -> Vec<DecisionUsage> {
        std::mem::take(&mut *self.usage.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was known of sending before a try that turned out not to send anything.
    pub(crate) fn not_sent(&self, before: bool) {
        self.sent.store(before, Ordering::Relaxed);
    }
}
