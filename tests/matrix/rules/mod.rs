//! What each wire accepts, read from the vendors' references as of November 2026. Written for judging, not for sending:
//! a request is looked at as JSON, and what was understood of it comes out in one form for all wires.

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod gemini;
pub(crate) mod responses;

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// One thing that a request says, in order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    User(String),
    /// An image or document of a user message, by its base64 text.
    Media(String),
    /// The answer to a call: id as sent, text, media inside.
    Result(String, String, Vec<String>),
    /// Reasoning, by what the vendor signed or encrypted.
    Thinking(String),
    Text(String),
    /// A block of the provider's own tools, by what kind it is and what tells it from others.
    Own(String),
    Call {
        id: String,
        name: String,
        arguments: Value,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) said: Vec<Said>,
    pub(crate) faults: Vec<String>,
    /// Opaque state beside a text or call, with what it stands on.
    pub(crate) state: Vec<(String, Said)>,
}

impl Report {
    fn fault(&mut self, text: impl Into<String>) {
        self.faults.push(text.into());
    }

    fn check(&mut self, holds: bool, text: impl FnOnce() -> String) {
        if !holds {
            self.faults.push(text());
        }
    }

    /// An object with these fields and no others.
    fn object(&mut self, place: &str, value: &Value, required: &[&str], optional: &[&str]) {
        let Some(fields) = value.as_object() else {
            return self.fault(format!("{place}: no object: {value}"));
        };
        for name in required {
            self.check(fields.contains_key(*name), || format!("{place}: `{name}` is missing"));
        }
        for name in fields.keys() {
            let known = required.contains(&name.as_str()) || optional.contains(&name.as_str());
            self.check(known, || format!("{place}: unknown field `{name}`"));
        }
    }

    fn string<'v>(&mut self, place: &str, value: &'v Value) -> &'v str {
        if !value.is_string() {
            self.fault(format!("{place}: no string: {value}"));
        }
        value.as_str().unwrap_or_default()
    }

    fn array<'v>(&mut self, place: &str, value: &'v Value) -> &'v [Value] {
        if !value.is_array() {
            self.fault(format!("{place}: no array: {value}"));
        }
        value.as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn not_blank(&mut self, place: &str, text: &str) {
        self.check(!text.trim().is_empty(), || format!("{place}: blank text"));
    }

    /// Names: charset beside ASCII letters and digits, longest, unique.
    fn names(&mut self, place: &str, names: &[&str], also: &str, longest: usize) {
        let mut seen = HashSet::new();
        for name in names {
            self.name(place, name, also, longest);
            self.check(seen.insert(*name), || format!("{place}: the name `{name}` stands twice"));
        }
    }

    fn name(&mut self, place: &str, name: &str, also: &str, longest: usize) {
        let allowed = |c: char| c.is_ascii_alphanumeric() || also.contains(c);
        let fits = !name.is_empty() && name.len() <= longest && name.chars().all(allowed);
        self.check(fits, || format!("{place}: the name `{name}` is not taken"));
    }

    /// Base64 whose bytes are what their type says.
    fn bytes(&mut self, place: &str, media_type: &str, data: &str, types: &[&str]) {
        self.check(types.contains(&media_type), || format!("{place}: the type `{media_type}` is not taken"));
        match STANDARD.decode(data) {
            Err(error) => self.fault(format!("{place}: no base64: {error}")),
            Ok(bytes) => {
                let magic: &[u8] = match media_type {
                    "image/png" => b"\x89PNG",
                    "image/jpeg" => b"\xff\xd8\xff",
                    "image/gif" => b"GIF8",
                    "image/webp" => b"RIFF",
                    "application/pdf" => b"%PDF-",
                    _ => b"",
                };
                self.check(bytes.starts_with(magic), || format!("{place}: the bytes are no {media_type}"));
            }
        }
    }

    /// A data URL, or an address.
    fn url(&mut self, place: &str, url: &str, types: &[&str]) -> String {
        if let Some(rest) = url.strip_prefix("data:") {
            let Some((media_type, data)) = rest.split_once(";base64,") else {
                self.fault(format!("{place}: not a data URL"));
                return String::new();
            };
            self.bytes(place, media_type, data, types);
            return data.to_owned();
        }
        self.check(url.starts_with("https://"), || format!("{place}: not an address: {url}"));
        url.to_owned()
    }

    /// Arguments as a JSON text that is an object.
    fn arguments(&mut self, place: &str, text: &str) -> Value {
        match super::strict_json::parse(text.as_bytes()) {
            Ok(value @ Value::Object(_)) => value,
            other => {
                self.fault(format!("{place}: the arguments are no object: {other:?}"));
                Value::Null
            }
        }
    }

    /// A tool's schema: an object at the root, without these keywords there, and without those anywhere.
    fn schema(&mut self, place: &str, schema: &Value, not_at_root: &[&str], nowhere: &[&str]) {
        self.check(schema["type"] == "object", || format!("{place}: the root is no object"));
        for keyword in not_at_root {
            self.check(schema.get(*keyword).is_none(), || format!("{place}: `{keyword}` at the root"));
        }
        self.keywords(place, schema, nowhere, 0);
    }

    fn keywords(&mut self, place: &str, schema: &Value, nowhere: &[&str], depth: usize) {
        if depth > 100 {
            return self.fault(format!("{place}: nested too deep"));
        }
        let Some(fields) = schema.as_object() else { return };
        for (name, value) in fields {
            self.check(!nowhere.contains(&name.as_str()), || format!("{place}: the keyword `{name}`"));
            match name.as_str() {
                "properties" | "$defs" | "definitions" | "patternProperties" => {
                    for (property, inner) in value.as_object().into_iter().flatten() {
                        self.keywords(&format!("{place}/{property}"), inner, nowhere, depth + 1);
                    }
                }
                "enum" | "const" | "default" | "examples" | "required" => {}
                _ => match value {
                    Value::Array(items) => {
                        for inner in items {
                            self.keywords(&format!("{place}/{name}"), inner, nowhere, depth + 1);
                        }
                    }
                    inner => self.keywords(&format!("{place}/{name}"), inner, nowhere, depth + 1),
                },
            }
        }
    }
}

/// Calls that wait for their result.
#[derive(Debug, Default)]
struct Open {
    waiting: Vec<String>,
    ever: HashSet<String>,
}

impl Open {
    /// `once`: no other call of the conversation may have its id. Otherwise none that waits.
    fn call(&mut self, report: &mut Report, place: &str, id: &str, once: bool) {
        let again = self.waiting.iter().any(|waiting| waiting == id);
        report.check(!again, || format!("{place}: two calls at once have the id `{id}`"));
        report.check(!once || self.ever.insert(id.to_owned()), || format!("{place}: the call id `{id}` stands twice"));
        self.waiting.push(id.to_owned());
    }

    fn result(&mut self, report: &mut Report, place: &str, id: &str) {
        match self.waiting.iter().position(|waiting| waiting == id) {
            Some(at) => drop(self.waiting.remove(at)),
            None => report.fault(format!("{place}: a result without its call before it, `{id}`")),
        }
    }

    fn settled(&mut self, report: &mut Report, place: &str) {
        for id in self.waiting.drain(..) {
            report.fault(format!("{place}: the call `{id}` has no result in its place"));
        }
    }
}
