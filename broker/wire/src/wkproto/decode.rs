//! From bytes to frames.

use bytes::{Buf, Bytes, BytesMut};

use super::{
    Connack, Connect, Disconnect, Event, Flags, Frame, FrameType, LegacyStream, Recv, RecvAck, Send, SendAck,
    Setting, Sub, SubAck, Version,
};

/// Why bytes are not a frame. Every one of them means that the stream cannot be read any further.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// Frame type 0 or 13 to 15.
    #[error("frame type {0} is reserved")]
    ReservedType(u8),
    /// The length has more than four groups.
    #[error("the length has more than four groups")]
    LengthOverlong,
    /// The length is 0; no frame has an empty body.
    #[error("the body is empty")]
    LengthZero,
    /// The announced length is over the limit.
    #[error("the body of {length} bytes is over the limit of {limit}")]
    LengthOverLimit {
        /// What was announced, in bytes.
        length: usize,
        /// What is allowed at this point, in bytes.
        limit: usize,
    },
    /// A field reaches beyond the body.
    #[error("a field reaches beyond the body")]
    Truncated,
    /// A string length is negative.
    #[error("a string length is negative")]
    NegativeString,
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// Bytes are left after the last field.
    #[error("bytes are left after the last field")]
    TrailingBytes,
}

/// Takes the first frame off `input`, `Ok(None)` if it is not complete yet.
///
/// The header is judged as soon as its bytes are there, so an oversized or reserved frame is refused before its body
/// arrives, and at most `body_bytes_max` + 5 bytes ever need to be held. A payload is a view into the input without a
/// copy; a holder that keeps it for long should copy it, so that it does not keep the whole read buffer alive.
///
/// # Errors
/// What is wrong; `input` is then unspecified and the stream must be closed.
pub fn decode(
    input: &mut BytesMut,
    version: Version,
    body_bytes_max: usize,
) -> Result<Option<Frame>, DecodeError> {
    let Some(&first) = input.first() else {
        return Ok(None);
    };
    let kind = FrameType::from_header(first).ok_or(DecodeError::ReservedType(first >> 4))?;
    match kind {
        FrameType::Ping => {
            input.advance(1);
            return Ok(Some(Frame::Ping));
        }
        FrameType::Pong => {
            input.advance(1);
            return Ok(Some(Frame::Pong));
        }
        FrameType::Connect
        | FrameType::Connack
        | FrameType::Send
        | FrameType::SendAck
        | FrameType::Recv
        | FrameType::RecvAck
        | FrameType::Disconnect
        | FrameType::Sub
        | FrameType::SubAck
        | FrameType::Event => {}
    }
    let Some((length, groups)) = body_length(input.get(1..).unwrap_or_default(), body_bytes_max)? else {
        return Ok(None);
    };
    let head = 1 + groups;
    if input.len() < head + length {
        return Ok(None);
    }
    input.advance(head);
    let body = input.split_to(length).freeze();
    decode_body(kind, first, body, version).map(Some)
}

/// Decodes exactly one frame that fills `message`.
///
/// # Errors
/// As [`decode`]; [`DecodeError::Truncated`] if the frame is not complete, [`DecodeError::TrailingBytes`] if more follows.
pub fn decode_all(message: &[u8], version: Version, body_bytes_max: usize) -> Result<Frame, DecodeError> {
    let mut input = BytesMut::from(message);
    let frame = decode(&mut input, version, body_bytes_max)?.ok_or(DecodeError::Truncated)?;
    if input.is_empty() {
        Ok(frame)
    } else {
        Err(DecodeError::TrailingBytes)
    }
}

/// The announced body length and its number of groups, `None` while more groups are to come.
fn body_length(groups: &[u8], limit: usize) -> Result<Option<(usize, usize)>, DecodeError> {
    let mut length = 0usize;
    for (index, group) in groups.iter().take(4).enumerate() {
        length |= usize::from(group & 0x7f) << (7 * index);
        if group & 0x80 != 0 {
            continue;
        }
        if length == 0 {
            return Err(DecodeError::LengthZero);
        }
        if length > limit {
            return Err(DecodeError::LengthOverLimit { length, limit });
        }
        return Ok(Some((length, index + 1)));
    }
    if groups.len() >= 4 {
        Err(DecodeError::LengthOverlong)
    } else {
        Ok(None)
    }
}

fn decode_body(kind: FrameType, first: u8, body: Bytes, version: Version) -> Result<Frame, DecodeError> {
    let flags = Flags::from_bits(first);
    let mut reader = Reader { rest: &body };
    let frame = match kind {
        FrameType::Connect => Frame::Connect(connect(&mut reader, flags)?),
        FrameType::Connack => Frame::Connack(connack(&mut reader, first)?),
        FrameType::Send => Frame::Send(send(&mut reader, flags, version, &body)?),
        FrameType::SendAck => Frame::SendAck(send_ack(&mut reader, flags, version)?),
        FrameType::Recv => Frame::Recv(recv(&mut reader, flags, version, &body)?),
        FrameType::RecvAck => Frame::RecvAck(RecvAck {
            flags,
            message_id: reader.i64()?,
            message_seq: reader.sequence(version)?,
        }),
        FrameType::Ping => Frame::Ping,
        FrameType::Pong => Frame::Pong,
        FrameType::Disconnect => Frame::Disconnect(Disconnect {
            flags,
            reason_code: reader.u8()?,
            reason: reader.text()?,
        }),
        FrameType::Sub => Frame::Sub(Sub {
            flags,
            setting: Setting::from_bits(reader.u8()?),
            sub_no: reader.text()?,
            channel_id: reader.text()?,
            channel_type: reader.u8()?,
            action: reader.u8()?,
            param: reader.text()?,
        }),
        FrameType::SubAck => Frame::SubAck(SubAck {
            flags,
            sub_no: reader.text()?,
            channel_id: reader.text()?,
            channel_type: reader.u8()?,
            action: reader.u8()?,
            reason_code: reader.u8()?,
        }),
        FrameType::Event => Frame::Event(Event {
            flags,
            id: reader.text()?,
            event_type: reader.text()?,
            timestamp_ms: reader.i64()?,
            data: reader.remaining(&body),
        }),
    };
    if reader.rest.is_empty() {
        Ok(frame)
    } else {
        Err(DecodeError::TrailingBytes)
    }
}

