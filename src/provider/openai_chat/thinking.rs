use std::borrow::Cow;

use super::profile::matches;
use crate::provider::ThinkingLevel;

/// How thinking is asked for at some models of a vendor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThinkingRule {
    /// Which models: a pattern as in [`Models::Matching`](super::Models::Matching); empty means all.
    pub models: Cow<'static, str>,
    /// How it is asked for.
    pub switch: ThinkingSwitch,
}

impl ThinkingRule {
    /// A rule.
    pub const fn new(models: &'static str, switch: ThinkingSwitch) -> Self {
        Self { models: Cow::Borrowed(models), switch }
    }
}

/// The fields by which thinking is asked for. Words are the efforts that a model takes; a level that is not among
/// them becomes the nearest one, `Off` only where there is a word for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ThinkingSwitch {
    /// Nothing is sent.
    Fixed,
    /// `reasoning_effort: word`.
    Effort(&'static [Effort]),
    /// `reasoning: {effort: word}` (OpenRouter).
    ReasoningEffort(&'static [Effort]),
    /// `reasoning: {enabled}`, with `reasoning_effort: word` when enabled and there are words (Together).
    ReasoningEnabled(&'static [Effort]),
    /// `thinking: {type: enabled | disabled}`, with `reasoning_effort: word` when enabled and there are words.
    ThinkingType(&'static [Effort]),
    /// `enable_thinking`, and `thinking_budget` in tokens when enabled (Qwen).
    EnableThinking,
    /// `chat_template_kwargs: {enable_thinking, thinking}`, with `reasoning_effort: word` when enabled (vLLM).
    Template(&'static [Effort]),
    /// `prompt_mode: "reasoning"`, left out for `Off` (Mistral's older reasoning models).
    PromptMode,
}

/// An effort word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Effort {
    /// `none`: no thinking.
    None,
    /// `minimal`.
    Minimal,
    /// `low`.
    Low,
    /// `medium`.
    Medium,
    /// `default`: on, at a strength of the model's own.
    Default,
    /// `high`.
    High,
    /// `max`.
    Max,
}

impl Effort {
    const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::Default => "default",
            Self::High => "high",
            Self::Max => "max",
        }
    }

    const fn strength(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Minimal => 1,
            Self::Low => 2,
            Self::Medium | Self::Default => 3,
            Self::High => 4,
            Self::Max => 6,
        }
    }
}

const fn strength(level: ThinkingLevel) -> u8 {
    match level {
        ThinkingLevel::Off => 0,
        ThinkingLevel::Minimal => 1,
        ThinkingLevel::Low => 2,
        ThinkingLevel::Medium => 3,
        ThinkingLevel::High => 4,
    }
}

/// The nearest word; of two equally near the stronger. A level that is on never becomes off.
fn nearest(level: ThinkingLevel, words: &[Effort]) -> Option<&'static str> {
    let wanted = strength(level);
    words
        .iter()
        .filter(|word| level == ThinkingLevel::Off || **word != Effort::None)
        .min_by_key(|word| (word.strength().abs_diff(wanted), u8::MAX - word.strength()))
        .map(|word| word.as_str())
}

/// The word for `level` at `model`, where effort is what its rule sends.
pub(in crate::provider) fn effort_word(
    rules: &[ThinkingRule],
    model: &str,
    level: ThinkingLevel,
) -> Option<&'static str> {
    match rules.iter().find(|rule| matches(&rule.models, model))?.switch {
        ThinkingSwitch::Effort(words) | ThinkingSwitch::ReasoningEffort(words) => nearest(level, words),
        _ => None,
    }
}

/// A top-level field of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) name: &'static str,
    /// JSON text.
    pub(super) value: Cow<'static, str>,
}

fn field(name: &'static str, value: impl Into<Cow<'static, str>>) -> Field {
    Field { name, value: value.into() }
}

fn effort(word: Option<&'static str>) -> Option<Field> {
    word.map(|word| field("reasoning_effort", format!("\"{word}\"")))
}

