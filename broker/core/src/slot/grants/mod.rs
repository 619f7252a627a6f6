//! The slot leader's grants: which node leads and which nodes keep each channel of its slots (M-4, M-5).
//!
//! *Owns*: the questions that wait for a grant, and the running sweeps over channels of dead leaders.
//!
//! *Invariants*: what it decides becomes true only by a compare-and-set in the slot group; it may be wrong about nodes, then
//! an epoch is spent and nothing is lost. Every question is answered once.
//!
//! *States*: idle while this node does not lead the group; then each question is answered from its row, or waits for the
//! proposal that carries its grant. A node that dies starts a sweep over the index of the channels that it led.
//!
//! *Absent*: liveness itself (the links tell), and what a leader does with its grant.

pub mod decide;
mod sweep;

pub use decide::{NodeLife, World};

use super::command::{MetaPut, put_metas, stored_put};
use super::interface::ProposeError;
use super::keys;
use super::rows::decode_meta;
use crate::replicated::{MetaAnswer, Reply};
use crate::rows::{Key, Miss, Page, ReadRequest, Rows};
use crate::types::{ChannelKey, ChannelMeta, LeaderEpoch, NodeId, Now, SlotId, Token};
use bytes::Bytes;
use penstock_wire::storage::v1;
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Channels of one question.
pub const CHANNELS_MAX: usize = 256;

/// Questions that may wait at once.
const QUESTIONS_MAX: usize = 4_096;

/// Proposals for questions that are under way at once. What is wanted meanwhile goes into the next one together: one entry of the
/// log for many channels costs a fraction of as many entries, and the busier the group is the more share one.
const UNDER_WAY_MAX: usize = 2;

/// What the grants are told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// Which node leads these channels? Answered once by [`Output::Resolved`]; a channel without a row is created.
    Resolve {
        /// Named in the answer.
        token: Token,
        /// At most [`CHANNELS_MAX`].
        channels: Vec<ChannelKey>,
    },
    /// The nodes, or the wanted copies, changed.
    World(World),
    /// This node leads the slot group now, or no longer.
    Leads(bool),
    /// The answer to [`Output::Propose`].
    Proposed {
        /// Its token.
        token: Token,
        /// What became of it.
        result: Result<Reply, ProposeError>,
    },
    /// The answer to [`Output::Read`].
    ReadDone {
        /// Its token.
        token: Token,
        /// Index rows.
        page: Page,
    },
    /// A replica reports progress of a voter change, or that it needs a newer epoch; it repeats the report until the meta has
    /// changed.
    Report {
        /// The channel.
        channel: ChannelKey,
        /// What has come about.
        report: Report,
    },
}

/// What a replica of the channel sees of its voters (CH-7, R30).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A learner has the log of the current epoch.
    CaughtUp {
        /// The learner.
        learner: NodeId,
        /// The epoch in which it caught up.
        leader_epoch: LeaderEpoch,
    },
    /// HW reached the epoch start under both sets.
    BothQuorums {
        /// The leader's epoch.
        leader_epoch: LeaderEpoch,
    },
    /// A replica lost records or its state: it gives no evidence before this epoch (R30).
    Withheld {
        /// Its node.
        node: NodeId,
        /// The oldest epoch that helps.
        epoch: LeaderEpoch,
    },
}

/// What the grants want done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Propose in the reserved lane of the group; answered by [`Input::Proposed`].
    Propose {
        /// Named in the answer.
        token: Token,
        /// The command.
        command: Bytes,
    },
    /// Scan index rows; answered by [`Input::ReadDone`].
    Read {
        /// Named in the answer.
        token: Token,
        /// What to read.
        request: ReadRequest,
    },
    /// The answer to [`Input::Resolve`], in the order of the question.
    Resolved {
        /// The token of the question.
        token: Token,
        /// One per channel.
        answers: Vec<(ChannelKey, Result<ChannelMeta, Unresolved>)>,
    },
}

/// Why a channel has no leader to name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unresolved {
    /// This node does not lead the slot group; ask the hinted one.
    NotLeader {
        /// Who does, if known.
        hint: Option<NodeId>,
    },
    /// Too much waits: ask again later.
    Busy,
    /// No voter lives that could lead: ask again later (CH-5).
    Unavailable,
    /// The channel is fenced for a task (CH-9): ask again later.
    Fenced,
}

#[derive(Debug)]
struct Question {
    order: Vec<ChannelKey>,
    answers: BTreeMap<ChannelKey, Result<ChannelMeta, Unresolved>>,
}

#[derive(Debug)]
struct Sweep {
    slots: VecDeque<SlotId>,
    node: NodeId,
    after: Option<Bytes>,
}

/// The grants of one slot group, on every node that hosts it; active while the node leads.
#[derive(Debug)]
pub struct Grants {
    slots: Vec<SlotId>,
    proposal_bytes_max: usize,
    world: World,
    leads: bool,
    questions: BTreeMap<Token, Question>,
    waiting: BTreeMap<ChannelKey, BTreeSet<Token>>,
    proposed: BTreeMap<Token, Vec<ChannelKey>>,
    /// Wanted by questions, for the next proposal.
    gathered: VecDeque<MetaPut>,
    sweeps: VecDeque<Sweep>,
    reading: Option<Token>,
    next_token: u64,
}

