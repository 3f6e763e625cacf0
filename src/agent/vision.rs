use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::context::RunCx;
use super::derived::Derived;
use super::options::Fallback;
use super::side_request::ask_aside;
use crate::provider::{History, HistoryTurn, ModelRequest, ProviderError, RequestHead, UsageSnapshot};
use crate::session::VisionEntry;
use crate::types::{
    Media, MediaSource, NanoUsd, Role, SessionContentBlock, SessionTurn, ToolResultBody, ToolResultContent, TurnOrigin,
};

const ASK: &str = "Describe this image for someone who cannot see it: what it shows, any text in it word for word, and \
                   numbers exactly. Give the description only.";

/// What an image shows, in the words of a model that can see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Description {
    /// Names the image by its content.
    pub(super) image: Uuid,
    pub(super) text: String,
    pub(super) usage: UsageSnapshot,
    pub(super) cost: Option<NanoUsd>,
    pub(super) provider: String,
    pub(super) requested_model: String,
    pub(super) model_id: Option<String>,
}

/// The conversation for a model that cannot see: each image is replaced by its description, the same every time.
#[derive(Debug, Default)]
pub(crate) struct StandIns {
    described: Described,
    /// The conversation as it goes out.
    derived: Derived,
}

impl StandIns {
    pub(super) fn learn(&mut self, description: &Description) {
        self.described.entry(description.image).or_insert_with(|| description.text.as_str().into());
    }

    /// Takes over a description that the session has.
    pub(super) fn restore(&mut self, vision: &VisionEntry) {
        if let Ok(image) = Uuid::parse_str(&vision.digest) {
            self.described.entry(image).or_insert_with(|| vision.text.as_str().into());
        }
    }

    /// Images of the conversation that nobody has described yet, each once.
    pub(super) fn unknown(&mut self, history: &History) -> Vec<(Uuid, Media)> {
        self.derived.follow(history);
        let mut found: Vec<(Uuid, Media)> = Vec::new();
        for turn in self.derived.rest(history) {
            for media in images(turn) {
                let key = key(media);
                if !self.described.contains_key(&key) && !found.iter().any(|(known, _)| *known == key) {
                    found.push((key, media.clone()));
                }
            }
        }
        found
    }

    /// The conversation without images. What was made for earlier requests is kept.
    pub(super) fn view(&mut self, history: &History) -> History {
        let Self { described, derived } = self;
        derived.grown(history, |turn, _| {
            if images(turn).next().is_some() {
                Arc::new(HistoryTurn::new(without_images(described, turn)))
            } else {
                Arc::clone(turn)
            }
        })
    }
}

type Described = HashMap<Uuid, Arc<str>>;

fn without_images(described: &Described, turn: &SessionTurn) -> SessionTurn {
    let mut turn = turn.clone();
    for block in &mut turn.content {
        match block {
            SessionContentBlock::Image(media) => *block = SessionContentBlock::text(words(described, media)),
            SessionContentBlock::ToolResult(result) => {
                if let ToolResultBody::Blocks(blocks) = &mut result.output {
                    for block in blocks {
                        if let ToolResultContent::Image(media) = block {
                            *block = ToolResultContent::text(words(described, media));
                        }
                    }
                }
            }
            _ => {}
        }
    }
    turn
}

fn words(described: &Described, media: &Media) -> String {
    match described.get(&key(media)) {
        Some(text) => format!("[An image that shows: {text}]"),
        None => "[An image that could not be described]".to_owned(),
    }
}

fn images(turn: &SessionTurn) -> impl Iterator<Item = &Media> {
    turn.content.iter().flat_map(|block| {
        let (own, results) = match block {
            SessionContentBlock::Image(media) => (Some(media), &[][..]),
            SessionContentBlock::ToolResult(result) => match &result.output {
                ToolResultBody::Blocks(blocks) => (None, blocks.as_slice()),
                ToolResultBody::Text(_) => (None, &[][..]),
            },
            _ => (None, &[][..]),
        };
        own.into_iter().chain(results.iter().filter_map(|block| match block {
            ToolResultContent::Image(media) => Some(media),
            _ => None,
        }))
    })
}

fn key(media: &Media) -> Uuid {
    let (kind, text) = match &media.source {
        MediaSource::Data(text) => (Uuid::NAMESPACE_OID, text),
        MediaSource::Url(text) => (Uuid::NAMESPACE_URL, text),
        MediaSource::Ref(text) | MediaSource::Text(text) => (Uuid::NAMESPACE_DNS, text),
    };
    Uuid::new_v5(&kind, text.as_bytes())
}

/// Asks a model that can see what an image shows.
pub(super) async fn describe(
    cx: &RunCx,
    fallback: &Fallback,
    image: Uuid,
    media: Media,
) -> Result<Description, ProviderError> {
    let content = vec![SessionContentBlock::Image(media), SessionContentBlock::text(ASK)];
    let history = History::from_iter([SessionTurn::new("image", Role::User, TurnOrigin::Prompt, content)]);
    let head = RequestHead { model: fallback.model.clone(), ..RequestHead::default() };
    let answer = ask_aside(cx, fallback, ModelRequest::new(head, history)).await;
    Ok(Description {
        image,
        text: answer.result?.trim().to_owned(),
        usage: UsageSnapshot::new(answer.tokens),
        cost: answer.cost,
        provider: fallback.provider.id().to_owned(),
        requested_model: fallback.model.clone(),
        model_id: answer.model_id,
    })
}
