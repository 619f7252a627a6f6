//! Commands as nodes propose them, and with fields that none would give.

use crate::input::Input;
use bytes::Bytes;
use penstock_core::codec::{COMMAND_VERSION, encode, encode_command};
use penstock_core::rows::{CONTROLLER_SLOT, Key, Rows, Table};
use penstock_core::slot::keys;
use penstock_core::types::{ChannelKey, ChannelKind};
use penstock_sim::disk::{Misses, SimDisk};
use penstock_wire::storage::v1::{
    self, change_membership::Change, command::Body, key_change::Change as KeyOperation,
};

const CHANNELS: &[&str] = &["room", "hall", "ann@ben", "yard"];
const NAMES: &[&str] = &["ann", "ben", "cem", "dai"];

/// A number below the limit of a field of 32 bits.
fn small(input: &mut Input<'_>) -> u32 {
    u32::try_from(input.number()).unwrap_or(u32::MAX)
}

fn uid(input: &mut Input<'_>) -> String {
    if input.rarely(8) {
        input.text()
    } else {
        (*input.one_of(NAMES)).to_owned()
    }
}

fn uids(input: &mut Input<'_>) -> Vec<String> {
    (0..input.below(5)).map(|_| uid(input)).collect()
}

fn channel(input: &mut Input<'_>) -> Option<v1::ChannelName> {
    match input.below(12) {
        0 => None,
        1 => Some(v1::ChannelName {
            id: input.text(),
            kind: small(input),
        }),
        _ => Some(v1::ChannelName {
            id: (*input.one_of(CHANNELS)).to_owned(),
            kind: 2,
        }),
    }
}

/// The stored row of a channel's meta: who proposes has read it.
fn stored(disk: &SimDisk, name: Option<&v1::ChannelName>) -> Option<v1::ChannelMeta> {
    let name = name?;
    let channel = ChannelKey::new(&name.id, ChannelKind(u8::try_from(name.kind).ok()?));
    row(disk, &keys::meta(&channel))
}

fn row<M: prost::Message + Default>(disk: &SimDisk, key: &Key) -> Option<M> {
    let row = disk.rows(Misses::default()).row(key).ok()??;
    M::decode(row).ok()
}

/// A version to compare with: mostly the one that stands.
fn expected(input: &mut Input<'_>, present: Option<&v1::ChannelMeta>) -> u64 {
    if input.rarely(6) {
        input.number()
    } else {
        present.map_or(0, |meta| meta.version)
    }
}

fn replica(input: &mut Input<'_>) -> v1::Replica {
    v1::Replica {
        node: if input.rarely(10) {
            small(input)
        } else {
            1 + u32::from(input.u8() % 4)
        },
        disk: if input.rarely(10) {
            input.number()
        } else {
            1 + u64::from(input.u8() % 3)
        },
    }
}

fn voters(input: &mut Input<'_>) -> v1::VoterSet {
    v1::VoterSet {
        isr: (0..input.below(5)).map(|_| replica(input)).collect(),
        min_isr: u32::from(input.u8() % 4),
    }
}

fn leader(input: &mut Input<'_>) -> Option<v1::Leader> {
    let process = if input.rarely(10) { input.number() } else { 7 };
    (!input.rarely(4)).then(|| v1::Leader {
        node: 1 + u32::from(input.u8() % 4),
        process,
    })
}