/// The fields that ask `model` for `level`.
pub(super) fn fields(rules: &[ThinkingRule], model: &str, level: ThinkingLevel) -> Vec<Field> {
    let Some(rule) = rules.iter().find(|rule| matches(&rule.models, model)) else { return Vec::new() };
    let on = level != ThinkingLevel::Off;
    let mut out = Vec::new();
    match rule.switch {
        ThinkingSwitch::Fixed => {}
        ThinkingSwitch::Effort(words) => out.extend(effort(nearest(level, words))),
        ThinkingSwitch::ReasoningEffort(words) => {
            out.extend(nearest(level, words).map(|word| field("reasoning", format!("{{\"effort\":\"{word}\"}}"))));
        }
        ThinkingSwitch::ReasoningEnabled(words) => {
            out.push(field("reasoning", if on { "{\"enabled\":true}" } else { "{\"enabled\":false}" }));
            out.extend(effort(on.then(|| nearest(level, words)).flatten()));
        }
        ThinkingSwitch::ThinkingType(words) => {
            out.push(field("thinking", if on { "{\"type\":\"enabled\"}" } else { "{\"type\":\"disabled\"}" }));
            out.extend(effort(on.then(|| nearest(level, words)).flatten()));
        }
        ThinkingSwitch::EnableThinking => {
            out.push(field("enable_thinking", if on { "true" } else { "false" }));
            if on {
                out.push(field("thinking_budget", level.budget_tokens().to_string()));
            }
        }
        ThinkingSwitch::Template(words) => {
            let kwargs = format!("{{\"enable_thinking\":{on},\"thinking\":{on}}}");
            out.push(field("chat_template_kwargs", kwargs));
            out.extend(effort(on.then(|| nearest(level, words)).flatten()));
        }
        ThinkingSwitch::PromptMode if on => out.push(field("prompt_mode", "\"reasoning\"")),
        ThinkingSwitch::PromptMode => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(level: ThinkingLevel, words: &'static [Effort]) -> Option<&'static str> {
        nearest(level, words)
    }

    #[test]
    fn a_level_becomes_the_nearest_word() {
        use Effort::{High, Low, Max, Medium, Minimal, None};
        assert_eq!(word(ThinkingLevel::Off, &[None, Low, Medium, High]), Some("none"));
        assert_eq!(word(ThinkingLevel::Off, &[Low, Medium, High]), Some("low"));
        assert_eq!(word(ThinkingLevel::Minimal, &[None, Low, High]), Some("low"));
        assert_eq!(word(ThinkingLevel::Medium, &[Low, High, Max]), Some("high"));
        assert_eq!(word(ThinkingLevel::High, &[Low, High, Max]), Some("high"));
        assert_eq!(word(ThinkingLevel::Minimal, &[None, High]), Some("high"), "on never becomes off");
        assert_eq!(word(ThinkingLevel::Minimal, &[Minimal, Low]), Some("minimal"));
        assert_eq!(word(ThinkingLevel::High, &[]), Option::None);
    }

    #[test]
    fn the_first_matching_rule_decides() {
        let rules = [
            ThinkingRule::new("^k3", ThinkingSwitch::Effort(&[Effort::Low, Effort::High])),
            ThinkingRule::new("^k2.7", ThinkingSwitch::Fixed),
            ThinkingRule::new("", ThinkingSwitch::ThinkingType(&[])),
        ];
        assert_eq!(fields(&rules, "k3-x", ThinkingLevel::Off), vec![field("reasoning_effort", "\"low\"")]);
        assert_eq!(fields(&rules, "k2.7-code", ThinkingLevel::Off), vec![]);
        assert_eq!(fields(&rules, "k2.5", ThinkingLevel::Off), vec![field("thinking", "{\"type\":\"disabled\"}")]);
        assert_eq!(fields(&rules, "k2.5", ThinkingLevel::High), vec![field("thinking", "{\"type\":\"enabled\"}")]);
    }
}
