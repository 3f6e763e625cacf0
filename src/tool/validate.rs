use serde_json::Value;

use super::normalise;
use super::schema_shape::{Shape, Types};

/// Violations that are reported of one call.
#[cfg(feature = "json-schema")]
const MAX_VIOLATIONS: usize = 10;
/// Bytes of one violation's message.
#[cfg(feature = "json-schema")]
const MAX_MESSAGE: usize = 240;
/// Bytes of one violation's pointer: property names are the model's.
#[cfg(feature = "json-schema")]
const MAX_POINTER: usize = 160;
/// How deep the errors of branches within branches are looked into.
#[cfg(feature = "json-schema")]
const MAX_BRANCH_DEPTH: usize = 8;
/// How deep a schema may be nested.
const MAX_SCHEMA_DEPTH: usize = 128;

/// Arguments that the tool does not get to see. `Display` is what the model reads; it names the places and holds no value
/// of the arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidArguments {
    /// The text is not JSON.
    BadJson {
        /// Where, counted from 1.
        line: usize,
        /// Where, in bytes, counted from 1; 0 at the very beginning.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// The arguments do not match the tool's schema.
    Schema {
        /// The first of what is wrong, ten at most. Never empty.
        violations: Vec<Violation>,
        /// There is more.
        more: bool,
    },
}

/// One place where arguments do not match the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Violation {
    /// JSON pointer into the arguments; `""` is all of them. Of a missing property it is where that belongs.
    pub pointer: String,
    /// What is wrong there.
    pub message: String,
}

