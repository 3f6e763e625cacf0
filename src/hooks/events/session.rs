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
    /// `session:saved`: entries were appended to the stored session. It fires once they are stored; not for an append
    /// that nobody waited for, after a drop or an abort.
    SessionSaved
}
context! {
    /// Context of [`SessionSaved`].
    SessionSavedCx { entries: usize, version: u64 }
}
impl SessionSavedCx<'_> {
    /// How many entries were appended.
    #[must_use]
    pub const fn entries(&self) -> usize {
        self.entries
    }

    /// The session's version now: how many entries it has.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }
}
