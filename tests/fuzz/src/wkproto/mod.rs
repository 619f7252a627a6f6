//! `wkproto`: frames of every version, and sessions of the gateway whose bytes come in pieces.
//!
//! Half of the inputs are bytes for the decoder: wherever they are cut it finds the same frames and the same end, and every
//! frame survives being encoded and decoded. The other half open a session with the node, over TCP or in WebSocket messages,
//! and make frames there: whatever is well-formed is answered, once, and everything that the node writes decodes and decrypts.

mod made;

use crate::input::{Input, cut};
use crate::node::{self, Users};
use crate::peer::{Peer, message};
use bytes::BytesMut;
use made::{Made, frame};
use penstock_wire::client::ClientKey;
use penstock_wire::encryption::SessionCipher;
use penstock_wire::reason::Reason;
use penstock_wire::wkproto::{
    BODY_BYTES_BEFORE_AUTH_MAX, BODY_BYTES_MAX, Connack, DecodeError, Frame, Recv, Version, decode,
    decode_all, encode, encoded_length,
};
use std::collections::BTreeMap;

pub use made::seeds;

/// Most frames that one session is given.
const FRAMES_MAX: usize = 24;

/// Runs one input.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    if input.u8().is_multiple_of(2) {
        bytes(&mut input);
    } else {
        session(&mut input);
        node::assert_well();
    }
}

/// What became of a stream: its frames, and what is left or wrong at the end.
type Decoded = (Vec<Frame>, Result<usize, DecodeError>);

