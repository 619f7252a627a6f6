//! What was offered to one session and is not acknowledged (PC-5).

use super::state::Context;
use super::{Fault, Offer, Offered, Output};
use crate::client::{CloseReason, ServerFrame};
use crate::message::Committed;
use crate::types::{ChannelKind, ConnectionId, Incarnation, MessageId, Seq};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Bytes that an entry costs besides its payload.
const ENTRY_BYTES: usize = 256;

/// ACK state of one session: bounded in entries, bytes and tries, and in the channels whose last offer it remembers.
#[derive(Debug, Default)]
pub(super) struct Offers {
    entries: BTreeMap<MessageId, Entry>,
    /// (when, number of the offer): the next to be offered again, in the order of the first offers.
    due: BTreeSet<(Duration, u64, MessageId)>,
    bytes: usize,
    offered: u64,
    last: LastOffered,
    /// Since when the window is full. It opens again when half of it is acknowledged: a client that lets go of one message at a
    /// time does not set the pace of its channels.
    full_since: Option<Duration>,
}

#[derive(Debug)]
struct Entry {
    message: Arc<Committed>,
    channel_id: Arc<str>,
    kind: ChannelKind,
    number: u64,
    due: Duration,
    reoffers: u32,
}

impl Offers {
    /// Offers the messages, those that the session does not have yet, as far as its window allows.
    pub(super) fn offer(
        &mut self,
        offer: &Offer,
        connection: ConnectionId,
        context: &mut Context<'_>,
    ) -> Result<Offered, CloseReason> {
        for message in &offer.messages {
            let seq = message.message.seq;
            if message.message.expired(context.now.wall_ms) {
                continue;
            }
            if seq > Seq(0) {
                let repeated = self.last.of(message.incarnation).is_some_and(|last| seq <= last);
                if repeated && !context.settings.faults.has(Fault::FirstOfferRepeats) {
                    continue;
                }
                if self.is_full_for(message, context)? {
                    let forgets = context.settings.faults.has(Fault::FullCountsAsBound);
                    return Ok(if forgets { Offered::Bound } else { Offered::Full });
                }
                self.bind(message, offer, context);
            }
            let frame = ServerFrame::Recv {
                message: Arc::clone(message),
                channel_id: Arc::clone(&offer.channel_id),
                kind: offer.kind,
                duplicate: false,
            };
            context.out.push(Output::Frame { connection, frame });
        }
        Ok(Offered::Bound)
    }

    /// Whether the window has no room for a message now. A window that stays full ends the session: its channels wait for it, and
    /// only so long (PC-4).
    fn is_full_for(&mut self, message: &Committed, context: &Context<'_>) -> Result<bool, CloseReason> {
        let limits = &context.settings.limits;
        let half_open = self.entries.len() <= limits.unacknowledged_max / 2
            && self.bytes <= limits.unacknowledged_bytes_max / 2;
        if let Some(since) = self.full_since {
            if !half_open {
                return if context.now.monotonic >= since + limits.unacknowledged_patience {
                    Err(CloseReason::UnacknowledgedOverflow)
                } else {
                    Ok(true)
                };
            }
            self.full_since = None;
        }
        let fits = self.entries.len() < limits.unacknowledged_max
            && self.bytes + cost(message) <= limits.unacknowledged_bytes_max;
        if !fits {
            self.full_since = Some(context.now.monotonic);
        }
        Ok(!fits)
    }

    /// RECVACK: clears this entry and no other.
    pub(super) fn acknowledge(&mut self, id: MessageId, seq: Seq) {
        if self
            .entries
            .get(&id)
            .is_some_and(|entry| entry.message.message.seq == seq)
        {
            self.clear(id);
        }
    }

    /// When the next entry is offered again.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.due.first().map(|(due, ..)| *due)
    }

    /// Offers again what is due; too many tries end the session, so that the client pulls.
    pub(super) fn expire(
        &mut self,
        connection: ConnectionId,
        context: &mut Context<'_>,
    ) -> Result<(), CloseReason> {
        let limits = &context.settings.limits;
        while let Some((due, number, id)) = self.due.first().copied() {
            if due > context.now.monotonic {
                break;
            }
            let Some(entry) = self.entries.get_mut(&id) else {
                self.due.pop_first();
                continue;
            };
            if context.settings.faults.has(Fault::ReofferNever)
                || entry.message.message.expired(context.now.wall_ms)
            {
                self.clear(id);
                continue;
            }
            if entry.reoffers >= limits.reoffers_max {
                return Err(CloseReason::UnacknowledgedOverflow);
            }
            entry.reoffers += 1;
            entry.due = context.now.after(limits.reoffer_interval);
            let frame = ServerFrame::Recv {
                message: Arc::clone(&entry.message),
                channel_id: Arc::clone(&entry.channel_id),
                kind: entry.kind,
                duplicate: true,
            };
            self.due.pop_first();
            self.due.insert((entry.due, number, id));
            context.out.push(Output::Frame { connection, frame });
        }
        Ok(())
    }

    /// How many messages are offered and not acknowledged.
    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    fn bind(&mut self, message: &Arc<Committed>, offer: &Offer, context: &Context<'_>) {
        let limits = &context.settings.limits;
        let id = message.message.id;
        self.clear(id);
        self.last.set(
            message.incarnation,
            message.message.seq,
            limits.session_channels_max,
        );
        self.bytes += cost(message);
        self.offered += 1;
        let due = context.now.after(limits.reoffer_interval);
        self.due.insert((due, self.offered, id));
        let entry = Entry {
            message: Arc::clone(message),
            channel_id: Arc::clone(&offer.channel_id),
            kind: offer.kind,
            number: self.offered,
            due,
            reoffers: 0,
        };
        self.entries.insert(id, entry);
    }

    fn clear(&mut self, id: MessageId) {
        if let Some(entry) = self.entries.remove(&id) {
            self.due.remove(&(entry.due, entry.number, id));
            self.bytes -= cost(&entry.message);
        }
    }
}

/// Bytes that an entry counts for.
fn cost(message: &Committed) -> usize {
    message.message.draft.payload.len() + ENTRY_BYTES
}

/// The last position offered per incarnation, for the channels used last (M-15): the SDK does not de-duplicate.
#[derive(Debug, Default)]
struct LastOffered {
    positions: BTreeMap<Incarnation, (Seq, u64)>,
    used: BTreeMap<u64, Incarnation>,
    uses: u64,
}

impl LastOffered {
    fn of(&self, incarnation: Incarnation) -> Option<Seq> {
        self.positions.get(&incarnation).map(|(seq, _)| *seq)
    }

    fn set(&mut self, incarnation: Incarnation, seq: Seq, channels_max: usize) {
        self.uses += 1;
        if let Some((_, use_before)) = self.positions.insert(incarnation, (seq, self.uses)) {
            self.used.remove(&use_before);
        }
        self.used.insert(self.uses, incarnation);
        while self.positions.len() > channels_max.max(1)
            && let Some((_, oldest)) = self.used.pop_first()
        {
            self.positions.remove(&oldest);
        }
    }
}
