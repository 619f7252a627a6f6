//! From frames to bytes.

use bytes::{BufMut, BytesMut};

use super::{BODY_BYTES_MAX, Connack, Frame, Recv, STRING_BYTES_MAX, Send, Setting, Version};

/// Why a frame cannot be sent to a peer. The buffer is then as it was before.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// The message sequence does not fit the 32 bits of versions up to 5.
    #[error("message sequence {0} does not fit the 32 bits of this version")]
    SequenceTooLarge(u64),
    /// A string is longer than its length field can say.
    #[error("a string of {0} bytes is too long")]
    StringTooLong(usize),
    /// The body is longer than a peer accepts.
    #[error("a body of {0} bytes is too long")]
    BodyTooLong(usize),
}

/// Appends the frame to `out` in the layout of `version`.
///
/// # Errors
/// What does not fit; nothing is appended then.
pub fn encode(frame: &Frame, version: Version, out: &mut BytesMut) -> Result<(), EncodeError> {
    if matches!(frame, Frame::Ping | Frame::Pong) {
        out.put_u8(header(frame, version));
        return Ok(());
    }
    let body_length = measured(frame, version)?;
    out.reserve(1 + 4 + body_length);
    out.put_u8(header(frame, version));
    let mut rest = body_length;
    loop {
        // Seven bits always fit.
        let group = u8::try_from(rest & 0x7f).unwrap_or_default();
        rest >>= 7;
        if rest == 0 {
            out.put_u8(group);
            break;
        }
        out.put_u8(group | 0x80);
    }
    body(frame, version, out);
    Ok(())
}

/// How many bytes [`encode`] would append.
///
/// # Errors
/// As [`encode`].
pub fn encoded_length(frame: &Frame, version: Version) -> Result<usize, EncodeError> {
    if matches!(frame, Frame::Ping | Frame::Pong) {
        return Ok(1);
    }
    let length = measured(frame, version)?;
    let groups = match length {
        0..=0x7f => 1,
        0x80..=0x3fff => 2,
        0x4000..=0x1f_ffff => 3,
        _ => 4,
    };
    Ok(1 + groups + length)
}

/// The length of the body, after all checks, by writing it into a counter: so that the length and the bytes cannot
/// disagree.
fn measured(frame: &Frame, version: Version) -> Result<usize, EncodeError> {
    let mut counter = Counter::default();
    body(frame, version, &mut counter);
    if let Some(error) = counter.error {
        return Err(error);
    }
    if counter.length > BODY_BYTES_MAX {
        return Err(EncodeError::BodyTooLong(counter.length));
    }
    Ok(counter.length)
}

fn header(frame: &Frame, version: Version) -> u8 {
    let low = match frame {
        Frame::Connack(connack) => u8::from(written_server_version(connack, version).is_some()),
        Frame::Connect(frame) => frame.flags.bits(),
        Frame::Send(frame) => frame.flags.bits(),
        Frame::SendAck(frame) => frame.flags.bits(),
        Frame::Recv(frame) => frame.flags.bits(),
        Frame::RecvAck(frame) => frame.flags.bits(),
        Frame::Ping | Frame::Pong => 0,
        Frame::Disconnect(frame) => frame.flags.bits(),
        Frame::Sub(frame) => frame.flags.bits(),
        Frame::SubAck(frame) => frame.flags.bits(),
        Frame::Event(frame) => frame.flags.bits(),
    };
    (frame.frame_type() as u8) << 4 | low
}

/// Clients up to version 3 do not know the byte and would misread all that follows it.
fn written_server_version(connack: &Connack, version: Version) -> Option<u8> {
    connack.server_version.filter(|_| version.number() > 3)
}

fn body(frame: &Frame, version: Version, sink: &mut impl Sink) {
    match frame {
        Frame::Connect(frame) => {
            sink.u8(frame.version);
            sink.u8(frame.device_flag);
            sink.text(&frame.device_id);
            sink.text(&frame.uid);
            sink.text(&frame.token);
            sink.bytes(&frame.client_timestamp_ms.to_be_bytes());
            sink.text(&frame.client_key);
        }
        Frame::Connack(frame) => connack(frame, version, sink),
        Frame::Send(frame) => send(frame, version, sink),
        Frame::SendAck(frame) => {
            sink.bytes(&frame.message_id.to_be_bytes());
            sink.bytes(&frame.client_seq.to_be_bytes());
            sink.sequence(frame.message_seq, version);
            sink.u8(frame.reason_code);
            if !frame.client_msg_no.is_empty() {
                sink.text(&frame.client_msg_no);
            }
        }
        Frame::Recv(frame) => recv(frame, version, sink),
        Frame::RecvAck(frame) => {
            sink.bytes(&frame.message_id.to_be_bytes());
            sink.sequence(frame.message_seq, version);
        }
        Frame::Ping | Frame::Pong => {}
        Frame::Disconnect(frame) => {
            sink.u8(frame.reason_code);
            sink.text(&frame.reason);
        }
        Frame::Sub(frame) => {
            sink.u8(frame.setting.bits());
            sink.text(&frame.sub_no);
            sink.text(&frame.channel_id);
            sink.u8(frame.channel_type);
            sink.u8(frame.action);
            sink.text(&frame.param);
        }
        Frame::SubAck(frame) => {
            sink.text(&frame.sub_no);
            sink.text(&frame.channel_id);
            sink.u8(frame.channel_type);
            sink.u8(frame.action);
            sink.u8(frame.reason_code);
        }
        Frame::Event(frame) => {
            sink.text(&frame.id);
            sink.text(&frame.event_type);
            sink.bytes(&frame.timestamp_ms.to_be_bytes());
            sink.bytes(&frame.data);
        }
    }
}

