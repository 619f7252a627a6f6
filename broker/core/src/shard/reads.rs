//! Reads of a channel's committed records: for its own machines, for history, for the outcome of a send.

use super::Shard;
use super::groups::ReplyTo;
use super::history::Window;
use super::peer::{HistoryRange, Redelivery, Reply, Request};
use super::step::Step;
use super::turn::Turn;
use crate::append::{self, Checked};
use crate::channel::{Input, ReadReply, Why};
use crate::codec;
use crate::delivery;
use crate::hooks::cursors::{self, Range};
use crate::message::{Committed, DedupeRow, Draft, MessageFlags, Outcome, Record};
use crate::rows::{Key, Miss, Rows};
use crate::types::{ChannelKey, Incarnation, Reason, Seq, Token, Uid};
use bytes::Bytes;
use std::sync::Arc;

/// Milliseconds of a day.
const DAY_MS: u64 = 86_400_000;

/// What a read, or a proof of leadership, is for.
#[derive(Clone, Debug)]
pub(super) enum Purpose {
    /// The authority checks a record that an idempotency row names.
    Check { token: Token, seq: Seq },
    /// Delivery reads a run.
    Delivery { token: Token, through: Seq },
    /// A post-commit cursor reads a run.
    Cursors { token: Token },
    /// Leadership is proved first, then a window is read in parts.
    Prove { reply_to: ReplyTo, range: HistoryRange },
    /// Leadership is proved first, then a send is looked up: a leader of the past would not know it.
    ProveFind(FindSend),
    /// The window.
    History(Gathering),
    /// Records that a binding is handed once more.
    Redelivery {
        reply_to: ReplyTo,
        binding: Arc<str>,
        what: Redelivery,
    },
    /// The record of a send that an idempotency row names.
    Outcome {
        reply_to: ReplyTo,
        row: DedupeRow,
        hash: u64,
    },
}

/// A history answer that is being put together.
#[derive(Clone, Debug)]
pub(super) struct Gathering {
    reply_to: ReplyTo,
    window: Window,
    found: Vec<Arc<Committed>>,
    /// Payload bytes of what was found.
    bytes: usize,
    /// Whether the bound on bytes has cut something off.
    cut: bool,
}

impl Gathering {
    /// Adds a part, keeps to the bound on bytes, and says whether reading may stop. Of newer messages the oldest are kept, of
    /// older ones the newest: the next page continues where this one ends. One message always fits.
    fn add(&mut self, part: impl Iterator<Item = Arc<Committed>>, bytes_max: usize) -> bool {
        let size = |message: &Arc<Committed>| message.message.draft.payload.len();
        for message in part {
            if self.window.newer() && !self.found.is_empty() && self.bytes + size(&message) > bytes_max {
                self.cut = true;
                return true;
            }
            self.bytes += size(&message);
            self.found.push(message);
        }
        let mut dropped = 0;
        while self.bytes > bytes_max && dropped + 1 < self.found.len() {
            self.bytes -= size(&self.found[dropped]);
            dropped += 1;
        }
        self.cut |= dropped > 0;
        self.found.drain(..dropped);
        false
    }
}

/// What was found of a record that an idempotency row names.
fn checked(reply: ReadReply, seq: Seq, log_end: Seq) -> Checked {
    if reply.failed {
        Checked::Failed
    } else if seq < reply.log_start {
        Checked::Removed {
            log_start: reply.log_start,
        }
    } else if seq > reply.high_watermark && seq < log_end {
        // Not committed and so not read: only its commit tells whether it is the one.
        Checked::Failed
    } else {
        let found = reply.records.into_iter().find(|record| record.seq == seq);
        found.map_or(Checked::Missing, Checked::Record)
    }
}

/// A lookup of a send.
#[derive(Clone, Debug)]
pub(super) struct FindSend {
    pub(super) reply_to: ReplyTo,
    pub(super) from_uid: Uid,
    pub(super) client_msg_no: Arc<str>,
}

