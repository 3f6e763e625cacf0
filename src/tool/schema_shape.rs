//! What normalisation needs to know of a JSON Schema, worked out once per tool: a graph of places with the types each
//! takes, its properties and items, and where it branches.
//!
//! It knows less than the schema, never more: a keyword it does not know narrows nothing, so a value is left as it is
//! rather than changed wrongly.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// Places a schema may have; what lies beyond is taken to accept anything.
const MAX_NODES: usize = 20_000;
/// Rounds of working out the types through references; more only matter for long chains of them.
const MAX_ROUNDS: usize = 32;
/// Nodes that may hold at one place of a value at once.
const MAX_APPLICABLE: usize = 64;

/// A set of JSON types. A number with a fraction and one without are two types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    const NONE: Self = Self(0);
    pub(super) const NULL: Self = Self(1);
    const BOOL: Self = Self(1 << 1);
    pub(super) const OBJECT: Self = Self(1 << 2);
    pub(super) const ARRAY: Self = Self(1 << 3);
    pub(super) const INTEGER: Self = Self(1 << 4);
    pub(super) const FRACTION: Self = Self(1 << 5);
    pub(super) const STRING: Self = Self(1 << 6);
    pub(super) const ALL: Self = Self(0x7f);

    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn named(name: &str) -> Self {
        match name {
            "null" => Self::NULL,
            "boolean" => Self::BOOL,
            "object" => Self::OBJECT,
            "array" => Self::ARRAY,
            "integer" => Self::INTEGER,
            "number" => Self::INTEGER.or(Self::FRACTION),
            "string" => Self::STRING,
            _ => Self::ALL,
        }
    }

    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOL,
            Value::Number(number) => match number.as_f64() {
                Some(float) if number.is_f64() && float.fract() != 0.0 => Self::FRACTION,
                _ => Self::INTEGER,
            },
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    fn of_all<'a>(values: impl IntoIterator<Item = &'a Value>) -> Self {
        values.into_iter().fold(Self::NONE, |types, value| types.or(Self::of(value)))
    }
}

pub(super) type NodeId = usize;

/// The graph. Node 0 is the root.
#[derive(Debug)]
pub(super) struct Shape {
    nodes: Vec<Node>,
}

#[derive(Debug)]
pub(super) struct Node {
    /// The types that may stand here, branches and references included.
    pub(super) accepts: Types,
    pub(super) properties: HashMap<String, NodeId>,
    pub(super) required: HashSet<String>,
    /// Holds for properties that are not named.
    additional: Option<NodeId>,
    prefix: Vec<NodeId>,
    items: Option<NodeId>,
    /// All of these hold too: `allOf`, `$ref`.
    all: Vec<NodeId>,
    /// Of each group at least one holds: `anyOf`, `oneOf`.
    choices: Vec<Vec<NodeId>>,
    /// The only values that may stand here: `const`, `enum`.
    only: Option<Vec<Value>>,
}

