use std::collections::HashSet;

use uuid::Uuid;

use crate::provider::{StreamEvent, UsageSnapshot};
use crate::types::{
    Extra, OpaqueBlock, SessionContentBlock, Signature, SignatureProducer, TextBlock, ThinkingBlock, ToolCallBlock,
    TurnFinishReason,
};

/// More blocks than any answer has; a stream that opens more is broken.
const MAX_BLOCKS: usize = 100_000;

/// Room to begin with, in bytes: most blocks never need more.
const TEXT_ROOM: usize = 256;
const ARGUMENTS_ROOM: usize = 64;

/// Puts the blocks of one answer together from its events.
pub(super) struct Assembler {
    blocks: Vec<Building>,
    pub(super) model_id: Option<String>,
    pub(super) prefix_digest: Option<String>,
    pub(super) usage: Option<UsageSnapshot>,
    pub(super) finish: Option<(TurnFinishReason, Option<String>)>,
    pub(super) finish_message: Option<String>,
}

struct Building {
    number: u32,
    kind: Kind,
    signature: Option<(SignatureProducer, String)>,
}

enum Kind {
    Text(String),
    Thinking(String),
    Redacted,
    Call { id: String, name: String, arguments: String, complete: bool },
    Opaque(SignatureProducer, serde_json::Value),
}

/// What an event changed, for those who watch.
pub(super) enum Changed {
    Text {
        index: usize,
    },
    Thinking {
        index: usize,
    },
    Call {
        index: usize,
    },
    Nothing,
    /// The stream opened more blocks than an answer may have.
    TooMany,
}

impl Assembler {
    pub(super) const fn new() -> Self {
        Self {
            blocks: Vec::new(),
            model_id: None,
            prefix_digest: None,
            usage: None,
            finish: None,
            finish_message: None,
        }
    }

    /// Whether anything of the answer itself has arrived.
    pub(super) fn has_output(&self) -> bool {
        !self.blocks.is_empty()
    }

    pub(super) fn block_text(&self, index: usize) -> &str {
        match self.blocks.get(index).map(|block| &block.kind) {
            Some(Kind::Text(text) | Kind::Thinking(text)) => text,
            _ => "",
        }
    }

    pub(super) fn call(&self, index: usize) -> Option<(&str, &str)> {
        match self.blocks.get(index).map(|block| &block.kind) {
            Some(Kind::Call { id, name, .. }) => Some((id, name)),
            _ => None,
        }
    }