fn decoded(pieces: &[&[u8]], version: Version, limit: usize) -> Decoded {
    let mut stream = BytesMut::new();
    let mut frames = Vec::new();
    for piece in pieces {
        stream.extend_from_slice(piece);
        loop {
            match decode(&mut stream, version, limit) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, Ok(stream.len()))
}

fn bytes(input: &mut Input<'_>) {
    let version = Version::negotiate(input.u8() % 8);
    let limit = if input.rarely(4) {
        BODY_BYTES_BEFORE_AUTH_MAX
    } else {
        BODY_BYTES_MAX
    };
    let mut cuts = Input::new(input.bytes(15));
    let stream = input.remaining();
    let whole = decoded(&[stream], version, limit);
    assert_eq!(
        decoded(&cut(stream, &mut cuts), version, limit),
        whole,
        "cuts change nothing"
    );
    if let Ok(left) = whole.1 {
        assert!(left <= limit + 5, "no more than one frame is ever held");
    }
    for frame in &whole.0 {
        survives(frame, version);
    }
}

/// What a frame is once it was written with this version: a CONNACK before version 4 has neither node nor server version.
fn written(frame: &Frame, version: Version) -> Frame {
    match frame {
        Frame::Connack(connack) if version.number() < 4 => Frame::Connack(Connack {
            node_id: 0,
            server_version: None,
            ..connack.clone()
        }),
        frame => frame.clone(),
    }
}

fn survives(frame: &Frame, version: Version) {
    let mut encoded = BytesMut::new();
    encode(frame, version, &mut encoded).expect("what was decoded can be encoded");
    assert_eq!(encoded_length(frame, version), Ok(encoded.len()));
    let again = decode_all(&encoded, version, BODY_BYTES_MAX).expect("what was encoded can be decoded");
    assert_eq!(again, written(frame, version));
}

/// A session as its client sees it.
struct Session {
    peer: Peer,
    is_websocket: bool,
    version: Version,
    cipher: SessionCipher,
    /// WKProto bytes out of WebSocket messages.
    unframed: BytesMut,
    seen: Answers,
}

/// What has been asked or answered.
#[derive(Debug, Default, PartialEq, Eq)]
struct Answers {
    pongs: usize,
    subscriptions: Vec<String>,
    sends: BTreeMap<u32, usize>,
}

impl Answers {
    fn sends(&self) -> usize {
        self.sends.values().sum()
    }
}

fn session(input: &mut Input<'_>) {
    let Some(mut session) = connect(input) else { return };
    let mut wanted = Answers::default();
    let mut stream = BytesMut::new();
    let mut is_well_formed = true;
    let mut last = None;
    for _ in 0..input.below(FRAMES_MAX) {
        if input.is_empty() {
            break;
        }
        let made = frame(input, &session, &mut wanted, last.as_ref());
        match made {
            Made::Good(frame) => encode(&frame, session.version, &mut stream).unwrap_or_default(),
            Made::Last(frame) => {
                is_well_formed = false;
                encode(&frame, session.version, &mut stream).unwrap_or_default();
            }
            Made::Raw(bytes) => {
                is_well_formed = false;
                stream.extend_from_slice(bytes);
            }
            Made::Wait => {
                session.write(&stream.split(), input);
                if is_well_formed {
                    last = session.answers(&wanted).or(last);
                }
            }
        }
    }
    session.write(&stream, input);
    if is_well_formed {
        session.answers(&wanted);
        // Two channels are looked up at their own speed.
        session.seen.subscriptions.sort_unstable();
        wanted.subscriptions.sort_unstable();
        assert_eq!(session.seen, wanted, "everything is answered, once");
    }
    session.peer.half_close();
    while session.next().is_some() {}
}

/// CONNECT and its answer; none when there is no session.
fn connect(input: &mut Input<'_>) -> Option<Session> {
    let is_websocket = input.rarely(2);
    let key = ClientKey::new([7; 32]);
    let announced = input.u8() % 9;
    let uid = Users::WkProto.uid(input.below(4));
    let mut connect = key.connect(announced, uid, "token", input.one_of(&["d1", "d2", ""]));
    connect.device_flag = [0, 1, 2, 99][input.below(4)];
    let is_usual = !input.rarely(8);
    if !is_usual {
        connect.uid = input.text();
        connect.client_key = input.text();
        connect.device_id = input.text();
        connect.device_flag = input.u8();
        connect.client_timestamp_ms = input.number().cast_signed();
    }
    let mut stream = BytesMut::new();
    encode(&Frame::Connect(connect), Version::LATEST, &mut stream).ok()?;
    let addresses = node::addresses();
    let mut peer = if is_websocket {
        Peer::websocket(addresses.websocket)
    } else {
        Peer::open(addresses.tcp)
    };
    let pieces = framed(&stream, is_websocket, input);
    peer.write(&pieces.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let mut unframed = BytesMut::new();
    let version = Version::negotiate(announced);
    let first = read(&mut peer, is_websocket, &mut unframed, version);
    let Some(Frame::Connack(connack)) = first else {
        assert!(
            !is_usual && first.is_none(),
            "CONNECT is answered first: {first:?}"
        );
        return None;
    };
    assert!(Reason::from_code(connack.reason_code).is_some(), "{connack:?}");
    let Ok(cipher) = key.admitted(&connack) else {
        assert!(!is_usual, "a usual CONNECT is admitted: {connack:?}");
        assert_eq!(
            read(&mut peer, is_websocket, &mut unframed, version),
            None,
            "the refusal is the end"
        );
        return None;
    };
    Some(Session {
        peer,
        is_websocket,
        version,
        cipher,
        unframed,
        seen: Answers::default(),
    })
}

/// The pieces in which the bytes are written, each a WebSocket message if need be.
fn framed(bytes: &[u8], is_websocket: bool, input: &mut Input<'_>) -> Vec<Vec<u8>> {
    let pieces = cut(bytes, input);
    let frame = |piece: &&[u8]| {
        if is_websocket {
            message(2, piece)
        } else {
            piece.to_vec()
        }
    };
    pieces.iter().map(frame).collect()
}

/// The next frame of the node; none at the end.
fn read(peer: &mut Peer, is_websocket: bool, unframed: &mut BytesMut, version: Version) -> Option<Frame> {
    loop {
        let stream = if is_websocket {
            &mut *unframed
        } else {
            &mut peer.input
        };
        if let Some(frame) = decode(stream, version, BODY_BYTES_MAX).expect("the node writes good frames") {
            return Some(frame);
        }
        if is_websocket {
            let frame = peer.frame()?;
            match frame.opcode {
                2 => unframed.extend_from_slice(&frame.payload),
                8 => assert!(frame.close_code().is_some(), "a close says why"),
                other => panic!("opcode {other} in a session of WKProto"),
            }
        } else if !peer.read() {
            return None;
        }
    }
}

impl Session {
    fn write(&mut self, bytes: &[u8], input: &mut Input<'_>) {
        let pieces = framed(bytes, self.is_websocket, input);
        self.peer
            .write(&pieces.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }

    /// The next frame, checked; none at the end.
    fn next(&mut self) -> Option<Frame> {
        let frame = read(
            &mut self.peer,
            self.is_websocket,
            &mut self.unframed,
            self.version,
        )?;
        match &frame {
            Frame::Pong => self.seen.pongs += 1,
            Frame::SubAck(ack) => self.seen.subscriptions.push(ack.sub_no.clone()),
            Frame::SendAck(ack) => {
                assert!(Reason::from_code(ack.reason_code).is_some(), "{ack:?}");
                *self.seen.sends.entry(ack.client_seq).or_default() += 1;
            }
            Frame::Recv(recv) => {
                self.cipher
                    .open_recv(recv)
                    .expect("what is pushed can be decrypted");
            }
            Frame::Disconnect(_) => {}
            other => panic!("a server does not send {other:?} here"),
        }
        Some(frame)
    }

    /// Reads until everything that is wanted was answered. Returns a message that came meanwhile.
    fn answers(&mut self, wanted: &Answers) -> Option<Recv> {
        let mut pushed = None;
        while self.seen.pongs < wanted.pongs
            || self.seen.subscriptions.len() < wanted.subscriptions.len()
            || self.seen.sends() < wanted.sends()
        {
            match self.next() {
                Some(Frame::Recv(recv)) => pushed = Some(recv),
                Some(_) => {}
                None => panic!(
                    "the node closed a session in order: {:?} of {wanted:?}",
                    self.seen
                ),
            }
        }
        pushed
    }
}
