use base64::Engine as _;

use super::super::RequestHead;
use super::super::limits::ManyImages;
use super::*;
use crate::types::{Extra, Media, ToolCallBlock, ToolResultBlock, ToolStatus, TurnOrigin};

const MANY: ManyImages = ManyImages { above: 4, side: 100 };

fn png(side: u32, salt: u32) -> SessionContentBlock {
    let bytes =
        [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &side.to_be_bytes(), &side.to_be_bytes(), &[8; 8], &salt.to_be_bytes()];
    let data = base64::engine::general_purpose::STANDARD.encode(bytes.concat());
    SessionContentBlock::Image(Media::base64("image/png", data))
}

fn user(content: Vec<SessionContentBlock>) -> SessionTurn {
    SessionTurn::new("u", Role::User, TurnOrigin::Prompt, content)
}

fn assistant(text: &str) -> SessionTurn {
    SessionTurn::new("a", Role::Assistant, TurnOrigin::Model, vec![SessionContentBlock::text(text)])
}

/// Documents are what this wire does not take.
fn with<T>(whole: RequestLimits, with: impl FnOnce(&Rules<'_>) -> T) -> T {
    let fault = |_: Role, block: &SessionContentBlock| match block {
        SessionContentBlock::Document(_) => Some("document: not taken".to_owned()),
        _ => None,
    };
    with(&Rules { provider: "x", part: MediaLimits::default(), whole, fault: &fault })
}

fn fit(request: &ModelRequest, whole: RequestLimits) -> Result<Vec<SessionTurn>, ProviderError> {
    with(whole, |rules| fitted(request, "x", rules).map(|fitted| fitted.history.iter().cloned().collect()))
}

/// Which images of the turns are sent.
fn images(turns: &[SessionTurn]) -> Vec<bool> {
    let blocks = turns.iter().flat_map(|turn| &turn.content);
    blocks
        .filter_map(|block| match block {
            SessionContentBlock::Image(_) => Some(true),
            SessionContentBlock::Text(text) if text.text.starts_with("[image left out: ") => Some(false),
            _ => None,
        })
        .collect()
}

/// Adds a turn at a time, each an image and an answer; gives what was sent each time, and checks that a request without
/// any memory is the same.
fn grown(sides: &[u32], whole: RequestLimits) -> Vec<Vec<bool>> {
    let mut request = ModelRequest::new(RequestHead::default(), History::new());
    let mut all = Vec::new();
    for (salt, side) in (0..).zip(sides) {
        request.history.push(Arc::new(user(vec![png(*side, salt)]).into()));
        let sent = fit(&request, whole).unwrap();
        let fresh = ModelRequest::new(RequestHead::default(), request.history.clone());
        assert_eq!(sent, fit(&fresh, whole).unwrap());
        all.push(images(&sent));
        request.history.push(Arc::new(assistant("seen").into()));
    }
    all
}

#[test]
fn a_conversation_within_the_limits_is_sent_as_it_is() {
    let request = ModelRequest::new(RequestHead::default(), History::from_iter([user(vec![png(10, 0)])]));
    let whole = RequestLimits { images: Some(1), many: Some(MANY), bytes: Some(1_000) };
    for _ in 0..2 {
        let same = with(whole, |rules| matches!(fitted(&request, "x", rules), Ok(Cow::Borrowed(_))));
        assert!(same);
    }
}

#[test]
fn the_oldest_images_make_room_seldom() {
    let whole = RequestLimits { images: Some(4), ..RequestLimits::default() };
    let sent = grown(&[10; 9], whole);
    assert_eq!(sent[3], [true; 4]);
    assert_eq!(sent[4], [false, false, false, true, true]);
    assert_eq!(sent[6], [false, false, false, true, true, true, true]);
    assert_eq!(sent[7], [false, false, false, false, false, false, true, true]);
}

#[test]
fn only_large_images_are_too_many() {
    let whole = RequestLimits { many: Some(MANY), ..RequestLimits::default() };
    assert_eq!(grown(&[100; 9], whole)[8], [true; 9]);
    // The large one is old: once it is left out the others are not too many.
    assert_eq!(grown(&[10, 101, 10, 10, 10, 10], whole)[5], [false, false, true, true, true, true]);
    assert_eq!(grown(&[10, 10, 10, 10, 10, 101], whole)[5], [false, false, false, false, true, true]);
}

#[test]
fn bytes_count_whatever_they_are_of() {
    let SessionContentBlock::Image(Media { source: MediaSource::Data(data), .. }) = png(10, 0) else { unreachable!() };
    let whole = RequestLimits { bytes: Some(data.len() * 3), ..RequestLimits::default() };
    let sent = grown(&[10; 5], whole);
    assert_eq!(sent[2], [true; 3]);
    assert_eq!(sent[3], [false, false, false, true]);
}

#[test]
fn a_prompt_that_is_too_much_is_an_error_and_then_history() {
    let whole = RequestLimits { images: Some(2), ..RequestLimits::default() };
    let much = || (0..3).map(|salt| png(10, salt)).collect::<Vec<_>>();
    let error = with(whole, |rules| check_whole(&much(), rules)).unwrap_err();
    assert_eq!(error.kind, ProviderErrorKind::Unsupported);
    assert!(error.message.contains("block 2"), "{error}");
    let mut request = ModelRequest::new(RequestHead::default(), History::from_iter([user(much())]));
    assert_eq!(fit(&request, whole).unwrap_err().kind, ProviderErrorKind::Unsupported);
    request.history.push(Arc::new(user(vec![SessionContentBlock::text("and now?")]).into()));
    assert_eq!(images(&fit(&request, whole).unwrap()), [false, false, true]);
}

#[test]
fn what_cannot_be_sent_is_left_to_the_encoder_while_it_is_new() {
    let document = || SessionContentBlock::Document(Document::pdf("a.pdf", b"%PDF-"));
    let mut request = ModelRequest::new(RequestHead::default(), History::from_iter([user(vec![document()])]));
    let whole = RequestLimits::default();
    assert_eq!(fit(&request, whole).unwrap()[0].content[0], document());
    for _ in 0..3 {
        request.history.push(Arc::new(user(vec![document(), SessionContentBlock::text("again")]).into()));
        let sent = fit(&request, whole).unwrap();
        let (last, before) = sent.split_last().unwrap();
        assert_eq!(last.content[0], document());
        for turn in before {
            assert_eq!(turn.content[0].as_text(), Some("[left out: document: not taken]"));
        }
    }
}

#[test]
fn results_give_up_their_own_images_too() {
    let call = ToolCallBlock { id: "c".into(), name: "shoot".into(), ..ToolCallBlock::default() };
    let calling = SessionTurn::new("a", Role::Assistant, TurnOrigin::Model, vec![SessionContentBlock::ToolCall(call)]);
    let shots = (0..5).filter_map(|salt| match png(10, salt) {
        SessionContentBlock::Image(media) => Some(ToolResultContent::Image(media)),
        _ => None,
    });
    let result = ToolResultBlock {
        call_id: "c".into(),
        name: "shoot".into(),
        input: None,
        output: ToolResultBody::Blocks(shots.collect()),
        is_error: false,
        status: ToolStatus::Ok,
        outcome: None,
        structured: None,
        extra: Extra::default(),
    };
    let results = user(vec![SessionContentBlock::ToolResult(result)]);
    let request = ModelRequest::new(RequestHead::default(), History::from_iter([calling, results]));
    let sent = fit(&request, RequestLimits { images: Some(4), ..RequestLimits::default() }).unwrap();
    let ToolResultBody::Blocks(blocks) = &sent[1].content[0].as_tool_result().unwrap().output else { panic!() };
    let kept: Vec<_> = blocks.iter().map(|block| matches!(block, ToolResultContent::Image(_))).collect();
    assert_eq!(kept, [false, false, false, true, true]);
}
