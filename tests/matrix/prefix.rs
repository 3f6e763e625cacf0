//! The messages of a request begin with those of the one before it, byte for byte.

use super::strict_json;
use super::wire::{End, Wire};

/// Where requests are no continuation of the one before. The last message of Gemini may grow: the parts of one side that
/// follow each other are one content there.
pub(crate) fn breaks(end: End, bodies: &[Vec<u8>]) -> Vec<String> {
    let mut found = Vec::new();
    for (at, pair) in bodies.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        let (Some(before), Some(after)) =
            (strict_json::field(before, end.messages_field()), strict_json::field(after, end.messages_field()))
        else {
            found.push(format!("request {at}: no messages"));
            continue;
        };
        let tail = if end.wire == Wire::Gemini { "]}]" } else { "]" };
        let kept = before.strip_suffix(tail).unwrap_or(before);
        if !after.starts_with(kept) {
            let same = kept.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
            let around = |text: &str| {
                String::from_utf8_lossy(&text.as_bytes()[same.saturating_sub(60)..])
                    .chars()
                    .take(120)
                    .collect::<String>()
            };
            found.push(format!(
                "request {}: byte {same} is not what it was: {} / {}",
                at + 1,
                around(kept),
                around(after)
            ));
        }
    }
    found
}
