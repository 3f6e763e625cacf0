use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::validate::Arguments;
use super::{InvalidArguments, Tool, ToolSpec};
use crate::provider::{ToolDefinition, ToolNames};

/// Why tools cannot be registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolSetError {
    /// A tool has a blank name.
    #[error("a tool has no name (its description: `{description}`)")]
    EmptyName {
        /// The start of its description.
        description: String,
    },
    /// Two tools have one name.
    #[error("two tools are named `{name}`")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A tool's schema cannot be used.
    #[error("the input schema of tool `{tool}` is invalid at `{pointer}`: {message}")]
    BadSchema {
        /// The tool.
        tool: String,
        /// JSON pointer into the schema; `""` is all of it.
        pointer: String,
        /// What is wrong there.
        message: String,
    },
    /// An alias is blank.
    #[error("the alias of tool `{name}` is blank")]
    EmptyAlias {
        /// The tool's canonical name.
        name: String,
    },
    /// An alias is for a tool that is not there.
    #[error("alias `{alias}` is for tool `{name}`, which is not registered")]
    UnknownTool {
        /// The canonical name that nothing has.
        name: String,
        /// The alias.
        alias: String,
    },
    /// The model would see two tools under one name.
    #[error("tools `{first}` and `{second}` would both be shown as `{shown}`")]
    AliasCollision {
        /// The name that both would have.
        shown: String,
        /// One canonical name.
        first: String,
        /// The other.
        second: String,
    },
}

/// A tool with its spec at hand and its schema compiled.
pub struct CompiledTool {
    tool: Arc<dyn Tool>,
    spec: ToolSpec,
    definition: ToolDefinition,
    arguments: Arguments,
}

impl CompiledTool {
    /// Asks a tool for its spec and compiles it.
    ///
    /// A schema that is `true` or `null` becomes that of an object without properties.
    ///
    /// # Errors
    /// [`ToolSetError::EmptyName`] and [`ToolSetError::BadSchema`].
    pub fn compile(tool: Arc<dyn Tool>) -> Result<Self, ToolSetError> {
        let mut spec = tool.spec();
        if spec.name.trim().is_empty() {
            let description = spec.description.chars().take(60).collect();
            return Err(ToolSetError::EmptyName { description });
        }
        if matches!(*spec.input_schema, Value::Null | Value::Bool(true)) {
            spec.input_schema = Arc::new(json!({ "type": "object", "properties": {} }));
        }
        let arguments = Arguments::compile(&spec.input_schema).map_err(|bad| ToolSetError::BadSchema {
            tool: spec.name.clone(),
            pointer: bad.pointer,
            message: bad.message,
        })?;
        let definition = ToolDefinition {
            name: spec.name.clone(),
            description: spec.description.clone(),
            input_schema: Arc::clone(&spec.input_schema),
            strict: spec.strict,
        };
        Ok(Self { tool, spec, definition, arguments })
    }

    /// The canonical name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &Arc<dyn Tool> {
        &self.tool
    }

    /// Its spec.
    #[must_use]
    pub const fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// What the model is told of it.
    #[must_use]
    pub const fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// The arguments that hooks, journal and tool see, from the text that the model wrote: parsed, normalised, valid.
    ///
    /// # Errors
    /// What is wrong with them, in words for the model.
    pub fn prepare(&self, raw: &str) -> Result<Value, InvalidArguments> {
        self.arguments.prepare(raw)
    }

    /// The same from a value, for a call that the host or a tool makes.
    ///
    /// # Errors
    /// As for [`prepare`](Self::prepare).
    pub fn prepare_value(&self, value: Value) -> Result<Value, InvalidArguments> {
        self.arguments.prepare_value(value)
    }

    /// Whether arguments, as a hook rewrote them, may go to the tool as they are.
    ///
    /// # Errors
    /// As for [`prepare`](Self::prepare).
    pub fn check(&self, value: &Value) -> Result<(), InvalidArguments> {
        self.arguments.check(value)
    }
}

impl std::fmt::Debug for CompiledTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompiledTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// The tools of an agent, compiled once and shared by the agents built from one builder. Cloning shares them.
///
/// The model sees each tool under its alias, or else its canonical name. It may call by what it sees, and by canonical
/// name unless that is what another tool is shown as. Names are compared exactly.
#[derive(Clone, Debug, Default)]
pub struct ToolSet {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    tools: Vec<Arc<CompiledTool>>,
    /// By all that the model may write.
    by_written: HashMap<String, usize>,
    by_canonical: HashMap<String, usize>,
    definitions: Arc<[ToolDefinition]>,
    names: Arc<ToolNames>,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            tools: Vec::new(),
            by_written: HashMap::new(),
            by_canonical: HashMap::new(),
            definitions: Arc::from([]),
            names: Arc::default(),
        }
    }
}

