//! What a wire takes of one image or document, and of tools: data of each wire, checked before anything is sent, since
//! a session that holds what the API refuses would fail at every later request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{ProviderError, ProviderErrorKind};

/// Limits for one part. Whatever is not limited is left to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MediaLimits {
    /// The most base64 characters of an image.
    pub(crate) image: Option<usize>,
    /// The longest side of an image, in pixels. Looked at where the first bytes tell it.
    pub(crate) side: Option<u32>,
    /// The most base64 characters of a document.
    pub(crate) document: Option<usize>,
}

/// Limits for all media of a request together. Whatever is not limited is left to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestLimits {
    /// The most images.
    pub(crate) images: Option<usize>,
    pub(crate) many: Option<ManyImages>,
    /// The most base64 characters of images, documents and whatever else is sent inline.
    pub(crate) bytes: Option<usize>,
}

/// A shorter longest side, for each image of a request that has more than so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ManyImages {
    pub(crate) above: usize,
    pub(crate) side: u32,
}

/// Media of a request, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) images: usize,
    /// Images with a side that is too long where there are many.
    pub(crate) large: usize,
    /// Base64 characters of everything.
    pub(crate) bytes: usize,
}

impl ManyImages {
    pub(crate) const fn are_passed(self, sent: &Sent) -> bool {
        sent.images > self.above && sent.large > 0
    }
}

impl RequestLimits {
    /// Limits of images by number, and of everything by its bytes.
    pub(crate) fn of(images: Option<usize>, bytes: Option<usize>) -> Self {
        Self { images, many: None, bytes: bytes.map(base64_length) }
    }

    /// Why the wire would refuse a request with these media.
    pub(crate) fn passed(self, sent: &Sent) -> Option<&'static str> {
        if self.images.is_some_and(|most| sent.images > most) {
            Some("there are more images than a request takes")
        } else if self.many.is_some_and(|many| many.are_passed(sent)) {
            Some("a side of an image is longer than is taken among so many images")
        } else if self.bytes.is_some_and(|most| sent.bytes > most) {
            Some("its media have more bytes than a request takes")
        } else {
            None
        }
    }

    /// Whether an image of this base64 text is too large where there are many.
    pub(crate) fn is_large(self, data: &str) -> bool {
        let longer = |side: u32| size(data).is_some_and(|(width, height)| width.max(height) > side);
        self.many.is_some_and(|many| longer(many.side))
    }
}

/// The base64 characters that stand for so many bytes.
pub(crate) const fn base64_length(bytes: usize) -> usize {
    bytes.div_ceil(3).saturating_mul(4)
}

impl MediaLimits {
    /// Limits in bytes, for any part.
    pub(crate) fn bytes(most: Option<usize>) -> Self {
        let length = most.map(base64_length);
        Self { image: length, side: None, document: length }
    }

    /// Why the wire would refuse an image of this base64 text.
    pub(crate) fn image_fault(self, data: &str) -> Option<&'static str> {
        if self.image.is_some_and(|most| data.len() > most) {
            return Some("it has more bytes than are taken");
        }
        let side = self.side?;
        let (width, height) = size(data)?;
        (width.max(height) > side).then_some("one of its sides is longer than is taken")
    }

    /// Why the wire would refuse a document of this base64 text.
    pub(crate) fn document_fault(self, data: &str) -> Option<&'static str> {
        self.document.is_some_and(|most| data.len() > most).then_some("it has more bytes than are taken")
    }
}

/// Checks the number of tools.
///
/// # Errors
/// `Invalid`, with both numbers.
pub(crate) fn check_tools(provider: &str, tools: usize, most: Option<usize>) -> Result<(), ProviderError> {
    match most.filter(|most| tools > *most) {
        Some(most) => {
            let message = format!("{tools} tools are declared, and at most {most} are taken");
            Err(ProviderError::new(ProviderErrorKind::Invalid, provider, message))
        }
        None => Ok(()),
    }
}

/// The size in pixels that a PNG, GIF or WebP states at its beginning, or a JPEG soon after.
fn size(data: &str) -> Option<(u32, u32)> {
    const LOOKED_AT: usize = 16 * 1024;
    let start = data.as_bytes().get(..LOOKED_AT).unwrap_or(data.as_bytes());
    let short = |bytes: &[u8], from: usize| {
        let pair: [u8; 2] = bytes.get(from..)?.get(..2)?.try_into().ok()?;
        Some(pair)
    };
    let head = STANDARD.decode(start.get(..32)?).ok()?;
    if head.starts_with(b"\x89PNG") {
        let long = |from: usize| {
            let bytes: [u8; 4] = head.get(from..)?.get(..4)?.try_into().ok()?;
            Some(u32::from_be_bytes(bytes))
        };
        return Some((long(16)?, long(20)?));
    }
    if head.starts_with(b"GIF8") {
        let side = |from| short(&head, from).map(|pair| u32::from(u16::from_le_bytes(pair)));
        return Some((side(6)?, side(8)?));
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return webp_size(&STANDARD.decode(start.get(..40)?).ok()?);
    }
    if !head.starts_with(b"\xff\xd8") {
        return None;
    }
    let bytes = STANDARD.decode(start.get(..start.len() - start.len() % 4)?).ok()?;
    let mut at = 2_usize;
    while let Some([0xff, marker]) = short(&bytes, at) {
        if matches!(marker, 0xc0..=0xcf) && !matches!(marker, 0xc4 | 0xc8 | 0xcc) {
            let side = |from| short(&bytes, from).map(|pair| u32::from(u16::from_be_bytes(pair)));
            return Some((side(at.checked_add(7)?)?, side(at.checked_add(5)?)?));
        }
        let length = usize::from(u16::from_be_bytes(short(&bytes, at.checked_add(2)?)?));
        at = at.checked_add(2)?.checked_add(length)?;
    }
    None
}

