use std::sync::{Arc, Mutex};

use super::derived::Unreasoned;
use super::options::AgentOptions;
use super::vision::StandIns;
use crate::clock::Clock;
use crate::control::AgentHandle;
use crate::decision::{Decider, DecisionLedger};
use crate::durable::DurableRuntime;
use crate::hooks::Hooks;
use crate::provider::{Provider, RequestHead};
use crate::session::LiveSession;
use crate::tool::{Extensions, ToolSet};
use crate::tool_state::ToolStateController;

/// What an agent is made of, shared by its clones and runs.
pub(super) struct AgentInner {
    pub(super) provider: Arc<dyn Provider>,
    pub(super) head: Arc<RequestHead>,
    pub(super) tools: Arc<ToolSet>,
    pub(super) options: AgentOptions,
    pub(super) hooks: Hooks,
    pub(super) handle: AgentHandle,
    pub(super) session: LiveSession,
    pub(super) tool_state: ToolStateController,
    pub(super) extensions: Arc<Extensions>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) durable: Option<Arc<dyn DurableRuntime>>,
    pub(super) decider: Decider,
    /// What decisions have used that no run has filed yet.
    pub(super) decisions: DecisionLedger,
    pub(super) stand_ins: Mutex<StandIns>,
    pub(super) unreasoned: Mutex<Unreasoned>,
}
