//! A WKProto session's translation between frames and what the session machine knows. Encryption ends here.

use bytes::Bytes;
use penstock_core::client::{
    ClientFrame, CloseReason, Connect, Protocol, Secret, Send, ServerFrame, Subscribe,
};
use penstock_core::message::Committed;
use penstock_core::types::{ChannelKind, DeviceFlag, MessageId, Reason, Seq};
use penstock_wire::encryption::{self, Entropy, Handshake, SALT_BYTES, SessionCipher};
use penstock_wire::wkproto::{self, Connack, Disconnect, Frame, Recv, SendAck, Setting, SubAck, Version};

/// Where a session stands.
enum Phase {
    /// Nothing but CONNECT may come.
    Start,
    /// CONNECT is with the session machine; nothing may come.
    Connecting(Box<Handshake>),
    /// CONNACK was written.
    Open(SessionCipher),
}

/// One WKProto session.
pub(super) struct WkSession {
    phase: Phase,
    announced: u8,
    version: Version,
}

/// What an inbound frame led to.
pub(super) enum Step {
    /// For the session machine.
    Forward(ClientFrame),
    /// Nothing to do.
    Ignore,
    /// Write this and close.
    Refuse(Frame, CloseReason),
    /// Close.
    Close(CloseReason),
}

impl WkSession {
    pub(super) fn new() -> Self {
        Self {
            phase: Phase::Start,
            announced: 0,
            version: Version::LATEST,
        }
    }

    /// The layout of inbound frames, and of outbound ones to an open session.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    /// Judges an inbound frame.
    pub(super) fn accept(&mut self, frame: Frame) -> Step {
        match (&self.phase, frame) {
            (Phase::Start, Frame::Connect(connect)) => self.connect(connect),
            (Phase::Start | Phase::Connecting(_), _) => Step::Close(CloseReason::PolicyViolation),
            (Phase::Open(cipher), frame) => opened(cipher, frame),
        }
    }

    fn connect(&mut self, connect: wkproto::Connect) -> Step {
        let mut entropy = Entropy {
            secret: [0; 32],
            salt: [0; SALT_BYTES],
        };
        let drawn = getrandom::fill(&mut entropy.secret).and_then(|()| getrandom::fill(&mut entropy.salt));
        if drawn.is_err() {
            return refused(Reason::SYSTEM_ERROR);
        }
        let handshake = match encryption::accept(&connect.client_key, &entropy) {
            Ok(handshake) => handshake,
            Err(error) => return refused(Reason(error.reason().code())),
        };
        self.announced = connect.version;
        self.version = Version::negotiate(connect.version);
        self.phase = Phase::Connecting(Box::new(handshake));
        Step::Forward(ClientFrame::Connect(Connect {
            protocol: Protocol::WkProto,
            version: self.version.number(),
            uid: connect.uid.into(),
            token: Secret(connect.token.into()),
            device_id: connect.device_id.into(),
            device_flag: DeviceFlag(connect.device_flag),
            client_timestamp_ms: connect.client_timestamp_ms,
            address: "".into(),
        }))
    }

    /// The frame for an answer or a push, with the version to encode it with. `None` for what a WKProto client cannot
    /// be told.
    pub(super) fn reply(&mut self, frame: ServerFrame) -> Option<(Frame, Version)> {
        let frame = match frame {
            ServerFrame::Connack {
                reason,
                // A CONNACK has room for the code alone.
                text: _,
                time_difference_ms,
                node,
            } => {
                return self.connack(reason, time_difference_ms, node);
            }
            ServerFrame::SendAck {
                client_seq,
                client_msg_no,
                id,
                seq,
                reason,
                // A SENDACK has room for the code alone.
                text: _,
            } => Frame::SendAck(SendAck {
                message_id: id.0,
                // The session echoes the number of a SEND, which had 32 bits.
                client_seq: u32::try_from(client_seq).ok()?,
                message_seq: seq.0,
                reason_code: reason.0,
                client_msg_no: client_msg_no.to_string(),
                ..SendAck::default()
            }),
            // The session closes the connection instead, so that the client resends (rule AP-8).
            ServerFrame::OutcomeUnknown { .. } => return None,
            ServerFrame::Recv {
                message,
                channel_id,
                kind,
                duplicate,
            } => {
                let Phase::Open(cipher) = &self.phase else {
                    return None;
                };
                let mut recv = recv(&message, &channel_id, kind, duplicate, self.version);
                cipher.seal_recv(&mut recv);
                Frame::Recv(recv)
            }
            ServerFrame::Pong => Frame::Pong,
            ServerFrame::SubAck {
                sub_no,
                channel_id,
                kind,
                subscribe,
                reason,
            } => Frame::SubAck(SubAck {
                sub_no: sub_no.to_string(),
                channel_id: channel_id.to_string(),
                channel_type: kind.0,
                action: u8::from(!subscribe),
                reason_code: reason.0,
                ..SubAck::default()
            }),
            ServerFrame::Disconnect { reason, text } => Frame::Disconnect(Disconnect {
                reason_code: reason.0,
                reason: text.to_owned(),
                ..Disconnect::default()
            }),
        };
        Some((frame, self.version))
    }

