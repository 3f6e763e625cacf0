use std::fmt;
use std::sync::Arc;

/// A key or token. Prints as `***`; only the wires read it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a secret.
    pub fn new(secret: impl Into<String>) -> Self {
        Self(secret.into().into())
    }

    /// Whether it is blank.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.trim().is_empty()
    }

    pub(crate) fn expose(&self) -> &str {
        self.0.trim()
    }

    /// Removes the secret from a text that may echo it.
    pub(crate) fn scrub(&self, text: &mut String) {
        // Anything shorter is no secret, and replacing it would eat ordinary text.
        if self.expose().len() >= 6 && text.contains(self.expose()) {
            *text = text.replace(self.expose(), "***");
        }
    }
}

impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self::new(secret)
    }
}

impl From<&str> for Secret {
    fn from(secret: &str) -> Self {
        Self::new(secret)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints() {
        let secret = Secret::from("sk-test-12345");
        assert_eq!(format!("{secret} {secret:?}"), "*** ***");
    }

    #[test]
    fn an_echo_is_scrubbed() {
        let mut text = "bad key sk-test-12345 given".to_owned();
        Secret::from(" sk-test-12345\n").scrub(&mut text);
        assert_eq!(text, "bad key *** given");
    }
}
