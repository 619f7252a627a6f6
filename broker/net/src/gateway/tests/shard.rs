//! A shard with a fixed script: it answers every frame at once and remembers what it saw.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use penstock_core::client::{ClientFrame, Connect, Send, ServerFrame};
use penstock_core::message::{Committed, Draft, Message, MessageFlags};
use penstock_core::types::{ChannelKey, ChannelKind, ConnectionId, Incarnation, MessageId, Reason, Seq, Uid};
use tokio::sync::Notify;

use crate::gateway::{Connections, Dispatch, Inbound, Offer};

/// What the shard saw.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Seen {
    Opened,
    Frame(ClientFrame),
    Closed,
}

pub(super) struct ScriptedShard {
    connections: Arc<Connections>,
    seen: Mutex<Vec<(ConnectionId, Seen)>>,
    is_full: AtomicBool,
    room: Notify,
    next_id: AtomicI64,
}

impl ScriptedShard {
    pub(super) fn new(connections: Arc<Connections>) -> Self {
        Self {
            connections,
            seen: Mutex::default(),
            is_full: AtomicBool::new(false),
            room: Notify::new(),
            next_id: AtomicI64::new(1),
        }
    }

    pub(super) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
        self.room.notify_waiters();
    }

    pub(super) fn seen(&self, connection: ConnectionId) -> Vec<Seen> {
        let seen = self.seen.lock().expect("no test panics with the lock");
        seen.iter()
            .filter(|(id, _)| *id == connection)
            .map(|(_, event)| event.clone())
            .collect()
    }

    pub(super) fn connection_of(&self, uid: &str) -> Option<ConnectionId> {
        let seen = self.seen.lock().expect("no test panics with the lock");
        seen.iter().find_map(|(id, event)| match event {
            Seen::Frame(ClientFrame::Connect(connect)) if &*connect.uid == uid => Some(*id),
            _ => None,
        })
    }

    pub(super) fn sends(&self, connection: ConnectionId) -> Vec<Send> {
        self.seen(connection)
            .into_iter()
            .filter_map(|event| match event {
                Seen::Frame(ClientFrame::Send(send)) => Some(send),
                _ => None,
            })
            .collect()
    }

    fn record(&self, connection: ConnectionId, event: Seen) {
        self.seen
            .lock()
            .expect("no test panics with the lock")
            .push((connection, event));
    }

    fn answer(&self, connection: ConnectionId, frame: ClientFrame) {
        let answer = match frame {
            ClientFrame::Connect(Connect { uid, token, .. }) => match (&*uid, &*token.0) {
                ("silent", _) => return,
                (_, "bad") => connack(Reason::AUTH_FAIL),
                (_, "late") => connack(Reason::SYSTEM_ERROR),
                _ => connack(Reason::SUCCESS),
            },
            ClientFrame::Send(send) => self.sent(connection, &send),
            ClientFrame::RecvAck { .. } | ClientFrame::Disconnect { .. } => return,
            ClientFrame::Ping => ServerFrame::Pong,
            ClientFrame::Subscribe(subscribe) => ServerFrame::SubAck {
                sub_no: subscribe.sub_no,
                channel_id: subscribe.channel_id,
                kind: subscribe.kind,
                subscribe: subscribe.subscribe,
                reason: Reason::SUCCESS,
            },
        };
        self.connections.push([(connection, answer)]);
    }

    /// A send to `echo` comes back to its sender; one named `unknown` has no outcome.
    fn sent(&self, connection: ConnectionId, send: &Send) -> ServerFrame {
        let (client_seq, client_msg_no) = (send.client_seq, Arc::clone(&send.client_msg_no));
        let id = MessageId(self.next_id.fetch_add(1, Ordering::SeqCst));
        match &send.payload {
            _ if &*send.client_msg_no == "unknown" => ServerFrame::OutcomeUnknown {
                client_seq,
                client_msg_no,
            },
            Err(reason) => ServerFrame::SendAck {
                client_seq,
                client_msg_no,
                id: MessageId(0),
                seq: Seq(0),
                reason: *reason,
                text: None,
            },
            Ok(payload) => {
                if &*send.channel_id == "echo" {
                    self.connections
                        .push([(connection, recv(id, send, payload.clone()))]);
                }
                ServerFrame::SendAck {
                    client_seq,
                    client_msg_no,
                    id,
                    seq: Seq(7),
                    reason: Reason::SUCCESS,
                    text: None,
                }
            }
        }
    }
}

fn connack(reason: Reason) -> ServerFrame {
    ServerFrame::Connack {
        text: None,
        reason,
        time_difference_ms: -25,
        node: 3,
    }
}

/// The message of a send, as its receiver gets it.
pub(super) fn recv(id: MessageId, send: &Send, payload: Bytes) -> ServerFrame {
    let draft = Draft {
        from_uid: Uid::new("ü1"),
        client_msg_no: Arc::clone(&send.client_msg_no),
        flags: MessageFlags {
            no_persist: send.no_persist,
            red_dot: send.red_dot,
            sync_once: send.sync_once,
        },
        setting: send.setting,
        expire_s: send.expire_s,
        topic: Arc::clone(&send.topic),
        payload,
        origin: None,
        subscribers: Arc::from([]),
        attributes: None,
        hops: 0,
    };
    let committed = Committed {
        channel: ChannelKey::new("echo", ChannelKind::GROUP),
        incarnation: Incarnation(1),
        message: Message {
            id,
            seq: Seq(7),
            stamp_ms: 1_700_000_000_123,
            draft,
        },
    };
    ServerFrame::Recv {
        message: Arc::new(committed),
        channel_id: Arc::clone(&send.channel_id),
        kind: send.kind,
        duplicate: false,
    }
}

impl Dispatch for ScriptedShard {
    fn offer(&self, connection: ConnectionId, event: Inbound) -> Offer {
        if self.is_full.load(Ordering::SeqCst) {
            return Offer::Full(event);
        }
        match event {
            Inbound::Opened => self.record(connection, Seen::Opened),
            Inbound::Frame(frame) => {
                self.record(connection, Seen::Frame(frame.clone()));
                self.answer(connection, frame);
            }
        }
        Offer::Taken
    }

    async fn room(&self, _connection: ConnectionId) {
        let notified = self.room.notified();
        if self.is_full.load(Ordering::SeqCst) {
            notified.await;
        }
    }

    fn closed(&self, connection: ConnectionId) {
        self.record(connection, Seen::Closed);
    }
}
