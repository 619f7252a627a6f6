//! One Raft group on one node.

use super::faults::Faults;
use super::interface::{Input, Message, Output, ProposeError, Status};
use super::log::Log;
use super::members::Applied;
use super::proposals::Proposals;
use super::reads::Reads;
use super::snapshot::{Receiving, Sending};
use crate::codec::Corrupt;
use crate::limits::Limits;
use crate::replicated::StateMachine;
use crate::rows::{Key, Miss, Row, Rows, Write};
use crate::types::{Boots, DiskBoot, GroupId, NodeId, Now, RaftIndex, Replica, SlotId, Term, Token};
use penstock_wire::storage::v1;
use raft::eraftpb::{Entry, HardState};
use raft::{RawNode, ReadOnlyOption, StateRole};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Index and term at which every group begins. Nothing stands there, so that a member that joins later always needs a
/// snapshot: the first configuration is in no entry.
pub(super) const BEGINNING: (u64, u64) = (1, 1);

/// What a group is told once, at its start.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// The group.
    pub group: GroupId,
    /// This node.
    pub node: NodeId,
    /// Its boots.
    pub boots: Boots,
    /// Seed of the drawn election timeouts.
    pub seed: u64,
    /// The slots whose rows belong to the group.
    pub slots: Vec<SlotId>,
    /// The first voters, the same on each of them, if this node is one; empty for a node that joins later. Disk boot 0: not known
    /// yet, the leader learns it. One of them that comes back with an empty disk is taken in again by itself (CO-5).
    pub first_voters: Vec<Replica>,
    /// Bounds.
    pub limits: Limits,
    /// Planted faults; none outside of the simulator.
    pub faults: Faults,
}

/// What the disk holds of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Row of [`Key::RaftState`].
    pub raft_state: Option<Row>,
    /// Row of [`Key::Applied`].
    pub applied: Option<Row>,
    /// Row of [`Key::Install`].
    pub install: Option<Row>,
    /// Rows of [`Key::RaftEntry`], ascending.
    pub entries: Vec<Row>,
}

impl Image {
    /// The image of `group` out of stored rows.
    #[must_use]
    pub fn of(group: GroupId, rows: &[(Key, Row)]) -> Image {
        let mut image = Image::default();
        let mut entries = BTreeMap::new();
        for (key, row) in rows {
            match key {
                Key::RaftState { group: of } if *of == group => image.raft_state = Some(row.clone()),
                Key::Applied { group: of } if *of == group => image.applied = Some(row.clone()),
                Key::Install { group: of } if *of == group => image.install = Some(row.clone()),
                Key::RaftEntry { group: of, index } if *of == group => {
                    entries.insert(*index, row.clone());
                }
                _ => {}
            }
        }
        image.entries = entries.into_values().collect();
        image
    }
}

/// A Ready whose write is on its way to the disk.
#[derive(Debug)]
pub(super) struct Unsaved {
    pub(super) token: u64,
    pub(super) number: u64,
    pub(super) messages: Vec<raft::eraftpb::Message>,
    pub(super) snapshot: Option<u64>,
}

/// A running transfer of leadership.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handover {
    pub(super) token: Token,
    pub(super) to: NodeId,
    pub(super) deadline: Duration,
}

/// One Raft group on one node: a value that is stepped.
pub struct Group {
    pub(super) config: GroupConfig,
    pub(super) machine: Box<dyn StateMachine>,
    pub(super) raft: RawNode<Log>,
    pub(super) applied: Applied,
    pub(super) committed: VecDeque<Entry>,
    pub(super) apply_asked: bool,
    pub(super) unsaved: VecDeque<Unsaved>,
    pub(super) proposals: Proposals,
    pub(super) reads: Reads,
    pub(super) handover: Option<Handover>,
    pub(super) sending: BTreeMap<NodeId, Sending>,
    pub(super) transfers: u64,
    /// Raft's id of the member that the last transfer went to.
    pub(super) last_receiver: u64,
    pub(super) receiving: Option<Receiving>,
    pub(super) seen_disks: BTreeMap<NodeId, DiskBoot>,
    /// Members that spoke under another disk than the one they vote with.
    pub(super) strangers: BTreeSet<NodeId>,
    pub(super) stopped: bool,
    next_token: u64,
    next_tick: Duration,
    attempt: u64,
    pub(super) announced: (Option<NodeId>, Term, bool),
}

impl std::fmt::Debug for Group {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Group")
            .field("group", &self.config.group)
            .field("node", &self.config.node)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}

