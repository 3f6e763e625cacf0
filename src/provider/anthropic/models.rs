use super::super::limits::{ManyImages, MediaLimits, RequestLimits};
use super::super::{Capabilities, ThinkingLevel};

/// What a family of models takes. Source: the vendor's model pages, 2026-11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// Part of the model id, with `-` for `.`.
    needle: &'static str,
    reasoning: Reasoning,
    off: Off,
    /// Takes a temperature, as long as it does not think.
    pub(super) sampling: bool,
    /// A forced tool choice is accepted.
    pub(super) forced_choice: bool,
    /// The output limit to send when the host names none.
    pub(super) max_tokens: u32,
    /// Reads PDFs, and keeps its output to a JSON schema.
    claude: bool,
    /// Its reasoning is refused after anything else than what was before it when it was made: system text, tools and
    /// messages.
    pub(super) binds: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reasoning {
    None,
    /// `thinking.type: enabled` with a budget.
    Budget,
    /// `thinking.type: adaptive` with `output_config.effort`.
    Adaptive,
}

/// What stands for "no thinking".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Off {
    Disabled,
    /// Thinks always: the lowest effort is nearest.
    Lowest,
    /// Refuses `disabled`, but can be kept from thinking up front.
    BetweenTools,
}

const fn row(needle: &'static str, reasoning: Reasoning, off: Off, sampling: bool, forced: bool, max: u32) -> Family {
    Family { needle, reasoning, off, sampling, forced_choice: forced, max_tokens: max, claude: true, binds: false }
}

const fn bound(needle: &'static str, off: Off, forced: bool) -> Family {
    Family { binds: true, ..row(needle, Adaptive, off, false, forced, 64_000) }
}

use Off::{BetweenTools, Disabled, Lowest};
use Reasoning::{Adaptive, Budget};

/// The first match counts. Output limits are well below what the models allow where that is very much, since a runaway
/// answer is paid for.
const FAMILIES: &[Family] = &[
    bound("fable-5-2", Lowest, false),
    bound("mythos-5-2", Lowest, false),
    bound("fable-5-1", Lowest, false),
    bound("mythos-5-1", Lowest, false),
    bound("haiku-5-5", Disabled, true),
    bound("sonnet-5-5", BetweenTools, false),
    bound("opus-5-5", Lowest, false),
    row("opus-5", Adaptive, Disabled, false, true, 64_000),
    row("sonnet-5", Adaptive, Disabled, false, true, 64_000),
    row("fable-5", Adaptive, Lowest, false, true, 64_000),
    row("mythos-5", Adaptive, Lowest, false, true, 64_000),
    row("mythos-preview", Adaptive, Lowest, false, false, 64_000),
    row("opus-4-8", Adaptive, Disabled, false, true, 64_000),
    row("opus-4-7", Adaptive, Disabled, false, true, 64_000),
    row("opus-4-6", Adaptive, Disabled, true, true, 64_000),
    row("sonnet-4-6", Adaptive, Disabled, true, true, 64_000),
    row("haiku-4-5", Budget, Disabled, true, true, 64_000),
    row("opus-4-5", Budget, Disabled, true, true, 64_000),
    row("sonnet-4-5", Budget, Disabled, true, true, 64_000),
    row("opus-4", Budget, Disabled, true, true, 32_000),
    row("sonnet-4", Budget, Disabled, true, true, 64_000),
    row("claude-3-7", Budget, Disabled, true, true, 64_000),
    row("claude-3-5", Reasoning::None, Disabled, true, true, 8_192),
    row("claude-3", Reasoning::None, Disabled, true, true, 4_096),
];

/// A Claude that is not known yet: the least that all newest models take.
const UNKNOWN: Family = bound("", Lowest, false);
/// Another vendor's model behind this wire: the form that most of them copied.
const OTHER: Family = Family { claude: false, ..row("", Budget, Disabled, true, true, 8_192) };

pub(super) fn family(model: &str) -> &'static Family {
    let model = model.to_ascii_lowercase().replace('.', "-");
    if !model.contains("claude") {
        return &OTHER;
    }
    FAMILIES.iter().find(|family| names(&model, family.needle)).unwrap_or(&UNKNOWN)
}

/// Whether a model id holds the needle. A digit behind it is part of a date: `fable-5-20260609` is no `fable-5-2`.
fn names(model: &str, needle: &str) -> bool {
    model.match_indices(needle).any(|(at, found)| {
        !model.get(at + found.len()..).is_some_and(|rest| rest.starts_with(|next: char| next.is_ascii_digit()))
    })
}

