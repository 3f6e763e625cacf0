use super::super::{Capabilities, ThinkingLevel};

/// What a model takes. Read off its id. Source: the vendor's model pages and reported server errors, 2026-11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Family {
    generation: Generation,
    control: Control,
    /// Makes or reads something other than text for its living: no thinking is asked of it.
    special: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Generation {
    /// Open weights on the same API, or another vendor's model behind it.
    Other,
    /// Up to 2.5.
    Two,
    Three,
    /// And what is not known yet.
    Four,
}

/// How thinking is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Control {
    None,
    /// `thinkingBudget`, within these bounds; 0 where it can be switched off.
    Budget {
        min: u32,
        max: u32,
        off: bool,
    },
    /// `thinkingLevel`, one of these, lowest first.
    Level(&'static [Level]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Minimal,
    Low,
    Medium,
    High,
}

use Level::{High, Low, Medium, Minimal};

const FROM_MINIMAL: Control = Control::Level(&[Minimal, Low, Medium, High]);
/// What every model with levels takes but the first.
const FROM_LOW: Control = Control::Level(&[Low, Medium, High]);

/// Parts of model ids. The first match counts.
const CONTROLS: &[(&str, Control)] = &[
    ("gemini-2.5-pro", Control::Budget { min: 128, max: 32_768, off: false }),
    ("2.5-flash-lite", Control::Budget { min: 512, max: 24_576, off: true }),
    ("2.5-flash", Control::Budget { min: 1, max: 24_576, off: true }),
    ("gemini-3-flash", FROM_MINIMAL),
    ("gemini-3-pro", Control::Level(&[Low, High])),
    ("gemini-3.5-flash-lite", FROM_MINIMAL),
    ("gemini-3.6-flash", FROM_MINIMAL),
];

/// The thinking fields of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thinking {
    Budget(u32),
    Level(&'static str),
}

pub(super) fn family(model: &str) -> Family {
    let model = model.rsplit('/').next().unwrap_or(model).to_ascii_lowercase();
    let special = ["-image", "-tts", "embedding", "-audio"].iter().any(|part| model.contains(part));
    if !model.starts_with("gemini") {
        return Family { generation: Generation::Other, control: Control::None, special };
    }
    let version = model.split('-').find(|part| part.starts_with(|first: char| first.is_ascii_digit()));
    let major = version.and_then(|version| version.split('.').next()).and_then(|major| major.parse::<u32>().ok());
    let generation = match major {
        Some(0..=2) => Generation::Two,
        Some(3) => Generation::Three,
        // An alias such as `gemini-pro-latest` names the newest.
        Some(_) | None => Generation::Four,
    };
    let known = CONTROLS.iter().find(|(part, _)| model.contains(part)).map(|(_, control)| *control);
    let control = known.unwrap_or(if generation == Generation::Two { Control::None } else { FROM_LOW });
    Family { generation, control, special }
}

impl Family {
    pub(super) fn capabilities(self) -> Capabilities {
        let gemini = self.generation > Generation::Other;
        Capabilities {
            images: true,
            documents: gemini,
            images_in_tool_results: self.media_in_results(),
            documents_in_tool_results: self.media_in_results(),
            thinking: self.control != Control::None && !self.special,
            native_structured_output: self.structured_output(),
            ..Capabilities::TEXT
        }
    }

    /// A schema for the answer may stand beside tools. Older models take one or the other.
    pub(super) fn structured_output(self) -> bool {
        self.generation >= Generation::Three && !self.special
    }

    /// Function responses may hold images and files.
    pub(super) fn media_in_results(self) -> bool {
        self.generation >= Generation::Three
    }

    /// Refuses a step whose first call is not signed.
    pub(super) fn wants_signatures(self) -> bool {
        self.generation >= Generation::Three
    }

    /// Knows `id` on calls and responses; older ones refuse the field.
    pub(super) fn call_ids(self) -> bool {
        self.generation >= Generation::Three
    }