fn connack(frame: &Connack, version: Version, sink: &mut impl Sink) {
    if let Some(server_version) = written_server_version(frame, version) {
        sink.u8(server_version);
    }
    sink.bytes(&frame.time_diff_ms.to_be_bytes());
    sink.u8(frame.reason_code);
    sink.text(&frame.server_key);
    sink.text(&frame.salt);
    if version.has_node_id() {
        sink.bytes(&frame.node_id.to_be_bytes());
    }
}

fn send(frame: &Send, version: Version, sink: &mut impl Sink) {
    sink.u8(frame.setting.bits());
    sink.bytes(&frame.client_seq.to_be_bytes());
    sink.text(&frame.client_msg_no);
    if version.has_legacy_stream() && frame.setting.contains(Setting::STREAM) {
        sink.text(&frame.stream_no);
    }
    sink.text(&frame.channel_id);
    sink.u8(frame.channel_type);
    if version.has_expire() {
        sink.bytes(&frame.expire_s.to_be_bytes());
    }
    sink.text(&frame.msg_key);
    if frame.setting.contains(Setting::TOPIC) {
        sink.text(&frame.topic);
    }
    sink.bytes(&frame.payload);
}

fn recv(frame: &Recv, version: Version, sink: &mut impl Sink) {
    sink.u8(frame.setting.bits());
    sink.text(&frame.msg_key);
    sink.text(&frame.from_uid);
    sink.text(&frame.channel_id);
    sink.u8(frame.channel_type);
    if version.has_expire() {
        sink.bytes(&frame.expire_s.to_be_bytes());
    }
    sink.text(&frame.client_msg_no);
    if version.has_legacy_stream() && frame.setting.contains(Setting::STREAM) {
        sink.u8(frame.stream.flag);
        sink.text(&frame.stream.stream_no);
        sink.bytes(&frame.stream.stream_id.to_be_bytes());
    }
    sink.bytes(&frame.message_id.to_be_bytes());
    sink.sequence(frame.message_seq, version);
    sink.bytes(&frame.timestamp_s.to_be_bytes());
    if frame.setting.contains(Setting::TOPIC) {
        sink.text(&frame.topic);
    }
    sink.bytes(&frame.payload);
}

/// Where a body goes: first into a counter that judges, then into the buffer.
trait Sink {
    fn bytes(&mut self, bytes: &[u8]);

    fn refuse(&mut self, error: EncodeError);

    fn u8(&mut self, value: u8) {
        self.bytes(&[value]);
    }

    fn text(&mut self, text: &str) {
        match i16::try_from(text.len()) {
            Ok(length) => {
                self.bytes(&length.to_be_bytes());
                self.bytes(text.as_bytes());
            }
            Err(_) => self.refuse(EncodeError::StringTooLong(text.len())),
        }
    }

    fn sequence(&mut self, sequence: u64, version: Version) {
        if version.has_wide_sequence() {
            self.bytes(&sequence.to_be_bytes());
            return;
        }
        match u32::try_from(sequence) {
            Ok(narrow) => self.bytes(&narrow.to_be_bytes()),
            Err(_) => self.refuse(EncodeError::SequenceTooLarge(sequence)),
        }
    }
}

#[derive(Default)]
struct Counter {
    length: usize,
    error: Option<EncodeError>,
}

impl Sink for Counter {
    fn bytes(&mut self, bytes: &[u8]) {
        self.length += bytes.len();
    }

    fn refuse(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }
}

impl Sink for BytesMut {
    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn refuse(&mut self, error: EncodeError) {
        // The counter has judged the same frame before.
        debug_assert!(false, "an unmeasured frame was written: {error}");
    }
}

const _: () = assert!(
    STRING_BYTES_MAX == i16::MAX as usize,
    "a string length is a signed 16-bit number"
);
