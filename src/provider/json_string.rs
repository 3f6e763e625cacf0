use memchr::memchr2;

/// The text of a JSON string whose opening quote was read, and what follows from its closing quote on. `None` for what
/// needs a parser: `\u` escapes, control characters, bytes that are not UTF-8.
pub(crate) fn json_string(bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut text = String::new();
    let mut rest = bytes;
    loop {
        let at = memchr2(b'"', b'\\', rest)?;
        let (plain, after) = rest.split_at_checked(at)?;
        if plain.iter().any(|byte| *byte < 0x20) {
            return None;
        }
        let plain = std::str::from_utf8(plain).ok()?;
        if after.first() == Some(&b'"') {
            if text.is_empty() {
                return Some((plain.to_owned(), after));
            }
            text.push_str(plain);
            return Some((text, after));
        }
        text.push_str(plain);
        text.push(match after.get(1)? {
            b'n' => '\n',
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            _ => return None,
        });
        rest = after.get(2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_parser_is_read_and_the_rest_is_left() {
        let read = |json: &str| json_string(json.as_bytes()).map(|(text, rest)| (text, rest.to_vec()));
        assert_eq!(read(r#"a\n\"b","#), Some(("a\n\"b".to_owned(), b"\",".to_vec())));
        for left in ["no end", "\\u00e9\"", "\n\"", "\\"] {
            assert_eq!(read(left), None, "{left:?}");
        }
    }
}
