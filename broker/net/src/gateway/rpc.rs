//! A JSON-RPC session's translation between calls and what the session machine knows.
//!
//! Answers carry the id of their request. A send gets a number that stands for its id; a subscription gets one as its
//! name; pings are answered in order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use penstock_core::client::{
    ClientFrame, CloseReason, Connect, Protocol, Secret, Send, ServerFrame, Subscribe,
};
use penstock_core::message::Committed;
use penstock_core::types::{ChannelKind, DeviceFlag, MessageId, Reason, Seq};
use penstock_wire::jsonrpc::{
    Call, ConnectParams, ConnectResult, Method, Outbound, ParseError, Payload, RecvParams, SendParams,
    SendResult, SubscribeParams, SubscriptionResult, code,
};
use penstock_wire::wkproto::{Flags, Setting, Version};

/// Requests that may wait for their answers; beyond, the session is not read.
const WAITING_MAX: usize = 4_096;

#[derive(Clone, Copy, Eq, PartialEq)]
enum Phase {
    Start,
    Connecting,
    Open,
}

/// One JSON-RPC session.
pub(super) struct RpcSession {
    phase: Phase,
    connect_id: String,
    next_number: u64,
    sends: BTreeMap<u64, String>,
    subscriptions: BTreeMap<u64, (String, Arc<str>)>,
    pings: VecDeque<String>,
}

/// What an inbound message led to.
pub(super) enum Step {
    /// For the session machine.
    Forward(ClientFrame),
    /// Write this for now, then perhaps hand on a frame.
    Answer(String, Option<ClientFrame>),
    /// Write this and close.
    Refuse(String, CloseReason),
}

impl RpcSession {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Start,
            connect_id: String::new(),
            next_number: 0,
            sends: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            pings: VecDeque::new(),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether so many requests wait for answers that no more should be read.
    pub(super) fn is_full(&self) -> bool {
        self.sends.len() + self.subscriptions.len() + self.pings.len() >= WAITING_MAX
    }

    /// Judges an inbound message.
    pub(super) fn accept(&mut self, parsed: Result<Call, ParseError>) -> Step {
        let Call { id, method } = match parsed {
            Ok(call) => call,
            Err(error) if error.is_fatal() => {
                return Step::Refuse(Outbound::Refused(&error).text(), CloseReason::ProtocolError);
            }
            Err(error) => return Step::Answer(Outbound::Refused(&error).text(), None),
        };
        match (self.phase, method) {
            (Phase::Start, Method::Connect(params)) => self.connect(id.unwrap_or_default(), params),
            (Phase::Open, method) if !matches!(method, Method::Connect(_)) => self.opened(id, method),
            _ => {
                let message = "connect must be the first request, once, and answered before the next";
                let error = Outbound::Error {
                    id: id.as_deref(),
                    code: code::OUT_OF_ORDER,
                    message,
                };
                Step::Refuse(error.text(), CloseReason::PolicyViolation)
            }
        }
    }

    fn connect(&mut self, id: String, params: ConnectParams) -> Step {
        self.phase = Phase::Connecting;
        self.connect_id = id;
        Step::Forward(ClientFrame::Connect(Connect {
            protocol: Protocol::JsonRpc,
            version: Version::negotiate(params.version).number(),
            uid: params.uid.into(),
            token: Secret(params.token.into()),
            device_id: params.device_id.into(),
            device_flag: DeviceFlag(params.device_flag),
            client_timestamp_ms: params.client_timestamp,
            address: Arc::from(""),
        }))
    }

    fn opened(&mut self, id: Option<String>, method: Method) -> Step {
        let id = id.unwrap_or_default();
        let frame = match method {
            Method::Send(params) => ClientFrame::Send(self.send(id, params)),
            Method::RecvAck(ack) => ClientFrame::RecvAck {
                id: MessageId(ack.message_id),
                seq: Seq(ack.message_seq),
            },
            Method::Subscribe(params) => ClientFrame::Subscribe(self.subscribe(id, params, true)),
            Method::Unsubscribe(params) => ClientFrame::Subscribe(self.subscribe(id, params, false)),
            Method::Ping => {
                self.pings.push_back(id);
                ClientFrame::Ping
            }
            Method::Disconnect(params) => {
                let frame = ClientFrame::Disconnect {
                    reason: Reason(params.reason_code),
                };
                if id.is_empty() {
                    return Step::Forward(frame);
                }
                return Step::Answer(Outbound::Pong(&id).text(), Some(frame));
            }
            // The caller keeps a second connect away; the answer to one would be lost here.
            Method::Connect(params) => return self.connect(id, params),
        };
        Step::Forward(frame)
    }

