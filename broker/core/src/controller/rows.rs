//! Keys and values of the controller's rows.

use crate::rows::{CONTROLLER_SLOT, Key, Table};
use crate::types::{GroupId, NodeId};
use bytes::Bytes;

/// Every row's key begins with one letter for its kind, so that a scan tells them apart.
pub(super) const NODE: u8 = b'n';
pub(super) const GROUP: u8 = b'g';
pub(super) const TABLE: u8 = b't';
pub(super) const SETTINGS: u8 = b's';
pub(super) const PLUGIN: u8 = b'p';
pub(super) const BINDING: u8 = b'b';
pub(super) const REGISTRY: u8 = b'r';

fn at(key: Vec<u8>) -> Key {
    Key::Slot {
        slot: CONTROLLER_SLOT,
        table: Table::Controller,
        key: Bytes::from(key),
    }
}

pub(super) fn node(node: NodeId) -> Key {
    let [high, low] = node.0.to_be_bytes();
    at(vec![NODE, high, low])
}

pub(super) fn group(group: GroupId) -> Key {
    let mut key = vec![GROUP];
    key.extend_from_slice(&group.0.to_be_bytes());
    at(key)
}

pub(super) fn table() -> Key {
    at(vec![TABLE])
}

pub(super) fn settings() -> Key {
    at(vec![SETTINGS])
}

pub(super) fn plugin(name: &str) -> Key {
    named(PLUGIN, name)
}

pub(super) fn binding(id: &str) -> Key {
    named(BINDING, id)
}

fn named(kind: u8, name: &str) -> Key {
    let mut key = vec![kind];
    key.extend_from_slice(name.as_bytes());
    at(key)
}

pub(super) fn registry() -> Key {
    at(vec![REGISTRY])
}
