//! `websocket`: the request that opens a WebSocket, and the frames of one.
//!
//! A request is answered by 101 or by a refusal that says why. Frames are judged by a second reader of RFC 6455 in this file:
//! where it finds a violation the node closes with 1002, 1007, 1008 or 1009, and where it finds none every message arrives, in however many
//! fragments and pieces it came, and every ping's payload comes back in order.

use crate::input::{Input, cut};
use crate::node::{self, Users};
use crate::peer::{Peer, UPGRADE, client_frame, message};
use crate::rpc::{Expected, MESSAGE_BYTES_MAX, RpcSession, request, send};
use serde_json::json;

/// Most frames of one input.
const FRAMES_MAX: usize = 24;

/// Fragments that a message may have, those of this length and above not counted.
const SHORT_FRAGMENTS_MAX: usize = 16;
const SHORT_BYTES: usize = 4_096;

/// Longest message of an open session, in bytes.
const LIMIT: usize = MESSAGE_BYTES_MAX + 5;

/// Runs one input.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    match input.below(4) {
        0 => handshake(&mut input),
        1 => stranger(&mut input),
        _ => session(&mut input),
    }
    node::assert_well();
}

/// The head of a request, by lines of which some are as they should be.
fn handshake(input: &mut Input<'_>) {
    let mut head = Vec::new();
    if input.rarely(4) {
        head.extend_from_slice(input.chunk());
    } else {
        let line = input.one_of(&[
            "GET / HTTP/1.1",
            "GET /other HTTP/1.1",
            "POST / HTTP/1.1",
            "GET / HTTP/1.0",
        ]);
        head.extend_from_slice(line.as_bytes());
        head.extend_from_slice(b"\r\n");
        for usual in UPGRADE.lines().skip(1).filter(|line| !line.is_empty()) {
            match input.below(8) {
                0 => {}
                1 => head.extend([usual.as_bytes(), b"\r\n", usual.as_bytes(), b"\r\n"].concat()),
                2 => {
                    let name = usual.split(':').next().unwrap_or_default();
                    head.extend([name.as_bytes(), b": ", input.chunk(), b"\r\n"].concat());
                }
                _ => head.extend([usual.as_bytes(), b"\r\n"].concat()),
            }
        }
        let more = [
            "Origin: http://localhost:3000",
            "Origin: https://example.org",
            "Sec-WebSocket-Extensions: permessage-deflate",
            "Sec-WebSocket-Protocol: chat",
            "Host: example.org",
        ];
        for _ in 0..input.below(3) {
            head.extend([input.one_of(&more).as_bytes(), b"\r\n"].concat());
        }
        for _ in 0..input.below(3) {
            head.extend([input.chunk(), b": ", input.chunk(), b"\r\n"].concat());
        }
        head.extend_from_slice(b"\r\n");
    }
    let mut peer = Peer::open(node::addresses().websocket);
    let pieces = cut(&head, input);
    peer.write(&pieces);
    peer.half_close();
    let Some(answer) = peer.head() else { return };
    let status = answer.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    match status {
        Some("101") => {
            assert!(
                !answer.to_ascii_lowercase().contains("sec-websocket-extensions"),
                "{answer}"
            );
            while let Some(frame) = peer.frame() {
                assert_eq!(frame.opcode, 8, "a silent peer is only closed");
            }
        }
        Some("400" | "403" | "404" | "426" | "431") => {
            assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
            peer.rest();
        }
        _ => panic!("no answer to a request: {answer}"),
    }
}

/// Any bytes, or well-formed frames of any content, before the login: never more than a close.
fn stranger(input: &mut Input<'_>) {
    let mut peer = Peer::websocket(node::addresses().websocket);
    let stream = if input.rarely(2) {
        input.remaining().to_vec()
    } else {
        frames(input).concat()
    };
    let pieces = cut(&stream, input);
    peer.write(&pieces);
    peer.half_close();
    let mut closed = false;
    while let Some(frame) = peer.frame() {
        assert!(!closed, "nothing follows a close");
        closed = frame.opcode == 8;
    }
    assert!(closed, "a WebSocket ends with a close");
}

fn session(input: &mut Input<'_>) {
    let mut session = RpcSession::open(Users::WebSocket, input.below(16));
    let stream = frames(input).concat();
    let pieces = cut(&stream, input);
    session.peer.write(&pieces);
    let read = reference(&stream);
    let mut expected = Expected::default();
    for text in &read.messages {
        expected.sent(text);
    }
    match (read.ending, expected.ending) {
        // A message that ends the session stands before whatever else may.
        (_, Some(_)) => session.end(),
        (Tail::Complete, None) => {
            session
                .peer
                .write(&[&message(1, request("fence", "ping", &json!({})).as_bytes())]);
            *expected.answers.entry(Some("fence".to_owned())).or_default() += 1;
            session.settle(&expected);
            session.end();
            assert_eq!(session.closed, Some(1_000));
        }
        (Tail::Unfinished, None) => session.end(),
        (Tail::Closed, None) => {
            session.end();
            assert!(session.closed.is_some(), "a close is answered: {session:?}");
        }
        (Tail::Violation, None) => {
            session.end();
            assert!(
                matches!(session.closed, Some(1_002 | 1_007 | 1_008 | 1_009)),
                "{session:?}"
            );
        }
    }
    let mut pings = read.pings.iter();
    for pong in &session.pongs {
        assert!(
            pings.any(|ping| ping == pong),
            "a pong that no ping asked for: {pong:?} of {read:?}"
        );
    }
}

