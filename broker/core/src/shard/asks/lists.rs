//! Member lists over HTTP: read page by page, changed by commands of bounded size (SL-6).

use super::{Job, answer};
use crate::admin::{Answer, Failure, List, ListChange};
use crate::replicated;
use crate::rows::Table;
use crate::shard::Shard;
use crate::shard::continuation::Then;
use crate::shard::peer::{HistoryRange, Reply, Request, RowKey};
use crate::shard::turn::Turn;
use crate::slot::command::{self, ListEdit};
use crate::slot::keys;
use crate::types::{ChannelKey, ChannelKind, Incarnation, LeaderEpoch, Seq, SlotId, Token, Uid};
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};

/// Rows of one page.
const PAGE_ROWS: u32 = 1_000;

/// A list that is read or changed.
#[derive(Debug)]
pub(in crate::shard) struct ListJob {
    slot: SlotId,
    table: Table,
    prefix: Bytes,
    found: BTreeSet<Uid>,
    change: Option<Change>,
    stage: Stage,
}

#[derive(Debug)]
struct Change {
    channel: ChannelKey,
    list: List,
    first: Option<Bytes>,
    wanted: ListChange,
    join_seq: Seq,
}

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    First,
    Meta,
    Tail,
    Pages,
}

impl ListJob {
    pub(in crate::shard) fn read(channel: ChannelKey, list: List) -> ListJob {
        ListJob {
            slot: channel.slot(),
            table: keys::list_table(list),
            prefix: keys::channel_prefix(&channel),
            found: BTreeSet::new(),
            change: None,
            stage: Stage::Pages,
        }
    }

    pub(in crate::shard) fn system_uids() -> ListJob {
        ListJob {
            slot: keys::system_uids_slot(),
            table: Table::SystemUid,
            prefix: Bytes::new(),
            found: BTreeSet::new(),
            change: None,
            stage: Stage::Pages,
        }
    }

    pub(in crate::shard) fn change(channel: ChannelKey, list: List, wanted: ListChange) -> ListJob {
        let change = Change {
            channel: channel.clone(),
            list,
            first: None,
            wanted,
            join_seq: Seq(1),
        };
        ListJob {
            change: Some(change),
            stage: Stage::First,
            ..ListJob::read(channel, list)
        }
    }

    /// A command that comes before the change.
    #[must_use]
    pub(in crate::shard) fn after(mut self, first: Bytes) -> ListJob {
        if let Some(change) = &mut self.change {
            change.first = Some(first);
        }
        self
    }
}

impl Shard {
    pub(in crate::shard) fn read_list(&mut self, turn: &mut Turn<'_>, ask: Token, job: ListJob) {
        self.next_page(turn, ask, job, None);
    }

    pub(in crate::shard) fn change_list(&mut self, turn: &mut Turn<'_>, ask: Token, mut job: ListJob) {
        let Some(change) = &mut job.change else { return };
        if change.list == List::Subscribers
            && change.channel.kind == ChannelKind::PERSON
            && change.first.is_none()
        {
            let text = "a person channel has no subscribers".to_owned();
            return answer(turn, ask, Answer::Failed(Failure::Invalid(text)));
        }
        match change.first.take() {
            Some(first) => {
                let slot = job.slot;
                self.keep_ask(turn, ask, Job::List(job));
                self.propose_for(turn, ask, slot, first);
            }
            None => self.after_first(turn, ask, job),
        }
    }

    /// New subscribers receive from the message after the last one (PC-2): where is the channel now?
    fn after_first(&mut self, turn: &mut Turn<'_>, ask: Token, mut job: ListJob) {
        let Some(change) = &job.change else { return };
        let adds =
            matches!(&change.wanted, ListChange::Add(uids) | ListChange::Set(uids) if !uids.is_empty());
        if change.list != List::Subscribers || !adds {
            return self.after_tail(turn, ask, job);
        }
        job.stage = Stage::Meta;
        let group = self.directory.group_of(job.slot);
        let key = super::super::facts::row_key(&keys::meta(&change.channel));
        self.keep_ask(turn, ask, Job::List(job));
        self.call(
            turn,
            Request::Rows {
                group,
                keys: key.into_iter().collect::<Vec<RowKey>>(),
            },
            Then::Ask { ask },
        );
    }

    fn after_tail(&mut self, turn: &mut Turn<'_>, ask: Token, mut job: ListJob) {
        let Some(change) = &job.change else { return };
        match &change.wanted {
            ListChange::Add(_) | ListChange::Remove(_) => self.run_edits(turn, ask, &job),
            ListChange::Set(_) | ListChange::Clear => {
                job.stage = Stage::Pages;
                self.next_page(turn, ask, job, None);
            }
        }
    }