impl std::fmt::Display for InvalidArguments {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::BadJson { line, column, message } => {
                write!(f, "The arguments are not valid JSON (line {line}, column {column}): {message}.")
            }
            Self::Schema { violations, more } => {
                f.write_str("The arguments do not match the tool's schema:")?;
                for Violation { pointer, message } in violations {
                    let place = if pointer.is_empty() { "(arguments)" } else { pointer };
                    write!(f, "\n- {place}: {message}")?;
                }
                if *more {
                    f.write_str("\n- and more")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for InvalidArguments {}

/// A compiled schema of something other than a tool's arguments.
#[derive(Debug)]
pub(crate) struct SchemaCheck(Arguments);

impl SchemaCheck {
    /// Compiles a schema whose root takes an object.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub(crate) fn compile(schema: &Value) -> Result<Self, String> {
        Arguments::compile(schema).map(Self).map_err(|bad| format!("at `{}`: {}", bad.pointer, bad.message))
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The places where it does not match, a line each.
    pub(crate) fn check(&self, value: &Value) -> Result<(), String> {
        self.0.check(value).map_err(|invalid| match invalid {
            InvalidArguments::Schema { violations, .. } => violations
                .iter()
                .map(|Violation { pointer, message }| {
                    format!("\n- {}: {message}", if pointer.is_empty() { "(answer)" } else { pointer })
                })
                .collect(),
            bad @ InvalidArguments::BadJson { .. } => bad.to_string(),
        })
    }
}

/// A schema that cannot be used, and where in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadSchema {
    pub(super) pointer: String,
    pub(super) message: String,
}

/// The compiled schema of one tool's arguments.
#[derive(Debug)]
pub(super) struct Arguments {
    shape: Shape,
    #[cfg(feature = "json-schema")]
    validator: jsonschema::Validator,
}

impl Arguments {
    /// Compiles a schema. Nothing is fetched: a reference that leads out of it is an error.
    pub(super) fn compile(schema: &Value) -> Result<Self, BadSchema> {
        let bad = |message: &str| BadSchema { pointer: String::new(), message: message.to_owned() };
        if !schema.is_object() {
            return Err(bad("a schema is an object"));
        }
        if depth_exceeds(schema, MAX_SCHEMA_DEPTH) {
            return Err(bad("it is nested too deeply"));
        }
        let shape = Shape::compile(schema);
        if !shape.accepts(&[0]).has(Types::OBJECT) {
            return Err(bad("its root does not take an object"));
        }
        Ok(Self {
            #[cfg(feature = "json-schema")]
            validator: compile_validator(schema)?,
            shape,
        })
    }

    /// The one value that hooks, journal and tool see, from what the model wrote.
    pub(super) fn prepare(&self, raw: &str) -> Result<Value, InvalidArguments> {
        self.prepare_parsed(normalise::parse(raw).map_err(|error| bad_json(&error))?)
    }

    /// The same from a value.
    pub(super) fn prepare_value(&self, value: Value) -> Result<Value, InvalidArguments> {
        self.prepare_parsed(normalise::opened(value))
    }

    fn prepare_parsed(&self, mut value: Value) -> Result<Value, InvalidArguments> {
        normalise::normalise(&self.shape, &mut value);
        let checked = self.check(&value);
        #[cfg(feature = "json-schema")]
        if checked.is_err() && self.remove_refused_empty(&mut value) {
            self.check(&value)?;
            return Ok(value);
        }
        checked.map(|()| value)
    }

    /// Whether arguments may go to the tool as they are.
    pub(super) fn check(&self, value: &Value) -> Result<(), InvalidArguments> {
        if !value.is_object() {
            let message = format!("an object is expected, not {}", kind(value));
            let violations = vec![Violation { pointer: String::new(), message }];
            return Err(InvalidArguments::Schema { violations, more: false });
        }
        #[cfg(feature = "json-schema")]
        self.check_schema(value)?;
        Ok(())
    }
}

fn bad_json(error: &serde_json::Error) -> InvalidArguments {
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message).to_owned();
    InvalidArguments::BadJson { line: error.line(), column: error.column(), message }
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn depth_exceeds(value: &Value, limit: usize) -> bool {
    let mut todo = vec![(value, 0_usize)];
    while let Some((value, depth)) = todo.pop() {
        if depth > limit {
            return true;
        }
        let below = depth.saturating_add(1);
        match value {
            Value::Array(items) => todo.extend(items.iter().map(|item| (item, below))),
            Value::Object(map) => todo.extend(map.values().map(|item| (item, below))),
            _ => {}
        }
    }
    false
}

/// The start of a text, `limit` bytes at most, cut between characters, with `…` where something is missing.
#[cfg(feature = "json-schema")]
pub(super) fn clip(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let start = text.get(..text.floor_char_boundary(limit)).unwrap_or_default();
    format!("{start}…")
}

#[cfg(feature = "json-schema")]
mod with_schema {
    use jsonschema::ValidationError;
    use jsonschema::error::{TypeKind, ValidationErrorKind};

    use super::*;

    pub(super) fn compile_validator(schema: &Value) -> Result<jsonschema::Validator, BadSchema> {
        jsonschema::options().offline().build(schema).map_err(|error| BadSchema {
            pointer: clip(error.instance_path().as_str(), MAX_POINTER),
            message: clip(&error.masked().to_string(), MAX_MESSAGE),
        })
    }

    impl Arguments {
        /// Models write `""` for "not given": where the schema refuses that and the property may be missing, it goes.
        /// Whether any went.
        pub(super) fn remove_refused_empty(&self, value: &mut Value) -> bool {
            let refused: Vec<String> = self
                .validator
                .iter_errors(value)
                .filter(|error| error.instance().as_str() == Some(""))
                .map(|error| error.instance_path().as_str().to_owned())
                .take(64)
                .collect();
            normalise::remove_empty(&self.shape, value, refused.iter().map(String::as_str))
        }

        pub(super) fn check_schema(&self, value: &Value) -> Result<(), InvalidArguments> {
            if self.validator.is_valid(value) {
                return Ok(());
            }
            let mut violations: Vec<Violation> = Vec::new();
            for error in self.validator.iter_errors(value).take(MAX_VIOLATIONS.saturating_add(1)) {
                describe(&error, &mut violations, 0);
            }
            let more = violations.len() > MAX_VIOLATIONS;
            violations.truncate(MAX_VIOLATIONS);
            if violations.is_empty() {
                violations.push(Violation { pointer: String::new(), message: "the schema refuses them".into() });
            }
            Err(InvalidArguments::Schema { violations, more })
        }
    }

    fn describe(error: &ValidationError<'_>, violations: &mut Vec<Violation>, depth: usize) {
        if violations.len() > MAX_VIOLATIONS {
            return;
        }
        let place = error.instance_path().as_str();
        if let ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } = error.kind()
            && depth < MAX_BRANCH_DEPTH
            && let Some(branch) = meant(context, place)
        {
            for error in branch {
                describe(error, violations, depth.saturating_add(1));
            }
            return;
        }
        let mut add = |pointer: &str, message: &str| {
            violations.push(Violation { pointer: clip(pointer, MAX_POINTER), message: clip(message, MAX_MESSAGE) });
        };
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                add(&format!("{place}/{}", escaped(name)), "is required");
            }
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                for name in unexpected.iter().take(MAX_VIOLATIONS.saturating_add(1)) {
                    add(&format!("{place}/{}", escaped(name)), "there is no such property");
                }
            }
            ValidationErrorKind::Type { kind: expected } => {
                let (names, takes_container) = expected_types(expected);
                let instance = error.instance();
                let hint = if instance.is_string() && takes_container {
                    "; send JSON directly, not inside a string"
                } else {
                    ""
                };
                add(place, &format!("{names} is expected, not {}{hint}", super::kind(instance)));
            }
            _ => add(place, &error.masked().to_string()),
        }
    }

    /// Of branches that all refused, the one whose errors are worth reading: the only one of the right type and with the
    /// right tag.
    fn meant<'a, 'e>(branches: &'a [Vec<ValidationError<'e>>], place: &str) -> Option<&'a [ValidationError<'e>]> {
        let is_other = |error: &ValidationError<'_>| {
            let at = error.instance_path().as_str();
            match error.kind() {
                ValidationErrorKind::Type { .. } => at == place,
                ValidationErrorKind::Constant { .. } | ValidationErrorKind::Enum { .. } => {
                    at.strip_prefix(place).is_some_and(|below| below.matches('/').count() <= 1)
                }
                _ => false,
            }
        };
        let mut fitting = branches.iter().filter(|errors| !errors.is_empty() && !errors.iter().any(is_other));
        let first = fitting.next()?;
        fitting.next().is_none().then_some(first)
    }

    fn expected_types(kind: &TypeKind) -> (String, bool) {
        let names: Vec<String> = match kind {
            TypeKind::Single(one) => vec![one.to_string()],
            TypeKind::Multiple(set) => set.iter().map(|one| one.to_string()).collect(),
        };
        let takes_container = names.iter().any(|name| name == "object" || name == "array");
        (names.join(" or "), takes_container)
    }

    fn escaped(name: &str) -> String {
        name.replace('~', "~0").replace('/', "~1")
    }
}
#[cfg(feature = "json-schema")]
use with_schema::compile_validator;
