use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::provider::lenient::{Few, Index, Str};

/// A piece of `reasoning_details` as it streams.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Piece<'a> {
    #[serde(borrow)]
    r#type: Str<'a>,
    index: Index,
    #[serde(borrow)]
    text: Str<'a>,
    #[serde(borrow)]
    summary: Str<'a>,
    #[serde(borrow)]
    signature: Str<'a>,
    #[serde(borrow)]
    id: Str<'a>,
}

/// An item of `reasoning_details`, with its text kept apart while it grows.
#[derive(Debug)]
struct Item {
    kind: String,
    index: Option<i64>,
    text: String,
    signed: bool,
    fields: Map<String, Value>,
}

/// The most items of one answer.
const MAX_ITEMS: usize = 4096;

/// Puts streamed `reasoning_details` together: pieces of one text or summary are joined, encrypted ones kept apart.
#[derive(Debug, Default)]
pub(super) struct Details {
    items: Vec<Item>,
    /// They came whole: the text of the list as it was.
    whole: Option<String>,
    too_many: bool,
}

impl Details {
    pub(super) const fn is_empty(&self) -> bool {
        self.items.is_empty() && self.whole.is_none()
    }

    /// Takes the list of a whole response, whose items are complete.
    pub(super) fn take_whole(&mut self, list: &Few<&RawValue>) {
        let items: Vec<&str> = list.iter().map(|raw| raw.get()).collect();
        self.whole = Some(format!("[{}]", items.join(",")));
    }

    /// Takes a streamed piece.
    pub(super) fn take(&mut self, raw: &RawValue) {
        let Ok(piece) = serde_json::from_str::<Piece<'_>>(raw.get()) else { return };
        let grows = matches!(&*piece.r#type.0, "reasoning.text" | "reasoning.summary");
        if grows && let Some(item) = self.open_item(&piece) {
            item.text.push_str(&piece.text.0);
            item.text.push_str(&piece.summary.0);
            for (name, value) in [("signature", piece.signature.0), ("id", piece.id.0)] {
                if !value.is_empty() {
                    item.signed |= name == "signature";
                    item.fields.insert(name.to_owned(), Value::String(value.into_owned()));
                }
            }
            return;
        }
        if self.items.len() >= MAX_ITEMS {
            // Half of the state is of no use.
            self.too_many = true;
            return;
        }
        let Ok(fields) = serde_json::from_str::<Map<String, Value>>(raw.get()) else { return };
        self.items.push(Item {
            index: piece.index.0,
            text: if grows { format!("{}{}", piece.text.0, piece.summary.0) } else { String::new() },
            signed: !piece.signature.0.is_empty(),
            kind: piece.r#type.0.into_owned(),
            fields,
        });
    }

    /// The item that a piece continues: of the same type and index, and not signed yet unless only a signature follows.
    fn open_item(&mut self, piece: &Piece<'_>) -> Option<&mut Item> {
        let same = |item: &Item| item.kind == piece.r#type.0 && item.index == piece.index.0;
        let position = match piece.index.0 {
            Some(_) => self.items.iter().rposition(same),
            None => self.items.len().checked_sub(1).filter(|last| self.items.get(*last).is_some_and(same)),
        }?;
        let item = self.items.get_mut(position)?;
        let brings_text = !piece.text.0.is_empty() || !piece.summary.0.is_empty();
        (!item.signed || !brings_text).then_some(item)
    }

    /// The list as JSON, to be sent back as it is.
    pub(super) fn finish(&mut self) -> Option<String> {
        if self.is_empty() || self.too_many {
            return None;
        }
        if let Some(whole) = self.whole.take() {
            return Some(whole);
        }
        let items = std::mem::take(&mut self.items).into_iter().map(|mut item| {
            let field = match &*item.kind {
                "reasoning.text" => Some("text"),
                "reasoning.summary" => Some("summary"),
                _ => None,
            };
            if let Some(field) = field {
                item.fields.insert(field.to_owned(), Value::String(item.text));
            }
            Value::Object(item.fields)
        });
        serde_json::to_string(&Value::Array(items.collect())).ok()
    }
}

/// The readable text of a piece.
pub(super) fn piece_text(raw: &RawValue) -> Cow<'_, str> {
    let piece = serde_json::from_str::<Piece<'_>>(raw.get()).unwrap_or_default();
    if piece.text.0.is_empty() { piece.summary.0 } else { piece.text.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(pieces: &[&str]) -> Value {
        let mut details = Details::default();
        for piece in pieces {
            details.take(&RawValue::from_string((*piece).to_owned()).unwrap());
        }
        serde_json::from_str(&details.finish().unwrap()).unwrap()
    }

    #[test]
    fn pieces_of_one_text_are_joined_and_signed_last() {
        let joined = join(&[
            r#"{"type":"reasoning.text","text":"one ","signature":"","format":"f","index":0}"#,
            r#"{"type":"reasoning.text","text":"two","signature":"","format":"f","index":0}"#,
            r#"{"type":"reasoning.text","text":"","signature":"SIG","format":"f","index":0}"#,
            r#"{"type":"reasoning.text","text":"next block","format":"f","index":0}"#,
        ]);
        assert_eq!(
            joined,
            serde_json::json!([
                {"type":"reasoning.text","text":"one two","signature":"SIG","format":"f","index":0},
                {"type":"reasoning.text","text":"next block","format":"f","index":0},
            ])
        );
    }

    #[test]
    fn encrypted_items_stay_apart() {
        let joined = join(&[
            r#"{"type":"reasoning.summary","summary":"a","index":0}"#,
            r#"{"type":"reasoning.summary","summary":"b","index":0}"#,
            r#"{"type":"reasoning.encrypted","data":"X","index":0,"id":"rs_1"}"#,
            r#"{"type":"reasoning.encrypted","data":"Y","index":0,"id":"rs_2"}"#,
        ]);
        assert_eq!(
            joined,
            serde_json::json!([
                {"type":"reasoning.summary","summary":"ab","index":0},
                {"type":"reasoning.encrypted","data":"X","index":0,"id":"rs_1"},
                {"type":"reasoning.encrypted","data":"Y","index":0,"id":"rs_2"},
            ])
        );
    }
}
