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
    /// The id under which it was announced.
    announced: String,
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

/// The most calls of one answer.
const MAX_CALLS: usize = 1024;

/// Why the calls of an answer cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadCall {
    /// It never got a name.
    Nameless,
    /// More arguments came after the call was complete and another one had begun.
    Continued,
    /// There are more than [`MAX_CALLS`].
    TooMany,
}

impl Calls {
    /// Takes a piece. Gives the block if all it did was to add argument text to an announced call.
    pub(super) fn take(&mut self, piece: &CallPiece<'_>, sink: &mut CallSink<'_>) -> Result<Option<u32>, BadCall> {
        let position = match self.find(piece) {
            Some(position) => position,
            None if self.calls.len() >= MAX_CALLS => return Err(BadCall::TooMany),
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
        let at =
            |position: usize| self.calls.get(position).filter(|call| !call.is_followed_by(piece)).map(|_| position);
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
            announced: String::new(),
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
        call.announced.clone_from(&id);
        let name = sink.names.original(&call.name).to_owned();
        sink.out.push_back(StreamEvent::ToolCallStart { block, id, name });
        if !call.held.is_empty() {
            sink.out.push_back(StreamEvent::ToolCallDelta { block, delta: std::mem::take(&mut call.held) });
        }
    }

    /// The id as given, with a suffix when an earlier call of this answer has it too.
    fn unique_id(&self, position: usize) -> String {
        let Some(call) = self.calls.get(position) else { return String::new() };
        let earlier = || self.calls.iter().take(position);
        let taken = |id: &str| earlier().any(|other| other.announced == id);
        if call.id.is_empty() || !taken(&call.id) {
            return call.id.clone();
        }
        let first = earlier().filter(|other| other.id == call.id).count().saturating_add(1).max(2);
        let free = (first..=first.saturating_add(MAX_CALLS)).map(|n| format!("{}_{n}", call.id)).find(|id| !taken(id));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn piece<'a>(index: impl Into<Option<i64>>, id: &'a str, name: &'a str, arguments: &'a str) -> CallPiece<'a> {
        CallPiece { index: index.into(), id, name, arguments, ..CallPiece::default() }
    }

