use super::json_scan::JsonScan;
use crate::provider::StreamEvent;
use crate::provider::names::NameTable;
use crate::provider::wire::Events;
use crate::types::SignatureProducer;

/// One piece of a tool call. Fields that were absent, null or empty are empty: they never overwrite.
#[derive(Default)]
pub(super) struct CallPiece<'a> {
    pub(super) index: Option<i64>,
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
    /// The arguments are free text of a custom tool; they become a JSON string.
    pub(super) custom: bool,
    /// State that the vendor wants back with the call.
    pub(super) signature: Option<&'a str>,
}

#[derive(Debug)]
struct Call {
    index: Option<i64>,
    id: String,
    name: String,
    custom: bool,
    /// The block, once the call was announced.
    block: Option<u32>,
    /// Arguments that came before the call could be announced.
    held: String,
    signature: Option<String>,
    scan: JsonScan,
    ended: bool,
}

/// Puts the tool calls of an answer together.
///
/// A piece belongs to the call with its index, or with its id where there is no index, else to the last one. An id that
/// differs opens a new call although the index is the same, and so does a name after complete arguments: servers exist
/// that number all calls 0 or not at all.
///
/// A call is announced when its name and id are known; a call without id when the next one opens or the answer ends.
#[derive(Debug, Default)]
pub(super) struct Calls {
    calls: Vec<Call>,
}

/// Why the calls of an answer cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadCall {
    /// It never got a name.
    Nameless,
    /// More arguments came after the call was complete and another one had begun.
    Continued,
}

impl Calls {
    /// Takes a piece. Gives the block if all it did was to add argument text to an announced call.
    pub(super) fn take(
        &mut self,
        piece: &CallPiece<'_>,
        sink: &mut CallSink<'_>,
    ) -> Result<Option<u32>, BadCall> {
        let position = match self.find(piece) {
            Some(position) => position,
            None => self.open(piece, sink),
        };
        let Some(call) = self.calls.get_mut(position) else { return Ok(None) };
        if call.id.is_empty() && call.block.is_none() {
            piece.id.clone_into(&mut call.id);
        }
        if call.name.is_empty() {
            piece.name.clone_into(&mut call.name);
        }
        if let Some(signature) = piece.signature {
            call.signature = Some(signature.to_owned());
        }
        let arguments = if call.custom { escaped(piece.arguments) } else { piece.arguments.into() };
        if call.ended && !arguments.trim().is_empty() {
            return Err(BadCall::Continued);
        }
        call.scan.feed(&arguments);
        match call.block {
            Some(_) if call.ended || arguments.is_empty() => Ok(None),
            Some(block) => {
                sink.out.push_back(StreamEvent::ToolCallDelta { block, delta: arguments.into_owned() });
                Ok(Some(block))
            }
            None => {
                call.held.push_str(&arguments);
                if !call.id.is_empty() && !call.name.is_empty() {
                    self.announce(position, sink);
                }
                Ok(None)
            }
        }
    }

    /// Whether argument text may go straight to the last call's block: nothing about the call changes but its text.
    pub(super) fn feed_last(&mut self, block: u32, arguments: &str) -> bool {
        match self.calls.last_mut() {
            Some(call) if call.block == Some(block) && !call.custom && !call.ended => {
                call.scan.feed(arguments);
                true
            }
            _ => false,
        }
    }

    /// Whether `block` is that of the last call, of ordinary arguments.
    pub(super) fn is_last(&self, block: u32) -> bool {
        self.calls.last().is_some_and(|call| call.block == Some(block) && !call.custom)
    }

    fn find(&self, piece: &CallPiece<'_>) -> Option<usize> {
        let at = |position: usize| self.calls.get(position).filter(|call| !call.is_followed_by(piece)).map(|_| position);
        if piece.index.is_some() {
            let position = self.calls.iter().rposition(|call| call.index == piece.index)?;
            let call = self.calls.get(position)?;
            let other = !piece.id.is_empty() && !call.id.is_empty() && piece.id != call.id;
            return if other { None } else { at(position) };
        }
        let last = self.calls.len().checked_sub(1)?;
        if piece.id.is_empty() {
            return at(last);
        }
        match self.calls.iter().rposition(|call| call.id == piece.id) {
            Some(position) => at(position),
            None if self.calls.get(last).is_some_and(|call| call.id.is_empty()) => at(last),
            None => None,
        }
    }