impl Grants {
    /// The grants of the group with these slots. Tokens are the machine's own: the shard translates them.
    #[must_use]
    pub fn new(slots: Vec<SlotId>, proposal_bytes_max: usize) -> Grants {
        Grants {
            slots,
            proposal_bytes_max,
            world: World::default(),
            leads: false,
            questions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            proposed: BTreeMap::new(),
            gathered: VecDeque::new(),
            sweeps: VecDeque::new(),
            reading: None,
            next_token: 1,
        }
    }

    /// Handles one input.
    ///
    /// # Errors
    /// [`Miss`] with the meta rows that must be loaded: nothing has changed.
    pub fn handle(
        &mut self,
        now: Now,
        input: Input,
        rows: &dyn Rows,
        out: &mut Vec<Output>,
    ) -> Result<(), Miss> {
        match input {
            Input::Resolve { token, channels } => self.resolve(now, token, channels, rows, out)?,
            Input::World(world) => self.on_world(world, out),
            Input::Leads(leads) => self.on_leads(leads, out),
            Input::Proposed { token, result } => self.on_proposed(now, (token, result), out),
            Input::ReadDone { token, page } => self.on_page(now, (token, page), rows, out)?,
            Input::Report { channel, report } => self.on_report(now, &channel, report, rows, out)?,
        }
        Ok(())
    }

