use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::{mem, slice, vec};

use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::walk::Preorder;
use super::{AgentStats, ChildStats, ChildStatus};
use crate::types::{DecisionUsage, Extra, NanoUsd, TurnUsage};

/// The sub-agents of a node, in completion order. Reads like a slice.
///
/// A type of its own because a plain `Vec` of a tree overflows the stack when a deep one is dropped. `Debug` prints
/// the direct children with their totals and stops there.
///
/// Serializes as one flat list of all descendants in depth-first order, each with `parent`, the index of its parent
/// in that list; direct children have none. On reading, a parent must come before its children.
#[derive(Default)]
pub struct Children(Vec<ChildStats>);

impl Children {
    /// Appends a child. [`AgentStats::push_child`] does so and keeps the totals.
    pub fn push(&mut self, child: ChildStats) {
        self.0.push(child);
    }

    /// The children as a `Vec`.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<ChildStats> {
        mem::take(&mut self.0)
    }

    /// Calls `change` with every descendant, children before their parents.
    pub(super) fn rebuild(&mut self, mut change: impl FnMut(&mut ChildStats)) {
        let mut open: Vec<(vec::IntoIter<ChildStats>, Vec<ChildStats>, ChildStats)> = Vec::new();
        let mut rest = mem::take(&mut self.0).into_iter();
        let mut done = Vec::with_capacity(rest.len());
        loop {
            if let Some(mut child) = rest.next() {
                let below = mem::take(&mut child.stats.children.0).into_iter();
                let above = mem::replace(&mut done, Vec::with_capacity(below.len()));
                open.push((mem::replace(&mut rest, below), above, child));
            } else if let Some((above_rest, above, mut child)) = open.pop() {
                child.stats.children.0 = mem::replace(&mut done, above);
                rest = above_rest;
                change(&mut child);
                done.push(child);
            } else {
                self.0 = done;
                return;
            }
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        let mut flat = mem::take(&mut self.0);
        while let Some(mut child) = flat.pop() {
            flat.append(&mut child.stats.children.0);
        }
    }
}

impl Clone for Children {
    fn clone(&self) -> Self {
        let mut open: Vec<(slice::Iter<'_, ChildStats>, Vec<ChildStats>, ChildStats)> = Vec::new();
        let mut rest = self.0.iter();
        let mut done = Vec::with_capacity(rest.len());
        loop {
            if let Some(child) = rest.next() {
                let below = child.stats.children.0.iter();
                let above = mem::replace(&mut done, Vec::with_capacity(below.len()));
                open.push((mem::replace(&mut rest, below), above, clone_node(child)));
            } else if let Some((above_rest, above, mut child)) = open.pop() {
                child.stats.children.0 = mem::replace(&mut done, above);
                rest = above_rest;
                done.push(child);
            } else {
                return Self(done);
            }
        }
    }
}

impl PartialEq for Children {
    fn eq(&self, other: &Self) -> bool {
        // The same parents in the same order are the same shape.
        let (mut left, mut right) = (Preorder::new(self), Preorder::new(other));
        loop {
            match (left.next(), right.next()) {
                (None, None) => return true,
                (Some((left_parent, left)), Some((right_parent, right)))
                    if left_parent == right_parent && node_eq(left, right) => {}
                _ => return false,
            }
        }
    }
}

/// Everything of a child but the children below it.
fn clone_node(child: &ChildStats) -> ChildStats {
    let ChildStats { id, call_id, task, status, stats } = child;
    let AgentStats {
        total_in,
        total_out,
        total_cache_read,
        total_cache_write,
        total_cost,
        unpriced_turns,
        turns,
        elapsed,
        turn_usage,
        decisions,
        children: _,
        extra,
    } = stats;
    ChildStats {
        id: id.clone(),
        call_id: call_id.clone(),
        task: task.clone(),
        status: *status,
        stats: AgentStats {
            total_in: *total_in,
            total_out: *total_out,
            total_cache_read: *total_cache_read,
            total_cache_write: *total_cache_write,
            total_cost: *total_cost,
            unpriced_turns: *unpriced_turns,
            turns: *turns,
            elapsed: *elapsed,
            turn_usage: turn_usage.clone(),
            decisions: decisions.clone(),
            children: Children::default(),
            extra: extra.clone(),
        },
    }
}

fn node_eq(left: &ChildStats, right: &ChildStats) -> bool {
    let ChildStats { id, call_id, task, status, stats } = left;
    let AgentStats {
        // The totals are compared as one.
        total_in: _,
        total_out: _,
        total_cache_read: _,
        total_cache_write: _,
        total_cost: _,
        unpriced_turns: _,
        turns,
        elapsed,
        turn_usage,
        decisions,
        children: _,
        extra,
    } = stats;
    *id == right.id
        && *call_id == right.call_id
        && *task == right.task
        && *status == right.status
        && stats.totals() == right.stats.totals()
        && *turns == right.stats.turns
        && *elapsed == right.stats.elapsed
        && *turn_usage == right.stats.turn_usage
        && *decisions == right.stats.decisions
        && *extra == right.stats.extra
}

impl fmt::Debug for Children {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Shallow<'a>(&'a ChildStats);
        impl fmt::Debug for Shallow<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct("ChildStats")
                    .field("id", &self.0.id)
                    .field("status", &self.0.status)
                    .field("turns", &self.0.stats.turns)
                    .field("totals", &self.0.stats.totals())
                    .field("children", &self.0.stats.children.len())
                    .finish_non_exhaustive()
            }
        }
        f.debug_list().entries(self.0.iter().map(Shallow)).finish()
    }
}

