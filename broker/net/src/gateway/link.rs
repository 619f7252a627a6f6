//! The bytes of one connection, without its socket: a raw stream or a WebSocket, turned into units of the protocol above
//! and back.
//!
//! The WebSocket side runs over two buffers instead of a socket, so that both carriers share the same reads, writes and
//! bounds, and a frame is encoded straight into the buffer that the socket is written from.

use std::io::{self, Read, Write};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use penstock_core::client::CloseReason;
use penstock_wire::wkproto::{
    self, BODY_BYTES_BEFORE_AUTH_MAX, BODY_BYTES_MAX, DecodeError, EncodeError, Frame, Version,
};
use tokio_tungstenite::tungstenite::error::{CapacityError, Error as WebSocketError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{
    CloseFrame, Message, Role, WebSocketConfig, WebSocketContext,
};

use super::fragments::Fragments;
use super::metrics::close_label;

/// Frames are put into the output up to here; beyond, they wait in the bounded queue and input waits too, in bytes.
pub(super) const OUTPUT_BYTES_HIGH: usize = 64 * 1024;
/// What a WebSocket keeps for reading all its life; the default of the library is 128 KiB, in bytes.
const WEBSOCKET_READ_BYTES: usize = 4 * 1024;
/// Room for one pong or close; a newer pong replaces one that cannot be written, in bytes.
const WEBSOCKET_CONTROL_BYTES: usize = 256;
/// What [`Pipe`] answers instead of the bytes of a fragment that is one too many.
const TOO_MANY_FRAGMENTS: io::ErrorKind = io::ErrorKind::QuotaExceeded;
/// Head of a WKProto frame: type and four length groups, in bytes.
const HEAD_BYTES: usize = 5;

/// Why a connection ends, for the metrics and for the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct End {
    pub(super) reason: CloseReason,
    code: CloseCode,
    /// What a WebSocket peer is told besides the code.
    text: &'static str,
}

impl From<CloseReason> for End {
    fn from(reason: CloseReason) -> Self {
        // Own reasons have own codes in the private range, so that a client can tell them apart.
        let code = match reason {
            CloseReason::PeerClosed => CloseCode::Normal,
            CloseReason::ProtocolError => CloseCode::Protocol,
            CloseReason::PolicyViolation | CloseReason::ConnectTimeout | CloseReason::AuthFailed => {
                CloseCode::Policy
            }
            CloseReason::TooManyConnections | CloseReason::ActivationFailed => CloseCode::Again,
            CloseReason::ServerStop => CloseCode::Away,
            CloseReason::Kicked => CloseCode::Library(4001),
            CloseReason::OutboundOverflow => CloseCode::Library(4002),
            CloseReason::UnacknowledgedOverflow => CloseCode::Library(4003),
            CloseReason::InboundOverflow => CloseCode::Library(4004),
            CloseReason::OutcomeUnknown => CloseCode::Library(4005),
            CloseReason::IdleTimeout => CloseCode::Library(4006),
            CloseReason::DeliveryMissed => CloseCode::Library(4007),
        };
        Self::new(reason, code)
    }
}

impl From<DecodeError> for End {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::LengthOverLimit { .. } => Self::oversized(),
            DecodeError::NotUtf8 => Self::new(CloseReason::ProtocolError, CloseCode::Invalid),
            _ => CloseReason::ProtocolError.into(),
        }
    }
}

impl End {
    fn new(reason: CloseReason, code: CloseCode) -> Self {
        let text = close_label(reason);
        Self { reason, code, text }
    }

    pub(super) fn oversized() -> Self {
        Self::new(CloseReason::ProtocolError, CloseCode::Size)
    }