impl Shape {
    pub(super) fn compile(schema: &Value) -> Self {
        let mut builder = Builder { root: schema, nodes: Vec::new(), known: HashMap::new(), todo: Vec::new() };
        builder.node(schema);
        while let Some((id, schema)) = builder.todo.pop() {
            builder.fill(id, schema);
        }
        let mut shape = Self { nodes: builder.nodes };
        shape.settle();
        shape
    }

    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }

    /// The types that may stand where all of `ids` hold.
    pub(super) fn accepts(&self, ids: &[NodeId]) -> Types {
        ids.iter().filter_map(|id| self.node(*id)).fold(Types::ALL, |types, node| types.and(node.accepts))
    }

    /// All nodes that hold for a value where `ids` do: through references, `allOf`, and those branches that are the only
    /// ones the value can mean.
    pub(super) fn applicable(&self, ids: &[NodeId], value: &Value) -> Vec<&Node> {
        let mut seen: Vec<NodeId> = ids.to_vec();
        let mut next = 0;
        let mut nodes = Vec::with_capacity(seen.len());
        while let Some(node) = seen.get(next).copied().map(|id| self.node(id)) {
            next += 1;
            let Some(node) = node else { continue };
            nodes.push(node);
            let chosen = node.choices.iter().filter_map(|branches| self.choose(branches, value));
            for id in node.all.iter().copied().chain(chosen) {
                if seen.len() < MAX_APPLICABLE && !seen.contains(&id) {
                    seen.push(id);
                }
            }
        }
        nodes
    }

    /// The one branch that a value can mean; `None` when there are several.
    fn choose(&self, branches: &[NodeId], value: &Value) -> Option<NodeId> {
        let types = Types::of(value);
        let mut fitting =
            branches.iter().copied().filter(|id| self.accepts(&[*id]).has(types) && self.may_mean(*id, value));
        let first = fitting.next()?;
        fitting.next().is_none().then_some(first)
    }

    /// Whether an object has what a branch requires, and no tag of another.
    fn may_mean(&self, branch: NodeId, value: &Value) -> bool {
        let Value::Object(map) = value else { return true };
        let mut seen = vec![branch];
        let mut next = 0;
        while let Some(id) = seen.get(next).copied() {
            next += 1;
            let Some(node) = self.node(id) else { continue };
            if node.required.iter().any(|key| !map.contains_key(key)) {
                return false;
            }
            let strange = |(key, value)| {
                node.properties
                    .get(key)
                    .and_then(|id| self.node(*id))
                    .and_then(|property| property.only.as_ref())
                    .is_some_and(|only| !only.contains(value))
            };
            if node.only.is_none() && map.iter().any(strange) {
                return false;
            }
            for id in &node.all {
                if seen.len() < MAX_APPLICABLE && !seen.contains(id) {
                    seen.push(*id);
                }
            }
        }
        true
    }

    /// Narrows what each node accepts by what it refers to, until nothing changes. Stopping early leaves more accepted.
    fn settle(&mut self) {
        for _ in 0..MAX_ROUNDS {
            let mut changed = false;
            for id in 0..self.nodes.len() {
                let Some(node) = self.nodes.get(id) else { continue };
                let mut accepts = node.accepts.and(self.accepts(&node.all));
                for branches in &node.choices {
                    let any = branches.iter().fold(Types::NONE, |types, id| types.or(self.accepts(&[*id])));
                    accepts = accepts.and(any);
                }
                if let Some(node) = self.nodes.get_mut(id)
                    && node.accepts != accepts
                {
                    node.accepts = accepts;
                    changed = true;
                }
            }
            if !changed {
                return;
            }
        }
    }
}

impl Node {
    fn any() -> Self {
        Self {
            accepts: Types::ALL,
            properties: HashMap::new(),
            required: HashSet::new(),
            additional: None,
            prefix: Vec::new(),
            items: None,
            all: Vec::new(),
            choices: Vec::new(),
            only: None,
        }
    }

    /// The node that holds for a property.
    pub(super) fn property(&self, key: &str) -> Option<NodeId> {
        self.properties.get(key).copied().or(self.additional)
    }

    /// The node that holds for an item.
    pub(super) fn item(&self, index: usize) -> Option<NodeId> {
        self.prefix.get(index).copied().or(self.items)
    }
}

struct Builder<'a> {
    root: &'a Value,
    nodes: Vec<Node>,
    /// Nodes by the address of their schema, so that a reference finds its target and a cycle ends.
    known: HashMap<*const Value, NodeId>,
    todo: Vec<(NodeId, &'a Value)>,
}

impl<'a> Builder<'a> {
    fn node(&mut self, schema: &'a Value) -> Option<NodeId> {
        let address: *const Value = schema;
        if let Some(id) = self.known.get(&address) {
            return Some(*id);
        }
        if self.nodes.len() >= MAX_NODES {
            return None;
        }
        let id = self.nodes.len();
        self.nodes.push(Node::any());
        self.known.insert(address, id);
        self.todo.push((id, schema));
        Some(id)
    }