    pub(in crate::shard) fn on_list_reply(
        &mut self,
        turn: &mut Turn<'_>,
        ask: Token,
        mut job: ListJob,
        reply: Reply,
    ) {
        match (&job.stage, reply) {
            (Stage::First, Reply::Proposed(Ok(replicated::Reply::Done | replicated::Reply::Revision(_)))) => {
                self.after_first(turn, ask, job);
            }
            (Stage::Meta, Reply::Rows(rows)) => match (rows.first(), &job.change) {
                (Some(Some(_)), Some(change)) => {
                    let request = tail_of(change.channel.clone());
                    job.stage = Stage::Tail;
                    self.keep_ask(turn, ask, Job::List(job));
                    self.call(turn, request, Then::Ask { ask });
                }
                _ => self.after_tail(turn, ask, job),
            },
            (Stage::Tail, Reply::History { messages, .. }) => {
                if let (Some(change), Some(last)) = (&mut job.change, messages.last()) {
                    change.join_seq = last.message.seq.next();
                }
                self.after_tail(turn, ask, job);
            }
            (Stage::Pages, Reply::Page { rows, more }) => {
                let after = rows.last().map(|(key, _)| key.clone());
                let system = job.table == Table::SystemUid;
                job.found.extend(rows.iter().filter_map(|(key, _)| {
                    if system {
                        keys::read_uid(key)
                    } else {
                        keys::read_channel_uid(key).map(|(_, uid)| uid)
                    }
                }));
                if more {
                    self.next_page(turn, ask, job, after)
                } else {
                    self.after_pages(turn, ask, job)
                }
            }
            _ => answer(
                turn,
                ask,
                Answer::Failed(Failure::Unavailable("an unexpected answer came".to_owned())),
            ),
        }
    }

    fn next_page(&mut self, turn: &mut Turn<'_>, ask: Token, job: ListJob, after: Option<Bytes>) {
        let request = Request::Page {
            group: self.directory.group_of(job.slot),
            slot: job.slot,
            table: job.table,
            prefix: job.prefix.clone(),
            after,
            rows_max: PAGE_ROWS,
        };
        self.keep_ask(turn, ask, Job::List(job));
        self.call(turn, request, Then::Ask { ask });
    }

    fn after_pages(&mut self, turn: &mut Turn<'_>, ask: Token, job: ListJob) {
        if job.change.is_some() {
            self.run_edits(turn, ask, &job);
        } else {
            answer(turn, ask, Answer::Uids(job.found.into_iter().collect()));
        }
    }

    fn run_edits(&mut self, turn: &mut Turn<'_>, ask: Token, job: &ListJob) {
        let Some(change) = &job.change else { return };
        let (add, remove): (Vec<Uid>, Vec<Uid>) = match &change.wanted {
            ListChange::Add(uids) => (uids.clone(), Vec::new()),
            ListChange::Remove(uids) => (Vec::new(), uids.clone()),
            ListChange::Clear => (Vec::new(), job.found.iter().cloned().collect()),
            ListChange::Set(uids) => {
                let wanted: BTreeSet<Uid> = uids.iter().cloned().collect();
                (
                    wanted.difference(&job.found).cloned().collect(),
                    job.found.difference(&wanted).cloned().collect(),
                )
            }
        };
        let chunk = command::UIDS_MAX.min(self.config.limits.command_uids_max.max(1));
        // What fits into one command changes at one instant. Else nobody leaves before everybody has come: a list that is
        // replaced is never seen empty.
        let parts: Vec<(Vec<Uid>, Vec<Uid>)> = if add.is_empty() && remove.is_empty() {
            Vec::new()
        } else if add.len() + remove.len() <= chunk {
            vec![(add, remove)]
        } else {
            let adds = add.chunks(chunk).map(|part| (part.to_vec(), Vec::new()));
            let removes = remove.chunks(chunk).map(|part| (Vec::new(), part.to_vec()));
            adds.chain(removes).collect()
        };
        let commands = parts
            .into_iter()
            .map(|(add, remove)| {
                let edit = ListEdit {
                    channel: change.channel.clone(),
                    list: change.list,
                    remove,
                    add,
                    join_seq: change.join_seq,
                    expected_revision: None,
                };
                (job.slot, command::change_list(turn.now.wall_ms, &edit))
            })
            .collect::<VecDeque<_>>();
        self.run_commands(turn, ask, commands);
    }
}

/// Asks for the newest message of a channel.
fn tail_of(channel: ChannelKey) -> Request {
    Request::History {
        channel,
        incarnation: Incarnation(0),
        leader_epoch: LeaderEpoch(0),
        query: HistoryRange {
            start: Seq(0),
            end: Seq(0),
            limit: 1,
            newer: false,
            visible_from: Seq(1),
        },
    }
}