    fn websocket(error: &WebSocketError) -> Self {
        match error {
            WebSocketError::ConnectionClosed | WebSocketError::AlreadyClosed => {
                CloseReason::PeerClosed.into()
            }
            WebSocketError::Capacity(CapacityError::MessageTooLong { .. }) => Self::oversized(),
            WebSocketError::Utf8(_) => Self::new(CloseReason::ProtocolError, CloseCode::Invalid),
            WebSocketError::Io(error) if error.kind() == TOO_MANY_FRAGMENTS => Self {
                text: "too_many_fragments",
                ..CloseReason::PolicyViolation.into()
            },
            _ => CloseReason::ProtocolError.into(),
        }
    }
}

/// A WebSocket: what reads it, and what counts what that does not.
struct WebSocket {
    context: WebSocketContext,
    fragments: Fragments,
}

/// The bytes of one connection.
pub(super) struct Link {
    /// Read from the socket, not interpreted yet.
    pub(super) input: BytesMut,
    /// To be written to the socket.
    pub(super) output: BytesMut,
    /// WKProto bytes out of WebSocket messages; unused on a raw stream.
    unframed: BytesMut,
    websocket: Option<Box<WebSocket>>,
    body_bytes_max: usize,
    /// A pong or close waits for the output to drain.
    control_waits: bool,
}

impl Link {
    pub(super) fn raw() -> Self {
        Self::new(None, BytesMut::new())
    }