impl Group {
    /// The group as the disk has it, or as it begins. The outputs hold the first write of a new group.
    ///
    /// # Errors
    /// [`Corrupt`] when the stored rows contradict each other: the node must come back with a new disk boot.
    pub fn recover(
        config: GroupConfig,
        machine: Box<dyn StateMachine>,
        image: &Image,
        now: Now,
        out: &mut Vec<Output>,
    ) -> Result<Group, Corrupt> {
        let (applied, log, first_write) = match (&image.raft_state, &image.applied) {
            (Some(state), Some(applied)) => {
                let applied = Applied::decode(applied)?;
                let state: v1::RaftState = super::rows::decode(state)?;
                let log = Log::recovered(&state, applied.conf_state(), &image.entries)?;
                if applied.index > state.commit || applied.index < log.truncated().0 {
                    return Err(Corrupt);
                }
                (applied, log, false)
            }
            (None, None) => {
                let applied = Applied::first(&config.first_voters);
                let hard_state = HardState {
                    term: applied.term,
                    vote: 0,
                    commit: applied.index,
                };
                let log =
                    Log::starting_after((applied.index, applied.term), hard_state, applied.conf_state());
                (applied, log, true)
            }
            _ => return Err(Corrupt),
        };
        let receiving = match &image.install {
            Some(row) => Receiving::recovered(row)?,
            None => None,
        };
        let raft = raw_node(&config, &applied, log)?;
        let proposals = Proposals::new(&config.limits, config.boots.process.0, config.faults.one_lane());
        let mut group = Group {
            next_tick: now.after(config.limits.raft_tick),
            config,
            machine,
            raft,
            applied,
            committed: VecDeque::new(),
            apply_asked: false,
            unsaved: VecDeque::new(),
            proposals,
            reads: Reads::default(),
            handover: None,
            sending: BTreeMap::new(),
            transfers: 0,
            last_receiver: 0,
            receiving,
            seen_disks: BTreeMap::new(),
            strangers: BTreeSet::new(),
            stopped: false,
            next_token: 1,
            attempt: 0,
            announced: (None, Term(0), false),
        };
        if first_write {
            let writes = vec![group.applied_write(), group.state_write()];
            group.store(writes, out);
        }
        group.pump(now, out);
        Ok(group)
    }

    /// Handles one input.
    ///
    /// # Errors
    /// [`Miss`] only for [`Input::Apply`]: nothing has changed, load the rows and hand the input in again.
    pub fn handle(
        &mut self,
        now: Now,
        input: Input,
        rows: &dyn Rows,
        out: &mut Vec<Output>,
    ) -> Result<(), Miss> {
        if self.stopped {
            self.refuse(input, out);
            return Ok(());
        }
        match input {
            Input::Peer { from, message } => self.on_message(now, from, message, out),
            Input::Propose { token, lane, command } => self.propose(now, (token, lane, command), out),
            Input::ReadIndex { token } => self.read_index(now, token, out),
            Input::Stored { token } => self.on_stored(token.0, out),
            Input::ReadDone { token, page } => self.on_page(now, token.0, page, out),
            Input::Apply => self.apply(rows, out)?,
            Input::Transfer { token, to } => self.transfer(now, token, to, out),
            Input::ChangeMember { token, change } => self.change_member(now, token, change, out),
        }
        self.pump(now, out);
        Ok(())
    }

    fn on_message(&mut self, now: Now, from: NodeId, message: Message, out: &mut Vec<Output>) {
        match message {
            Message::Raft { disk, to_disk, body } => self.on_raft(from, (disk, to_disk), &body, out),
            Message::Chunk {
                transfer,
                number,
                crc,
                body,
            } => self.on_chunk(from, transfer, (number, crc, body), out),
            Message::ChunkAck { transfer, answer } => self.on_chunk_ack(now, from, transfer, answer, out),
        }
    }

