//! Media as the wires need it: the type read off the bytes, and documents that are really text.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::types::{Document, Media, MediaSource};

/// How many base64 characters are looked at.
const SNIFFED: usize = 64;

/// The media type to send: what the bytes say, else what was declared. `None` too when the declared type would show in
/// the bytes and does not: some vendors refuse the request for it, and every later one of that conversation.
pub(crate) fn media_type(media: &Media) -> Option<&str> {
    let declared = media.media_type.as_deref().map(str::trim).filter(|text| !text.is_empty());
    let MediaSource::Data(data) = &media.source else { return declared };
    match (sniff(data), declared) {
        // One container, several types: the host knows better which.
        (Some("video/mp4"), Some(declared)) if is_mp4_family(declared) => Some(declared),
        (Some("audio/ogg"), Some(declared)) if declared.ends_with("/ogg") => Some(declared),
        (Some("video/webm"), Some(declared)) if declared.ends_with("/webm") => Some(declared),
        (Some(sniffed), _) => Some(sniffed),
        (None, declared) => declared.filter(|declared| !always_shows(declared)),
    }
}

/// Types whose every file begins in a way that [`sniff`] knows.
fn always_shows(declared: &str) -> bool {
    matches!(declared, "image/png" | "image/jpeg" | "image/jpg" | "image/gif" | "image/webp" | "application/pdf")
}

fn is_mp4_family(declared: &str) -> bool {
    matches!(declared, "audio/mp4" | "audio/x-m4a" | "audio/m4a" | "video/quicktime" | "video/3gpp")
}

/// The media type that the first bytes of base64 text show, if they show one.
pub(crate) fn sniff(data: &str) -> Option<&'static str> {
    let start = data.as_bytes().get(..SNIFFED).unwrap_or(data.as_bytes());
    let whole = start.len() - start.len() % 4;
    let bytes = STANDARD.decode(start.get(..whole)?).ok()?;
    let at = |from: usize, magic: &[u8]| bytes.get(from..).is_some_and(|rest| rest.starts_with(magic));
    Some(match () {
        () if at(0, b"\x89PNG\r\n\x1a\n") => "image/png",
        () if at(0, b"\xff\xd8\xff") => "image/jpeg",
        () if at(0, b"GIF87a") || at(0, b"GIF89a") => "image/gif",
        () if at(0, b"RIFF") && at(8, b"WEBP") => "image/webp",
        () if at(0, b"RIFF") && at(8, b"WAVE") => "audio/wav",
        () if at(0, b"BM") && at(6, &[0; 4]) => "image/bmp",
        () if at(0, b"II*\0") || at(0, b"MM\0*") => "image/tiff",
        () if at(0, b"%PDF-") => "application/pdf",
        () if at(4, b"ftyp") => match bytes.get(8..12)? {
            b"heic" | b"heix" | b"hevc" | b"heim" | b"heis" => "image/heic",
            b"mif1" | b"msf1" => "image/heif",
            b"avif" | b"avis" => "image/avif",
            b"M4A " | b"M4B " => "audio/mp4",
            b"qt  " => "video/quicktime",
            _ => "video/mp4",
        },
        () if at(0, b"ID3") || at(0, b"\xff\xfb") || at(0, b"\xff\xf3") || at(0, b"\xff\xf2") => "audio/mpeg",
        () if at(0, b"fLaC") => "audio/flac",
        () if at(0, b"OggS") => "audio/ogg",
        () if at(0, b"\x1a\x45\xdf\xa3") => "video/webm",
        () => return None,
    })
}

/// The text of a document that is text, under a line that says what it is. `None` for any other document, and for
/// base64 that is not UTF-8.
pub(crate) fn document_text(document: &Document) -> Option<String> {
    let media_type = media_type(&document.media);
    let text: Cow<'_, str> = match &document.media.source {
        MediaSource::Text(text) => Cow::Borrowed(text),
        MediaSource::Data(data) if media_type.is_some_and(is_text_type) => Cow::Owned(decode_text(data)?),
        _ => return None,
    };
    let name = document.name.as_deref().map(str::trim).filter(|name| !name.is_empty()).unwrap_or("document");
    Some(format!("[attachment: {name} ({})]\n{text}", media_type.unwrap_or("text/plain")))
}

/// Base64 of UTF-8 text.
pub(crate) fn decode_text(data: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(data.trim()).ok()?).ok()
}

/// Whether a media type names text that can be inlined.
pub(crate) fn is_text_type(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence.starts_with("text/")
        || ["+json", "+xml", "+yaml"].iter().any(|suffix| essence.ends_with(suffix))
        || matches!(
            essence.as_str(),
            "application/json"
                | "application/xml"
                | "application/yaml"
                | "application/x-yaml"
                | "application/toml"
                | "application/javascript"
                | "application/typescript"
                | "application/sql"
                | "application/x-sh"
                | "application/x-ndjson"
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(bytes: &[u8]) -> String {
        STANDARD.encode(bytes)
    }

    #[test]
    fn bytes_win_over_a_wrong_or_missing_type() {
        let png = data(b"\x89PNG\r\n\x1a\n........");
        assert_eq!(media_type(&Media::base64("image/jpeg", png.clone())), Some("image/png"));
        assert_eq!(media_type(&Media::new(None, MediaSource::Data(png))), Some("image/png"));
        assert_eq!(media_type(&Media::base64("image/svg+xml", data(b"<svg/>"))), Some("image/svg+xml"));
        assert_eq!(media_type(&Media::url("https://x.test/a.png")), None);
        for declared in ["image/png", "image/jpeg", "application/pdf"] {
            for bytes in [&b""[..], b"hello world"] {
                assert_eq!(media_type(&Media::base64(declared, data(bytes))), None, "{declared}");
            }
        }
        assert_eq!(media_type(&Media::base64("image/tiff", data(b"hello world"))), Some("image/tiff"));
    }

    #[test]
    fn the_usual_types_are_known() {
        for (bytes, expected) in [
            (&b"\xff\xd8\xff\xe0...."[..], "image/jpeg"),
            (b"GIF89a......", "image/gif"),
            (b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
            (b"RIFF\0\0\0\0WAVEfmt ", "audio/wav"),
            (b"%PDF-1.7\n...", "application/pdf"),
            (b"\0\0\0\x18ftypheic....", "image/heic"),
            (b"\0\0\0\x18ftypisom....", "video/mp4"),
            (b"ID3\x04......", "audio/mpeg"),
        ] {
            assert_eq!(sniff(&data(bytes)), Some(expected));
        }
        for nothing in ["", "!!!!", "AAAA", "é"] {
            assert_eq!(sniff(nothing), None);
        }
        assert_eq!(media_type(&Media::base64("audio/mp4", data(b"\0\0\0\x18ftypisom...."))), Some("audio/mp4"));
    }

    #[test]
    fn text_documents_read_as_text() {
        let text = document_text(&Document::text("a.md", "# A")).unwrap();
        assert_eq!(text, "[attachment: a.md (text/plain)]\n# A");
        let json = Document { name: None, media: Media::bytes("application/json", b"{}") };
        assert_eq!(document_text(&json).unwrap(), "[attachment: document (application/json)]\n{}");
        assert_eq!(document_text(&Document::pdf("a.pdf", b"%PDF-1.4\n")), None);
        let latin1 = Document { name: None, media: Media::bytes("text/plain", b"\xe9\xe9\xe9") };
        assert_eq!(document_text(&latin1), None);
    }
}
