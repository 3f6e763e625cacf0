//! Values of a wire that many servers speak: what has the wrong type counts as absent and never fails the chunk.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A count of tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) Option<u64>);

/// A string, borrowed from the input where it holds no escapes. Empty when absent or not a string.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Str<'a>(pub(crate) Cow<'a, str>);

/// A small integer that tells entries apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Index(pub(crate) Option<i64>);

/// A list whose first entry is kept without allocating.
#[derive(Debug)]
pub(crate) struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self { first: None, rest: Vec::new() }
    }
}

impl<T> Few<T> {
    pub(crate) fn push(&mut self, value: T) {
        if self.first.is_none() {
            self.first = Some(value);
        } else {
            self.rest.push(value);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.rest)
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;
    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.rest)
    }
}

/// What a scalar visitor does with everything it does not take.
macro_rules! passes_over {
    ($($method:ident: $type:ty),* $(,)?) => {
        $(fn $method<E>(self, _: $type) -> Result<Self::Value, E> { Ok(Self::Value::default()) })*
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
            while seq.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountVisitor;
        impl<'de> Visitor<'de> for CountVisitor {
            type Value = Count;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a count")
            }
            fn visit_u64<E>(self, value: u64) -> Result<Count, E> {
                Ok(Count(Some(value)))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Count, E> {
                Ok(Count(Some(u64::try_from(value).unwrap_or(0))))
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
            fn visit_f64<E>(self, value: f64) -> Result<Count, E> {
                Ok(Count(Some(value as u64)))
            }
            passes_over!(visit_bool: bool, visit_str: &str);
        }
        deserializer.deserialize_any(CountVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StrVisitor;
        impl<'de> Visitor<'de> for StrVisitor {
            type Value = Str<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Borrowed(value)))
            }
            fn visit_str<E>(self, value: &str) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Owned(value.to_owned())))
            }
            fn visit_string<E>(self, value: String) -> Result<Str<'de>, E> {
                Ok(Str(Cow::Owned(value)))
            }
            passes_over!(visit_bool: bool, visit_u64: u64, visit_i64: i64, visit_f64: f64);
        }
        deserializer.deserialize_any(StrVisitor)
    }
}

impl<'de> Deserialize<'de> for Index {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IndexVisitor;
        impl<'de> Visitor<'de> for IndexVisitor {
            type Value = Index;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an index")
            }
            fn visit_u64<E>(self, value: u64) -> Result<Index, E> {
                Ok(Index(i64::try_from(value).ok()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Index, E> {
                Ok(Index(Some(value)))
            }
            fn visit_str<E>(self, value: &str) -> Result<Index, E> {
                Ok(Index(value.parse().ok()))
            }
            passes_over!(visit_bool: bool, visit_f64: f64);
        }
        deserializer.deserialize_any(IndexVisitor)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Few<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FewVisitor<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for FewVisitor<T> {
            type Value = Few<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Few<T>, A::Error> {
                let mut few = Few::default();
                while let Some(value) = seq.next_element()? {
                    few.push(value);
                }
                Ok(few)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Few<T>, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Few::default())
            }
            fn visit_unit<E>(self) -> Result<Few<T>, E> {
                Ok(Few::default())
            }
            fn visit_str<E>(self, _: &str) -> Result<Few<T>, E> {
                Ok(Few::default())
            }
            fn visit_bool<E>(self, _: bool) -> Result<Few<T>, E> {
                Ok(Few::default())
            }
            fn visit_u64<E>(self, _: u64) -> Result<Few<T>, E> {
                Ok(Few::default())
            }
            fn visit_i64<E>(self, _: i64) -> Result<Few<T>, E> {
                Ok(Few::default())
            }
            fn visit_f64<E>(self, _: f64) -> Result<Few<T>, E> {
                Ok(Few::default())
            }
        }
        deserializer.deserialize_any(FewVisitor(std::marker::PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wrong_type_is_absent() {
        for odd in ["null", "true", "\"x\"", "[1,[2]]", "{\"a\":{}}"] {
            assert_eq!(serde_json::from_str::<Count>(odd).unwrap(), Count(None), "{odd}");
        }
        for odd in ["null", "true", "3", "-3", "1.5", "[1,[2]]", "{\"a\":{}}"] {
            assert_eq!(serde_json::from_str::<Str<'_>>(odd).unwrap(), Str::default(), "{odd}");
            assert!(
                serde_json::from_str::<Few<u8>>(if odd.starts_with('[') { "null" } else { odd }).unwrap().is_empty()
            );
        }
        assert_eq!(serde_json::from_str::<Index>("\"2\"").unwrap(), Index(Some(2)));
        assert_eq!(serde_json::from_str::<Index>("null").unwrap(), Index(None));
    }

    #[test]
    fn strings_without_escapes_are_borrowed() {
        assert!(matches!(serde_json::from_str::<Str<'_>>("\"ab\"").unwrap().0, Cow::Borrowed("ab")));
        assert!(matches!(serde_json::from_str::<Str<'_>>("\"a\\nb\"").unwrap().0, Cow::Owned(_)));
    }

    #[test]
    fn a_list_keeps_its_order() {
        let few: Few<u8> = serde_json::from_str("[1,2,3]").unwrap();
        assert_eq!(few.iter().copied().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(few.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
    }
}
