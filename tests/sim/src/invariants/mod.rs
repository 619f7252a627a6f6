//! Checkers that look from outside, one file per rule id (M-20): at durable rows of the disks and at what shards show.

use crate::coverage::Coverage;
use crate::oracle::Oracle;
use crate::world::Node;
use penstock_core::message::Committed;

/// What the checkers remember.
#[derive(Debug, Default)]
pub struct Invariants {}

impl Invariants {
    /// After a step of a shard.
    pub fn watch(&mut self, _nodes: &[Node], _place: (usize, u16), _oracle: &mut Oracle, _coverage: &mut Coverage) {}

    /// A sync of a node made something durable.
    pub fn synced(&mut self, _node: &Node, _index: usize, _oracle: &mut Oracle) {}

    /// A message reaches a client.
    pub fn shown(&mut self, _message: &Committed, _oracle: &mut Oracle) {}

    /// A process ended.
    pub fn crashed(&mut self, _node: usize) {}

    /// A disk was lost.
    pub fn wiped(&mut self, _node: usize) {}
}
