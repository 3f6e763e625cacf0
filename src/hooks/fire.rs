use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;

use super::events::{HookError, HookErrorCx};
use super::hook::{BoxError, Handler, Hook};
use super::{HookBase, Hooks};

/// What made a handler fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HookCause {
    /// It returned an error.
    #[error("{0}")]
    Error(BoxError),
    /// It panicked.
    #[error("panicked: {0}")]
    Panic(String),
    /// It took longer than it may.
    #[error("timed out after {0:?}")]
    Timeout(Duration),
    /// The run was aborted while it worked.
    #[error("aborted")]
    Aborted,
}

/// A handler failed.
#[derive(Debug, thiserror::Error)]
#[error("hook {hook} failed: {cause}")]
#[non_exhaustive]
pub struct HookFailure {
    /// The event.
    pub hook: &'static str,
    /// Why.
    pub cause: HookCause,
}

/// Fires events for one run: the handlers, who is asking, and what may cut a handler short.
#[derive(Clone)]
pub(crate) struct Firing {
    pub(crate) hooks: Hooks,
    pub(crate) base: HookBase,
    pub(crate) abort: CancellationToken,
    /// How long an async handler may go on after an abort.
    pub(crate) grace: Duration,
}

impl Firing {
    pub(crate) fn has<H: Hook>(&self) -> bool {
        self.hooks.has::<H>()
    }

    /// Runs the handlers of an event until `stop` says so; the first failure ends it.
    pub(crate) async fn fire_until<H: Hook>(
        &self,
        cx: &mut H::Cx<'_>,
        stop: impl Fn(&H::Cx<'_>) -> bool,
    ) -> Result<(), HookFailure> {
        for entry in self.hooks.listeners::<H>().iter() {
            self.call::<H>(&*entry.handler, entry.timeout, cx).await?;
            if stop(cx) {
                break;
            }
        }
        Ok(())
    }

    pub(crate) async fn fire<H: Hook>(&self, cx: &mut H::Cx<'_>) -> Result<(), HookFailure> {
        self.fire_until::<H>(cx, |_| false).await
    }

    /// Runs the observers of an event; a failing one is logged, told to `hook:error`, and the rest still run.
    pub(crate) async fn observe<H: Hook>(&self, cx: &mut H::Cx<'_>) {
        for entry in self.hooks.listeners::<H>().iter() {
            if let Err(failure) = self.call::<H>(&*entry.handler, entry.timeout, cx).await {
                self.report(&failure).await;
            }
        }
    }

    /// Logs a failure and tells `hook:error`, whose own failures are only logged.
    pub(crate) async fn report(&self, failure: &HookFailure) {
        tracing::warn!(hook = failure.hook, cause = %failure.cause, "a hook failed");
        if failure.hook == HookError::NAME || !self.has::<HookError>() {
            return;
        }
        let mut cx = HookErrorCx::new(&self.base, failure);
        for entry in self.hooks.listeners::<HookError>().iter() {
            if let Err(again) = self.call::<HookError>(&*entry.handler, entry.timeout, &mut cx).await {
                tracing::warn!(hook = again.hook, cause = %again.cause, "a hook failed");
            }
        }
    }

    async fn call<H: Hook>(
        &self,
        handler: &(dyn Any + Send + Sync),
        timeout: Option<Duration>,
        cx: &mut H::Cx<'_>,
    ) -> Result<(), HookFailure> {
        let Some(handler) = handler.downcast_ref::<Handler<H>>() else { return Ok(()) };
        let outcome = match handler {
            Handler::Sync(f) => catch_unwind(AssertUnwindSafe(|| f(cx))),
            Handler::Async(f) => {
                let call = AssertUnwindSafe(async { f(&mut *cx).await }).catch_unwind();
                match self.bounded(call, timeout).await {
                    Ok(outcome) => outcome,
                    Err(cause) => return Err(HookFailure { hook: H::NAME, cause }),
                }
            }
        };
        let cause = match outcome {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => HookCause::Error(error),
            Err(panic) => HookCause::Panic(panic_text(&*panic)),
        };
        Err(HookFailure { hook: H::NAME, cause })
    }

    async fn bounded<T>(&self, call: impl Future<Output = T>, timeout: Option<Duration>) -> Result<T, HookCause> {
        let aborted = async {
            self.abort.cancelled().await;
            tokio::time::sleep(self.grace).await;
        };
        let expired = async {
            match timeout {
                Some(time) => {
                    tokio::time::sleep(time).await;
                    time
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            value = call => Ok(value),
            () = aborted => Err(HookCause::Aborted),
            time = expired => Err(HookCause::Timeout(time)),
        }
    }
}

/// The message of a panic, as far as it has one.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
