use super::{context, marker};
use crate::control::{MessageId, QueueKind};
use crate::types::SessionTurn;

marker! {
    /// `steer:inject`: a steering message became a turn of the session.
    SteerInject
}
context! {
    /// Context of [`SteerInject`].
    SteerInjectCx { id: MessageId, turn: &'a SessionTurn }
}
impl SteerInjectCx<'_> {
    /// The message.
    #[must_use]
    pub const fn id(&self) -> MessageId {
        self.id
    }

    /// The turn it became.
    #[must_use]
    pub const fn turn(&self) -> &SessionTurn {
        self.turn
    }
}

marker! {
    /// `queue:update`: messages left a queue.
    QueueUpdate
}
context! {
    /// Context of [`QueueUpdate`].
    QueueUpdateCx { kind: QueueKind, delivered: &'a [MessageId], waiting: usize }
}
impl QueueUpdateCx<'_> {
    /// Which queue.
    #[must_use]
    pub const fn kind(&self) -> QueueKind {
        self.kind
    }

    /// The messages that left it.
    #[must_use]
    pub const fn delivered(&self) -> &[MessageId] {
        self.delivered
    }

    /// How many still wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }
}