    fn open(&mut self, piece: &CallPiece<'_>, sink: &mut CallSink<'_>) -> usize {
        for position in 0..self.calls.len() {
            self.announce(position, sink);
            if let Some(call) = self.calls.get_mut(position)
                && call.scan.is_complete()
            {
                call.end(sink);
            }
        }
        let mut scan = JsonScan::default();
        let held = if piece.custom { "\"" } else { "" };
        scan.feed(held);
        self.calls.push(Call {
            index: piece.index,
            id: String::new(),
            name: String::new(),
            custom: piece.custom,
            block: None,
            held: held.to_owned(),
            signature: None,
            scan,
            ended: false,
        });
        self.calls.len().saturating_sub(1)
    }

    /// Announces the call if it has a name and was not announced yet.
    fn announce(&mut self, position: usize, sink: &mut CallSink<'_>) {
        let Some(call) = self.calls.get(position) else { return };
        if call.block.is_some() || call.name.is_empty() {
            return;
        }
        let id = self.unique_id(position);
        let Some(call) = self.calls.get_mut(position) else { return };
        let block = sink.next_block();
        call.block = Some(block);
        let name = sink.names.original(&call.name).to_owned();
        sink.out.push_back(StreamEvent::ToolCallStart { block, id, name });
        if !call.held.is_empty() {
            sink.out.push_back(StreamEvent::ToolCallDelta { block, delta: std::mem::take(&mut call.held) });
        }
    }

    /// The id as given, with a suffix when an earlier call of this answer has it too.
    fn unique_id(&self, position: usize) -> String {
        let Some(call) = self.calls.get(position) else { return String::new() };
        let taken = |id: &str| self.calls.iter().take(position).any(|other| other.id == id);
        if call.id.is_empty() || !taken(&call.id) {
            return call.id.clone();
        }
        let free = (2..=self.calls.len().saturating_add(1)).map(|n| format!("{}_{n}", call.id)).find(|id| !taken(id));
        free.unwrap_or_default()
    }

    /// The answer ended. Calls get their end, unless they were `cut` and are not complete.
    pub(super) fn finish(&mut self, cut: bool, sink: &mut CallSink<'_>) -> Result<(), BadCall> {
        let mut nameless = false;
        for position in 0..self.calls.len() {
            self.announce(position, sink);
            let Some(call) = self.calls.get_mut(position) else { continue };
            if let (Some(block), Some(value)) = (call.block, call.signature.take()) {
                sink.out.push_back(StreamEvent::Signature { block, producer: sink.producer.clone(), value });
            }
            nameless |= call.name.is_empty() && !(call.id.is_empty() && call.scan.is_empty());
            if !cut || call.scan.is_complete() {
                call.end(sink);
            }
        }
        if nameless && !cut { Err(BadCall::Nameless) } else { Ok(()) }
    }

    /// Whether any call was announced and ended.
    pub(super) fn any_ended(&self) -> bool {
        self.calls.iter().any(|call| call.ended)
    }

    /// Whether any call began.
    pub(super) const fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }
}

impl Call {
    /// Whether `piece`, though it could belong to this call, begins another one.
    fn is_followed_by(&self, piece: &CallPiece<'_>) -> bool {
        if piece.name.is_empty() || self.name.is_empty() {
            return false;
        }
        let brings_arguments = !piece.arguments.trim().is_empty();
        if piece.name == self.name {
            self.scan.is_complete() && brings_arguments
        } else {
            brings_arguments || !self.scan.is_empty()
        }
    }

    fn end(&mut self, sink: &mut CallSink<'_>) {
        let Some(block) = self.block.filter(|_| !self.ended) else { return };
        if self.custom {
            sink.out.push_back(StreamEvent::ToolCallDelta { block, delta: "\"".to_owned() });
        }
        self.ended = true;
        sink.out.push_back(StreamEvent::ToolCallEnd { block });
    }
}

/// Where the events of calls go.
pub(super) struct CallSink<'a> {
    pub(super) out: &'a mut Events,
    pub(super) blocks: &'a mut u32,
    pub(super) names: &'a NameTable,
    pub(super) producer: &'a SignatureProducer,
}

impl CallSink<'_> {
    fn next_block(&mut self) -> u32 {
        let block = *self.blocks;
        *self.blocks = block.saturating_add(1);
        block
    }
}

/// Text as the inside of a JSON string.
fn escaped(text: &str) -> std::borrow::Cow<'_, str> {
    if !text.bytes().any(|byte| byte < 0x20 || byte == b'"' || byte == b'\\') {
        return text.into();
    }
    let quoted = serde_json::Value::from(text).to_string();
    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().to_owned().into()
}
