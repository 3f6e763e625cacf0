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