    /// The calls as `id name arguments`, with `…` for one without end.
    fn assemble(pieces: &[CallPiece<'_>], cut: bool) -> (Vec<String>, Result<(), BadCall>) {
        let (mut out, mut blocks, mut calls) = (Events::new(), 0, Calls::default());
        let (names, producer) = (NameTable::default(), SignatureProducer::new("test"));
        let mut sink = CallSink { out: &mut out, blocks: &mut blocks, names: &names, producer: &producer };
        let result = pieces
            .iter()
            .try_for_each(|piece| calls.take(piece, &mut sink).map(drop))
            .and_then(|()| calls.finish(cut, &mut sink));
        let mut texts: Vec<(String, bool)> = Vec::new();
        for event in out {
            match event {
                StreamEvent::ToolCallStart { block, id, name } => {
                    assert_eq!(block as usize, texts.len());
                    texts.push((format!("{id} {name} "), false));
                }
                StreamEvent::ToolCallDelta { block, delta } => {
                    assert!(!texts[block as usize].1, "nothing follows the end of a call");
                    texts[block as usize].0.push_str(&delta);
                }
                StreamEvent::ToolCallEnd { block } => texts[block as usize].1 = true,
                other => panic!("{other:?}"),
            }
        }
        let shown = texts.into_iter().map(|(text, ended)| if ended { text } else { text + "…" });
        (shown.collect(), result)
    }

    fn whole(pieces: &[CallPiece<'_>]) -> Vec<String> {
        let (calls, result) = assemble(pieces, false);
        assert_eq!(result, Ok(()));
        calls
    }

    #[test]
    fn pieces_are_joined_by_index() {
        let pieces = [
            piece(0, "a", "f", ""),
            piece(1, "b", "g", "{"),
            piece(0, "", "", "{\"x\":"),
            piece(1, "", "", "}"),
            piece(0, "a", "f", "1}"),
        ];
        assert_eq!(whole(&pieces), ["a f {\"x\":1}", "b g {}"]);
    }

    #[test]
    fn without_index_an_id_opens_a_call_and_no_id_continues() {
        let pieces = [
            piece(None, "a", "f", "{\"x\":"),
            piece(None, "", "", "1}"),
            piece(None, "b", "f", "{"),
            piece(None, "b", "", "}"),
        ];
        assert_eq!(whole(&pieces), ["a f {\"x\":1}", "b f {}"]);
    }

    #[test]
    fn one_index_for_all_is_told_apart() {
        assert_eq!(whole(&[piece(0, "a", "f", "{}"), piece(0, "b", "f", "{}")]), ["a f {}", "b f {}"]);
        assert_eq!(whole(&[piece(0, "", "f", "{}"), piece(0, "", "f", "{}")]), [" f {}", " f {}"], "without ids");
        assert_eq!(whole(&[piece(None, "", "f", "{}"), piece(None, "", "g", "")]), [" f {}", " g "]);
    }

    #[test]
    fn a_repeated_name_or_id_is_no_new_call() {
        let pieces =
            [piece(0, "a", "f", "{"), piece(0, "a", "f", "\"x\":1"), piece(0, "", "f", "}"), piece(0, "", "f", "")];
        assert_eq!(whole(&pieces), ["a f {\"x\":1}"]);
    }

    #[test]
    fn name_and_id_may_come_late() {
        assert_eq!(
            whole(&[piece(None, "a", "", "{"), piece(None, "a", "", "}"), piece(None, "a", "f", "")]),
            ["a f {}"]
        );
        assert_eq!(whole(&[piece(0, "", "f", "{"), piece(0, "a", "", "}")]), ["a f {}"]);
        assert_eq!(whole(&[piece(0, "", "f", "{}"), piece(1, "", "g", "{}")]), [" f {}", " g {}"], "never");
    }

    #[test]
    fn ids_are_made_unique_within_an_answer() {
        let pieces = [piece(0, "a", "f", "{}"), piece(1, "a", "f", "{}"), piece(2, "a_2", "f", "{}")];
        let ids: Vec<_> = whole(&pieces).iter().map(|call| call.split(' ').next().unwrap().to_owned()).collect();
        assert_eq!(ids, ["a", "a_2", "a_2_2"]);
    }

    #[test]
    fn a_cut_call_has_no_end() {
        let pieces = [piece(0, "a", "f", "{}"), piece(1, "b", "g", "{\"x\":")];
        assert_eq!(assemble(&pieces, true), (vec!["a f {}".into(), "b g {\"x\":…".into()], Ok(())));
        assert_eq!(assemble(&[piece(0, "a", "f", "")], true).0, ["a f …"], "empty arguments may be cut ones");
        assert_eq!(whole(&[piece(0, "a", "f", "")]), ["a f "]);
    }

    #[test]
    fn what_cannot_be_a_call_is_an_error() {
        assert_eq!(assemble(&[piece(0, "a", "", "{}")], false).1, Err(BadCall::Nameless));
        assert_eq!(assemble(&[piece(0, "", "", "")], false), (vec![], Ok(())), "zero values are nothing");
        let many: Vec<_> = (0..=1024).map(|index| piece(index, "a", "f", "{}")).collect();
        assert_eq!(assemble(&many, false).1, Err(BadCall::TooMany));
        let continued = [piece(0, "a", "f", "{}"), piece(1, "b", "f", "{}"), piece(0, "a", "", "{}")];
        assert_eq!(assemble(&continued, false).1, Err(BadCall::Continued));
    }

    #[test]
    fn custom_input_becomes_a_json_string() {
        let custom = |arguments| CallPiece { custom: true, ..piece(0, "a", "f", arguments) };
        assert_eq!(whole(&[custom("say \"hi\""), custom("\n")]), ["a f \"say \\\"hi\\\"\\n\""]);
    }
}
