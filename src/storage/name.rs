use std::fmt::Write as _;

use uuid::Uuid;

/// Longer names are cut, and told apart by a digest.
const MAX_STEM: usize = 120;

/// Names that mean a device on some systems, whatever follows the first dot.
const DEVICES: [&str; 6] = ["con", "prn", "aux", "nul", "com", "lpt"];

/// A file name (without extension) for an id: the same for the same id, different for different ids, on file systems
/// that fold case too, and never a path, hidden, or a device.
///
/// Lower-case letters, digits, `-` and `_` stand for themselves, any other byte is `%` and two hex digits.
pub(crate) fn file_stem(id: &str) -> String {
    let mut stem = String::with_capacity(id.len());
    for (place, byte) in id.bytes().enumerate() {
        let safe = match byte {
            b'a'..=b'z' => place > 0 || !is_device(id),
            b'0'..=b'9' | b'-' | b'_' => true,
            _ => false,
        };
        if safe {
            stem.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(stem, "%{byte:02x}");
        }
        if stem.len() > MAX_STEM {
            // What is above is whole escapes; `~` occurs in no other name.
            let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, id.as_bytes());
            let _ = write!(stem, "~{}", digest.simple());
            return stem;
        }
    }
    if stem.is_empty() {
        stem.push('~');
    }
    stem
}

fn is_device(id: &str) -> bool {
    DEVICES.iter().any(|device| {
        id.strip_prefix(device).is_some_and(|rest| rest.is_empty() || (rest.len() == 1 && rest.as_bytes().is_ascii()))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn plain_ids_stay_as_they_are() {
        assert_eq!(file_stem("a-1_b"), "a-1_b");
        assert_eq!(file_stem("0195a3c4-7d6e-7b2a-9c1d-1f2e3d4c5b6a"), "0195a3c4-7d6e-7b2a-9c1d-1f2e3d4c5b6a");
        assert_eq!(file_stem("a/b"), "a%2fb");
        assert_eq!(file_stem(""), "~");
    }

    #[test]
    fn odd_ids_get_names_that_are_safe_and_differ() {
        let long = "x".repeat(5000);
        let longer = "x".repeat(5001);
        let ids = [
            "",
            ".",
            "..",
            "/",
            "../../etc/passwd",
            "a",
            "A",
            "%41",
            "a.",
            "a ",
            " a",
            "con",
            "nul",
            "com1",
            "lpt9",
            "NUL",
            "é",
            "e\u{301}",
            "\0",
            "\n",
            "~",
            "*",
            "a\\b",
            "C:",
            "日本",
            &long,
            &longer,
            "-",
            "_",
            "con.txt",
            "console",
        ];
        let mut seen = HashMap::new();
        for id in ids {
            let stem = file_stem(id);
            assert!(stem.len() <= 160 && !stem.is_empty(), "{stem}");
            assert!(stem.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'%' | b'~')), "{stem}");
            assert!(!is_device(&stem), "{stem}");
            assert_eq!(seen.insert(stem, id), None, "{id:?}");
        }
    }
}