    fn send(&mut self, id: String, params: SendParams) -> Send {
        let client_seq = self.number();
        self.sends.insert(client_seq, id);
        Send {
            client_seq,
            client_msg_no: params.client_msg_no.into(),
            channel_id: params.channel_id.into(),
            kind: ChannelKind(params.channel_type),
            no_persist: params.header.no_persist,
            red_dot: params.header.red_dot,
            sync_once: params.header.sync_once,
            setting: params.setting.without(Setting::NO_ENCRYPT).bits(),
            expire_s: params.expire_s,
            topic: params.topic.into(),
            payload: Ok(params.payload),
        }
    }

    fn subscribe(&mut self, id: String, params: SubscribeParams, subscribe: bool) -> Subscribe {
        let number = self.number();
        self.subscriptions.insert(number, (id, params.sub_no.into()));
        Subscribe {
            sub_no: number.to_string().into(),
            channel_id: params.channel_id.into(),
            kind: ChannelKind(params.channel_type),
            subscribe,
            param: params.param.into(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    /// The text for an answer or a push. `None` for an answer to nothing that waits.
    pub(super) fn reply(&mut self, frame: ServerFrame) -> Option<String> {
        let text = match frame {
            connack @ ServerFrame::Connack { .. } => self.connack(connack)?,
            ServerFrame::SendAck {
                client_seq,
                id,
                seq,
                reason,
                text,
                client_msg_no: _,
            } => {
                let result = SendResult {
                    message_id: id.0,
                    message_seq: seq.0,
                    reason_code: reason.0,
                    reason: text.map(|text| text.to_string()),
                    ..SendResult::default()
                };
                Outbound::Sent(&self.sends.remove(&client_seq)?, &result).text()
            }
            ServerFrame::OutcomeUnknown {
                client_seq,
                client_msg_no,
            } => {
                let request = self.sends.remove(&client_seq)?;
                Outbound::OutcomeUnknown {
                    id: &request,
                    client_msg_no: &client_msg_no,
                }
                .text()
            }
            ServerFrame::Recv {
                message,
                channel_id,
                kind,
                duplicate,
            } => {
                if self.phase != Phase::Open {
                    return None;
                }
                recv(&message, &channel_id, kind, duplicate)
            }
            ServerFrame::Pong => Outbound::Pong(&self.pings.pop_front()?).text(),
            ServerFrame::SubAck {
                sub_no,
                channel_id,
                kind,
                subscribe,
                reason,
            } => {
                let (request, sub_no) = self.subscriptions.remove(&sub_no.parse().ok()?)?;
                let result = SubscriptionResult {
                    sub_no: sub_no.to_string(),
                    channel_id: channel_id.to_string(),
                    channel_type: kind.0,
                    action: u8::from(!subscribe),
                    reason_code: reason.0,
                };
                Outbound::Subscription(&request, &result).text()
            }
            ServerFrame::Disconnect { reason, text } => Outbound::Disconnect {
                reason_code: reason.0,
                reason: text,
            }
            .text(),
        };
        Some(text)
    }

    fn connack(&mut self, frame: ServerFrame) -> Option<String> {
        let ServerFrame::Connack {
            reason,
            text,
            time_difference_ms,
            node,
        } = frame
        else {
            return None;
        };
        if self.phase != Phase::Connecting {
            return None;
        }
        let id = std::mem::take(&mut self.connect_id);
        let result = ConnectResult {
            server_version: Version::LATEST.number(),
            time_diff: time_difference_ms,
            reason_code: reason.0,
            reason: text.map(|text| text.to_string()),
            node_id: node,
        };
        if reason.is_success() {
            self.phase = Phase::Open;
        }
        Some(Outbound::Connected(&id, &result).text())
    }
}

fn recv(committed: &Committed, channel_id: &str, kind: ChannelKind, dup: bool) -> String {
    let message = &committed.message;
    let draft = &message.draft;
    let flags = Flags {
        dup,
        sync_once: draft.flags.sync_once,
        red_dot: draft.flags.red_dot,
        no_persist: draft.flags.no_persist,
    };
    Outbound::Recv(&RecvParams {
        header: flags.into(),
        setting: Setting::from_bits(draft.setting).into(),
        expire: draft.expire_s,
        message_id: message.id.0,
        message_seq: message.seq.0,
        client_msg_no: &draft.client_msg_no,
        timestamp: i64::try_from(message.stamp_ms / 1000).unwrap_or(i64::MAX),
        channel_id,
        channel_type: kind.0,
        topic: &draft.topic,
        from_uid: draft.from_uid.as_str(),
        payload: Payload::of(&draft.payload),
    })
    .text()
}