    /// All text so far.
    pub(super) fn text(&self) -> String {
        self.blocks
            .iter()
            .filter_map(|block| match &block.kind {
                Kind::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect()
    }

    fn find(&self, number: u32) -> Option<usize> {
        // The block at hand is nearly always the last one.
        self.blocks.iter().rposition(|block| block.number == number)
    }

    fn open(&mut self, number: u32, kind: Kind) -> Option<usize> {
        if self.blocks.len() >= MAX_BLOCKS {
            return None;
        }
        self.blocks.push(Building { number, kind, signature: None });
        Some(self.blocks.len() - 1)
    }

    /// Takes an event in, except for its delta, which the caller may still want to hand on.
    pub(super) fn apply(&mut self, event: &StreamEvent) -> Changed {
        match event {
            StreamEvent::Start { model, .. } => {
                self.model_id.clone_from(model);
                Changed::Nothing
            }
            StreamEvent::FinishMessage(message) => {
                self.finish_message = Some(message.clone());
                Changed::Nothing
            }
            StreamEvent::PrefixDigest(digest) => {
                self.prefix_digest = Some(digest.clone());
                Changed::Nothing
            }
            StreamEvent::Text { block, delta } => self.append(*block, delta, false),
            StreamEvent::Thinking { block, delta } => self.append(*block, delta, true),
            StreamEvent::RedactedThinking { block, producer, data } => {
                match self.find(*block).or_else(|| self.open(*block, Kind::Redacted)) {
                    Some(index) => {
                        if let Some(building) = self.blocks.get_mut(index) {
                            building.signature = Some((producer.clone(), data.clone()));
                        }
                        Changed::Nothing
                    }
                    None => Changed::TooMany,
                }
            }
            StreamEvent::Signature { block, producer, value } => {
                match self.find(*block).or_else(|| self.open(*block, Kind::Text(String::new()))) {
                    Some(index) => {
                        if let Some(building) = self.blocks.get_mut(index) {
                            building.signature = Some((producer.clone(), value.clone()));
                        }
                        Changed::Nothing
                    }
                    None => Changed::TooMany,
                }
            }
            StreamEvent::ToolCallStart { block, id, name } => {
                if let Some(index) = self.find(*block) {
                    // Some servers repeat the start, or give id and name later.
                    if let Some(Building { kind: Kind::Call { id: old_id, name: old_name, .. }, .. }) =
                        self.blocks.get_mut(index)
                    {
                        if !id.is_empty() {
                            old_id.clone_from(id);
                        }
                        if !name.is_empty() {
                            old_name.clone_from(name);
                        }
                    }
                    return Changed::Nothing;
                }
                let arguments = String::with_capacity(ARGUMENTS_ROOM);
                let call = Kind::Call { id: id.clone(), name: name.clone(), arguments, complete: false };
                self.open(*block, call).map_or(Changed::TooMany, |index| Changed::Call { index })
            }
            StreamEvent::ToolCallDelta { block, delta } => {
                if let Some(index) = self.find(*block)
                    && let Some(Building { kind: Kind::Call { arguments, .. }, .. }) = self.blocks.get_mut(index)
                {
                    arguments.push_str(delta);
                }
                Changed::Nothing
            }
            StreamEvent::ToolCallEnd { block } => {
                if let Some(index) = self.find(*block)
                    && let Some(Building { kind: Kind::Call { complete, .. }, .. }) = self.blocks.get_mut(index)
                {
                    *complete = true;
                }
                Changed::Nothing
            }
            StreamEvent::Opaque { block, producer, value } => self
                .open(*block, Kind::Opaque(producer.clone(), value.clone()))
                .map_or(Changed::TooMany, |_| Changed::Nothing),
            StreamEvent::Usage(usage) => {
                self.usage = Some(*usage);
                Changed::Nothing
            }
            StreamEvent::Finish { reason, raw } => {
                self.finish = Some((*reason, raw.clone()));
                Changed::Nothing
            }
        }
    }

    fn append(&mut self, number: u32, delta: &str, thinking: bool) -> Changed {
        let found = self.find(number).or_else(|| {
            let text = String::with_capacity(TEXT_ROOM);
            self.open(number, if thinking { Kind::Thinking(text) } else { Kind::Text(text) })
        });
        let Some(index) = found else { return Changed::TooMany };
        match self.blocks.get_mut(index).map(|block| &mut block.kind) {
            Some(Kind::Text(text)) => {
                text.push_str(delta);
                Changed::Text { index }
            }
            Some(Kind::Thinking(text)) => {
                text.push_str(delta);
                Changed::Thinking { index }
            }
            _ => Changed::Nothing,
        }
    }

    /// The blocks as they are stored. `canonical` brings tool names back; `turn_id` seeds ids for calls without one.
    pub(super) fn into_blocks(
        self,
        model: &str,
        turn_id: Uuid,
        canonical: impl Fn(&str) -> String,
    ) -> Vec<SessionContentBlock> {
        let sign = |signature: Option<(SignatureProducer, String)>| {
            signature.map(|(producer, value)| Signature { producer, model: model.to_owned(), value })
        };
        // One call, as in most answers, has nothing to be told from.
        let calls = self.blocks.iter().filter(|block| matches!(block.kind, Kind::Call { .. })).count();
        let mut ids = (calls > 1).then(HashSet::new);
        let mut out = Vec::with_capacity(self.blocks.len());
        for (index, block) in self.blocks.into_iter().enumerate() {
            match block.kind {
                Kind::Text(text) => {
                    if block.signature.is_some() || !text.trim().is_empty() {
                        let signature = sign(block.signature);
                        out.push(SessionContentBlock::Text(TextBlock { text, signature, ..TextBlock::default() }));
                    } else if let Some(SessionContentBlock::Text(TextBlock { text: before, signature: None, .. })) =
                        out.last_mut()
                    {
                        // Citations cut a text into blocks, some of them the space between two words.
                        before.push_str(&text);
                    }
                }
                Kind::Thinking(text) => {
                    if block.signature.is_some() || !text.is_empty() {
                        let signature = sign(block.signature);
                        out.push(SessionContentBlock::Thinking(ThinkingBlock {
                            text,
                            signature,
                            ..ThinkingBlock::default()
                        }));
                    }
                }
                Kind::Redacted => out.push(SessionContentBlock::Thinking(ThinkingBlock {
                    signature: sign(block.signature),
                    redacted: true,
                    ..ThinkingBlock::default()
                })),
                Kind::Opaque(producer, value) => {
                    out.push(SessionContentBlock::Opaque(OpaqueBlock {
                        producer,
                        model: model.to_owned(),
                        value,
                        extra: Extra::default(),
                    }));
                }
                Kind::Call { id, name, arguments, complete } => {
                    let id = unique_id(id, index, turn_id, ids.as_mut());
                    let call = ToolCallBlock {
                        id,
                        name: canonical(&name),
                        arguments,
                        signature: sign(block.signature),
                        ..ToolCallBlock::default()
                    };
                    out.push(if complete {
                        SessionContentBlock::ToolCall(call)
                    } else {
                        SessionContentBlock::PartialToolCall(call)
                    });
                }
            }
        }
        out
    }
}

/// The call's id as given; one of our own where there is none, or where this answer used it before.
fn unique_id(given: String, index: usize, turn_id: Uuid, ids: Option<&mut HashSet<String>>) -> String {
    let id = if given.is_empty() || ids.as_ref().is_some_and(|ids| ids.contains(&given)) {
        format!("call_{}", Uuid::new_v5(&turn_id, index.to_string().as_bytes()).simple())
    } else {
        given
    };
    if let Some(ids) = ids {
        ids.insert(id.clone());
    }
    id
}
