use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::Value;

use super::events::{ToolGate, ToolGateCx};
use super::hook::{BoxError, Scope};
use super::{HookId, Hooks};
use crate::types::DeferredCall;

/// How long a person has to answer, unless the host says otherwise.
const PATIENCE: Duration = Duration::from_secs(10 * 60);

/// How many grants are remembered; beyond it the oldest is forgotten, and asked for again.
const GRANTS: usize = 4_096;

/// How many calls are remembered as allowed once.
const ONCE: usize = 256;

/// Has somebody approve tool calls before they run: a gate that asks, or leaves the call to the host.
///
/// It fails closed: without an answer, after the time is up, and when asking fails, the call is blocked. It reaches every
/// sub-agent below the hooks it is attached to. Cloning shares what was allowed.
///
/// ```
/// # use zidane::hooks::{Approval, Approvals};
/// # fn example(agent: &zidane::Agent) {
/// let approvals = Approvals::ask(|request| async move {
///     println!("{} {} ?", request.name, request.input);
///     Ok::<_, std::io::Error>(if request.name == "read" { Approval::Session } else { Approval::Deny("no".into()) })
/// });
/// approvals.only(|request| request.name != "now").attach(agent.hooks());
/// # }
/// ```
#[derive(Clone)]
#[must_use = "approvals do nothing until they are attached"]
pub struct Approvals {
    mode: Mode,
    only: Option<Arc<Of<bool>>>,
    key: Option<Arc<Of<String>>>,
    patience: Duration,
    allowed: Arc<Mutex<Allowed>>,
}

type Ask = dyn Fn(ApprovalRequest) -> BoxFuture<'static, Result<Approval, BoxError>> + Send + Sync;

type Of<T> = dyn Fn(&ApprovalRequest) -> T + Send + Sync;

#[derive(Clone)]
enum Mode {
    Ask(Arc<Ask>),
    Defer,
}

/// A call that is to be approved.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The session of the agent that makes the call.
    pub session_id: String,
    /// Its run.
    pub run_id: String,
    /// How many agents are above it.
    pub depth: u32,
    /// The assistant turn that made the call.
    pub turn_id: String,
    /// The call.
    pub call_id: String,
    /// The canonical tool name.
    pub name: String,
    /// The name the model saw.
    pub display_name: String,
    /// What it would run with.
    pub input: Value,
}

/// The answer to an [`ApprovalRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Approval {
    /// This call may run.
    Once,
    /// This call may run, and every later one of the same session and key, without asking.
    Session,
    /// The call is blocked. The model reads the reason.
    Deny(String),
}

#[derive(Debug, Default)]
struct Allowed {
    /// Session and key.
    sessions: VecDeque<(String, String)>,
    /// Turn, call and digest: gates may see a call twice.
    once: VecDeque<(String, String, String)>,
}

fn remember<T: PartialEq>(list: &mut VecDeque<T>, value: T, most: usize) {
    if list.contains(&value) {
        return;
    }
    if list.len() >= most {
        list.pop_front();
    }
    list.push_back(value);
}

impl Approvals {
    /// Asks while the run waits. An error blocks the call, and so does an answer that does not come in time; see
    /// [`timeout`](Self::timeout). Calls that are gated together are asked about one after the other.
    pub fn ask<F, A, E>(ask: F) -> Self
    where
        F: Fn(ApprovalRequest) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Approval, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        Self::new(Mode::Ask(Arc::new(move |request| {
            let answer = ask(request);
            Box::pin(async move { answer.await.map_err(Into::into) })
        })))
    }

    /// Leaves calls to the host: the run ends with [`StopCause::Deferred`](crate::StopCause::Deferred), and goes on with
    /// the host's answers in another run. [`allow`](Self::allow) lets later calls of a session through.
    pub fn defer() -> Self {
        Self::new(Mode::Defer)
    }

    fn new(mode: Mode) -> Self {
        Self { mode, only: None, key: None, patience: PATIENCE, allowed: Arc::default() }
    }

    /// Which calls need to be approved. Default: all.
    pub fn only(mut self, needs: impl Fn(&ApprovalRequest) -> bool + Send + Sync + 'static) -> Self {
        self.only = Some(Arc::new(needs));
        self
    }

    /// What calls have in common that [`Approval::Session`] allows together, such as the tool and the folder it works in.
    /// Default: the canonical tool name.
    pub fn key(mut self, key: impl Fn(&ApprovalRequest) -> String + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    /// How long an answer may take. Default ten minutes.
    pub const fn timeout(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Allows calls of a session with this key from now on. At most 4,096 are remembered, the newest.
    pub fn allow(&self, session_id: impl Into<String>, key: impl Into<String>) {
        remember(&mut self.lock().sessions, (session_id.into(), key.into()), GRANTS);
    }

    /// Takes back what was allowed for a session.
    pub fn revoke(&self, session_id: &str) {
        self.lock().sessions.retain(|(session, _)| session != session_id);
    }

    /// Registers the gate, for these hooks and every agent below.
    pub fn attach(self, hooks: &Hooks) -> HookId {
        hooks.scope(Scope::Tree).on_async::<ToolGate>(move |cx| {
            let approvals = self.clone();
            Box::pin(async move { approvals.gate(cx).await })
        })
    }

    async fn gate(&self, cx: &mut ToolGateCx<'_>) {
        // The host has answered already.
        if cx.is_approved() {
            return;
        }
        let request = ApprovalRequest {
            session_id: cx.session_id().to_owned(),
            run_id: cx.run_id().to_owned(),
            depth: cx.depth(),
            turn_id: (**cx.call().turn_id()).to_owned(),
            call_id: cx.call_id().to_owned(),
            name: cx.name().to_owned(),
            display_name: cx.display_name().to_owned(),
            input: cx.input().clone(),
        };
        if self.only.as_ref().is_some_and(|needs| !needs(&request)) {
            return;
        }
        let key = self.key.as_ref().map_or_else(|| request.name.clone(), |key| key(&request));
        let digest = DeferredCall::digest_of(&request.name, cx.call().raw_arguments(), &request.input);
        let once = (request.turn_id.clone(), request.call_id.clone(), digest);
        let session = (request.session_id.clone(), key);
        {
            let allowed = self.lock();
            if allowed.sessions.contains(&session) || allowed.once.contains(&once) {
                return;
            }
        }
        let ask = match &self.mode {
            Mode::Ask(ask) => ask,
            Mode::Defer => return cx.defer(WAITS),
        };
        match tokio::time::timeout(self.patience, ask(request)).await {
            Ok(Ok(Approval::Once)) => remember(&mut self.lock().once, once, ONCE),
            Ok(Ok(Approval::Session)) => remember(&mut self.lock().sessions, session, GRANTS),
            Ok(Ok(Approval::Deny(reason))) => cx.block(reason),
            Ok(Err(error)) => {
                // The model need not know why.
                tracing::warn!(call = cx.call_id(), %error, "nobody could be asked to approve a call");
                cx.block(UNASKED);
            }
            Err(_) => cx.block(UNANSWERED),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Allowed> {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const WAITS: &str = "This call needs to be approved.";
const UNASKED: &str = "This call was blocked: it needs to be approved, and nobody could be asked.";
const UNANSWERED: &str = "This call was blocked: it needs to be approved, and nobody answered in time.";

impl std::fmt::Debug for Approvals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mode = match self.mode {
            Mode::Ask(_) => "ask",
            Mode::Defer => "defer",
        };
        let sessions = self.lock().sessions.len();
        f.debug_struct("Approvals").field("mode", &mode).field("allowed", &sessions).finish_non_exhaustive()
    }
}
