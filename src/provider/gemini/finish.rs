use crate::types::TurnFinishReason;

/// The class of a finish reason, by name or, from clients that asked for numbers, by number. Source: the vendor's SDK,
/// 2026-11. The two APIs number what comes after 5 differently.
pub(super) fn class(raw: &str, has_calls: bool) -> TurnFinishReason {
    match raw.to_ascii_uppercase().as_str() {
        // The last two are what servers that imitate this wire say.
        "STOP" | "1" | "FUNCTION_CALL" | "TOOL_CALLS" if has_calls => TurnFinishReason::ToolCalls,
        "STOP" | "1" | "FUNCTION_CALL" | "TOOL_CALLS" => TurnFinishReason::Stop,
        "MAX_TOKENS" | "2" => TurnFinishReason::Length,
        "CONTINUATION" => TurnFinishReason::Pause,
        "SAFETY" | "3" | "RECITATION" | "4" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" => {
            TurnFinishReason::ContentFilter
        }
        "IMAGE_SAFETY" | "IMAGE_PROHIBITED_CONTENT" | "IMAGE_RECITATION" => TurnFinishReason::ContentFilter,
        "MODEL_ARMOR" | "ESCALATION" | "PUP_LIMITED_DISABLED" => TurnFinishReason::ContentFilter,
        "MALFORMED_FUNCTION_CALL" | "MALFORMED_RESPONSE" | "UNEXPECTED_TOOL_CALL" | "TOO_MANY_TOOL_CALLS" => {
            TurnFinishReason::Error
        }
        UNSIGNED => TurnFinishReason::Error,
        _ => TurnFinishReason::Other,
    }
}

/// The history lacks a signature: the same request fails again.
pub(super) const UNSIGNED: &str = "MISSING_THOUGHT_SIGNATURE";

#[cfg(test)]
mod tests {
    use super::*;
    use TurnFinishReason as R;

    #[test]
    fn reasons_are_classed_and_calls_beat_stop() {
        for (raw, expected) in [
            ("STOP", R::Stop),
            ("stop", R::Stop),
            ("MAX_TOKENS", R::Length),
            ("CONTINUATION", R::Pause),
            ("RECITATION", R::ContentFilter),
            ("MODEL_ARMOR", R::ContentFilter),
            ("IMAGE_SAFETY", R::ContentFilter),
            ("MALFORMED_FUNCTION_CALL", R::Error),
            (UNSIGNED, R::Error),
            ("OTHER", R::Other),
            ("NO_IMAGE", R::Other),
            ("made up", R::Other),
            ("5", R::Other),
        ] {
            assert_eq!(class(raw, false), expected, "{raw}");
        }
        assert_eq!(class("STOP", true), R::ToolCalls);
        assert_eq!(class("1", true), R::ToolCalls);
        assert_eq!(class("MAX_TOKENS", true), R::Length);
    }
}
