//! Arguments that arrive in pieces, each with its place (Vertex `streamFunctionCallArguments`).

use serde_json::{Map, Value};

use super::chunk::PartialArg;

/// Deeper and wider than any arguments; a place beyond is passed over.
const MAX_DEPTH: usize = 64;
const MAX_ITEMS: usize = 100_000;

/// The arguments so far.
#[derive(Debug, Default)]
pub(super) struct PartialArguments {
    root: Map<String, Value>,
}

impl PartialArguments {
    /// Adds a piece. Pieces of a string are joined; anything else replaces what was there.
    pub(super) fn add(&mut self, piece: PartialArg<'_>) {
        let Some(path) = Step::path(&piece.json_path.0) else { return };
        let Some(place) = place(&mut self.root, &path) else { return };
        let value = match (piece.string_value, piece.number_value, piece.bool_value) {
            (Some(more), ..) => {
                if let Value::String(text) = place {
                    text.push_str(&more.0);
                    return;
                }
                Value::String(more.0.into_owned())
            }
            (None, Some(number), _) => Value::Number(number),
            (None, None, Some(flag)) => Value::Bool(flag),
            // The head of a string whose text is still to come.
            (None, None, None) if piece.will_continue == Some(true) => return,
            (None, None, None) => Value::Null,
        };
        *place = value;
    }

    /// Their text. Empty when nothing came.
    pub(super) fn into_text(self) -> String {
        if self.root.is_empty() { String::new() } else { Value::Object(self.root).to_string() }
    }
}

/// A step of a path such as `$.a.b[0]['c d']`.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Key(String),
    Index(usize),
}

impl Step {
    /// The normalised paths of RFC 9535, and their short form with dots. `None` for anything else.
    fn path(path: &str) -> Option<Vec<Self>> {
        let mut rest = path.strip_prefix('$').unwrap_or(path);
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if steps.len() >= MAX_DEPTH {
                return None;
            }
            let (step, after) = match rest.strip_prefix('[') {
                Some(inner) => Self::bracket(inner)?,
                None => {
                    let name = rest.strip_prefix('.').unwrap_or(rest);
                    let end = name.find(['.', '[']).unwrap_or(name.len());
                    let (name, after) = name.split_at_checked(end)?;
                    (Self::Key(name.to_owned()), after)
                }
            };
            if step == Self::Key(String::new()) && !rest.starts_with('[') {
                return None;
            }
            steps.push(step);
            rest = after;
        }
        (!steps.is_empty()).then_some(steps)
    }

    fn bracket(inner: &str) -> Option<(Self, &str)> {
        let Some(quote) = inner.chars().next().filter(|first| matches!(first, '\'' | '"')) else {
            let (index, after) = inner.split_once(']')?;
            return Some((Self::Index(index.trim().parse().ok()?), after));
        };
        let mut key = String::new();
        let mut chars = inner.char_indices().skip(1);
        while let Some((at, char)) = chars.next() {
            match char {
                '\\' => key.push(match chars.next()?.1 {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'b' => '\u{8}',
                    'f' => '\u{c}',
                    'u' => {
                        let digits: String = chars.by_ref().take(4).map(|(_, digit)| digit).collect();
                        char::from_u32(u32::from_str_radix(&digits, 16).ok()?)?
                    }
                    other => other,
                }),
                end if end == quote => {
                    let after = inner.get(at.checked_add(1)?..)?.strip_prefix(']')?;
                    return Some((Self::Key(key), after));
                }
                other => key.push(other),
            }
        }
        None
    }
}

/// The place of a path, made on the way. What is in the way gives way.
fn place<'a>(root: &'a mut Map<String, Value>, path: &[Step]) -> Option<&'a mut Value> {
    let (Step::Key(first), rest) = path.split_first()? else { return None };
    let mut place = root.entry(first.clone()).or_insert(Value::Null);
    for step in rest {
        place = match step {
            Step::Key(key) => {
                if !place.is_object() {
                    *place = Value::Object(Map::new());
                }
                place.as_object_mut()?.entry(key.clone()).or_insert(Value::Null)
            }
            Step::Index(index) if *index < MAX_ITEMS => {
                if !place.is_array() {
                    *place = Value::Array(Vec::new());
                }
                let items = place.as_array_mut()?;
                if items.len() <= *index {
                    items.resize(index.checked_add(1)?, Value::Null);
                }
                items.get_mut(*index)?
            }
            Step::Index(_) => return None,
        };
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn joined(pieces: &[Value]) -> String {
        let texts: Vec<_> = pieces.iter().map(Value::to_string).collect();
        let mut arguments = PartialArguments::default();
        texts.iter().for_each(|text| arguments.add(serde_json::from_str(text).unwrap()));
        arguments.into_text()
    }

    #[test]
    fn pieces_find_their_places() {
        let text = joined(&[
            json!({"jsonPath": "$.a.b[0].c", "stringValue": "16 ", "willContinue": true}),
            json!({"jsonPath": "$.a.b[0].c", "stringValue": "oz"}),
            json!({"jsonPath": "$.a.b[1]['d \\'e']", "numberValue": 2.5}),
            json!({"jsonPath": "$[\"f\"]", "boolValue": false}),
            json!({"jsonPath": "$.g", "nullValue": "NULL_VALUE"}),
            json!({"jsonPath": "$.h", "willContinue": true}),
            json!({"jsonPath": "$.h", "stringValue": "é"}),
        ]);
        let expected = json!({"a": {"b": [{"c": "16 oz"}, {"d 'e": 2.5}]}, "f": false, "g": null, "h": "é"});
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        assert_eq!(joined(&[]), "");
    }

    #[test]
    fn odd_paths_are_passed_over() {
        let deep = format!("${}", ".a".repeat(1000));
        for path in ["", "$", "$[0]", "$..a", "$.a[99999999999]", "$.a[-1]", "$['a", "$.a[", "$['\\", "$['\\u12", &deep]
        {
            let text = joined(&[json!({"jsonPath": path, "stringValue": "x"})]);
            assert!(text.is_empty() || text == r#"{"a":null}"#, "{path}: {text}");
        }
    }
}
