//! JSON without duplicate keys, and the bytes of a request's messages.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Strict;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }
            fn visit_unit<E>(self) -> Result<Strict, E> {
                Ok(Strict(Value::Null))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Strict, E> {
                Ok(Strict(value.into()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Strict, E> {
                Ok(Strict(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Strict, E> {
                Ok(Strict(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Strict, E> {
                Ok(Strict(value.into()))
            }
            fn visit_str<E>(self, value: &str) -> Result<Strict, E> {
                Ok(Strict(value.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Strict, A::Error> {
                let mut all = Vec::new();
                while let Some(Strict(item)) = items.next_element()? {
                    all.push(item);
                }
                Ok(Strict(all.into()))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Strict, A::Error> {
                let mut all = Map::new();
                while let Some((name, Strict(value))) = fields.next_entry::<String, Strict>()? {
                    if all.insert(name.clone(), value).is_some() {
                        return Err(A::Error::custom(format!("the key `{name}` stands twice")));
                    }
                }
                Ok(Strict(Value::Object(all)))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

pub(crate) fn parse(body: &[u8]) -> Result<Value, String> {
    serde_json::from_slice::<Strict>(body).map(|Strict(value)| value).map_err(|error| error.to_string())
}

/// The bytes of a top-level field, and of all others.
pub(crate) fn field<'a>(body: &'a [u8], name: &str) -> Option<&'a str> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_slice(body).ok()?;
    fields.get(name).map(|value| value.get())
}

#[test]
fn a_key_that_stands_twice_is_found_at_any_depth() {
    assert!(parse(br#"{"a": [{"b": 1, "b": 1}]}"#).unwrap_err().contains("`b`"));
    assert_eq!(parse(br#"{"a": [1, -1, 1.5, true, null, "x"]}"#).unwrap()["a"][5], "x");
    assert_eq!(field(br#"{"a":1, "messages": [1, 2]}"#, "messages"), Some("[1, 2]"));
}