/// A next meta: the present one with some fields moved on, or a first one.
fn meta(input: &mut Input<'_>, present: Option<&v1::ChannelMeta>) -> v1::ChannelMeta {
    let Some(present) = present.filter(|_| !input.rarely(10)) else {
        let isr: Vec<v1::Replica> = (1..=3).map(|node| v1::Replica { node, disk: 1 }).collect();
        return v1::ChannelMeta {
            leader: Some(v1::Leader { node: 1, process: 7 }),
            leader_epoch: 1 + u64::from(input.rarely(8)),
            voters: Some(if input.rarely(3) {
                voters(input)
            } else {
                v1::VoterSet { isr, min_isr: 2 }
            }),
            epoch: 1,
            version: 1,
            ..v1::ChannelMeta::default()
        };
    };
    let mut next = present.clone();
    for _ in 0..input.below(4) {
        match input.below(11) {
            0 => next.leader_epoch = next.leader_epoch.saturating_add(1),
            1 => next.leader = leader(input),
            2 => {
                next.previous = next.voters.take();
                next.voters = Some(voters(input));
                next.epoch = next.epoch.saturating_add(1);
            }
            3 => next.voters = Some(voters(input)),
            4 => next.previous = None,
            5 => next.learners = (0..input.below(3)).map(|_| replica(input)).collect(),
            6 => next.version = input.number(),
            7 => next.leader_epoch = input.number(),
            8 => next.epoch = next.epoch.wrapping_add(u64::from(input.u8() % 3)),
            9 => next.reborn.push(v1::Reborn {
                node: 1 + u32::from(input.u8() % 4),
                leader_epoch: input.number(),
            }),
            _ => (next.fenced, next.fence) = (input.rarely(2), input.number()),
        }
    }
    next
}

/// A command of a slot group.
pub(super) fn slot(input: &mut Input<'_>, disk: &SimDisk) -> Bytes {
    let name = channel(input);
    let present = stored(disk, name.as_ref());
    let body = match input.below(16) {
        0 => Body::PutUserToken(v1::PutUserToken {
            uid: uid(input),
            flag: if input.rarely(6) {
                small(input)
            } else {
                u32::from(input.u8() % 3)
            },
            token_sha256: Bytes::from(vec![7; if input.rarely(8) { input.below(40) } else { 32 }]),
            level: u32::from(input.u8() % 3),
        }),
        1 => Body::ClearToken(v1::ClearToken {
            uid: uid(input),
            flags: (0..input.below(4)).map(|_| u32::from(input.u8() % 4)).collect(),
        }),
        2 => Body::ChangeSystemUids(v1::ChangeSystemUids {
            uids: uids(input),
            add: !input.rarely(3),
        }),
        3 => Body::PutChannel(v1::PutChannel {
            channel: name,
            large: input.rarely(4),
            ban: input.rarely(4),
            disband: input.rarely(12),
            send_ban: input.rarely(4),
            allow_stranger: input.rarely(4),
        }),
        4 if input.rarely(4) => Body::Disband(v1::Disband { channel: name }),
        4..=6 => Body::ChangeList(v1::ChangeList {
            channel: name,
            list: i32::from(input.u8() % 5),
            add: uids(input),
            remove: uids(input),
            join_seq: input.number(),
            expected_revision: input.rarely(4).then(|| input.number()),
        }),
        7 => membership(input, name),
        8 => Body::ClearOutbox(v1::ClearOutbox {
            channel: name,
            delivered: (0..input.below(4))
                .map(|_| v1::Delivered {
                    uid: uid(input),
                    revision: input.number(),
                })
                .collect(),
        }),
        9 => Body::ChangeKeys(change_keys(input)),
        10 => {
            let uid = uid(input);
            super::online::body(input, &uid)
        }
        _ => of_meta(input, name, present.as_ref()),
    };
    encoded(input, body)
}

/// Changes of keys of a plugin, mostly of one slot.
fn change_keys(input: &mut Input<'_>) -> v1::ChangeKeys {
    let key = uid(input);
    let source = input.rarely(2).then(|| v1::KeySource {
        binding: uid(input),
        binding_incarnation: u64::from(input.u8() % 2),
        incarnation: u64::from(input.u8() % 2),
        through: u64::from(input.u8() % 8),
        leader_epoch: u64::from(input.u8() % 3),
        run: u64::from(input.u8() % 3),
    });
    let changes = (0..input.below(4)).map(|_| v1::KeyChange {
        key: if input.rarely(8) { uid(input) } else { key.clone() },
        seq: if source.is_some() {
            u64::from(input.u8() % 8)
        } else {
            0
        },
        change: key_change(input),
    });
    v1::ChangeKeys {
        changes: changes.collect(),
        plugin: if input.rarely(8) {
            input.text()
        } else {
            "tally".to_owned()
        },
        source,
    }
}

