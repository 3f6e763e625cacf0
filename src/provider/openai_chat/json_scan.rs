/// Follows a JSON text as it streams, to tell whether it is one complete value. Keeps no text.
///
/// It counts brackets and quotes and does not validate: of a text that a model was cut in the middle of, it says that it
/// is not complete.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JsonScan {
    depth: usize,
    values: usize,
    in_string: bool,
    escaped: bool,
    in_scalar: bool,
}

impl JsonScan {
    pub(super) fn feed(&mut self, text: &str) {
        for byte in text.bytes() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            let scalar = !matches!(byte, b'{' | b'}' | b'[' | b']' | b'"' | b',' | b':') && !byte.is_ascii_whitespace();
            if self.depth == 0 && !byte.is_ascii_whitespace() && !(scalar && self.in_scalar) {
                self.values = self.values.saturating_add(1);
            }
            self.in_scalar = scalar;
            match byte {
                b'{' | b'[' => self.depth = self.depth.saturating_add(1),
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                b'"' => self.in_string = true,
                _ => {}
            }
        }
    }

    /// Nothing but white space so far.
    pub(super) const fn is_empty(&self) -> bool {
        self.values == 0
    }

    /// Exactly one value, closed.
    pub(super) const fn is_complete(&self) -> bool {
        self.values == 1 && self.depth == 0 && !self.in_string
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(pieces: &[&str]) -> bool {
        let mut scan = JsonScan::default();
        pieces.iter().for_each(|piece| scan.feed(piece));
        scan.is_complete()
    }

    #[test]
    fn one_closed_value_is_complete() {
        assert!(complete(&["{}"]));
        assert!(complete(&[" {\"a\":", "[1,{\"b\":\"}\\\"\"}", "]} \n"]));
        assert!(complete(&["\"te", "xt\""]));
        assert!(complete(&["nu", "ll"]));
        for cut in ["", "  ", "{", "{\"a", "{\"a\":\"}\"", "{\"a\":\"\\", "[1,2", "\"x"] {
            assert!(!complete(&[cut]), "{cut}");
        }
        assert!(!complete(&["{}", "{}"]), "two values are not one");
        assert!(!complete(&["{}{\"a\":"]));
        assert!(!complete(&["}"]) || complete(&["}"]), "never panics on stray brackets");
    }
}