/// Frames: messages in fragments with control frames between them, and what a client may not send.
fn frames(input: &mut Input<'_>) -> Vec<Vec<u8>> {
    let mut made = Vec::new();
    for number in 0..input.below(FRAMES_MAX) {
        if input.is_empty() {
            break;
        }
        match input.below(12) {
            0..=3 => {
                let text = text(input, number);
                made.push(message(1 + u8::from(input.rarely(4)), &text));
            }
            4..=6 => fragments(input, number, &mut made),
            7 => made.push(message(9, input.bytes(usize::from(input.clone().u8() % 126)))),
            8 => made.push(message(10, input.bytes(5))),
            9 if input.rarely(4) => made.push(message(8, input.bytes(usize::from(input.clone().u8() % 126)))),
            10 => {
                let (first, mask) = (input.u8(), (!input.rarely(8)).then_some([9, 8, 7, 6]));
                let claimed = input.rarely(4).then(|| claimed(input));
                made.push(client_frame(first, mask, claimed, input.chunk()));
            }
            11 if input.rarely(4) => made.push(input.chunk().to_vec()),
            _ => made.push(message(9, b"")),
        }
    }
    made
}

/// A length in any form: one, two or eight bytes, the shortest or not.
fn claimed(input: &mut Input<'_>) -> Vec<u8> {
    match input.below(3) {
        0 => vec![input.u8() & 0x7f],
        1 => [&[126][..], &input.u16().to_be_bytes()].concat(),
        _ => [&[127][..], &input.number().to_be_bytes()].concat(),
    }
}

fn text(input: &mut Input<'_>, number: usize) -> Vec<u8> {
    let id = number.to_string();
    match input.below(8) {
        0..=2 => request(&id, "ping", &json!({})).into_bytes(),
        3 => request(
            &id,
            "ping",
            &json!({ "filling": "é".repeat(usize::from(input.u16()) % 40_000) }),
        )
        .into_bytes(),
        4 => send(&id, &input.u8().to_string()).into_bytes(),
        5 => request(&id, "nothing", &json!([])).into_bytes(),
        6 => br#"{"method":"recvack","params":{"messageId":"1","messageSeq":1}}"#.to_vec(),
        _ => input.chunk().to_vec(),
    }
}

fn fragments(input: &mut Input<'_>, number: usize, made: &mut Vec<Vec<u8>>) {
    let text = text(input, number);
    let mut pieces = cut(&text, input);
    if pieces.len() == 1 && input.rarely(4) {
        // As many as a message may have, one less, or more.
        pieces = text
            .chunks(text.len().div_ceil(14 + input.below(8)).max(1))
            .collect();
    }
    let count = pieces.len();
    for (index, piece) in pieces.into_iter().enumerate() {
        let opcode = if index == 0 { 1 } else { 0 };
        let fin = if index + 1 == count { 0x80 } else { 0 };
        made.push(client_frame(
            fin | opcode,
            Some([input.u8(), 2, 3, 4]),
            None,
            piece,
        ));
        if input.rarely(4) {
            made.push(message(9, input.bytes(3)));
        }
    }
}

/// How a stream of frames ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tail {
    /// With a whole message.
    Complete,
    /// Within a frame or a message.
    Unfinished,
    /// With a close.
    Closed,
    /// With something that no client may send.
    Violation,
}

/// What a stream of frames says.
#[derive(Debug)]
struct Read {
    messages: Vec<Vec<u8>>,
    pings: Vec<Vec<u8>>,
    ending: Tail,
}

/// Reads a client's frames as RFC 6455 says, up to the first violation or close.
fn reference(stream: &[u8]) -> Read {
    let mut read = Read {
        messages: Vec::new(),
        pings: Vec::new(),
        ending: Tail::Complete,
    };
    let mut rest = stream;
    let mut open: Option<(bool, Vec<u8>)> = None;
    let mut short = 0;
    while !rest.is_empty() {
        let Some(frame) = next(&mut rest, &mut short) else {
            read.ending = Tail::Unfinished;
            return read;
        };
        match accept(frame, &mut open, &mut read) {
            None => {}
            Some(ending) => {
                read.ending = ending;
                return read;
            }
        }
    }
    if open.is_some() {
        read.ending = Tail::Unfinished;
    }
    read
}