/// The size in the first chunk of a WebP: of the canvas, or of the one picture.
fn webp_size(bytes: &[u8]) -> Option<(u32, u32)> {
    let number = |from: usize, length: usize| {
        let low_first = bytes.get(from..)?.get(..length)?;
        Some(low_first.iter().rev().fold(0_u32, |number, byte| number << 8 | u32::from(*byte)))
    };
    match bytes.get(12..16)? {
        b"VP8X" => Some((number(24, 3)? + 1, number(27, 3)? + 1)),
        b"VP8 " => Some((number(26, 2)? & 0x3fff, number(28, 2)? & 0x3fff)),
        b"VP8L" => {
            let bits = number(21, 4)?;
            Some(((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32) -> String {
        let bytes = [&b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &width.to_be_bytes(), &height.to_be_bytes(), &[8; 8]];
        STANDARD.encode(bytes.concat())
    }

    #[test]
    fn sizes_are_read_off_the_first_bytes() {
        assert_eq!(size(&png(9_000, 10)), Some((9_000, 10)));
        let gif = [&b"GIF89a\x10\x27\x05\0"[..], &[0; 20]].concat();
        assert_eq!(size(&STANDARD.encode(gif)), Some((10_000, 5)));
        let segment = |marker: u8, rest: &[u8]| {
            let length = u16::try_from(rest.len() + 2).unwrap();
            [&[0xff, marker][..], &length.to_be_bytes(), rest].concat()
        };
        let frame = segment(0xc2, &[8, 0x23, 0x28, 0, 10, 3, 0, 0, 0]);
        let jpeg = [&b"\xff\xd8"[..], &segment(0xe0, &[0; 300]), &segment(0xc4, &[0; 20]), &frame].concat();
        assert_eq!(size(&STANDARD.encode(&jpeg)), Some((10, 9_000)));
        for cut in 0..jpeg.len() - 6 {
            assert_eq!(size(&STANDARD.encode(&jpeg[..cut])), None);
        }
        assert_eq!(size(&STANDARD.encode([&b"\xff\xd8"[..], &[0xff; 60]].concat())), None);
        let webp = |kind: &[u8], rest: &[u8]| {
            STANDARD.encode([&b"RIFF\0\0\0\0WEBP"[..], kind, &[0; 4], rest, &[0; 16]].concat())
        };
        assert_eq!(size(&webp(b"VP8X", &[0, 0, 0, 0, 0x0f, 0x27, 0, 9, 0, 0])), Some((10_000, 10)));
        assert_eq!(size(&webp(b"VP8 ", &[0, 0, 0, 0x9d, 1, 0x2a, 0x10, 0x27, 10, 0])), Some((10_000, 10)));
        assert_eq!(size(&webp(b"VP8L", &[0x2f, 0x0f, 0x67, 2, 0])), Some((10_000, 10)));
        assert_eq!(size(&webp(b"ALPH", &[0; 10])), None);
        for nothing in ["", "AAAA", "é".repeat(40).as_str()] {
            assert_eq!(size(nothing), None);
        }
    }

    #[test]
    fn what_is_within_the_limits_has_no_fault() {
        let limits = MediaLimits { image: Some(60), side: Some(8_000), document: Some(8) };
        assert_eq!(limits.image_fault(&png(8_000, 8_000)), None);
        assert!(limits.image_fault(&png(8_001, 1)).unwrap().contains("sides"));
        assert!(limits.image_fault(&"A".repeat(61)).unwrap().contains("bytes"));
        assert_eq!((limits.document_fault("12345678"), limits.document_fault("123456789").is_some()), (None, true));
        assert_eq!(MediaLimits::default().image_fault(&"A".repeat(100)), None);
        assert_eq!(base64_length(4), 8);
    }

    #[test]
    fn too_many_tools_are_told_with_both_numbers() {
        let error = check_tools("x", 10_000, Some(128)).unwrap_err().to_string();
        assert!(error.contains("10000") && error.contains("128"), "{error}");
        assert!(check_tools("x", 128, Some(128)).is_ok() && check_tools("x", 10_000, None).is_ok());
    }
}
