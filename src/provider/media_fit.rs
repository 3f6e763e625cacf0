//! Which media of a conversation go into a request.
//!
//! A conversation outlives the model it began with, and gathers more images than one request takes. What cannot be sent
//! any more becomes a line of text in its place, since an API that refuses one old image refuses every later request.
//! Only what is new is an error: the part of the last turn that cannot be sent.

use std::borrow::Cow;
use std::sync::Arc;

use super::limits::{MediaLimits, RequestLimits, Sent};
use super::{History, HistoryTurn, ModelRequest, ProviderError, ProviderErrorKind, media};
use crate::types::{
    Document, MediaSource, ResourceContent, Role, SessionContentBlock, SessionTurn, ToolResultBody, ToolResultContent,
};

/// What a wire takes for one model.
pub(crate) struct Rules<'r> {
    pub(crate) provider: &'r str,
    pub(crate) part: MediaLimits,
    pub(crate) whole: RequestLimits,
    /// What cannot be sent of a block that is no result, and why.
    pub(crate) fault: &'r dyn Fn(Role, &SessionContentBlock) -> Option<String>,
}

/// What was found for the conversation's earlier requests, so that each turn is looked at once.
#[derive(Debug)]
pub(super) struct MediaFit {
    wire: String,
    model: String,
    /// The conversation, without its turns.
    source: History,
    last: Option<Arc<HistoryTurn>>,
    seen: usize,
    held: Held,
    /// The conversation as it is sent, where it differs.
    view: Option<History>,
}

impl MediaFit {
    fn new(wire: &str, request: &ModelRequest) -> Self {
        Self {
            wire: wire.to_owned(),
            model: request.head.model.clone(),
            source: request.history.emptied(),
            last: None,
            seen: 0,
            held: Held::default(),
            view: None,
        }
    }

    /// Whether it is about a beginning of this request's conversation.
    fn fits(&self, wire: &str, request: &ModelRequest) -> bool {
        let turns = request.history.turns();
        let same_turns = match (&self.last, self.seen.checked_sub(1)) {
            (Some(last), Some(index)) => turns.get(index).is_some_and(|turn| Arc::ptr_eq(turn, last)),
            (None, None) => true,
            _ => false,
        };
        same_turns
            && self.wire == wire
            && self.model == request.head.model
            && self.source.is_same_conversation(&request.history)
    }
}

/// The request with what may be sent of its conversation: a pure function of the turns, the same at every request.
///
/// # Errors
/// `Unsupported`, when the last turn alone has more media than a request takes.
pub(crate) fn fitted<'r>(
    request: &'r ModelRequest,
    wire: &str,
    rules: &Rules<'_>,
) -> Result<Cow<'r, ModelRequest>, ProviderError> {
    let turns = request.history.turns();
    let mut fit = match request.body_cache.take_fit() {
        Some(fit) if fit.fits(wire, request) => fit,
        _ => Box::new(MediaFit::new(wire, request)),
    };
    let (from, held_before) = (fit.seen, fit.held);
    let mut faults = 0;
    // A part of the last turn that cannot be sent is the encoder's to refuse; nothing is kept of that.
    let mut refused = false;
    for (index, turn) in turns.iter().enumerate().skip(from) {
        let own = fit.held.seen;
        let last = index + 1 == turns.len() && turn.role == Role::User;
        let found = fit.held.add(turn, rules);
        if found > 0 && last {
            refused = true;
        } else {
            faults += found;
        }
        if rules.whole.passed(&fit.held.sent).is_some() {
            fit.held.leave_out(turns.get(..=index).unwrap_or_default(), own, last, rules)?;
        }
    }
    let cut = (fit.held.image_cut, fit.held.cut) != (held_before.image_cut, held_before.cut);
    if cut || faults > 0 {
        tracing::warn!(
            provider = rules.provider,
            model = request.head.model,
            unsendable = faults,
            too_many = cut,
            "media of the conversation are left out of requests"
        );
    }
    let (mut view, from) = match fit.view.take() {
        Some(view) if !cut => (Some(view), from),
        // From here on other turns are sent than before.
        _ if cut || faults > 0 => (Some(History::new()), 0),
        _ => (None, from),
    };
    if let Some(view) = &mut view {
        let mut ordinal = if from == 0 { 0 } else { held_before.seen };
        for (index, turn) in turns.iter().enumerate().skip(from) {
            let keeps_faults = refused && index + 1 == turns.len();
            view.push(shown(turn, &mut ordinal, &fit.held, rules, keeps_faults));
        }
    }
    let sent = match &view {
        None => Cow::Borrowed(request),
        Some(view) => {
            let history = view.clone();
            let body_cache = Arc::clone(&request.body_cache);
            Cow::Owned(ModelRequest { head: Arc::clone(&request.head), history, body_cache })
        }
    };
    if !refused {
        fit.view = view;
        fit.seen = turns.len();
        fit.last = turns.last().cloned();
        request.body_cache.put_fit(fit);
    }
    Ok(sent)
}