impl Shard {
    /// A request at a channel that this node leads.
    pub(super) fn lead(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        reply_to: ReplyTo,
        request: Request,
    ) {
        let token = self.next_token();
        let space_low = self.space_low;
        let Some(active) = self.active(channel) else {
            return;
        };
        let current = active.meta.incarnation;
        match request {
            Request::Append {
                incarnation, drafts, ..
            } if incarnation == current && space_low => {
                let refused = Outcome::Refused(Reason::RATE_LIMITED);
                self.reply(turn, reply_to, Reply::Appended(vec![refused; drafts.len()]));
            }
            Request::Append {
                incarnation, drafts, ..
            } if incarnation == current => {
                active.submits.insert(token, reply_to);
                let input = append::Input::Submit { token, drafts };
                self.queue.push_back(Step::Append {
                    channel: channel.clone(),
                    input,
                });
            }
            Request::History {
                incarnation, query, ..
            } if incarnation == current => {
                active.reads.insert(
                    token,
                    Purpose::Prove {
                        reply_to,
                        range: query,
                    },
                );
                self.tell_replica(channel, Input::ProveLeadership { token });
            }
            Request::SendOutcome {
                incarnation,
                from_uid,
                client_msg_no,
                ..
            } if incarnation == current => {
                let find = FindSend {
                    reply_to,
                    from_uid,
                    client_msg_no,
                };
                active.reads.insert(token, Purpose::ProveFind(find));
                self.tell_replica(channel, Input::ProveLeadership { token });
            }
            Request::Redeliver { binding, what, .. } => {
                self.read_again(turn, channel, reply_to, (binding, what))
            }
            Request::Subscribe { route, subscribe, .. } => {
                self.subscribe_route(channel, route, subscribe);
                self.reply(turn, reply_to, Reply::Done);
            }
            _ => self.reply(turn, reply_to, Reply::NotLeader { hint: None }),
        }
    }

    /// An input for a channel's replica.
    pub(super) fn tell_replica(&mut self, channel: &ChannelKey, input: Input) {
        if let Some(host) = self.channels.get(channel) {
            let activation = host.activation;
            self.queue.push_back(Step::Channel {
                channel: channel.clone(),
                activation,
                input,
            });
        }
    }

    /// Reads committed records from `from`.
    pub(super) fn read_records(
        &mut self,
        channel: &ChannelKey,
        from: Seq,
        records_max: u32,
        purpose: Purpose,
    ) {
        let range = Range {
            from,
            records_max,
            bytes_max: self.config.limits.history_bytes_max.min(1 << 20),
        };
        self.read_range(channel, range, purpose);
    }

    /// The same with other bounds.
    pub(super) fn read_range(&mut self, channel: &ChannelKey, range: Range, purpose: Purpose) {
        let token = self.next_token();
        let Some(active) = self.active(channel) else {
            return;
        };
        active.reads.insert(token, purpose);
        self.tell_replica(
            channel,
            Input::Read {
                token,
                from: range.from,
                records_max: range.records_max,
                bytes_max: range.bytes_max,
            },
        );
    }

    /// The leader is the leader: the window is fixed and read.
    pub(super) fn on_proven(&mut self, channel: &ChannelKey, token: Token, high_watermark: Seq) {
        let Some(active) = self.active(channel) else {
            return;
        };
        let (reply_to, range) = match active.reads.remove(&token) {
            Some(Purpose::Prove { reply_to, range }) => (reply_to, range),
            Some(Purpose::ProveFind(find)) => {
                let channel = channel.clone();
                return self.queue.push_back(Step::FindSend { channel, find });
            }
            _ => return,
        };
        let window = Window::of(range, active.replica.log_start(), high_watermark);
        let (from, count) = (window.first, window.count());
        let gathering = Gathering {
            reply_to,
            window,
            found: Vec::new(),
            bytes: 0,
            cut: false,
        };
        let purpose = Purpose::History(gathering);
        // An empty window is read too: the answer says where the log starts.
        self.read_records(channel, from, count.max(1), purpose);
    }

