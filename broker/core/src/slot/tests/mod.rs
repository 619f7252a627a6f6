//! Groups in virtual time: three replicas, lossy networks, crashing disks.

mod chaos;
mod disk;
mod random;
mod snapshots;
mod steady;
mod world;

use super::command::{ListEdit, change_list};
use super::keys;
use crate::admin::List;
use crate::types::{ChannelKey, ChannelKind, Seq, Uid};
use bytes::Bytes;

fn channel() -> ChannelKey {
    ChannelKey::new("room", ChannelKind::GROUP)
}

fn member(number: u64) -> Uid {
    Uid::new(&format!("u{number}"))
}

/// A command whose effect can be found again, and found twice.
fn join(number: u64) -> Bytes {
    edit(number, Vec::new(), vec![member(number)])
}

fn leave(number: u64) -> Bytes {
    edit(number, vec![member(number)], Vec::new())
}

fn edit(number: u64, remove: Vec<Uid>, add: Vec<Uid>) -> Bytes {
    change_list(
        1_000 + number,
        &ListEdit {
            channel: channel(),
            list: List::Subscribers,
            remove,
            add,
            join_seq: Seq(number),
            expected_revision: None,
        },
    )
}

fn member_key(number: u64) -> crate::rows::Key {
    keys::listed(&channel(), List::Subscribers, &member(number))
}
