//! The cluster's own group: nodes, the slot table, the placement of groups, settings (semantics section 2), plugins and what
//! they are bound to.
//!
//! *Owns*: the rows of the pseudo slot [`crate::rows::CONTROLLER_SLOT`], and the [`View`] made of them.
//!
//! *Invariants*: everything is changed by committed commands only; the table and each placement carry a version and are
//! changed by compare-and-set; heartbeats change nothing (revision counts intent, not liveness).
//!
//! *States*: empty until the first command, which is the whole initial state; then nodes move joining → active → draining →
//! leaving → removed, and removed is for ever.
//!
//! *Absent*: the Raft group that carries it (the same engine as every slot group), liveness, and carrying out placements.

mod first;
mod machine;
mod plugins;
mod quarantine;
mod registry;
mod rows;
mod view;

pub use first::{first_placement, first_table};
pub use machine::{
    Machine, bootstrap, register_node, set_lifecycle, set_placement, set_settings, set_slot_table,
};
pub(crate) use registry::read_registry;
pub use registry::{Nodes, change_registry};
pub use view::{Lifecycle, Node, Placement, View};

/// Most nodes of a cluster.
pub const NODES_MAX: usize = 64;

/// Most slot groups of a cluster: one per slot.
pub const GROUPS_MAX: u32 = 256;

/// Most voters of a group, and copies of a channel.
pub const COPIES_MAX: u8 = 7;

#[cfg(test)]
mod plugin_tests;
#[cfg(test)]
mod quarantine_tests;
#[cfg(test)]
mod tests;