/// Checks that a prompt's media are no more than one request takes.
///
/// # Errors
/// `Unsupported`, naming the first block that is too much.
pub(crate) fn check_whole(content: &[SessionContentBlock], rules: &Rules<'_>) -> Result<(), ProviderError> {
    let mut sent = Sent::default();
    for (index, block) in content.iter().enumerate() {
        each_medium(Role::User, block, rules, &mut |medium| sent.add(&medium));
        if let Some(why) = rules.whole.passed(&sent) {
            let message = format!("block {index} cannot be sent on this wire: {why}");
            return Err(ProviderError::new(ProviderErrorKind::Unsupported, rules.provider, message));
        }
    }
    Ok(())
}

impl Sent {
    fn add(&mut self, medium: &Medium) {
        self.images += usize::from(medium.image);
        self.large += usize::from(medium.large);
        self.bytes = self.bytes.saturating_add(medium.bytes);
    }

    fn remove(&mut self, medium: &Medium) {
        self.images -= usize::from(medium.image);
        self.large -= usize::from(medium.large);
        self.bytes -= medium.bytes;
    }
}

/// An image, document or other part that is sent as bytes.
#[derive(Clone, Copy, Debug)]
struct Medium {
    image: bool,
    large: bool,
    bytes: usize,
}

/// What of a conversation is sent. Media are counted from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    seen: usize,
    /// Images before this one are left out.
    image_cut: usize,
    /// Whatever is before this one is left out.
    cut: usize,
    sent: Sent,
}

impl Held {
    /// Counts what a turn adds. Gives how many of its blocks cannot be sent.
    fn add(&mut self, turn: &SessionTurn, rules: &Rules<'_>) -> usize {
        let mut faults = 0;
        for block in &turn.content {
            let sent = each_medium(turn.role, block, rules, &mut |medium| {
                self.sent.add(&medium);
                self.seen += 1;
            });
            faults += usize::from(!sent);
        }
        faults
    }

    /// Leaves out the oldest media until half of what is taken is left, so that this is seldom done: it changes the
    /// beginning of every later request. The media of the newest turn, which begin at `own`, are kept when they are a
    /// request's worth alone.
    fn leave_out(
        &mut self,
        turns: &[Arc<HistoryTurn>],
        own: usize,
        last: bool,
        rules: &Rules<'_>,
    ) -> Result<(), ProviderError> {
        let mut all = Vec::with_capacity(self.seen);
        for turn in turns {
            for block in &turn.content {
                each_medium(turn.role, block, rules, &mut |medium| all.push(medium));
            }
        }
        let mut newest = Sent::default();
        all.iter().skip(own).for_each(|medium| newest.add(medium));
        let mut end = own;
        if let Some(why) = rules.whole.passed(&newest) {
            let is_prompt = turns.last().is_some_and(|turn| turn.tool_results().next().is_none());
            if last && is_prompt {
                let message = format!("turn {} cannot be sent on this wire: {why}", turns.len().saturating_sub(1));
                return Err(ProviderError::new(ProviderErrorKind::Unsupported, rules.provider, message));
            }
            end = all.len();
        }
        let whole = rules.whole;
        if let Some(most) = whole.bytes.filter(|most| self.sent.bytes > *most) {
            while self.sent.bytes > most / 2 && self.cut < end {
                self.remove(&all, self.cut, |held, medium| !medium.image || held.cut >= held.image_cut);
                self.cut += 1;
            }
        }
        if let Some(most) = whole.images.filter(|most| self.sent.images > *most) {
            self.leave_out_images(&all, end, |sent| sent.images <= most / 2);
        }
        if let Some(many) = whole.many.filter(|many| many.are_passed(&self.sent)) {
            self.leave_out_images(&all, end, |sent| sent.images <= many.above / 2 || sent.large == 0);
        }
        Ok(())
    }

    fn leave_out_images(&mut self, all: &[Medium], end: usize, enough: impl Fn(&Sent) -> bool) {
        while !enough(&self.sent) && self.image_cut < end {
            self.remove(all, self.image_cut, |held, medium| medium.image && held.image_cut >= held.cut);
            self.image_cut += 1;
        }
    }

    fn remove(&mut self, all: &[Medium], at: usize, is_sent: impl Fn(&Self, &Medium) -> bool) {
        if let Some(medium) = all.get(at).filter(|medium| is_sent(self, medium)) {
            self.sent.remove(medium);
        }
    }

    fn is_left_out(&self, ordinal: usize, medium: &Medium) -> bool {
        ordinal < self.cut || (medium.image && ordinal < self.image_cut)
    }
}

