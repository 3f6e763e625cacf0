use uuid::Uuid;

/// What an API binds reasoning to, rolled into a digest as it is encoded: the same bytes in the same order give the
/// same one, in every process. Reasoning itself is not part of it, or leaving some out would void all that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefixDigest(Uuid);

impl PrefixDigest {
    pub(crate) const fn new() -> Self {
        Self(Uuid::nil())
    }

    /// Adds what comes next.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0 = Uuid::new_v5(&self.0, bytes);
    }

    /// Whether a stored text is of this one.
    pub(crate) fn is(&self, stored: &str) -> bool {
        let mut buffer = [0; uuid::fmt::Simple::LENGTH];
        self.0.simple().encode_lower(&mut buffer) == stored
    }
}

impl std::fmt::Display for PrefixDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.simple().fmt(f)
    }
}

/// What is known of the reasoning in a body that was encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Of all that was encoded.
    pub(crate) digest: PrefixDigest,
    /// Turns from the start whose reasoning is left out, since what it was bound to is not what is sent.
    pub(crate) dropped: usize,
}
