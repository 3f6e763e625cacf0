use super::{context, marker};

marker! {
    /// `stream:text`: the model said something. Live only: not told again on replay.
    StreamText
}
context! {
    /// Context of [`StreamText`].
    StreamTextCx { delta: &'a str, text: &'a str }
}
impl StreamTextCx<'_> {
    /// What is new.
    #[must_use]
    pub const fn delta(&self) -> &str {
        self.delta
    }

    /// The block's text so far, the delta included.
    #[must_use]
    pub const fn text(&self) -> &str {
        self.text
    }
}

marker! {
    /// `stream:thinking`: the model reasoned. Live only.
    StreamThinking
}
context! {
    /// Context of [`StreamThinking`].
    StreamThinkingCx { delta: &'a str, text: &'a str }
}
impl StreamThinkingCx<'_> {
    /// What is new.
    #[must_use]
    pub const fn delta(&self) -> &str {
        self.delta
    }

    /// The block's text so far, the delta included.
    #[must_use]
    pub const fn text(&self) -> &str {
        self.text
    }
}

marker! {
    /// `stream:end`: the answer of a turn is complete, or was cut. Live only.
    StreamEnd
}
context! {
    /// Context of [`StreamEnd`].
    StreamEndCx { text: &'a str, complete: bool }
}
impl StreamEndCx<'_> {
    /// All text of the turn.
    #[must_use]
    pub const fn text(&self) -> &str {
        self.text
    }

    /// False when the stream was cut.
    #[must_use]
    pub const fn complete(&self) -> bool {
        self.complete
    }
}

marker! {
    /// `stream:reset`: what was streamed of this turn is void; it will be streamed anew. Live only.
    StreamReset
}
context! {
    /// Context of [`StreamReset`].
    StreamResetCx { text: &'a str }
}
impl StreamResetCx<'_> {
    /// The discarded text.
    #[must_use]
    pub const fn text(&self) -> &str {
        self.text
    }
}