impl ToolSet {
    /// Compiles tools, in the order given. `aliases` go from canonical name to alias.
    ///
    /// # Errors
    /// The first thing that is wrong; see [`ToolSetError`].
    pub fn new(
        tools: impl IntoIterator<Item = Arc<dyn Tool>>,
        aliases: HashMap<String, String>,
    ) -> Result<Self, ToolSetError> {
        let tools: Result<Vec<_>, _> =
            tools.into_iter().map(|tool| CompiledTool::compile(tool).map(Arc::new)).collect();
        Self::from_compiled(tools?, aliases)
    }

    /// A set of tools that are compiled already, so that one that cannot be is left out alone.
    ///
    /// # Errors
    /// Duplicate names and what is wrong with aliases; see [`ToolSetError`].
    pub fn from_compiled(
        tools: Vec<Arc<CompiledTool>>,
        aliases: HashMap<String, String>,
    ) -> Result<Self, ToolSetError> {
        let mut by_canonical = HashMap::with_capacity(tools.len());
        for (index, tool) in tools.iter().enumerate() {
            if by_canonical.insert(tool.name().to_owned(), index).is_some() {
                return Err(ToolSetError::DuplicateName { name: tool.name().to_owned() });
            }
        }
        check_aliases(&aliases, &by_canonical)?;
        // An alias that says what the name says already is none.
        let names = ToolNames::new(aliases.into_iter().filter(|(name, alias)| name != alias).collect());

        // What tools are shown as is distinct; canonical names fill in behind.
        let mut by_written: HashMap<String, usize> = HashMap::with_capacity(tools.len());
        for (index, tool) in tools.iter().enumerate() {
            let shown = names.display(tool.name());
            if let Some(first) = by_written.insert(shown.to_owned(), index) {
                return Err(ToolSetError::AliasCollision {
                    shown: shown.to_owned(),
                    first: tools.get(first).map_or(shown, |tool| tool.name()).to_owned(),
                    second: tool.name().to_owned(),
                });
            }
        }
        for (index, tool) in tools.iter().enumerate() {
            by_written.entry(tool.name().to_owned()).or_insert(index);
        }
        let definitions = tools.iter().map(|tool| tool.definition.clone()).collect();
        Ok(Self { inner: Arc::new(Inner { tools, by_written, by_canonical, definitions, names: Arc::new(names) }) })
    }

    /// The tool that the model means by a name it wrote.
    #[must_use]
    pub fn lookup(&self, written: &str) -> Option<&Arc<CompiledTool>> {
        self.inner.by_written.get(written).and_then(|index| self.inner.tools.get(*index))
    }

    /// The tool of a canonical name.
    #[must_use]
    pub fn get(&self, canonical: &str) -> Option<&Arc<CompiledTool>> {
        self.inner.by_canonical.get(canonical).and_then(|index| self.inner.tools.get(*index))
    }

    /// The canonical name of what the model wrote.
    #[must_use]
    pub fn canonical_of(&self, written: &str) -> Option<&str> {
        self.lookup(written).map(|tool| tool.name())
    }

    /// What the model is told, in the order of registration, by canonical name.
    #[must_use]
    pub fn definitions(&self) -> &Arc<[ToolDefinition]> {
        &self.inner.definitions
    }

    /// What the model sees the tools as.
    #[must_use]
    pub fn names(&self) -> &Arc<ToolNames> {
        &self.inner.names
    }

    /// The tools, in the order of registration.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<CompiledTool>> {
        self.inner.tools.iter()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.tools.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.tools.is_empty()
    }
}

/// In a fixed order, so that the same mistake gives the same error each time.
fn check_aliases(aliases: &HashMap<String, String>, by_canonical: &HashMap<String, usize>) -> Result<(), ToolSetError> {
    let mut aliases: Vec<_> = aliases.iter().collect();
    aliases.sort_unstable();
    for (name, alias) in aliases {
        if alias.trim().is_empty() {
            return Err(ToolSetError::EmptyAlias { name: name.clone() });
        }
        if !by_canonical.contains_key(name) {
            return Err(ToolSetError::UnknownTool { name: name.clone(), alias: alias.clone() });
        }
    }
    Ok(())
}