/// The thinking fields of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thinking {
    Disabled,
    BetweenTools { effort: &'static str },
    Adaptive { effort: &'static str },
    Enabled { budget: u32 },
}

/// Of one image and one document. Source: the vendor's vision pages, 2026-08.
const CLAUDE_MEDIA: MediaLimits = MediaLimits { image: Some(10 << 20), side: Some(8_000), document: Some(30 << 20) };

/// Of all media of a request, which may have 32 MB with its text. Source: the vendor's vision pages, 2026-08.
const CLAUDE_REQUEST: RequestLimits =
    RequestLimits { images: Some(600), many: Some(ManyImages { above: 20, side: 2_000 }), bytes: Some(30 << 20) };

impl Family {
    /// What is taken of all media together. Models with a short context take fewer images.
    pub(super) fn request_media(self) -> RequestLimits {
        match (self.claude, self.reasoning) {
            (false, _) => RequestLimits::default(),
            (true, Reasoning::Adaptive) => CLAUDE_REQUEST,
            (true, Reasoning::None | Reasoning::Budget) => RequestLimits { images: Some(100), ..CLAUDE_REQUEST },
        }
    }

    /// What is taken of one image or document. Another vendor's limits are its own.
    pub(super) fn media(self) -> MediaLimits {
        if self.claude { CLAUDE_MEDIA } else { MediaLimits::default() }
    }

    pub(super) fn capabilities(self) -> Capabilities {
        Capabilities {
            images: true,
            documents: self.claude,
            images_in_tool_results: true,
            documents_in_tool_results: self.claude,
            thinking: self.reasoning != Reasoning::None,
            native_structured_output: self.structured_output(),
            ..Capabilities::TEXT
        }
    }

    /// Whether `output_config.format` is taken.
    pub(super) fn structured_output(self) -> bool {
        self.claude && self.reasoning != Reasoning::None
    }

    /// The nearest thing to a level that the family takes. `None` sends nothing.
    pub(super) fn thinking(self, level: ThinkingLevel, max_tokens: u32, forced_choice: bool) -> Option<Thinking> {
        let effort = match level {
            ThinkingLevel::Off | ThinkingLevel::Minimal | ThinkingLevel::Low => "low",
            ThinkingLevel::Medium => "medium",
            ThinkingLevel::High => "high",
        };
        match (self.reasoning, level, self.off) {
            (Reasoning::None, ..) => None,
            (_, ThinkingLevel::Off, Disabled) => Some(Thinking::Disabled),
            (_, ThinkingLevel::Off, BetweenTools) => Some(Thinking::BetweenTools { effort }),
            (Adaptive, ..) => Some(Thinking::Adaptive { effort }),
            // A budget is at least 1,024 and less than the limit, and clashes with a forced choice.
            (Budget, ..) if max_tokens <= 1_024 || forced_choice => None,
            (Budget, ..) => {
                Some(Thinking::Enabled { budget: level.budget_tokens().min((max_tokens / 2).max(1_024)).max(1_024) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_own_name() {
        for row in FAMILIES {
            let found = family(&format!("claude-{}-20260101", row.needle));
            assert_eq!(family(&format!("claude-{}", row.needle)).needle, row.needle);
            assert_eq!(found.needle, row.needle);
        }
    }

    #[test]
    fn names_of_other_platforms_are_recognised() {
        assert_eq!(family("anthropic/claude-sonnet-4.5").needle, "sonnet-4-5");
        assert_eq!(family("anthropic.claude-opus-5-5-v1:0").needle, "opus-5-5");
        assert_eq!(family("claude-3-5-haiku-20241022").needle, "claude-3-5");
        assert_eq!(*family("claude-opus-9"), UNKNOWN);
        assert_eq!(*family("deepseek-v4-pro"), OTHER);
    }

    #[test]
    fn a_level_becomes_the_nearest_that_is_taken() {
        let thinking = |model: &str, level, max| family(model).thinking(level, max, false);
        let adaptive = |effort| Some(Thinking::Adaptive { effort });
        assert_eq!(thinking("claude-opus-5-5", ThinkingLevel::Off, 9_000), adaptive("low"));
        assert_eq!(thinking("claude-opus-5-5", ThinkingLevel::High, 9_000), adaptive("high"));
        assert_eq!(
            thinking("claude-sonnet-5-5", ThinkingLevel::Off, 9_000),
            Some(Thinking::BetweenTools { effort: "low" })
        );
        assert_eq!(thinking("claude-haiku-5-5", ThinkingLevel::Off, 9_000), Some(Thinking::Disabled));
        assert_eq!(thinking("claude-3-5-haiku", ThinkingLevel::High, 9_000), None);
        let budget = |budget| Some(Thinking::Enabled { budget });
        assert_eq!(thinking("claude-haiku-4-5", ThinkingLevel::High, 64_000), budget(32_000));
        assert_eq!(thinking("claude-haiku-4-5", ThinkingLevel::Minimal, 64_000), budget(1_024));
        assert_eq!(thinking("claude-haiku-4-5", ThinkingLevel::High, 1_100), budget(1_024));
        assert_eq!(thinking("claude-haiku-4-5", ThinkingLevel::High, 1_024), None);
        assert_eq!(family("claude-haiku-4-5").thinking(ThinkingLevel::High, 64_000, true), None);
    }
}