    fn token(&mut self) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        token
    }

    fn metas(
        channels: &BTreeSet<ChannelKey>,
        rows: &dyn Rows,
    ) -> Result<BTreeMap<ChannelKey, Option<ChannelMeta>>, Miss> {
        let mut found = BTreeMap::new();
        let mut missing: Vec<Key> = Vec::new();
        for channel in channels {
            match rows.row(&keys::meta(channel)) {
                // A row that does not decode stops the group when a command meets it; here it is as good as unknown.
                Ok(row) => {
                    let meta = row.and_then(|row| decode_meta(&row).ok());
                    found.insert(channel.clone(), meta);
                }
                Err(Miss(more)) => missing.extend(more),
            }
        }
        if missing.is_empty() {
            Ok(found)
        } else {
            Err(Miss(missing))
        }
    }

    fn resolve(
        &mut self,
        now: Now,
        token: Token,
        channels: Vec<ChannelKey>,
        rows: &dyn Rows,
        out: &mut Vec<Output>,
    ) -> Result<(), Miss> {
        let distinct: BTreeSet<ChannelKey> = channels.iter().cloned().collect();
        let refused = if !self.leads {
            Some(Unresolved::NotLeader { hint: None })
        } else if channels.len() > CHANNELS_MAX || self.questions.len() >= QUESTIONS_MAX {
            Some(Unresolved::Busy)
        } else {
            None
        };
        if let Some(refused) = refused {
            let answers = channels
                .into_iter()
                .map(|channel| (channel, Err(refused.clone())))
                .collect();
            out.push(Output::Resolved { token, answers });
            return Ok(());
        }
        let metas = Grants::metas(&distinct, rows)?;
        let mut question = Question {
            order: channels,
            answers: BTreeMap::new(),
        };
        for (channel, meta) in metas {
            if self.is_waiting_for_grant(&channel) {
                self.waiting.entry(channel).or_default().insert(token);
                continue;
            }
            let wanted = self.wanted(&channel, meta.as_ref(), now);
            // A row that names a live leader is answered at once, even when a copy of the channel is still missing.
            if let Some(meta) = meta.as_ref().filter(|meta| self.world.leads(meta)) {
                question.answers.insert(channel.clone(), Ok(meta.clone()));
            }
            match wanted {
                Some(put) => {
                    self.waiting.entry(channel.clone()).or_default();
                    if !question.answers.contains_key(&channel) {
                        self.waiting.entry(channel).or_default().insert(token);
                    }
                    self.gathered.push_back(put);
                }
                None => {
                    let answer = self.judge(meta);
                    question.answers.insert(channel, answer);
                }
            }
        }
        self.questions.insert(token, question);
        self.propose_gathered(now, out);
        self.answer(token, out);
        Ok(())
    }

    fn is_waiting_for_grant(&self, channel: &ChannelKey) -> bool {
        self.waiting.contains_key(channel)
    }

    fn wanted(&self, channel: &ChannelKey, meta: Option<&ChannelMeta>, now: Now) -> Option<MetaPut> {
        let wanted = match meta {
            Some(meta) => decide::next(channel, meta, &self.world, now.monotonic),
            None => decide::first(channel, &self.world),
        }?;
        Some(MetaPut {
            channel: channel.clone(),
            expected_version: meta.map_or(0, |meta| meta.version),
            meta: wanted,
        })
    }

    /// A row as an answer: only one that names a live leader is worth going to.
    fn judge(&self, meta: Option<ChannelMeta>) -> Result<ChannelMeta, Unresolved> {
        match meta {
            Some(meta) if self.world.leads(&meta) => Ok(meta),
            Some(meta) if meta.fence.is_some() => Err(Unresolved::Fenced),
            _ => Err(Unresolved::Unavailable),
        }
    }

    /// Proposes what questions want, unless enough is under way: then it goes when an answer comes.
    fn propose_gathered(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.gathered.is_empty() || self.proposed.len() >= UNDER_WAY_MAX {
            return;
        }
        let count = self.gathered.len().min(CHANNELS_MAX);
        let puts = self.gathered.drain(..count).collect();
        self.propose(now, puts, out);
    }

    /// Proposes compare-and-sets in batches of at most half a proposal's bytes, so that a wrapper always fits.
    fn propose(&mut self, now: Now, puts: Vec<MetaPut>, out: &mut Vec<Output>) {
        let bytes_max = self.proposal_bytes_max / 2;
        let mut batch: Vec<v1::PutChannelMeta> = Vec::new();
        let mut channels = Vec::new();
        let mut bytes = 0;
        for put in puts {
            let stored = stored_put(&put);
            let size = stored.encoded_len() + 8;
            if !batch.is_empty() && bytes + size > bytes_max {
                self.propose_batch(
                    now,
                    std::mem::take(&mut batch),
                    std::mem::take(&mut channels),
                    out,
                );
                bytes = 0;
            }
            bytes += size;
            batch.push(stored);
            channels.push(put.channel);
        }
        if !batch.is_empty() {
            self.propose_batch(now, batch, channels, out);
        }
    }

    fn propose_batch(
        &mut self,
        now: Now,
        batch: Vec<v1::PutChannelMeta>,
        channels: Vec<ChannelKey>,
        out: &mut Vec<Output>,
    ) {
        let token = self.token();
        self.proposed.insert(token, channels);
        out.push(Output::Propose {
            token,
            command: put_metas(now.wall_ms, batch),
        });
    }

    fn on_proposed(
        &mut self,
        now: Now,
        (token, result): (Token, Result<Reply, ProposeError>),
        out: &mut Vec<Output>,
    ) {
        let Some(channels) = self.proposed.remove(&token) else {
            return;
        };
        let mut rows = BTreeMap::new();
        let failed = match result {
            Ok(Reply::Metas(answers)) => {
                rows.extend(
                    answers
                        .into_iter()
                        .map(|MetaAnswer { channel, current, .. }| (channel, current)),
                );
                Unresolved::Unavailable
            }
            Ok(Reply::Done | Reply::Revision(_) | Reply::Keys(_) | Reply::Rejected(_)) => {
                Unresolved::Unavailable
            }
            Err(ProposeError::NotLeader { hint }) => Unresolved::NotLeader { hint },
            Err(ProposeError::Full) => Unresolved::Busy,
            Err(
                ProposeError::TooLarge { .. }
                | ProposeError::Refused
                | ProposeError::Unknown
                | ProposeError::Stopped,
            ) => Unresolved::Unavailable,
        };
        let mut touched = BTreeSet::new();
        for channel in channels {
            let answer = match rows.remove(&channel) {
                // Also after a lost race: what matters is whether the row names a live leader now.
                Some(meta) => self.judge(meta),
                None => Err(failed.clone()),
            };
            for token in self.waiting.remove(&channel).unwrap_or_default() {
                if let Some(question) = self.questions.get_mut(&token) {
                    question.answers.insert(channel.clone(), answer.clone());
                    touched.insert(token);
                }
            }
        }
        for token in touched {
            self.answer(token, out);
        }
        self.sweep_on(out);
        self.propose_gathered(now, out);
    }

    fn answer(&mut self, token: Token, out: &mut Vec<Output>) {
        let Some(question) = self.questions.get(&token) else {
            return;
        };
        let complete = question
            .order
            .iter()
            .all(|channel| question.answers.contains_key(channel));
        if !complete {
            return;
        }
        if let Some(question) = self.questions.remove(&token) {
            let answers = question.order.into_iter().filter_map(|channel| {
                let answer = question.answers.get(&channel)?.clone();
                Some((channel, answer))
            });
            out.push(Output::Resolved {
                token,
                answers: answers.collect(),
            });
        }
    }

    fn on_leads(&mut self, leads: bool, out: &mut Vec<Output>) {
        if self.leads == leads {
            return;
        }
        self.leads = leads;
        if leads {
            let dead = self.world.nodes.iter();
            let dead: Vec<NodeId> = dead
                .filter(|(_, life)| life.dead_since.is_some())
                .map(|(node, _)| *node)
                .collect();
            self.start_sweeps(&dead, out);
            return;
        }
        self.sweeps.clear();
        self.reading = None;
        self.waiting.clear();
        self.proposed.clear();
        self.gathered.clear();
        for (token, question) in std::mem::take(&mut self.questions) {
            let unresolved = || Err(Unresolved::NotLeader { hint: None });
            let answers = question.order.into_iter().map(|channel| {
                let answer = question.answers.get(&channel).cloned();
                let answer = answer.unwrap_or_else(unresolved);
                (channel, answer)
            });
            out.push(Output::Resolved {
                token,
                answers: answers.collect(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