    /// `input` is what came after the upgrade request.
    pub(super) fn websocket(input: BytesMut) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(WEBSOCKET_READ_BYTES)
            .write_buffer_size(0)
            .max_write_buffer_size(WEBSOCKET_CONTROL_BYTES)
            .max_message_size(Some(BODY_BYTES_BEFORE_AUTH_MAX + HEAD_BYTES))
            .max_frame_size(Some(BODY_BYTES_BEFORE_AUTH_MAX + HEAD_BYTES));
        let websocket = WebSocket {
            context: WebSocketContext::new(Role::Server, Some(config)),
            fragments: Fragments::default(),
        };
        Self::new(Some(Box::new(websocket)), input)
    }

    fn new(websocket: Option<Box<WebSocket>>, input: BytesMut) -> Self {
        Self {
            input,
            output: BytesMut::new(),
            unframed: BytesMut::new(),
            websocket,
            body_bytes_max: BODY_BYTES_BEFORE_AUTH_MAX,
            control_waits: false,
        }
    }

    /// Raises the limits: the peer is authenticated.
    pub(super) fn authenticated(&mut self) {
        self.body_bytes_max = BODY_BYTES_MAX;
        if let Some(websocket) = &mut self.websocket {
            websocket.context.set_config(|config| {
                config.max_message_size = Some(BODY_BYTES_MAX + HEAD_BYTES);
                config.max_frame_size = Some(BODY_BYTES_MAX + HEAD_BYTES);
            });
        }
    }

    /// The longest message or body that may come now, in bytes.
    pub(super) fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }

    /// Gives back empty buffers: an idle connection keeps none.
    pub(super) fn shrink(&mut self) {
        for buffer in [&mut self.input, &mut self.output, &mut self.unframed] {
            if buffer.is_empty() {
                *buffer = BytesMut::new();
            }
        }
    }

    /// The next WebSocket data message, `None` if it has not come yet. Control messages are answered on the way.
    pub(super) fn message(&mut self) -> Result<Option<Bytes>, End> {
        let Some(websocket) = &mut self.websocket else {
            return Ok(None);
        };
        let WebSocket { context, fragments } = &mut **websocket;
        let mut pipe = Pipe {
            input: &mut self.input,
            fragments,
            output: &mut self.output,
            refused: &mut self.control_waits,
            unbounded: false,
        };
        loop {
            match context.read(&mut pipe) {
                Ok(Message::Binary(bytes)) => return Ok(Some(bytes)),
                Ok(Message::Text(text)) => return Ok(Some(Bytes::from(text))),
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                // The answer to the close is written by `write_close`, after what is queued: nothing may follow it.
                Ok(Message::Close(_)) => return Err(CloseReason::PeerClosed.into()),
                Err(WebSocketError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(None);
                }
                Err(error) => return Err(End::websocket(&error)),
            }
        }
    }

    /// Gives a message to the WKProto stream that [`Link::frame`] reads.
    pub(super) fn unframe(&mut self, message: &[u8]) {
        self.unframed.extend_from_slice(message);
    }

    /// The next WKProto frame, `None` if it has not come yet.
    pub(super) fn frame(&mut self, version: Version) -> Result<Option<Frame>, End> {
        let limit = self.body_bytes_max;
        if self.websocket.is_none() {
            return Ok(wkproto::decode(&mut self.input, version, limit)?);
        }
        loop {
            if let Some(frame) = wkproto::decode(&mut self.unframed, version, limit)? {
                return Ok(Some(frame));
            }
            match self.message()? {
                Some(message) => self.unframe(&message),
                None => return Ok(None),
            }
        }
    }

    /// Appends a WKProto frame, as one binary message on a WebSocket.
    pub(super) fn write_frame(&mut self, frame: &Frame, version: Version) -> Result<(), EncodeError> {
        if self.websocket.is_some() {
            let length = wkproto::encoded_length(frame, version)?;
            self.write_message_head(0x2, length);
        }
        wkproto::encode(frame, version, &mut self.output)
    }

    /// Appends a text message.
    pub(super) fn write_text(&mut self, text: &str) {
        if self.websocket.is_some() {
            self.write_message_head(0x1, text.len());
        }
        self.output.extend_from_slice(text.as_bytes());
    }

    /// The head of an unmasked, unfragmented message, as a server sends it (RFC 6455, section 5.2).
    fn write_message_head(&mut self, opcode: u8, length: usize) {
        self.output.put_u8(0x80 | opcode);
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short), _) if short < 126 => self.output.put_u8(short),
            (_, Ok(middle)) => {
                self.output.put_u8(126);
                self.output.put_u16(middle);
            }
            _ => {
                self.output.put_u8(127);
                self.output.put_u64(length as u64);
            }
        }
    }

    /// Writes a pong that had to wait, now that the output is empty.
    pub(super) fn flush_control(&mut self) {
        if !self.control_waits || !self.output.is_empty() {
            return;
        }
        self.control_waits = false;
        if let Some(websocket) = &mut self.websocket {
            let WebSocket { context, fragments } = &mut **websocket;
            let mut pipe = Pipe {
                input: &mut self.input,
                fragments,
                output: &mut self.output,
                refused: &mut self.control_waits,
                unbounded: false,
            };
            // A failure shows at the next read.
            let _ = context.flush(&mut pipe);
        }
    }

    /// Appends the WebSocket close, unless the peer closed first. A raw stream has none.
    pub(super) fn write_close(&mut self, end: End) {
        if let Some(websocket) = &mut self.websocket {
            let WebSocket { context, fragments } = &mut **websocket;
            let mut pipe = Pipe {
                input: &mut self.input,
                fragments,
                output: &mut self.output,
                refused: &mut self.control_waits,
                unbounded: true,
            };
            let close = CloseFrame {
                code: end.code,
                reason: end.text.into(),
            };
            // Pongs first, so that the close finds room; both fail only once the close handshake is over.
            let _ = context.flush(&mut pipe);
            let _ = context.close(&mut pipe, Some(close));
        }
    }
}

/// The two buffers as the socket of a WebSocket.
struct Pipe<'a> {
    input: &'a mut BytesMut,
    fragments: &'a mut Fragments,
    output: &'a mut BytesMut,
    /// Set when a write had to be refused.
    refused: &'a mut bool,
    /// Control frames are written only into an empty output, so that pings of a peer that does not read cost no memory;
    /// a close is written in any case.
    unbounded: bool,
}

impl Read for Pipe<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let length = target.len().min(self.input.len());
        let length = self.fragments.admit(&self.input[..length]);
        if length == 0 {
            return Err(TOO_MANY_FRAGMENTS.into());
        }
        self.input
            .copy_to_slice(target.get_mut(..length).unwrap_or_default());
        Ok(length)
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.unbounded && !self.output.is_empty() {
            *self.refused = true;
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
