/// How deeply stored JSON may nest. `serde_json` reads 127 levels; what wraps an entry takes some of them.
const MAX_DEPTH: usize = 120;

/// Refuses JSON text that nests too deeply to be read back: stored once, it would make everything around it unreadable.
/// The error is the limit, in levels.
pub(crate) fn check_depth(json: &str) -> Result<(), usize> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for byte in json.bytes() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' | b'[' => {
                depth = depth.saturating_add(1);
                if depth > MAX_DEPTH {
                    return Err(MAX_DEPTH);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}\"]\\\"[\"{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn counts_levels_and_skips_strings() {
        check_depth(&nested(MAX_DEPTH)).unwrap();
        assert_eq!(check_depth(&nested(MAX_DEPTH + 1)), Err(MAX_DEPTH));
        check_depth(&"[\"[[[\\\"\",1],".repeat(500)).unwrap();
    }

    #[test]
    fn what_passes_can_be_read_inside_a_few_levels_more() {
        let wrapped = format!("[[[[[[{}]]]]]]", nested(MAX_DEPTH));
        serde_json::from_str::<serde_json::Value>(&wrapped).unwrap();
    }
}
