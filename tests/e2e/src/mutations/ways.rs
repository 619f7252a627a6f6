//! The ways on which changed packets reach a node, one connection at a time.

use super::change::Dice;
use super::packets::{
    DEVICE, MARKER, connect, in_session, marker, rpc_connect, rpc_in_session, rpc_marker, rpc_stays,
    rpc_stranger_stays, stays,
};
use crate::{BINARY, CLOSE, Node, Raw, TEXT, masked};
use anyhow::{Context as _, Result, bail};
use bytes::BytesMut;
use penstock_wire::client::ClientKey;
use penstock_wire::wkproto::{BODY_BYTES_MAX, Frame, Version, decode};

/// One connection in a session sends up to so many packets after which it goes on; half as many on average.
const STAYING_MAX: usize = 64;
/// How often a packet is changed anew until the session goes on after it; then there are fewer.
const CHANGES_MAX: usize = 64;

/// What a connection speaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Dialect {
    /// WKProto over TCP.
    Stream,
    /// WKProto over a WebSocket.
    Binary,
    /// JSON-RPC over a WebSocket.
    Text,
}

/// One way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) name: &'static str,
    pub(super) dialect: Dialect,
    pub(super) is_in_session: bool,
    /// Of a hundred changed packets.
    pub(super) share: u64,
}

/// All ways. A stranger who speaks WKProto has one packet and needs a connection for it, so that these are fewer.
pub(super) const WAYS: [Way; 6] = [
    way("before login, WKProto over TCP", Dialect::Stream, false, 4),
    way("before login, WKProto over WebSocket", Dialect::Binary, false, 4),
    way("before login, JSON-RPC", Dialect::Text, false, 12),
    way("in a session, WKProto over TCP", Dialect::Stream, true, 30),
    way("in a session, WKProto over WebSocket", Dialect::Binary, true, 20),
    way("in a session, JSON-RPC", Dialect::Text, true, 30),
];

const fn way(name: &'static str, dialect: Dialect, is_in_session: bool, share: u64) -> Way {
    Way {
        name,
        dialect,
        is_in_session,
        share,
    }
}

/// What became of one connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// Changed packets that the node has judged for sure.
    pub(super) judged: u64,
    /// It ended before its time.
    pub(super) is_cut_short: bool,
}

/// One who attacks, over one connection at a time.
pub(super) struct Attacker<'a> {
    node: &'a Node,
    dice: Dice,
    key: ClientKey,
    uid: String,
}

impl<'a> Attacker<'a> {
    pub(super) fn new(node: &'a Node, number: u64) -> Self {
        Self {
            node,
            dice: Dice::new(number),
            key: ClientKey::new([number as u8 + 1; 32]),
            uid: format!("mallory{number}"),
        }
    }

    /// One connection on this way, from its beginning to its end.
    pub(super) fn connect(&mut self, way: &Way) -> Result<Round> {
        let round = match (way.dialect, way.is_in_session) {
            (Dialect::Text, true) => self.rpc_session(),
            (Dialect::Text, false) => self.rpc_stranger(),
            (dialect, true) => self.session(dialect),
            (dialect, false) => self.stranger(dialect),
        };
        round.with_context(|| way.name)
    }

    fn open(&self, dialect: Dialect) -> Result<Raw> {
        match dialect {
            Dialect::Stream => Raw::tcp(self.node.tcp()),
            Dialect::Binary | Dialect::Text => Raw::websocket(self.node.websocket()),
        }
    }

    fn stranger(&mut self, dialect: Dialect) -> Result<Round> {
        let raw = self.open(dialect)?;
        let version = self.dice.below(8) as u8;
        let packet = connect(&self.key, version, "stranger")?;
        self.end(raw, dialect, &packet, 0)
    }

    fn rpc_stranger(&mut self) -> Result<Round> {
        let mut raw = self.open(Dialect::Text)?;
        let packets = [rpc_connect("stranger")];
        let (burst, count) = self.burst(Dialect::Text, &packets, rpc_stranger_stays, &rpc_marker(false));
        if raw.bytes(&burst).is_err() || !rpc_marked(&mut raw)? {
            return Ok(cut_short());
        }
        self.end(raw, Dialect::Text, &packets[0], count)
    }

    fn rpc_session(&mut self) -> Result<Round> {
        let mut raw = Raw::session(self.node.websocket(), &self.uid, DEVICE)?;
        let packets = rpc_in_session(&self.uid);
        let (burst, count) = self.burst(Dialect::Text, &packets, rpc_stays, &rpc_marker(true));
        if raw.bytes(&burst).is_err() || !rpc_marked(&mut raw)? {
            return Ok(cut_short());
        }
        let last = self.dice.below(packets.len());
        self.end(raw, Dialect::Text, &packets[last], count)
    }

