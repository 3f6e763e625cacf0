/// Bytes that end the plain part of a string: its quote, an escape, what JSON forbids.
const STOPS: [bool; 256] = {
    let mut stops = [false; 256];
    let mut byte = 0;
    while byte < 0x20 {
        stops[byte] = true;
        byte += 1;
    }
    stops[b'"' as usize] = true;
    stops[b'\\' as usize] = true;
    stops
};

/// Where the plain part ends. Deltas are short; a search that is made for long texts would take longer to begin.
fn stop(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| STOPS[usize::from(*byte)])
}

/// The length of a string's text up to its closing quote, if it holds no escapes.
pub(crate) fn plain_string(bytes: &[u8]) -> Option<usize> {
    let end = stop(bytes)?;
    (bytes.get(end) == Some(&b'"')).then_some(end)
}

/// The text of a JSON string whose opening quote was read, and what follows from its closing quote on. `None` for what
/// needs a parser: `\u` escapes, control characters, bytes that are not UTF-8.
pub(crate) fn json_string(bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut text = String::new();
    let mut rest = bytes;
    loop {
        let at = stop(rest)?;
        let (plain, after) = rest.split_at_checked(at)?;
        let plain = std::str::from_utf8(plain).ok()?;
        let escape = match after.first()? {
            b'"' if text.is_empty() => return Some((plain.to_owned(), after)),
            b'"' => {
                text.push_str(plain);
                return Some((text, after));
            }
            b'\\' => after.get(1)?,
            _ => return None,
        };
        if text.is_empty() {
            // Argument deltas are full of quotes.
            text.reserve(plain.len() + 16);
        }
        text.push_str(plain);
        text.push(match escape {
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
    fn agrees_with_a_parser_or_leaves_it_to_one() {
        for json in [
            r#""""#,
            r#""plain""#,
            r#""é🌍""#,
            r#""a\n\t\"\\\/\r\b\f z""#,
            r#""\"{\"""#,
            r#""\u00e9""#,
            r#""\x""#,
            "\"a\nb\"",
            r#""open"#,
            r#""open\"#,
            "",
        ] {
            let rest = json.strip_prefix('"').unwrap_or_default();
            let parsed = serde_json::from_str::<String>(json).ok();
            match json_string(rest.as_bytes()) {
                Some((text, end)) => assert_eq!((Some(text), end), (parsed, &b"\""[..]), "{json}"),
                None => assert!(parsed.is_none() || json.contains("\\u"), "{json}"),
            }
            let plain = plain_string(rest.as_bytes());
            assert_eq!(plain.is_some(), !json.contains('\\') && serde_json::from_str::<String>(json).is_ok(), "{json}");
        }
        assert_eq!(json_string(b"\xff\""), None);
        assert_eq!(json_string(b"a\"tail"), Some(("a".to_owned(), &b"\"tail"[..])));
    }

    #[test]
    fn what_needs_no_parser_is_read_and_the_rest_is_left() {
        let read = |json: &str| json_string(json.as_bytes()).map(|(text, rest)| (text, rest.to_vec()));
        assert_eq!(read(r#"a\n\"b","#), Some(("a\n\"b".to_owned(), b"\",".to_vec())));
        for left in ["no end", "\\u00e9\"", "\n\"", "\\"] {
            assert_eq!(read(left), None, "{left:?}");
        }
    }
}
