use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::check::check_answers;
use super::{
    Answers, Deciding, Decision, DecisionCall, DecisionEvidence, DecisionFailure, DecisionFailureReason,
    DecisionProvider, DecisionRequest, ModelDecisions, Question,
};
use crate::provider::{PriceBook, Provider};

/// How long a decision may take, unless the host says otherwise.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Makes decisions: asks a provider, and those after it when it cannot answer. A cheap clone.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// # use zidane::testing::{Reply, ScriptedProvider};
/// use zidane::decision::{Decider, Question};
///
/// # let model = ScriptedProvider::new([Reply::text(r#"{"refund": true}"#)]);
/// let decider = Decider::of_model(model, "small-model");
/// let answers = decider.decide("I want my money back.", [Question::bool("refund", "Is a refund asked for?")]).await?;
/// assert_eq!(answers.bool("refund"), Some(true));
/// # Ok::<(), zidane::decision::DecisionFailure>(()) }).unwrap();
/// ```
///
/// Nothing is retried: a decision that fails says why, and after how long it may be asked again.
#[derive(Clone)]
pub struct Decider {
    providers: Arc<[Arc<dyn DecisionProvider>]>,
    timeout: Duration,
    attempt_timeout: Option<Duration>,
    /// `None`: the agent's, or the built-in table.
    prices: Option<Arc<PriceBook>>,
}

impl Decider {
    /// Asks one provider.
    pub fn new(provider: impl DecisionProvider + 'static) -> Self {
        Self { providers: Arc::new([Arc::new(provider)]), timeout: TIMEOUT, attempt_timeout: None, prices: None }
    }

    /// Asks any model, through structured output where its wire has that, else through a tool that it must call.
    pub fn of_model(provider: impl Provider + 'static, model: impl Into<String>) -> Self {
        Self::new(ModelDecisions::new(provider, model))
    }

    /// Answers nothing: every decision is `unavailable`.
    #[must_use]
    pub fn disabled() -> Self {
        Self { providers: Arc::new([]), timeout: TIMEOUT, attempt_timeout: None, prices: None }
    }

    /// Adds a provider to ask when those before it gave no answers, for whatever reason but an abort.
    #[must_use]
    pub fn fallback(mut self, provider: impl DecisionProvider + 'static) -> Self {
        let new: Arc<dyn DecisionProvider> = Arc::new(provider);
        self.providers = self.providers.iter().cloned().chain([new]).collect();
        self
    }

    /// How long a decision may take in all, every provider included. Default 30 s.
    #[must_use]
    pub const fn timeout(mut self, time: Duration) -> Self {
        self.timeout = time;
        self
    }

    /// How long each provider may take before the next one is asked. Default: as long as there is time in all.
    #[must_use]
    pub const fn attempt_timeout(mut self, time: Duration) -> Self {
        self.attempt_timeout = Some(time);
        self
    }

    /// What tokens cost. Default: what they cost the agent that asks, else the built-in table; a cost that the provider reports wins over any.
    #[must_use]
    pub fn prices(mut self, prices: PriceBook) -> Self {
        self.prices = Some(Arc::new(prices));
        self
    }

    /// The same, with these prices unless it has its own.
    pub(crate) fn or_prices(mut self, prices: &Arc<PriceBook>) -> Self {
        self.prices.get_or_insert_with(|| Arc::clone(prices));
        self
    }

    /// Questions about evidence, to be answered once the future is polled.
    pub fn decide(
        &self,
        evidence: impl Into<DecisionEvidence>,
        questions: impl IntoIterator<Item = Question>,
    ) -> Deciding {
        let this = self.clone();
        Deciding::new(DecisionRequest::new(evidence, questions), move |request, cancel| {
            Box::pin(async move { this.answer(&request, cancel.cancelled()).await })
        })
    }

    /// Answers, unless `stop` comes first.
    pub(crate) async fn answer(&self, request: &DecisionRequest, stop: impl Future<Output = ()>) -> Decision {
        let call = DecisionCall::new(self.prices.clone().unwrap_or_default());
        let failure = |reason, message: &str| DecisionFailure::new(reason, message);
        let time = request.timeout.unwrap_or(self.timeout);
        let decided = tokio::select! {
            biased;
            () = stop => Err(failure(DecisionFailureReason::Aborted, "the decision was cancelled")),
            decided = self.ask_all(request, &call) => decided,
            () = sleep(time) => {
                Err(failure(DecisionFailureReason::Timeout, &format!("no answers within {time:?}")))
            }
        };
        let usage = call.take_usage();
        match decided {
            Ok(answers) => Ok(Answers { usage, ..answers }),
            Err(failure) => Err(DecisionFailure { sent: call.is_sent(), usage, ..failure }),
        }
    }

    /// Asks one after the other. When none answers, the last failure tells that came of something sent, else the first.
    async fn ask_all(&self, request: &DecisionRequest, call: &DecisionCall) -> Decision {
        if tokio::runtime::Handle::try_current().is_err() {
            let message = "a decision needs a tokio runtime";
            return Err(DecisionFailure::new(DecisionFailureReason::Unavailable, message));
        }
        let mut told: Option<DecisionFailure> = None;
        for provider in self.providers.iter() {
            let before = call.is_sent();
            call.not_sent(false);
            let asked = async {
                match self.attempt_timeout {
                    None => ask(&**provider, request, call).await,
                    Some(time) => {
                        tokio::time::timeout(time, ask(&**provider, request, call)).await.unwrap_or_else(|_| {
                            let message = format!("{}: no answers within {time:?}", provider.id());
                            Err(DecisionFailure::new(DecisionFailureReason::Timeout, message))
                        })
                    }
                }
            };
            let failure = match asked.await {
                Ok(answers) => return Ok(answers),
                Err(failure) => failure,
            };
            let sent = call.is_sent();
            call.not_sent(before || sent);
            if failure.reason == DecisionFailureReason::Aborted {
                return Err(failure);
            }
            if sent || told.is_none() {
                told = Some(failure);
            }
        }
        Err(told.unwrap_or_else(|| {
            DecisionFailure::new(DecisionFailureReason::Unavailable, "decisions are disabled: there is nobody to ask")
        }))
    }
}

async fn ask(provider: &dyn DecisionProvider, request: &DecisionRequest, call: &DecisionCall) -> Decision {
    let named = |mut failure: DecisionFailure| {
        failure.message = format!("{}: {}", provider.id(), failure.message);
        failure
    };
    provider.limits().check(request).map_err(named)?;
    let reply = provider.ask(request, call).await.map_err(named)?;
    let answers = check_answers(&request.questions, reply.answers)
        .map_err(|fault| named(DecisionFailure::invalid(format!("the answers do not fit: {fault}"))))?;
    Ok(Answers { answers, provider: provider.id().to_owned(), model_id: reply.model_id, usage: Vec::new() })
}

/// Sleeps, where there is a clock to sleep by.
async fn sleep(time: Duration) {
    if tokio::runtime::Handle::try_current().is_err() {
        return std::future::pending().await;
    }
    tokio::time::sleep(time).await;
}

impl fmt::Debug for Decider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let providers: Vec<_> = self.providers.iter().map(|provider| (provider.id(), provider.model())).collect();
        f.debug_struct("Decider").field("providers", &providers).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}