fn connect(reader: &mut Reader<'_>, flags: Flags) -> Result<Connect, DecodeError> {
    Ok(Connect {
        flags,
        version: reader.u8()?,
        device_flag: reader.u8()?,
        device_id: reader.text()?,
        uid: reader.text()?,
        token: reader.text()?,
        client_timestamp_ms: reader.i64()?,
        client_key: reader.text()?,
    })
}

/// The node id is read when it is there rather than by version: a failure CONNACK is encoded before the version of the
/// session is known, so a client of version 2 may get one.
fn connack(reader: &mut Reader<'_>, first: u8) -> Result<Connack, DecodeError> {
    Ok(Connack {
        server_version: if first & 0x01 != 0 {
            Some(reader.u8()?)
        } else {
            None
        },
        time_diff_ms: reader.i64()?,
        reason_code: reader.u8()?,
        server_key: reader.text()?,
        salt: reader.text()?,
        node_id: if reader.rest.is_empty() { 0 } else { reader.u64()? },
    })
}

fn send(reader: &mut Reader<'_>, flags: Flags, version: Version, body: &Bytes) -> Result<Send, DecodeError> {
    let setting = Setting::from_bits(reader.u8()?);
    let has_stream = version.has_legacy_stream() && setting.contains(Setting::STREAM);
    Ok(Send {
        flags,
        setting,
        client_seq: reader.u32()?,
        client_msg_no: reader.text()?,
        stream_no: if has_stream { reader.text()? } else { String::new() },
        channel_id: reader.text()?,
        channel_type: reader.u8()?,
        expire_s: if version.has_expire() { reader.u32()? } else { 0 },
        msg_key: reader.text()?,
        topic: reader.topic(setting)?,
        payload: reader.remaining(body),
    })
}

fn send_ack(reader: &mut Reader<'_>, flags: Flags, version: Version) -> Result<SendAck, DecodeError> {
    Ok(SendAck {
        flags,
        message_id: reader.i64()?,
        client_seq: reader.u32()?,
        message_seq: reader.sequence(version)?,
        reason_code: reader.u8()?,
        client_msg_no: if reader.rest.is_empty() {
            String::new()
        } else {
            reader.text()?
        },
    })
}

fn recv(reader: &mut Reader<'_>, flags: Flags, version: Version, body: &Bytes) -> Result<Recv, DecodeError> {
    let setting = Setting::from_bits(reader.u8()?);
    let has_stream = version.has_legacy_stream() && setting.contains(Setting::STREAM);
    Ok(Recv {
        flags,
        setting,
        msg_key: reader.text()?,
        from_uid: reader.text()?,
        channel_id: reader.text()?,
        channel_type: reader.u8()?,
        expire_s: if version.has_expire() { reader.u32()? } else { 0 },
        client_msg_no: reader.text()?,
        stream: if has_stream {
            LegacyStream {
                flag: reader.u8()?,
                stream_no: reader.text()?,
                stream_id: reader.u64()?,
            }
        } else {
            LegacyStream::default()
        },
        message_id: reader.i64()?,
        message_seq: reader.sequence(version)?,
        timestamp_s: i32::from_be_bytes(reader.chunk()?),
        topic: reader.topic(setting)?,
        payload: reader.remaining(body),
    })
}

/// A cursor over one body.
struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (chunk, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*chunk)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.chunk::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.chunk().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.chunk().map(u64::from_be_bytes)
    }

    fn i64(&mut self) -> Result<i64, DecodeError> {
        self.chunk().map(i64::from_be_bytes)
    }

    fn sequence(&mut self, version: Version) -> Result<u64, DecodeError> {
        if version.has_wide_sequence() {
            self.u64()
        } else {
            self.u32().map(u64::from)
        }
    }

    fn text(&mut self) -> Result<String, DecodeError> {
        let length = i16::from_be_bytes(self.chunk()?);
        let length = usize::try_from(length).map_err(|_| DecodeError::NegativeString)?;
        let (text, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        std::str::from_utf8(text)
            .map(str::to_owned)
            .map_err(|_| DecodeError::NotUtf8)
    }

    fn topic(&mut self, setting: Setting) -> Result<String, DecodeError> {
        if setting.contains(Setting::TOPIC) {
            self.text()
        } else {
            Ok(String::new())
        }
    }

    /// The rest of the body as a view that shares its memory.
    fn remaining(&mut self, body: &Bytes) -> Bytes {
        let start = body.len().saturating_sub(self.rest.len());
        self.rest = &[];
        body.slice(start..)
    }
}
