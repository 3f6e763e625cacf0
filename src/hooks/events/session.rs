use super::{context, marker};

marker! {
    /// `session:repaired`: the session had calls without results, or results without calls; both are settled now.
    SessionRepaired
}
context! {
    /// Context of [`SessionRepaired`].
    SessionRepairedCx { answered: &'a [String], dropped: &'a [String] }
}
impl SessionRepairedCx<'_> {
    /// Ids of the calls that were answered with a synthesized result.
    #[must_use]
    pub const fn answered(&self) -> &[String] {
        self.answered
    }

    /// Call ids of the results that were dropped.
    #[must_use]
    pub const fn dropped(&self) -> &[String] {
        self.dropped
    }
}

marker! {
    /// `session:saved`: turns were appended to the session.
    SessionSaved
}
context! {
    /// Context of [`SessionSaved`].
    SessionSavedCx { turns: usize }
}
impl SessionSavedCx<'_> {
    /// How many turns the session holds.
    #[must_use]
    pub const fn turns(&self) -> usize {
        self.turns
    }
}
