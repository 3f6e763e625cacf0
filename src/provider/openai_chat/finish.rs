use super::profile::ChatProfile;
use crate::types::TurnFinishReason;

/// Finish words of the wire and of every vendor known, lower case. The vendor's own word stands beside the class.
const WORDS: &[(&str, TurnFinishReason)] = &[
    ("stop", TurnFinishReason::Stop),
    ("tool_calls", TurnFinishReason::ToolCalls),
    ("length", TurnFinishReason::Length),
    ("content_filter", TurnFinishReason::ContentFilter),
    ("function_call", TurnFinishReason::ToolCalls),
    // Together, text-generation-inference, and names of other wires that gateways let through.
    ("eos", TurnFinishReason::Stop),
    ("eos_token", TurnFinishReason::Stop),
    ("stop_sequence", TurnFinishReason::Stop),
    ("end_turn", TurnFinishReason::Stop),
    ("end", TurnFinishReason::Stop),
    ("completed", TurnFinishReason::Stop),
    ("complete", TurnFinishReason::Stop),
    ("tool_use", TurnFinishReason::ToolCalls),
    ("tool_call", TurnFinishReason::ToolCalls),
    ("max_tokens", TurnFinishReason::Length),
    ("max_output_tokens", TurnFinishReason::Length),
    // Mistral, Z.ai.
    ("model_length", TurnFinishReason::Length),
    ("model_context_window_exceeded", TurnFinishReason::Length),
    ("sensitive", TurnFinishReason::ContentFilter),
    ("safety", TurnFinishReason::ContentFilter),
    ("refusal", TurnFinishReason::ContentFilter),
    // OpenRouter and Mistral, DeepSeek, Z.ai, vLLM.
    ("error", TurnFinishReason::Error),
    ("insufficient_system_resource", TurnFinishReason::Error),
    ("network_error", TurnFinishReason::Error),
    ("abort", TurnFinishReason::Error),
];

/// The class of a finish word. An unknown one is `Other`; none, in an answer that ended well, is `Stop`.
pub(super) fn class(profile: &ChatProfile, raw: Option<&str>) -> TurnFinishReason {
    let Some(raw) = raw else { return TurnFinishReason::Stop };
    let own = profile.finish_words.iter().find(|(word, _)| word.eq_ignore_ascii_case(raw)).map(|(_, class)| *class);
    let known = || WORDS.iter().find(|(word, _)| word.eq_ignore_ascii_case(raw)).map(|(_, class)| *class);
    own.or_else(known).unwrap_or(TurnFinishReason::Other)
}

/// The class, corrected by what the answer holds: vendors say `stop` with calls, and `tool_calls` without any.
pub(super) const fn corrected(class: TurnFinishReason, calls: bool, refused: bool) -> TurnFinishReason {
    match class {
        TurnFinishReason::Stop if refused => TurnFinishReason::ContentFilter,
        TurnFinishReason::Stop if calls => TurnFinishReason::ToolCalls,
        TurnFinishReason::ToolCalls if !calls => TurnFinishReason::Stop,
        class => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_classed_whatever_their_case() {
        let profile = ChatProfile {
            finish_words: vec![("eos".into(), TurnFinishReason::Length)].into(),
            ..ChatProfile::custom("")
        };
        assert_eq!(class(&profile, Some("STOP")), TurnFinishReason::Stop);
        assert_eq!(class(&profile, Some("eos")), TurnFinishReason::Length, "the profile's own word wins");
        assert_eq!(class(&profile, Some("dancing")), TurnFinishReason::Other);
        assert_eq!(class(&profile, None), TurnFinishReason::Stop);
        assert_eq!(class(&profile, Some("network_error")), TurnFinishReason::Error);
    }

    #[test]
    fn calls_present_beat_the_word() {
        use TurnFinishReason as R;
        assert_eq!(corrected(R::Stop, true, false), R::ToolCalls);
        assert_eq!(corrected(R::ToolCalls, false, false), R::Stop);
        assert_eq!(corrected(R::Length, true, false), R::Length);
        assert_eq!(corrected(R::Stop, false, true), R::ContentFilter);
        assert_eq!(corrected(R::Other, true, false), R::Other);
    }
}
