use std::slice;

use super::{AgentStats, ChildStats};
use crate::types::{DecisionUsage, TurnUsage};

/// Every turn entry of the tree, depth first: a node's own entries, then each child subtree in completion order.
///
/// Lazy; nothing is collected.
pub fn walk_turns(stats: &AgentStats) -> impl Iterator<Item = &TurnUsage> + Clone {
    nodes(stats).flat_map(|node| node.turn_usage.iter().map(|usage| &**usage))
}

/// Every decision of the tree, in the order of [`walk_turns`].
pub fn walk_decisions(stats: &AgentStats) -> impl Iterator<Item = &DecisionUsage> + Clone {
    nodes(stats).flat_map(|node| &node.decisions)
}

fn nodes(stats: &AgentStats) -> impl Iterator<Item = &AgentStats> + Clone {
    std::iter::once(stats).chain(Preorder::new(&stats.children).map(|(_, child)| &child.stats))
}

/// The descendants in depth-first order, each with its parent's place in that order (`None`: a direct child).
#[derive(Clone)]
pub(super) struct Preorder<'a> {
    open: Vec<(Option<usize>, slice::Iter<'a, ChildStats>)>,
    next: usize,
}

impl<'a> Preorder<'a> {
    pub(super) fn new(children: &'a [ChildStats]) -> Self {
        let open = if children.is_empty() { Vec::new() } else { vec![(None, children.iter())] };
        Self { open, next: 0 }
    }
}

impl<'a> Iterator for Preorder<'a> {
    type Item = (Option<usize>, &'a ChildStats);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (parent, siblings) = self.open.last_mut()?;
            let parent = *parent;
            let Some(child) = siblings.next() else {
                self.open.pop();
                continue;
            };
            // A list that is used up is not kept, so that a long chain stays one level high.
            if siblings.len() == 0 {
                self.open.pop();
            }
            if !child.stats.children.is_empty() {
                self.open.push((Some(self.next), child.stats.children.iter()));
            }
            self.next = self.next.saturating_add(1);
            return Some((parent, child));
        }
    }
}
