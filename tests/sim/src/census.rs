//! Check 8 and the end of checks 1, 2 and 4: what the replicas hold when all is over.

use crate::invariants::Invariants;
use crate::oracle::{Oracle, number};
use crate::world::Node;
use penstock_core::codec::decode_message;
use penstock_core::message::Record;
use penstock_core::rows::{Page, ReadRequest};
use penstock_core::slot::keys;
use penstock_core::types::{ChannelKind, ChannelMeta, Incarnation, Seq, Uid};
use penstock_wire::channel_id::person_members;

/// The first difference between what replicas hold, or between that and what was acknowledged. What is still to be seen
/// by the oracle is told to it once all replicas agree.
#[must_use]
pub fn difference(nodes: &[Node], invariants: &Invariants, oracle: &Oracle) -> Option<String> {
    for (index, channel) in oracle.channels.iter().enumerate() {
        let Some((incarnation, meta)) = invariants.incarnation(&channel.key) else {
            if oracle.acknowledged_in(index).next().is_some() {
                return Some(format!(
                    "{} has acknowledged messages and never had a leader",
                    channel.key
                ));
            }
            continue;
        };
        let found = replicas_differ(nodes, incarnation, meta).or_else(|| {
            let records = records_of(nodes, incarnation, meta);
            lost(index, &records, oracle)
        });
        if let Some(found) = found {
            return Some(format!("{}: {found}", channel.key));
        }
    }
    None
}

fn replicas_differ(nodes: &[Node], incarnation: Incarnation, meta: &ChannelMeta) -> Option<String> {
    let mut first: Option<(usize, Vec<Record>)> = None;
    for voter in &meta.voters.isr {
        let index = usize::from(voter.node.0) - 1;
        // A damaged record is found when somebody reads it (R30): until then this copy cannot be compared.
        let Some(records) = log_of(&nodes[index], incarnation) else {
            continue;
        };
        match &first {
            None => first = Some((index, records)),
            Some((other, wanted)) if *wanted != records => {
                let place = wanted
                    .iter()
                    .zip(&records)
                    .position(|(left, right)| left != right);
                return Some(format!(
                    "node {} holds {} records, node {} holds {}; the first difference is {place:?}",
                    other + 1,
                    wanted.len(),
                    index + 1,
                    records.len()
                ));
            }
            Some(_) => {}
        }
    }
    None
}

/// What the first replica holds whose copy can be read.
#[must_use]
pub fn records_of(nodes: &[Node], incarnation: Incarnation, meta: &ChannelMeta) -> Vec<Record> {
    meta.voters
        .isr
        .iter()
        .filter_map(|voter| log_of(&nodes[usize::from(voter.node.0) - 1], incarnation))
        .max_by_key(Vec::len)
        .unwrap_or_default()
}

fn log_of(node: &Node, incarnation: Incarnation) -> Option<Vec<Record>> {
    let request = ReadRequest::Records {
        incarnation,
        from: Seq(1),
        through: Seq(u64::MAX),
        records_max: u32::MAX,
        bytes_max: u32::MAX,
    };
    match node.disk.durable_read(&request) {
        Page::Records(records) => Some(records),
        _ => None,
    }
}

/// What was acknowledged stands where it was said to, and positions have no gap.
fn lost(channel: usize, records: &[Record], oracle: &Oracle) -> Option<String> {
    let gap = records.windows(2).find(|pair| pair[1].seq != pair[0].seq.next());
    if let Some(pair) = gap {
        return Some(format!("{} follows {}", pair[1].seq, pair[0].seq));
    }
    for (seq, id, operation) in oracle.acknowledged_in(channel) {
        let found = records.iter().find(|record| record.seq.0 == seq);
        if found.is_none_or(|record| record.id != id) {
            return Some(format!(
                "{} was acknowledged at {seq} and is not there",
                number(operation)
            ));
        }
    }
    None
}

/// A person channel with a stored message whose two membership rows are not both there (PC-2).
#[must_use]
pub fn membership_missing(nodes: &[Node], oracle: &Oracle) -> Option<String> {
    for channel in &oracle.channels {
        let members = person_members(&channel.key.id).ok();
        let stored = channel.key.kind == ChannelKind::PERSON && !channel.log.known.is_empty();
        for uid in members.filter(|_| stored).into_iter().flat_map(<[&str; 2]>::from) {
            let row = keys::membership(&Uid::new(uid), &channel.key);
            if nodes.iter().all(|node| node.disk.durable_row(&row).is_none()) {
                return Some(format!("{uid} has no membership of {}", channel.key));
            }
        }
    }
    None
}

/// Everybody is online with one session: that many routes, and no others, are kept by the leaders of the groups (PR-2).
#[must_use]
pub fn routes_astray(nodes: &[Node], sessions: usize) -> Option<String> {
    let hosts = nodes.iter().flat_map(|node| &node.hosts);
    let groups = hosts.flat_map(|host| host.shard.view().groups);
    let kept: usize = groups
        .filter(|group| group.status.is_leader)
        .map(|group| group.routes)
        .sum();
    (kept != sessions).then(|| format!("{kept} routes are kept for {sessions} sessions"))
}

/// Shows the oracle every record of every log, as a reader that sees everything.
pub fn read_all(nodes: &[Node], invariants: &Invariants, oracle: &mut Oracle) {
    for index in 0..oracle.channels.len() {
        let key = oracle.channels[index].key.clone();
        let Some((incarnation, meta)) = invariants.incarnation(&key) else {
            continue;
        };
        for record in records_of(nodes, incarnation, meta) {
            match decode_message(record.body.clone()) {
                Ok(mut message) => {
                    message.id = record.id;
                    message.seq = record.seq;
                    oracle.saw(&key, &message, "the replicas");
                }
                Err(why) => oracle.violate(
                    "R30",
                    format!("{key}: record {} cannot be read: {why:?}", record.seq),
                ),
            }
        }
    }
}