    /// Leadership could not be proved.
    pub(super) fn on_not_proven(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, token: Token) {
        let Some(active) = self.active(channel) else {
            return;
        };
        let waiting = active.reads.remove(&token);
        if let Some(Purpose::Prove { reply_to, .. } | Purpose::ProveFind(FindSend { reply_to, .. })) = waiting
        {
            self.reply(turn, reply_to, Reply::NotLeader { hint: None });
        }
    }

    /// Records were read.
    pub(super) fn on_read_reply(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        token: Token,
        reply: ReadReply,
    ) {
        let Some(active) = self.active(channel) else {
            return;
        };
        let incarnation = active.meta.incarnation;
        match active.reads.remove(&token) {
            Some(Purpose::Check { token, seq }) => {
                let checked = checked(reply, seq, active.replica.log_end());
                let input = append::Input::RecordChecked { token, checked };
                self.queue.push_back(Step::Append {
                    channel: channel.clone(),
                    input,
                });
            }
            Some(Purpose::Delivery { token, through }) => {
                let messages = decode(
                    channel,
                    incarnation,
                    reply.records.into_iter().filter(|record| record.seq <= through),
                );
                let messages = messages.filter(|_| !reply.failed);
                let log_start = reply.log_start;
                let input = delivery::Input::Records {
                    token,
                    messages,
                    log_start,
                };
                self.queue.push_back(Step::Delivery {
                    channel: channel.clone(),
                    input,
                });
            }
            Some(Purpose::Cursors { token }) => {
                let records = (!reply.failed).then_some(reply.records);
                self.tell_cursors(channel, cursors::Input::ReadDone { token, records });
            }
            Some(Purpose::History(gathering)) => self.on_history_part(turn, channel, gathering, reply),
            Some(Purpose::Redelivery {
                reply_to,
                binding,
                what,
            }) => {
                let mut records = reply.records;
                records.retain(|record| (what.first()..=what.last()).contains(&record.seq));
                self.redeliver(turn, channel, reply_to, (&binding, what, records));
            }
            Some(Purpose::Outcome { reply_to, row, hash }) => {
                let outcome = outcome_of(row, hash, reply);
                self.reply(turn, reply_to, outcome);
            }
            Some(Purpose::Prove { .. } | Purpose::ProveFind(_)) | None => {}
        }
    }

    fn on_history_part(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        mut gathering: Gathering,
        reply: ReadReply,
    ) {
        let Some(active) = self.active(channel) else {
            return;
        };
        let (incarnation, window) = (active.meta.incarnation, gathering.window);
        let last_read = reply.records.last().map(|record| record.seq);
        let part = reply
            .records
            .into_iter()
            .filter(|record| window.contains(record.seq));
        let Some(part) = decode(channel, incarnation, part).filter(|_| !reply.failed) else {
            return self.reply(turn, gathering.reply_to, Reply::Unavailable);
        };
        let shown = part
            .into_iter()
            .filter(|message| !is_expired(message, turn.now.wall_ms));
        let full = gathering.add(shown, self.config.limits.history_bytes_max as usize);
        match last_read {
            Some(last) if last < window.last && !full => {
                let left = window.last.0 - last.0;
                let purpose = Purpose::History(gathering);
                self.read_records(
                    channel,
                    last.next(),
                    u32::try_from(left).unwrap_or(u32::MAX),
                    purpose,
                );
            }
            None if window.lacks(reply.log_start) => {
                self.reply(turn, gathering.reply_to, Reply::Unavailable);
            }
            _ => {
                let gap_until = window.gap(reply.log_start);
                let more = gathering.cut || window.more(reply.log_start);
                let messages = gathering.found;
                self.reply(
                    turn,
                    gathering.reply_to,
                    Reply::History {
                        messages,
                        more,
                        gap_until,
                    },
                );
            }
        }
    }