impl Deref for Children {
    type Target = [ChildStats];
    fn deref(&self) -> &[ChildStats] {
        &self.0
    }
}

impl DerefMut for Children {
    fn deref_mut(&mut self) -> &mut [ChildStats] {
        &mut self.0
    }
}

impl From<Vec<ChildStats>> for Children {
    fn from(children: Vec<ChildStats>) -> Self {
        Self(children)
    }
}

impl FromIterator<ChildStats> for Children {
    fn from_iter<I: IntoIterator<Item = ChildStats>>(children: I) -> Self {
        Self(children.into_iter().collect())
    }
}

impl IntoIterator for Children {
    type Item = ChildStats;
    type IntoIter = vec::IntoIter<ChildStats>;
    fn into_iter(self) -> Self::IntoIter {
        self.into_vec().into_iter()
    }
}

impl<'a> IntoIterator for &'a Children {
    type Item = &'a ChildStats;
    type IntoIter = slice::Iter<'a, ChildStats>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// One descendant in the flat list, as it is written.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeRef<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<usize>,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a str>,
    task: &'a str,
    status: ChildStatus,
    total_in: u64,
    total_out: u64,
    total_cache_read: u64,
    total_cache_write: u64,
    #[serde(rename = "totalCostNanoUsd")]
    total_cost: NanoUsd,
    unpriced_turns: u64,
    turns: u32,
    turn_usage: &'a [Arc<TurnUsage>],
    decisions: &'a [DecisionUsage],
    #[serde(flatten)]
    extra: &'a Extra,
}

/// One descendant in the flat list, as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    #[serde(default)]
    parent: Option<usize>,
    id: String,
    #[serde(default)]
    call_id: Option<String>,
    task: String,
    status: ChildStatus,
    #[serde(default)]
    total_in: u64,
    #[serde(default)]
    total_out: u64,
    #[serde(default)]
    total_cache_read: u64,
    #[serde(default)]
    total_cache_write: u64,
    #[serde(default, rename = "totalCostNanoUsd")]
    total_cost: NanoUsd,
    #[serde(default)]
    unpriced_turns: u64,
    #[serde(default)]
    turns: u32,
    #[serde(default)]
    turn_usage: Vec<Arc<TurnUsage>>,
    #[serde(default)]
    decisions: Vec<DecisionUsage>,
    /// The list is flat; taken by name so that it cannot hide in `extra`.
    #[serde(default)]
    children: Option<IgnoredAny>,
    #[serde(flatten)]
    extra: Extra,
}

impl Serialize for Children {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(Preorder::new(self).count()))?;
        for (parent, ChildStats { id, call_id, task, status, stats }) in Preorder::new(self) {
            list.serialize_element(&NodeRef {
                parent,
                id,
                call_id: call_id.as_deref(),
                task,
                status: *status,
                total_in: stats.total_in,
                total_out: stats.total_out,
                total_cache_read: stats.total_cache_read,
                total_cache_write: stats.total_cache_write,
                total_cost: stats.total_cost,
                unpriced_turns: stats.unpriced_turns,
                turns: stats.turns,
                turn_usage: &stats.turn_usage,
                decisions: &stats.decisions,
                extra: &stats.extra,
            })?;
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for Children {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Flat;
        impl<'de> Visitor<'de> for Flat {
            type Value = Children;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a flat list of children, each with the index of its parent")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Children, A::Error> {
                let mut flat: Vec<(Option<usize>, ChildStats)> = Vec::new();
                while let Some(node) = seq.next_element::<Node>()? {
                    let index = flat.len();
                    if let Some(parent) = node.parent.filter(|parent| *parent >= index) {
                        let message = format!("child {index} names {parent} as its parent, which is not before it");
                        return Err(A::Error::custom(message));
                    }
                    if node.children.is_some() {
                        return Err(A::Error::custom(format!("child {index} holds children, but the list is flat")));
                    }
                    flat.push((node.parent, node.into()));
                }
                Ok(nest(flat))
            }
        }
        deserializer.deserialize_seq(Flat)
    }
}

/// Builds the tree. Every parent stands before its children, so the last node is complete, and so on upward.
fn nest(mut flat: Vec<(Option<usize>, ChildStats)>) -> Children {
    let mut roots = Vec::new();
    while let Some((parent, mut child)) = flat.pop() {
        // They were collected from the last to the first.
        child.stats.children.0.reverse();
        match parent.and_then(|parent| flat.get_mut(parent)) {
            Some((_, parent)) => parent.stats.children.push(child),
            None => roots.push(child),
        }
    }
    roots.reverse();
    Children(roots)
}

impl From<Node> for ChildStats {
    fn from(node: Node) -> Self {
        Self {
            id: node.id,
            call_id: node.call_id,
            task: node.task,
            status: node.status,
            stats: AgentStats {
                total_in: node.total_in,
                total_out: node.total_out,
                total_cache_read: node.total_cache_read,
                total_cache_write: node.total_cache_write,
                total_cost: node.total_cost,
                unpriced_turns: node.unpriced_turns,
                turns: node.turns,
                turn_usage: node.turn_usage,
                decisions: node.decisions,
                extra: node.extra,
                ..AgentStats::default()
            },
        }
    }
}