    /// Knows the mode `VALIDATED`.
    pub(super) fn validates_calls(self) -> bool {
        self.generation >= Generation::Three
    }

    /// Still heeds a temperature.
    pub(super) fn sampling(self) -> bool {
        self.generation < Generation::Four
    }

    /// Reads office files besides PDF.
    pub(super) fn office_documents(self) -> bool {
        self.generation >= Generation::Four
    }

    /// The nearest thing to a level that the model takes. `None` sends nothing.
    pub(super) fn thinking(self, level: ThinkingLevel) -> Option<Thinking> {
        if self.special {
            return None;
        }
        match self.control {
            Control::None => None,
            Control::Budget { off: true, .. } if level == ThinkingLevel::Off => Some(Thinking::Budget(0)),
            Control::Budget { min, max, .. } => Some(Thinking::Budget(level.budget_tokens().clamp(min, max))),
            Control::Level(levels) => {
                let wanted = match level {
                    ThinkingLevel::Off | ThinkingLevel::Minimal => Minimal,
                    ThinkingLevel::Low => Low,
                    ThinkingLevel::Medium => Medium,
                    ThinkingLevel::High => High,
                };
                let nearest = levels.iter().find(|level| **level >= wanted).or(levels.last())?;
                Some(Thinking::Level(nearest.name()))
            }
        }
    }
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Minimal => "MINIMAL",
            Low => "LOW",
            Medium => "MEDIUM",
            High => "HIGH",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ThinkingLevel as Wanted;

    #[test]
    fn a_level_becomes_the_nearest_that_is_taken() {
        let level = |model, wanted| family(model).thinking(wanted);
        for (model, wanted, expected) in [
            ("gemini-4-neon", Wanted::Off, "LOW"),
            ("gemini-4-argon", Wanted::High, "HIGH"),
            ("gemini-3.8-flash", Wanted::Minimal, "LOW"),
            ("gemini-3.6-flash", Wanted::Off, "MINIMAL"),
            ("gemini-3.5-flash-lite", Wanted::Minimal, "MINIMAL"),
            ("gemini-3.5-flash", Wanted::Minimal, "LOW"),
            ("gemini-3-flash-preview", Wanted::Medium, "MEDIUM"),
            ("gemini-3-pro-preview", Wanted::Medium, "HIGH"),
            ("gemini-3.1-pro-preview", Wanted::Medium, "MEDIUM"),
            ("gemini-pro-latest", Wanted::Low, "LOW"),
            ("models/gemini-9", Wanted::Minimal, "LOW"),
        ] {
            assert_eq!(level(model, wanted), Some(Thinking::Level(expected)), "{model}");
        }
        for (model, wanted, expected) in [
            ("gemini-2.5-flash", Wanted::Off, 0),
            ("gemini-2.5-flash-lite", Wanted::Minimal, 1_024),
            ("gemini-2.5-flash-preview-09-2025", Wanted::High, 24_576),
            ("gemini-2.5-pro", Wanted::Off, 128),
            ("gemini-2.5-pro", Wanted::High, 32_768),
        ] {
            assert_eq!(level(model, wanted), Some(Thinking::Budget(expected)), "{model}");
        }
        for model in ["gemini-2.0-flash", "gemma-4-31b-it", "gemini-3-pro-image", "local", ""] {
            assert_eq!(level(model, Wanted::High), None, "{model}");
        }
    }

    #[test]
    fn generations_differ_in_what_they_take() {
        let new = family("publishers/google/models/gemini-3-flash-preview");
        assert!(new.wants_signatures() && new.call_ids() && new.media_in_results() && new.sampling());
        let old = family("gemini-live-2.5-flash");
        assert!(!old.wants_signatures() && !old.call_ids() && !old.media_in_results() && old.sampling());
        assert!(!family("gemini-4-carbon").sampling());
        assert!(!family("gemma-4-31b-it").capabilities().documents);
    }
}