    /// Looks a send up by its idempotency key (SF-5).
    pub(super) fn find_send(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        find: FindSend,
    ) -> Result<(), Miss> {
        let Some(active) = self.channels.get(channel).and_then(|host| host.active.as_ref()) else {
            return Ok(());
        };
        let Some(key) = append::key_of(&probe(&find.from_uid, &find.client_msg_no)) else {
            self.reply(turn, find.reply_to, Reply::SendOutcome(None));
            return Ok(());
        };
        let busy = !active.authority.is_idle();
        let incarnation = active.meta.incarnation;
        let window_days = self.config.limits.dedupe_window.as_millis() as u64 / DAY_MS + 1;
        let today = turn.now.wall_ms / DAY_MS;
        for day in (today.saturating_sub(window_days)..=today + 1).rev() {
            let day = u16::try_from(day).unwrap_or(u16::MAX);
            let row = turn.rows.row(&Key::Dedupe {
                day,
                incarnation,
                hash: key.hash,
            })?;
            if let Some(row) = row.as_ref().and_then(|row| DedupeRow::decode(row)) {
                let purpose = Purpose::Outcome {
                    reply_to: find.reply_to,
                    row,
                    hash: key.hash,
                };
                self.read_records(channel, row.seq, 1, purpose);
                return Ok(());
            }
        }
        // What is under way here may be this very send: its outcome is open.
        let outcome = busy.then_some(Outcome::Unknown);
        self.reply(turn, find.reply_to, Reply::SendOutcome(outcome));
        Ok(())
    }
}

/// The outcome that an idempotency row tells. A row may survive a truncation, so the record itself must carry the key;
/// what retention removed was committed.
fn outcome_of(row: DedupeRow, hash: u64, reply: ReadReply) -> Reply {
    if reply.failed {
        return Reply::Unavailable;
    }
    if row.seq > reply.high_watermark {
        return Reply::SendOutcome(Some(Outcome::Unknown));
    }
    let committed = Outcome::Committed {
        id: row.id,
        seq: row.seq,
        stamp_ms: row.stamp_ms,
    };
    if row.seq < reply.log_start {
        return Reply::SendOutcome(Some(committed));
    }
    let record = reply.records.into_iter().find(|record| record.seq == row.seq);
    let same = record.is_some_and(|record| record.key.is_some_and(|key| key.hash == hash));
    Reply::SendOutcome(same.then_some(committed))
}

/// Decodes records; none when one of them is no message.
pub(super) fn decode(
    channel: &ChannelKey,
    incarnation: Incarnation,
    records: impl Iterator<Item = Record>,
) -> Option<Vec<Arc<Committed>>> {
    records
        .map(|record| {
            let mut message = codec::decode_message(record.body).ok()?;
            message.seq = record.seq;
            Some(Arc::new(Committed {
                channel: channel.clone(),
                incarnation,
                message,
            }))
        })
        .collect()
}

/// Whether a message is not shown any more (SF-2).
fn is_expired(message: &Committed, wall_ms: u64) -> bool {
    let draft = &message.message.draft;
    draft.expire_s != 0 && message.message.stamp_ms + u64::from(draft.expire_s) * 1_000 <= wall_ms
}

/// A draft that has only what an idempotency key is made of.
fn probe(from_uid: &Uid, client_msg_no: &Arc<str>) -> Draft {
    Draft {
        from_uid: from_uid.clone(),
        client_msg_no: Arc::clone(client_msg_no),
        flags: MessageFlags::default(),
        setting: 0,
        expire_s: 0,
        topic: Arc::from(""),
        payload: Bytes::new(),
        origin: None,
        subscribers: Arc::from([]),
        attributes: None,
        hops: 0,
    }
}

/// What a refused append means for its sender (AP-8).
pub(super) fn refusal(why: Why) -> Reason {
    match why {
        Why::Busy => Reason::RATE_LIMITED,
        Why::NotLeading | Why::Recovering | Why::Fenced => Reason::NODE_NOT_MATCH,
        Why::Empty => Reason::SYSTEM_ERROR,
    }
}