    fn session(&mut self, dialect: Dialect) -> Result<Round> {
        let announced = 1 + self.dice.below(6) as u8;
        let version = Version::negotiate(announced);
        let mut line = Line {
            raw: self.open(dialect)?,
            dialect,
            version,
            input: BytesMut::new(),
        };
        let packet = connect(&self.key, announced, &self.uid)?;
        line.raw.bytes(&framed(dialect, &packet))?;
        let cipher = match line.next()? {
            Some(Frame::Connack(connack)) => self.key.admitted(&connack)?,
            other => bail!("no CONNACK: {other:?}"),
        };
        let packets = in_session(&cipher, version)?;
        let (burst, count) = self.burst(dialect, &packets, |bytes| stays(bytes, version), &marker()?);
        if line.raw.bytes(&burst).is_err() || !line.marked()? {
            return Ok(cut_short());
        }
        let last = self.dice.below(packets.len());
        self.end(line.raw, dialect, &packets[last], count)
    }

    /// Changed packets after which the session goes on, with the marker behind them, and how many they are.
    fn burst(
        &mut self,
        dialect: Dialect,
        packets: &[Vec<u8>],
        stays: impl Fn(&[u8]) -> bool,
        marker: &[u8],
    ) -> (Vec<u8>, u64) {
        let mut burst = Vec::new();
        let mut count = 0;
        for _ in 0..=self.dice.below(STAYING_MAX) {
            let packet = &packets[self.dice.below(packets.len())];
            let mut changes = (0..CHANGES_MAX).map(|_| self.dice.changed(packet));
            if let Some(changed) = changes.find(|changed| stays(changed)) {
                burst.extend_from_slice(&framed(dialect, &changed));
                count += 1;
            }
        }
        burst.extend_from_slice(&framed(dialect, marker));
        (burst, count)
    }

    /// Sends the last packet, changed in any way, and nothing more, and waits until the node closes: it does so when it has
    /// judged what came. So many were judged before.
    fn end(&mut self, mut raw: Raw, dialect: Dialect, packet: &[u8], before: u64) -> Result<Round> {
        // Of a WebSocket, every other time the frame is changed rather than what is in it.
        let is_frame_changed = dialect != Dialect::Stream && self.dice.below(2) == 0;
        let bytes = if is_frame_changed {
            let frame = framed(dialect, packet);
            self.dice.changed(&frame)
        } else {
            let changed = self.dice.changed(packet);
            framed(dialect, &changed)
        };
        let is_sent = raw.bytes(&bytes).and_then(|()| raw.finish()).is_ok();
        raw.rest().context("the node does not close")?;
        Ok(Round {
            judged: before + u64::from(is_sent),
            is_cut_short: !is_sent,
        })
    }
}

fn cut_short() -> Round {
    Round {
        judged: 1,
        is_cut_short: true,
    }
}

/// The bytes that carry this packet.
fn framed(dialect: Dialect, packet: &[u8]) -> Vec<u8> {
    match dialect {
        Dialect::Stream => packet.to_vec(),
        Dialect::Binary => masked(0x80 | BINARY, packet),
        Dialect::Text => masked(0x80 | TEXT, packet),
    }
}

/// Whether the answer to the marker comes, rather than a close.
fn rpc_marked(raw: &mut Raw) -> Result<bool> {
    while let Some((opcode, payload)) = raw.next_frame()? {
        match opcode {
            TEXT => {
                let answer: serde_json::Value =
                    serde_json::from_slice(&payload).context("the node wrote what is no JSON")?;
                if answer["id"] == MARKER {
                    return Ok(true);
                }
            }
            CLOSE => return Ok(false),
            _ => {}
        }
    }
    Ok(false)
}

/// A connection from which WKProto is read.
struct Line {
    raw: Raw,
    dialect: Dialect,
    version: Version,
    input: BytesMut,
}

impl Line {
    /// The next frame, none when the node has closed.
    fn next(&mut self) -> Result<Option<Frame>> {
        loop {
            let decoded = decode(&mut self.input, self.version, BODY_BYTES_MAX);
            if let Some(frame) = decoded.context("the node wrote what is no frame")? {
                return Ok(Some(frame));
            }
            if self.dialect == Dialect::Stream {
                let some = self.raw.some()?;
                if some.is_empty() {
                    return Ok(None);
                }
                self.input.extend_from_slice(&some);
                continue;
            }
            match self.raw.next_frame()? {
                Some((BINARY, payload)) => self.input.extend_from_slice(&payload),
                Some((CLOSE, _)) | None => return Ok(None),
                Some(_) => {}
            }
        }
    }

    /// Whether the answer to the marker comes, rather than a close.
    fn marked(&mut self) -> Result<bool> {
        while let Some(frame) = self.next()? {
            if matches!(&frame, Frame::SubAck(ack) if ack.sub_no == MARKER) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