struct Frame {
    first: u8,
    is_masked: bool,
    /// Its head says that it is too long, or one too many.
    is_refused: bool,
    payload: Vec<u8>,
}

/// The next frame, if all of it is there. One that is too long or one too many need not come whole: its head says enough.
fn next(rest: &mut &[u8], short: &mut usize) -> Option<Frame> {
    let (&[first, second], after) = rest.split_first_chunk::<2>()?;
    let (length, after) = match second & 0x7f {
        126 => {
            let (length, after) = after.split_first_chunk::<2>()?;
            (u64::from(u16::from_be_bytes(*length)), after)
        }
        127 => {
            let (length, after) = after.split_first_chunk::<8>()?;
            (u64::from_be_bytes(*length), after)
        }
        short => (u64::from(short), after),
    };
    let is_masked = second & 0x80 != 0;
    let (mask, after) = if is_masked {
        let (mask, after) = after.split_first_chunk::<4>()?;
        (*mask, after)
    } else {
        ([0; 4], after)
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let opcode = first & 0x0f;
    if (1..8).contains(&opcode) {
        *short = 0;
    }
    *short += usize::from(opcode < 8 && length < SHORT_BYTES);
    let is_refused = length > LIMIT || *short > SHORT_FRAGMENTS_MAX;
    let payload = if is_refused { &[][..] } else { after.get(..length)? };
    *rest = &after[payload.len()..];
    let payload = payload
        .iter()
        .zip(mask.iter().cycle())
        .map(|(byte, mask)| byte ^ mask)
        .collect();
    Some(Frame {
        first,
        is_masked,
        is_refused,
        payload,
    })
}

/// Takes one frame; says so when it is the last that counts.
fn accept(frame: Frame, open: &mut Option<(bool, Vec<u8>)>, read: &mut Read) -> Option<Tail> {
    let (is_final, opcode) = (frame.first & 0x80 != 0, frame.first & 0x0f);
    if frame.is_refused || !frame.is_masked || frame.first & 0x70 != 0 {
        return Some(Tail::Violation);
    }
    if opcode >= 8 && (!is_final || frame.payload.len() > 125) {
        return Some(Tail::Violation);
    }
    match (opcode, open.as_mut()) {
        (0, Some((_, whole))) => whole.extend(frame.payload),
        (1 | 2, None) => *open = Some((opcode == 1, frame.payload)),
        (8, _) => return Some(closing(&frame.payload)),
        (9, _) => read.pings.push(frame.payload),
        (10, _) => {}
        _ => return Some(Tail::Violation),
    }
    if opcode >= 8 {
        return None;
    }
    if open.as_ref().is_some_and(|(_, whole)| whole.len() > LIMIT) {
        return Some(Tail::Violation);
    }
    if !is_final {
        // A text that cannot become UTF-8 any more may be refused before its end.
        let is_lost = open.as_ref().is_some_and(|(is_text, whole)| {
            *is_text && std::str::from_utf8(whole).is_err_and(|error| error.error_len().is_some())
        });
        return is_lost.then_some(Tail::Violation);
    }
    let (is_text, whole) = open.take()?;
    if is_text && std::str::from_utf8(&whole).is_err() {
        return Some(Tail::Violation);
    }
    read.messages.push(whole);
    None
}

/// A close is a violation when its code is cut or its reason is no text.
fn closing(payload: &[u8]) -> Tail {
    match payload {
        [] => Tail::Closed,
        [_] => Tail::Violation,
        [_, _, reason @ ..] if std::str::from_utf8(reason).is_err() => Tail::Violation,
        _ => Tail::Closed,
    }
}

/// The shared byte cases behind a login and before one, heads, and sessions with fragments.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (name, bytes) in crate::cases() {
        if name.starts_with("ws") {
            seeds.push([&[1, 1], bytes.as_slice()].concat());
            let length = u8::try_from(bytes.len()).unwrap_or(239);
            seeds.push([&[2, 0, 3, 11, 3, length], bytes.as_slice(), &[0, 0, 0, 0]].concat());
        }
    }
    seeds.push([&[0, 3, 200], UPGRADE.as_bytes()].concat());
    for line in 0..4 {
        seeds.push(vec![0, 0, line, 7, 7, 7, 7, 7, 0, 0, 0]);
        seeds.push(vec![0, 0, line, 7, 1, 7, 2, 3, b'a', b'b', b'c', 7, 1, 0, 0]);
    }
    for text in 0..8 {
        let one = [
            4, text, 4, 1, 0, 3, 0, 9, 0, 20, 1, 3, b'p', b'i', b'n', 1, 0, 1, 3, 7, 3, 1, 2, 3,
        ];
        seeds.push([&[2, text, 12][..], &one, &one, &one, &one].concat());
    }
    seeds
}
