use std::sync::Arc;

use tokio::sync::oneshot;

use crate::agent::context::RunCx;
use crate::agent::event::AgentEvent;
use crate::hooks::{ChildInfo, SpawnBefore, SpawnBeforeCx, SpawnComplete, SpawnCompleteCx, SpawnError, SpawnErrorCx};
use crate::types::{AgentStats, ChildStatus};

/// What the loop is told of a run that a tool spawns.
pub(in crate::agent) struct SpawnReport {
    pub(super) child: Arc<ChildInfo>,
    pub(super) task: Arc<str>,
    pub(super) what: What,
}

pub(super) enum What {
    /// The child waits until it was told.
    Begins {
        told: oneshot::Sender<()>,
    },
    Refused {
        error: String,
    },
    Ended {
        status: ChildStatus,
        stats: AgentStats,
        error: Option<String>,
    },
}

impl SpawnReport {
    /// Whether anybody is told anything.
    pub(super) fn is_heard(cx: &RunCx) -> bool {
        let firing = &cx.firing;
        cx.outlet.is_some()
            || firing.has::<SpawnBefore>()
            || firing.has::<SpawnComplete>()
            || firing.has::<SpawnError>()
    }

    /// Tells the observers and the stream of the run that spawned it.
    pub(in crate::agent) async fn tell(self, cx: &RunCx) {
        let Self { child, task, what } = self;
        let (firing, base) = (&cx.firing, &cx.firing.base);
        match what {
            What::Begins { told } => {
                if firing.has::<SpawnBefore>() {
                    firing.observe::<SpawnBefore>(&mut SpawnBeforeCx::new(base, &child, &task)).await;
                }
                cx.emit(|| AgentEvent::ChildStart { child, task: (*task).to_owned() }).await;
                // Nobody waits any more when the call was cut.
                let _ = told.send(());
            }
            What::Refused { error } => {
                if firing.has::<SpawnError>() {
                    let mut hook_cx = SpawnErrorCx::new(base, &child, &task, ChildStatus::Failed, &error);
                    firing.observe::<SpawnError>(&mut hook_cx).await;
                }
            }
            What::Ended { status, stats, error } => {
                if let Some(error) = error
                    && firing.has::<SpawnError>()
                {
                    let mut hook_cx = SpawnErrorCx::new(base, &child, &task, status, &error);
                    firing.observe::<SpawnError>(&mut hook_cx).await;
                }
                if firing.has::<SpawnComplete>() {
                    let mut hook_cx = SpawnCompleteCx::new(base, &child, &task, status, &stats);
                    firing.observe::<SpawnComplete>(&mut hook_cx).await;
                }
                cx.emit(|| AgentEvent::ChildEnd { child, status }).await;
            }
        }
    }
}