/// The media of a block, as far as they are sent. False when the block itself cannot be.
fn each_medium(role: Role, block: &SessionContentBlock, rules: &Rules<'_>, found: &mut impl FnMut(Medium)) -> bool {
    match block {
        SessionContentBlock::Image(_) | SessionContentBlock::Document(_) => {
            if (rules.fault)(role, block).is_some() {
                return false;
            }
            if let Some(medium) = medium(block, rules) {
                found(medium);
            }
        }
        SessionContentBlock::ToolResult(result) => {
            if let ToolResultBody::Blocks(blocks) = &result.output {
                blocks.iter().filter_map(|block| result_medium(block, rules)).for_each(found);
            }
        }
        _ => {}
    }
    true
}

fn medium(block: &SessionContentBlock, rules: &Rules<'_>) -> Option<Medium> {
    match block {
        SessionContentBlock::Image(media) => image(&media.source, rules),
        SessionContentBlock::Document(document) => {
            Some(Medium { image: false, large: false, bytes: length(&document.media.source) })
        }
        _ => None,
    }
}

fn result_medium(block: &ToolResultContent, rules: &Rules<'_>) -> Option<Medium> {
    match block {
        ToolResultContent::Image(media) => image(&media.source, rules),
        ToolResultContent::Audio(media) | ToolResultContent::Video(media) => {
            Some(Medium { image: false, large: false, bytes: length(&media.source) })
        }
        ToolResultContent::Resource(resource) => {
            let ResourceContent::Blob(data) = &resource.content else { return None };
            let media_type = media::sniff(data).or(resource.media_type.as_deref()).unwrap_or_default();
            if media_type.starts_with("image/") {
                image_of(data, rules)
            } else {
                (!media::is_text_type(media_type)).then_some(Medium { image: false, large: false, bytes: data.len() })
            }
        }
        _ => None,
    }
}

fn image(source: &MediaSource, rules: &Rules<'_>) -> Option<Medium> {
    match source {
        MediaSource::Data(data) => image_of(data, rules),
        MediaSource::Url(_) => Some(Medium { image: true, large: false, bytes: 0 }),
        _ => None,
    }
}

/// `None` for an image that is too big by itself: the encoder has a marker for that.
fn image_of(data: &str, rules: &Rules<'_>) -> Option<Medium> {
    let fits = rules.part.image_fault(data).is_none();
    fits.then(|| Medium { image: true, large: rules.whole.is_large(data), bytes: data.len() })
}

fn length(source: &MediaSource) -> usize {
    match source {
        MediaSource::Data(data) => data.len(),
        _ => 0,
    }
}

/// A turn as it is sent: the very one, unless something is left out.
fn shown(
    turn: &Arc<HistoryTurn>,
    ordinal: &mut usize,
    held: &Held,
    rules: &Rules<'_>,
    keeps_faults: bool,
) -> Arc<HistoryTurn> {
    let first = *ordinal;
    let mut whole = true;
    for block in &turn.content {
        let sent = each_medium(turn.role, block, rules, &mut |medium| {
            whole &= !held.is_left_out(*ordinal, &medium);
            *ordinal += 1;
        });
        whole &= sent || keeps_faults;
    }
    if whole {
        return Arc::clone(turn);
    }
    let mut turn = SessionTurn::clone(turn);
    let mut ordinal = first;
    let mut next = |medium: Option<Medium>| {
        let left_out = medium.is_some_and(|medium| held.is_left_out(ordinal, &medium));
        ordinal += usize::from(medium.is_some());
        left_out
    };
    let role = turn.role;
    for block in &mut turn.content {
        match block {
            SessionContentBlock::ToolResult(result) => {
                let ToolResultBody::Blocks(blocks) = &mut result.output else { continue };
                for block in blocks {
                    if next(result_medium(block, rules)) {
                        let what = if matches!(block, ToolResultContent::Image(_)) { "image" } else { "attachment" };
                        *block = ToolResultContent::text(too_many(what));
                    }
                }
            }
            SessionContentBlock::Image(_) | SessionContentBlock::Document(_) => {
                if let Some(fault) = (rules.fault)(role, block) {
                    if !keeps_faults {
                        *block = SessionContentBlock::text(format!("[left out: {fault}]"));
                    }
                } else if next(medium(block, rules)) {
                    *block = SessionContentBlock::text(too_many(&name(block)));
                }
            }
            _ => {}
        }
    }
    Arc::new(HistoryTurn::new(turn))
}

fn too_many(what: &str) -> String {
    format!("[{what} left out: the conversation has more of them than can be sent, and later ones were kept]")
}

fn name(block: &SessionContentBlock) -> Cow<'static, str> {
    match block {
        SessionContentBlock::Document(Document { name: Some(name), .. }) if !name.trim().is_empty() => {
            format!("document {}", name.trim()).into()
        }
        SessionContentBlock::Document(_) => "document".into(),
        _ => "image".into(),
    }
}

#[cfg(test)]
mod tests;