    /// When [`Self::expire`] is wanted.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        (!self.stopped).then_some(self.next_tick)
    }

    /// Takes note of time: one Raft tick when it is due, then everything whose deadline has passed. A pause counts as one tick: a
    /// node that was frozen does not campaign at once.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.stopped || now.monotonic < self.next_tick {
            return;
        }
        self.next_tick = now.after(self.config.limits.raft_tick);
        self.draw_election_timeout();
        if !self.is_installing() {
            if self.role() == StateRole::Follower && self.is_sole_voter() {
                // There is nobody to wait for. When Raft will not yet, the tick brings it there in its time.
                let _not_yet = self.raft.campaign();
            }
            self.raft.tick();
        }
        if matches!(self.role(), StateRole::Candidate | StateRole::PreCandidate)
            && self.raft.raft.election_elapsed == 0
        {
            self.attempt += 1;
        }
        let (queued, unknown) = self.proposals.expired(now.monotonic);
        let full = |token| (token, ProposeError::Full);
        let late = |token| (token, ProposeError::Unknown);
        let answers = queued.into_iter().map(full).chain(unknown.into_iter().map(late));
        for (token, error) in answers {
            out.push(Output::Proposed {
                token,
                result: Err(error),
            });
        }
        self.expire_reads(now, out);
        self.expire_handover(now, out);
        self.expire_snapshots(now, out);
        self.bind_disks();
        self.heal_members();
        self.pump(now, out);
    }

    /// Raft draws its timeouts from the thread's entropy; ours repeat from run to run.
    fn draw_election_timeout(&mut self) {
        let ticks = self.config.limits.raft_election_ticks.max(1);
        let mut hasher = crc32fast::Hasher::new();
        for word in [
            self.config.seed,
            u64::from(self.config.node.0),
            u64::from(self.config.group.0),
            self.raft.raft.term,
            self.attempt,
        ] {
            hasher.update(&word.to_be_bytes());
        }
        let drawn = usize::try_from(hasher.finalize()).unwrap_or_default() % ticks;
        self.raft.raft.set_randomized_election_timeout(ticks + drawn);
    }

    /// What the group knows of itself.
    #[must_use]
    pub fn status(&self) -> Status {
        let log = self.raft.store();
        let nodes = |ids: &[u64]| ids.iter().filter_map(|id| node_of(*id)).collect();
        Status {
            leader: self.leader(),
            term: Term(self.raft.raft.term),
            is_leader: self.leads(),
            applied: RaftIndex(self.applied.index),
            committed: RaftIndex(self.raft.raft.raft_log.committed),
            last: RaftIndex(log.last().0),
            truncated: RaftIndex(log.truncated().0),
            voters: nodes(&self.applied.voters),
            learners: nodes(&self.applied.learners),
            queued: self.proposals.queued(),
        }
    }

    /// The members with their disks, as applied (CO-5).
    #[must_use]
    pub fn members(&self) -> Vec<Replica> {
        self.applied
            .members
            .iter()
            .map(|(node, disk)| Replica {
                node: *node,
                disk: *disk,
            })
            .collect()
    }

    /// The slots of the group.
    #[must_use]
    pub fn slots(&self) -> &[SlotId] {
        &self.config.slots
    }

    /// Whether nobody else could lead.
    fn is_sole_voter(&self) -> bool {
        self.applied.voters == [u64::from(self.config.node.0)]
    }

    pub(super) fn role(&self) -> StateRole {
        self.raft.raft.state
    }

    pub(super) fn is_raft_leader(&self) -> bool {
        self.role() == StateRole::Leader
    }

    /// Leads, and everything committed before its term is applied.
    #[must_use]
    pub fn leads(&self) -> bool {
        !self.stopped && self.is_raft_leader() && self.applied.term == self.raft.raft.term
    }

    /// The leader, as far as this replica knows.
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        node_of(self.raft.raft.leader_id)
    }

    pub(super) fn not_leader(&self) -> ProposeError {
        let hint = self.leader().filter(|leader| *leader != self.config.node);
        ProposeError::NotLeader {
            hint: self.handover.map_or(hint, |handover| Some(handover.to)),
        }
    }

    pub(super) fn token(&mut self) -> u64 {
        let token = self.next_token;
        self.next_token += 1;
        token
    }

    pub(super) fn store(&mut self, writes: Vec<Write>, out: &mut Vec<Output>) -> u64 {
        let token = self.token();
        out.push(Output::Store {
            token: Token(token),
            writes,
        });
        token
    }

    pub(super) fn state_write(&self) -> Write {
        Write::Put {
            key: Key::RaftState {
                group: self.config.group,
            },
            value: self.raft.store().state_row(self.applied.index),
        }
    }

    pub(super) fn applied_write(&self) -> Write {
        Write::Put {
            key: Key::Applied {
                group: self.config.group,
            },
            value: self.applied.encode(),
        }
    }
}

/// A node from Raft's id, which is the node's id; 0 is nobody.
pub(super) fn node_of(id: u64) -> Option<NodeId> {
    u16::try_from(id).ok().filter(|id| *id != 0).map(NodeId)
}

fn raw_node(config: &GroupConfig, applied: &Applied, log: Log) -> Result<RawNode<Log>, Corrupt> {
    let limits = &config.limits;
    let settings = raft::Config {
        id: u64::from(config.node.0),
        election_tick: limits.raft_election_ticks,
        heartbeat_tick: limits.raft_heartbeat_ticks,
        applied: applied.index,
        max_size_per_msg: 256 << 10,
        max_inflight_msgs: 64,
        // F7: in every node from the first release on.
        check_quorum: true,
        pre_vote: true,
        // F9: no lease reads.
        read_only_option: ReadOnlyOption::Safe,
        max_committed_size_per_ready: 1 << 20,
        ..raft::Config::default()
    };
    let logger = slog::Logger::root(slog::Discard, slog::o!());
    RawNode::new(&settings, log, &logger).map_err(|_| Corrupt)
}