fn key_change(input: &mut Input<'_>) -> Option<KeyOperation> {
    let set = v1::KeySet {
        value: if input.rarely(3) {
            Bytes::copy_from_slice(input.chunk())
        } else {
            Bytes::from(input.u8().to_string())
        },
        ttl_ms: if input.rarely(2) { input.number() } else { 0 },
    };
    Some(match input.below(6) {
        0 => return None,
        1 => KeyOperation::Set(set),
        2 => KeyOperation::Increment(input.number().cast_signed()),
        3 => KeyOperation::Delete(v1::KeyDelete {}),
        4 => KeyOperation::Forget(v1::KeyForget {}),
        _ => KeyOperation::CompareAndSet(v1::KeyCompareAndSet {
            expected: input.rarely(2).then(|| Bytes::from_static(b"7")),
            set: (!input.rarely(8)).then_some(set),
        }),
    })
}

/// A change of a channel's meta.
fn of_meta(input: &mut Input<'_>, name: Option<v1::ChannelName>, present: Option<&v1::ChannelMeta>) -> Body {
    match input.below(5) {
        0 | 1 => Body::PutChannelMetas(v1::PutChannelMetas {
            puts: (0..=input.below(2))
                .map(|_| v1::PutChannelMeta {
                    channel: name.clone(),
                    expected_version: expected(input, present),
                    meta: (!input.rarely(12)).then(|| meta(input, present)),
                })
                .collect(),
        }),
        2 => Body::ClearPrevious(v1::ClearPrevious {
            channel: name,
            expected_version: expected(input, present),
            leader_epoch: if input.rarely(3) {
                input.number()
            } else {
                present.map_or(0, |meta| meta.leader_epoch)
            },
        }),
        3 if input.rarely(2) => Body::Fence(v1::Fence {
            channel: name,
            expected_version: expected(input, present),
            task: input.number(),
        }),
        3 => Body::ClearFence(v1::ClearFence {
            channel: name,
            expected_version: expected(input, present),
            task: if input.rarely(3) {
                input.number()
            } else {
                present.map_or(0, |meta| meta.fence)
            },
            leader: leader(input),
        }),
        _ => Body::SetRetention(v1::SetRetention {
            channel: name,
            through: input.number(),
        }),
    }
}

fn membership(input: &mut Input<'_>, channel: Option<v1::ChannelName>) -> Body {
    let change = match input.below(5) {
        0 => None,
        1 => Some(Change::State(v1::MembershipState {
            joined: !input.rarely(3),
            join_seq: input.number(),
            revision: input.number(),
        })),
        2 => Some(Change::Read(v1::MembershipRead {
            read_seq: input.number(),
            flag: input.rarely(2).then(|| small(input)),
        })),
        3 => Some(Change::DeleteThrough(input.number())),
        _ => Some(Change::ActivateMs(input.number())),
    };
    Body::ChangeMembership(v1::ChangeMembership {
        uid: uid(input),
        channel,
        change,
    })
}

/// The row of the controller's settings, `s`, or of its slot table, `t`.
fn of_controller(name: &'static [u8]) -> Key {
    Key::Slot {
        slot: CONTROLLER_SLOT,
        table: Table::Controller,
        key: Bytes::from_static(name),
    }
}

