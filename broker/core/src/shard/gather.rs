//! Presence messages of one turn that go the same way travel together: a change of leadership makes one for every slot of
//! the group, on every shard.

use super::peer::Peer;
use crate::effect::Effect;
use crate::presence::Caller;
use crate::types::{GroupId, NodeId};
use std::collections::BTreeMap;

/// Presence requests or notices in one message. A part of an announcement has a bound of its own.
const TOGETHER_MAX: usize = 64;

/// Which way a presence message goes.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Request(NodeId, GroupId, Caller),
    Notice(NodeId, u16),
}

impl Way {
    fn of(effect: &Effect) -> Option<Way> {
        match effect {
            Effect::Send {
                to,
                message: Peer::Presence { group, caller, .. },
            } => Some(Way::Request(*to, *group, *caller)),
            Effect::Send {
                to,
                message: Peer::PresenceNotice { shard, .. },
            } => Some(Way::Notice(*to, *shard)),
            _ => None,
        }
    }
}

/// Joins presence messages that stand next to each other. Between different ways the order may change, and nothing depends
/// on it; along one way it stays, and no message passes an effect of another kind.
pub(super) fn gather(effects: &mut Vec<Effect>) {
    let presence = |effect: &Effect| Way::of(effect).is_some();
    if effects
        .windows(2)
        .all(|pair| !(presence(&pair[0]) && presence(&pair[1])))
    {
        return;
    }
    let mut joined: Vec<Effect> = Vec::with_capacity(effects.len());
    let mut places: BTreeMap<Way, usize> = BTreeMap::new();
    for effect in effects.drain(..) {
        let Some(way) = Way::of(&effect) else {
            places.clear();
            joined.push(effect);
            continue;
        };
        match places.get(&way).map(|place| &mut joined[*place]) {
            Some(before) if has_room(before) => append(before, effect),
            _ => {
                places.insert(way, joined.len());
                joined.push(effect);
            }
        }
    }
    *effects = joined;
}

fn has_room(effect: &Effect) -> bool {
    match effect {
        Effect::Send {
            message: Peer::Presence { requests, .. },
            ..
        } => requests.len() < TOGETHER_MAX,
        Effect::Send {
            message: Peer::PresenceNotice { notices, .. },
            ..
        } => notices.len() < TOGETHER_MAX,
        _ => false,
    }
}

fn append(before: &mut Effect, effect: Effect) {
    let (Effect::Send { message: into, .. }, Effect::Send { message, .. }) = (before, effect) else {
        unreachable!("only messages have a way");
    };
    match (into, message) {
        (Peer::Presence { requests, .. }, Peer::Presence { requests: more, .. }) => requests.extend(more),
        (Peer::PresenceNotice { notices, .. }, Peer::PresenceNotice { notices: more, .. }) => {
            notices.extend(more);
        }
        _ => unreachable!("both go the same way"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::presence::Notice;
    use crate::types::{ConnectionId, SlotId};

    fn notice(to: u16, shard: u16, slot: u16) -> Effect {
        let notices = vec![Notice::NotLeader { slot: SlotId(slot) }];
        Effect::Send {
            to: NodeId(to),
            message: Peer::PresenceNotice { shard, notices },
        }
    }

    fn other() -> Effect {
        Effect::CloseClient {
            connection: ConnectionId(1),
            reason: crate::client::CloseReason::PeerClosed,
        }
    }

    /// (node, shard, slots) of each message; none for other effects.
    fn ways(effects: &[Effect]) -> Vec<Option<(u16, u16, Vec<u16>)>> {
        let slot = |notice: &Notice| match notice {
            Notice::NotLeader { slot } => slot.0,
            _ => unreachable!("only these were made"),
        };
        effects
            .iter()
            .map(|effect| match effect {
                Effect::Send {
                    to,
                    message: Peer::PresenceNotice { shard, notices },
                } => Some((to.0, *shard, notices.iter().map(slot).collect())),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn what_goes_the_same_way_goes_together_and_passes_nothing_else() {
        let mut effects = vec![
            notice(1, 0, 1),
            notice(2, 0, 2),
            notice(1, 0, 3),
            notice(1, 1, 4),
            other(),
            notice(1, 0, 5),
        ];
        gather(&mut effects);
        let together = vec![
            Some((1, 0, vec![1, 3])),
            Some((2, 0, vec![2])),
            Some((1, 1, vec![4])),
            None,
            Some((1, 0, vec![5])),
        ];
        assert_eq!(ways(&effects), together);
    }

    #[test]
    fn a_message_has_a_bound() {
        let mut effects: Vec<Effect> = (0..150).map(|slot| notice(1, 0, slot)).collect();
        gather(&mut effects);
        let sizes: Vec<usize> = ways(&effects)
            .into_iter()
            .flatten()
            .map(|(.., slots)| slots.len())
            .collect();
        assert_eq!(sizes, vec![64, 64, 22]);
    }
}