    /// Several nodes, or nothing if one is missing: half a list would say something else.
    fn list(&mut self, schemas: &'a [Value]) -> Vec<NodeId> {
        let ids: Vec<_> = schemas.iter().map_while(|schema| self.node(schema)).collect();
        if ids.len() == schemas.len() { ids } else { Vec::new() }
    }

    fn fill(&mut self, id: NodeId, schema: &'a Value) {
        let node = match schema {
            Value::Bool(false) => Node { accepts: Types::NONE, ..Node::any() },
            Value::Object(map) => self.read(map),
            _ => return,
        };
        if let Some(place) = self.nodes.get_mut(id) {
            *place = node;
        }
    }

    fn read(&mut self, map: &'a Map<String, Value>) -> Node {
        let mut node = Node::any();
        match map.get("type") {
            Some(Value::String(name)) => node.accepts = Types::named(name),
            Some(Value::Array(names)) => {
                node.accepts = names
                    .iter()
                    .fold(Types::NONE, |types, name| types.or(name.as_str().map_or(Types::ALL, Types::named)));
            }
            _ => {}
        }
        if let Some(value) = map.get("const") {
            node.accepts = node.accepts.and(Types::of(value));
            node.only = Some(vec![value.clone()]);
        }
        if let Some(Value::Array(values)) = map.get("enum") {
            node.accepts = node.accepts.and(Types::of_all(values));
            node.only.get_or_insert_with(|| values.clone());
        }
        if let Some(Value::Object(properties)) = map.get("properties") {
            for (key, schema) in properties {
                if let Some(id) = self.node(schema) {
                    node.properties.insert(key.clone(), id);
                }
            }
        }
        if let Some(Value::Array(keys)) = map.get("required") {
            node.required = keys.iter().filter_map(Value::as_str).map(str::to_owned).collect();
        }
        // Which names a pattern takes away from it is not worked out here.
        if !map.contains_key("patternProperties")
            && let Some(schema) = map.get("additionalProperties")
        {
            node.additional = self.node(schema);
        }
        match (map.get("prefixItems"), map.get("items"), map.get("additionalItems")) {
            (Some(Value::Array(prefix)), items, _) => {
                node.prefix = self.list(prefix);
                node.items = items.filter(|_| node.prefix.len() == prefix.len()).and_then(|items| self.node(items));
            }
            // Drafts up to 2019-09.
            (_, Some(Value::Array(prefix)), items) => {
                node.prefix = self.list(prefix);
                node.items = items.filter(|_| node.prefix.len() == prefix.len()).and_then(|items| self.node(items));
            }
            (_, Some(items), _) => node.items = self.node(items),
            _ => {}
        }
        if let Some(Value::Array(schemas)) = map.get("allOf") {
            node.all = schemas.iter().filter_map(|schema| self.node(schema)).collect();
        }
        if let Some(target) = map.get("$ref").and_then(Value::as_str).and_then(|reference| self.resolve(reference)) {
            node.all.extend(self.node(target));
        }
        for keyword in ["anyOf", "oneOf"] {
            if let Some(Value::Array(schemas)) = map.get(keyword) {
                let branches = self.list(schemas);
                if !branches.is_empty() {
                    node.choices.push(branches);
                }
            }
        }
        node
    }

    /// The target of a reference by JSON pointer within this schema.
    fn resolve(&self, reference: &str) -> Option<&'a Value> {
        let pointer = reference.strip_prefix('#')?;
        self.root.pointer(pointer).or_else(|| self.root.pointer(&percent_decoded(pointer)?))
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte == b'%' {
            let high = char::from(bytes.next()?).to_digit(16)?;
            let low = char::from(bytes.next()?).to_digit(16)?;
            decoded.push(u8::try_from(high << 4 | low).ok()?);
        } else {
            decoded.push(byte);
        }
    }
    String::from_utf8(decoded).ok()
}