/// A command of the controller's group.
pub(super) fn controller(input: &mut Input<'_>, disk: &SimDisk) -> Bytes {
    let settings: Option<v1::Settings> = row(disk, &of_controller(b"s"));
    if settings.is_none() && !input.rarely(4) {
        return encoded(input, bootstrap(3, 4, 3));
    }
    let body = match input.below(12) {
        0 => bootstrap(small(input) % 70, small(input), small(input)),
        1..=3 => Body::RegisterNode(v1::RegisterNode {
            node: (!input.rarely(12)).then(|| node(input)),
        }),
        4 | 5 => Body::SetLifecycle(v1::SetLifecycle {
            node: 1 + u32::from(input.u8() % 5),
            lifecycle: u32::from(input.u8() % 7),
        }),
        6 | 7 => {
            let table: Option<v1::SlotTable> = row(disk, &of_controller(b"t"));
            let mut table = table.unwrap_or_default();
            for _ in 0..input.below(4) {
                let slot = usize::from(input.u8()) % table.groups.len().max(1);
                if let Some(group) = table.groups.get_mut(slot) {
                    *group = u32::from(input.u8() % 7);
                }
            }
            if input.rarely(8) {
                table.groups.truncate(input.below(256));
            }
            Body::SetSlotTable(v1::SetSlotTable {
                expected_version: if input.rarely(6) {
                    input.number()
                } else {
                    table.version
                },
                groups: table.groups,
            })
        }
        8..=10 => placement(input),
        _ => Body::SetSettings(v1::SetSettings {
            copies: if input.rarely(4) {
                small(input)
            } else {
                u32::from(input.u8() % 8)
            },
        }),
    };
    encoded(input, body)
}

fn bootstrap(nodes: u32, groups: u32, copies: u32) -> Body {
    Body::Bootstrap(v1::Bootstrap {
        nodes: (1..=nodes)
            .map(|id| v1::Node {
                id,
                ..v1::Node::default()
            })
            .collect(),
        groups,
        copies,
    })
}

fn node(input: &mut Input<'_>) -> v1::Node {
    v1::Node {
        id: if input.rarely(8) {
            small(input)
        } else {
            1 + u32::from(input.u8() % 5)
        },
        boots: (!input.rarely(12)).then(|| v1::Boots {
            process: input.number(),
            disk: input.number(),
        }),
        peer_address: if input.rarely(4) {
            input.text()
        } else {
            "here:1".to_owned()
        },
        client_addresses: (0..input.below(3)).map(|_| input.text()).collect(),
        lifecycle: if input.rarely(4) { small(input) } else { 0 },
        registered_ms: input.number(),
    }
}

fn placement(input: &mut Input<'_>) -> Body {
    let wanted = v1::GroupPlacement {
        group: if input.rarely(8) {
            small(input)
        } else {
            u32::from(input.u8() % 7)
        },
        voters: (0..input.below(5)).map(|_| replica(input)).collect(),
        config_epoch: 0,
        preferred_leader: u32::from(input.u8() % 5),
    };
    Body::SetPlacement(v1::SetPlacement {
        expected_config_epoch: if input.rarely(6) {
            input.number()
        } else {
            u64::from(input.u8() % 3)
        },
        placement: Some(wanted),
    })
}

/// With the version of this build, but for one in many.
fn encoded(input: &mut Input<'_>, body: Body) -> Bytes {
    let wall_ms = input.number();
    if input.rarely(64) {
        return encode(&v1::Command {
            version: COMMAND_VERSION + 1,
            wall_ms,
            body: Some(body),
        });
    }
    encode_command(wall_ms, body)
}

/// Sequences in which each kind of command comes, for both machines.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for machine in [0, 2] {
        for kind in 0..15 {
            // Each command: kind of bytes, channel, kind of command, and fields.
            let mut seed = vec![machine];
            for step in 0..6 {
                seed.extend([5, 2, 0, kind, 0, step, 3, 1, 2, 0, 1, 1, 0, 3, 2, 7]);
                seed.extend([5, 2, 0, (kind + step) % 15, 1, 0, 0, step, 0, 1, 2, 3, 0, 0]);
            }
            seeds.push(seed);
        }
        for number in 0..4_u8 {
            seeds.push(
                [
                    &[machine][..],
                    &(0..200)
                        .map(|at: u8| at.wrapping_mul(37 + number))
                        .collect::<Vec<_>>(),
                ]
                .concat(),
            );
        }
    }
    seeds
}
