//! One production shard, stepped without threads: what it sends comes back to it, as on a node of one shard, and time passes when it
//! is told to.

use crate::disk::Disk;
use bytes::Bytes;
use penstock_core::admin::{Answer, Ask, ChannelFlags, SendAsk};
use penstock_core::client::{ClientFrame, Connect, Protocol, Secret, ServerFrame};
use penstock_core::effect::{Effect, Event};
use penstock_core::limits::Limits;
use penstock_core::message::{Draft, MessageFlags, Outcome};
use penstock_core::rows::Key;
use penstock_core::shard::{Config, Faults, Image, Peer, Reply, Request, Shard};
use penstock_core::types::{
    Boots, ChannelKey, ChannelKind, ConnectionId, DeviceFlag, DiskBoot, Incarnation, LeaderEpoch, MessageId,
    NodeId, Now, ProcessBoot, Reason, Seq, Token, Uid,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

const NODE: NodeId = NodeId(1);
/// Names our requests; the shard's own tokens come nowhere near.
const OURS: Token = Token(u64::MAX);
/// How much time passes when nothing else happens.
const IDLE_STEP: Duration = Duration::from_millis(10);
/// So many steps without what is waited for mean that it never comes.
const IDLE_STEPS_MAX: u32 = 5_000;
/// After so many steps everything has come to rest.
const REST_STEPS: u32 = 300;
/// The time between one batch and the next, so that what is due in between is done too.
const BATCH_STEP: Duration = Duration::from_millis(1);
/// A payload as apps send them.
const PAYLOAD: Bytes = Bytes::from_static(&[b'p'; 100]);

/// A RECV that has left.
#[derive(Clone, Copy, Debug)]
struct Received {
    connection: ConnectionId,
    id: MessageId,
    seq: Seq,
}

/// What came out of the shard.
#[derive(Debug, Default)]
struct Out {
    answer: Option<Answer>,
    /// Where the channel's log is appended to, seen when the shard asked for it itself.
    leadership: Option<(Incarnation, LeaderEpoch)>,
    outcomes: Option<Vec<Outcome>>,
    admitted: usize,
    received: Vec<Received>,
}

/// A node of one shard, with one group.
pub(crate) struct Node<D> {
    shard: Shard,
    disk: D,
    now: Now,
    events: VecDeque<Event>,
    effects: Vec<Effect>,
    out: Out,
    room: ChannelKey,
    /// The last position of the room.
    last: Seq,
    sent: u64,
}

impl<D: Disk> Node<D> {
    /// A node whose groups have leaders, and a group chat of so many members that has had its first message.
    pub(crate) fn with_room(disk: D, members: usize) -> Node<D> {
        let config = Config {
            node: NODE,
            boots: Boots {
                process: ProcessBoot(1),
                disk: DiskBoot(1),
            },
            shard: 0,
            shards: 1,
            nodes: vec![NODE],
            groups: 8,
            copies: 3,
            seed: 1,
            limits: Limits::default(),
            any_token: true,
            person_allowlist_required: false,
            faults: Faults::default(),
        };
        let mut node = Node {
            shard: Shard::new(config, Image::default()),
            disk,
            now: Now {
                monotonic: Duration::ZERO,
                wall_ms: 1_900_000_000_000,
            },
            events: VecDeque::new(),
            effects: Vec::new(),
            out: Out::default(),
            room: ChannelKey::new("room", ChannelKind::GROUP),
            last: Seq(0),
            sent: 0,
        };
        while !matches!(node.ask(Ask::Ready), Answer::Ready(found) if found.ready) {
            node.pass(IDLE_STEP);
            node.settle();
        }
        node.make_room(members);
        node
    }

    fn make_room(&mut self, members: usize) {
        let put = Ask::PutChannel {
            channel_id: Arc::clone(&self.room.id),
            kind: self.room.kind,
            flags: ChannelFlags::default(),
            reset: false,
            subscribers: (0..members).map(member).collect(),
        };
        assert_eq!(self.ask(put), Answer::Done);
        let first = SendAsk {
            from_uid: member(0),
            channel_id: Arc::clone(&self.room.id),
            kind: self.room.kind,
            subscribers: Vec::new(),
            client_msg_no: Arc::from("first"),
            flags: MessageFlags::default(),
            setting: 0,
            expire_s: 0,
            topic: Arc::from(""),
            payload: PAYLOAD,
        };
        let answer = self.ask(Ask::Send(Box::new(first)));
        let Answer::Sent(Outcome::Committed { seq, .. }) = answer else {
            panic!("the first message is stored: {answer:?}");
        };
        self.last = seq;
        self.come_to_rest();
    }

    /// Lets time pass: presence and delivery wait a while when a node is new, and only then deliver the first message.
    fn come_to_rest(&mut self) {
        for _ in 0..REST_STEPS {
            self.pass(IDLE_STEP);
            self.settle();
        }
        assert!(self.out.received.is_empty(), "nobody was there yet");
    }

    /// Opens a session of every member.
    pub(crate) fn admit(&mut self, members: usize) {
        for number in 0..members {
            let connection = ConnectionId(number as u64 + 1);
            let uid = member(number).0;
            let connect = Connect {
                protocol: Protocol::WkProto,
                version: 6,
                uid,
                token: Secret(Arc::from("any")),
                device_id: Arc::from("d"),
                device_flag: DeviceFlag(0),
                client_timestamp_ms: 0,
                address: Arc::from("127.0.0.1"),
            };
            self.events.push_back(Event::ClientOpened { connection });
            self.events.push_back(Event::ClientFrame {
                connection,
                frame: ClientFrame::Connect(connect),
            });
            self.run(|out| out.admitted == number + 1);
        }
        self.come_to_rest();
    }

    /// Messages that were not sent before.
    pub(crate) fn drafts(&mut self, count: usize) -> Vec<Draft> {
        let mut draft = || {
            self.sent += 1;
            Draft {
                from_uid: Uid::new("sender"),
                client_msg_no: Arc::from(format!("number-{}", self.sent)),
                flags: MessageFlags::default(),
                setting: 0,
                expire_s: 0,
                topic: Arc::from(""),
                payload: PAYLOAD,
                origin: None,
                subscribers: Arc::from([]),
                attributes: None,
                hops: 0,
            }
        };
        (0..count).map(|_| draft()).collect()
    }

    /// Appends a batch to the room, until it is acknowledged: every message, at the positions that follow.
    pub(crate) fn append(&mut self, drafts: Vec<Draft>) {
        self.pass(BATCH_STEP);
        let count = drafts.len();
        let (incarnation, leader_epoch) = self.out.leadership.expect("the room has a leader");
        let request = Request::Append {
            channel: self.room.clone(),
            incarnation,
            leader_epoch,
            drafts,
        };
        let message = Peer::Request {
            reply_to: 0,
            token: OURS,
            request,
        };
        self.events.push_back(Event::Peer { from: NODE, message });
        self.run(|out| out.outcomes.is_some());
        let outcomes = self.out.outcomes.take().unwrap_or_default();
        assert_eq!(outcomes.len(), count);
        for outcome in outcomes {
            let Outcome::Committed { seq, .. } = outcome else {
                panic!("not stored: {outcome:?}");
            };
            assert_eq!(seq.0, self.last.0 + 1, "the next position");
            self.last = seq;
        }
    }

    /// Appends one message to the room, until its RECV has left for so many sessions: for each once.
    pub(crate) fn deliver(&mut self, drafts: Vec<Draft>, sessions: usize) {
        self.append(drafts);
        self.run(|out| out.received.len() >= sessions);
        assert!(self.out.received.iter().all(|received| received.seq == self.last));
    }

    /// Lets every session acknowledge what it received; demands that each got exactly one message.
    pub(crate) fn acknowledge(&mut self, sessions: usize) {
        self.settle();
        let mut connections: Vec<ConnectionId> = self
            .out
            .received
            .iter()
            .map(|received| received.connection)
            .collect();
        assert_eq!(connections.len(), sessions, "one message for each session");
        connections.sort();
        connections.dedup();
        assert_eq!(connections.len(), sessions, "none gets it twice");
        for Received { connection, id, seq } in std::mem::take(&mut self.out.received) {
            self.events.push_back(Event::ClientFrame {
                connection,
                frame: ClientFrame::RecvAck { id, seq },
            });
        }
        self.settle();
        assert!(self.out.received.is_empty(), "nothing comes again");
    }

    fn ask(&mut self, ask: Ask) -> Answer {
        self.events.push_back(Event::Ask { token: OURS, ask });
        self.run(|out| out.answer.is_some());
        self.out.answer.take().expect("just seen")
    }

    /// Goes on until this holds.
    fn run(&mut self, holds: impl Fn(&Out) -> bool) {
        let mut idle = 0;
        while !holds(&self.out) {
            match self.events.pop_front().or_else(|| self.disk.stored()) {
                Some(event) => self.handle(event),
                None => {
                    idle += 1;
                    assert!(idle < IDLE_STEPS_MAX, "it never comes: {:?}", self.out);
                    self.pass(IDLE_STEP);
                }
            }
        }
    }

    /// Goes on until there is nothing left to do at this time.
    pub(crate) fn settle(&mut self) {
        while let Some(event) = self.events.pop_front().or_else(|| self.disk.stored()) {
            self.handle(event);
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now.monotonic += time;
        self.now.wall_ms += time.as_millis() as u64;
        if self
            .shard
            .next_deadline()
            .is_some_and(|at| at <= self.now.monotonic)
        {
            self.events.push_back(Event::Expired);
        }
    }

    fn handle(&mut self, event: Event) {
        let loaded: Vec<Key> = match &event {
            Event::Loaded { rows, .. } => rows.iter().map(|(key, _)| key.clone()).collect(),
            _ => Vec::new(),
        };
        let mut effects = std::mem::take(&mut self.effects);
        self.shard
            .handle(self.now, event, &self.disk.rows(&loaded), &mut effects);
        for effect in effects.drain(..) {
            self.execute(effect);
        }
        self.effects = effects;
    }

    fn execute(&mut self, effect: Effect) {
        match effect {
            Effect::Send { message, .. } => self.send(message),
            Effect::Store {
                instance,
                ticket,
                writes,
            } => self.disk.write(instance, ticket, writes),
            Effect::Read { token, request } => {
                let page = self.disk.read(&request);
                self.events.push_back(Event::ReadDone { token, page });
            }
            Effect::Load { token, keys } => {
                let rows = self.disk.load(&keys);
                self.events.push_back(Event::Loaded { token, rows });
            }
            Effect::Client { connection, frame } => self.client(connection, frame),
            Effect::CloseClient { reason, .. } => panic!("a session ended: {reason:?}"),
            Effect::CallPlugin { .. } => unreachable!("nothing is bound"),
            Effect::Registry(_) | Effect::Breaker(_) => {}
            Effect::Answer { answer, .. } => self.out.answer = Some(answer),
        }
    }

    fn send(&mut self, message: Peer) {
        match message {
            Peer::Reply {
                token: OURS, reply, ..
            } => {
                let Reply::Appended(outcomes) = reply else {
                    panic!("not appended: {reply:?}");
                };
                self.out.outcomes = Some(outcomes);
            }
            message => {
                if let Peer::Request {
                    request:
                        Request::Append {
                            incarnation,
                            leader_epoch,
                            ..
                        },
                    ..
                } = &message
                {
                    self.out.leadership = Some((*incarnation, *leader_epoch));
                }
                self.events.push_back(Event::Peer { from: NODE, message });
            }
        }
    }

    fn client(&mut self, connection: ConnectionId, frame: ServerFrame) {
        match frame {
            ServerFrame::Connack {
                reason: Reason::SUCCESS,
                ..
            } => self.out.admitted += 1,
            ServerFrame::Recv { message, .. } => self.out.received.push(Received {
                connection,
                id: message.message.id,
                seq: message.message.seq,
            }),
            other => panic!("a session gets {other:?}"),
        }
    }
}

fn member(number: usize) -> Uid {
    Uid::new(&format!("member-{number}"))
}