    fn connack(&mut self, reason: Reason, time_diff_ms: i64, node_id: u64) -> Option<(Frame, Version)> {
        if !reason.is_success() {
            return Some((failure(reason), Version::UNNEGOTIATED));
        }
        let Phase::Connecting(handshake) = &mut self.phase else {
            return None;
        };
        let connack = Connack {
            server_version: Version::server_version_for(self.announced),
            time_diff_ms,
            reason_code: reason.0,
            server_key: std::mem::take(&mut handshake.server_key),
            salt: std::mem::take(&mut handshake.salt),
            node_id,
        };
        self.phase = Phase::Open(handshake.cipher.clone());
        Some((Frame::Connack(connack), self.version))
    }
}

/// A failure CONNACK says nothing but its reason.
fn failure(reason: Reason) -> Frame {
    Frame::Connack(Connack {
        reason_code: reason.0,
        ..Connack::default()
    })
}

fn refused(reason: Reason) -> Step {
    Step::Refuse(failure(reason), CloseReason::AuthFailed)
}

fn opened(cipher: &SessionCipher, frame: Frame) -> Step {
    match frame {
        Frame::Send(send) => Step::Forward(ClientFrame::Send(send_of(cipher, send))),
        Frame::RecvAck(ack) => Step::Forward(ClientFrame::RecvAck {
            id: MessageId(ack.message_id),
            seq: Seq(ack.message_seq),
        }),
        Frame::Ping => Step::Forward(ClientFrame::Ping),
        Frame::Sub(sub) => Step::Forward(ClientFrame::Subscribe(Subscribe {
            sub_no: sub.sub_no.into(),
            channel_id: sub.channel_id.into(),
            kind: ChannelKind(sub.channel_type),
            subscribe: sub.action == 0,
            param: sub.param.into(),
        })),
        Frame::Disconnect(leave) => Step::Forward(ClientFrame::Disconnect {
            reason: Reason(leave.reason_code),
        }),
        // We never send PING, but an answer to one does no harm.
        Frame::Pong => Step::Ignore,
        Frame::Connect(_)
        | Frame::Connack(_)
        | Frame::SendAck(_)
        | Frame::Recv(_)
        | Frame::SubAck(_)
        | Frame::Event(_) => Step::Close(CloseReason::PolicyViolation),
    }
}

/// A frame that cannot be opened travels on with its refusal, so that the session answers it in its turn.
fn send_of(cipher: &SessionCipher, send: wkproto::Send) -> Send {
    let payload = match cipher.open_send(&send) {
        // A plain payload is a view into the read buffer; a copy lets the buffer go.
        Ok(plain) if send.setting.contains(Setting::NO_ENCRYPT) => Ok(Bytes::copy_from_slice(&plain)),
        Ok(plain) => Ok(plain),
        Err(error) => Err(Reason(error.reason().code())),
    };
    Send {
        client_seq: u64::from(send.client_seq),
        client_msg_no: send.client_msg_no.into(),
        channel_id: send.channel_id.into(),
        kind: ChannelKind(send.channel_type),
        no_persist: send.flags.no_persist,
        red_dot: send.flags.red_dot,
        sync_once: send.flags.sync_once,
        setting: send.setting.without(Setting::NO_ENCRYPT).bits(),
        expire_s: send.expire_s,
        topic: send.topic.into(),
        payload,
    }
}

fn recv(committed: &Committed, channel_id: &str, kind: ChannelKind, dup: bool, version: Version) -> Recv {
    let message = &committed.message;
    let draft = &message.draft;
    // Every payload is sealed, whatever the sender chose: the JavaScript SDK cannot read plaintext.
    let mut setting = Setting::from_bits(draft.setting).without(Setting::NO_ENCRYPT);
    if version.number() < 5 {
        // Its stream fields have another order in the SDK than here, so an old client gets the message without them.
        setting = setting.without(Setting::STREAM);
    }
    if !draft.topic.is_empty() {
        setting = setting.with(Setting::TOPIC);
    }
    Recv {
        flags: wkproto::Flags {
            dup,
            sync_once: draft.flags.sync_once,
            red_dot: draft.flags.red_dot,
            no_persist: draft.flags.no_persist,
        },
        setting,
        from_uid: draft.from_uid.as_str().to_owned(),
        channel_id: channel_id.to_owned(),
        channel_type: kind.0,
        expire_s: draft.expire_s,
        client_msg_no: draft.client_msg_no.to_string(),
        message_id: message.id.0,
        message_seq: message.seq.0,
        timestamp_s: i32::try_from(message.stamp_ms / 1000).unwrap_or(i32::MAX),
        topic: draft.topic.to_string(),
        payload: draft.payload.clone(),
        ..Recv::default()
    }
}
