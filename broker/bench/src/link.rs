//! The bytes of one connection without its socket, as frames: back to back on TCP, one in each binary message on a
//! WebSocket. Both write into one buffer, so that one system call carries many frames.

use std::io::{self, Read, Write};

use bytes::{Buf as _, Bytes, BytesMut};
use penstock_wire::wkproto::{self, BODY_BYTES_MAX, Frame, Version};
use tokio_tungstenite::tungstenite::protocol::{Message, Role, WebSocketConfig, WebSocketContext};
use tokio_tungstenite::tungstenite::{Bytes as MessageBytes, Error as WebSocketError};

use crate::options::Transport;

/// What a WebSocket keeps for reading, in bytes.
const WEBSOCKET_READ_BYTES: usize = 4 * 1024;

/// The buffers of one connection.
pub(crate) struct Link {
    /// Read from the socket, not interpreted yet.
    pub(crate) input: BytesMut,
    /// To be written to the socket.
    pub(crate) output: BytesMut,
    /// Frames out of WebSocket messages; unused on TCP.
    unframed: BytesMut,
    /// One frame on its way into a WebSocket message; unused on TCP.
    scratch: BytesMut,
    websocket: Option<Box<WebSocketContext>>,
}

/// Why a connection cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LinkError {
    /// The peer closed a WebSocket.
    #[error("the server closed the WebSocket{0}")]
    Closed(String),
    /// The peer sent what is no WebSocket.
    #[error("not a WebSocket: {0}")]
    WebSocket(#[from] WebSocketError),
    /// The peer sent what is no frame.
    #[error("not a frame: {0}")]
    Frame(#[from] wkproto::DecodeError),
    /// A frame of ours does not fit.
    #[error("a frame that cannot be written: {0}")]
    Encode(#[from] wkproto::EncodeError),
}

impl Link {
    /// The client's side, after the upgrade of a WebSocket.
    #[must_use]
    pub(crate) fn new(transport: Transport) -> Self {
        let config = WebSocketConfig::default()
            .read_buffer_size(WEBSOCKET_READ_BYTES)
            .write_buffer_size(0);
        let context = || Box::new(WebSocketContext::new(Role::Client, Some(config)));
        Self {
            input: BytesMut::new(),
            output: BytesMut::new(),
            unframed: BytesMut::new(),
            scratch: BytesMut::new(),
            websocket: (transport == Transport::WebSocket).then(context),
        }
    }

    /// The next frame, `None` if it has not come yet.
    ///
    /// # Errors
    /// When the connection cannot go on.
    pub(crate) fn frame(&mut self, version: Version) -> Result<Option<Frame>, LinkError> {
        if self.websocket.is_none() {
            return Ok(wkproto::decode(&mut self.input, version, BODY_BYTES_MAX)?);
        }
        loop {
            if let Some(frame) = wkproto::decode(&mut self.unframed, version, BODY_BYTES_MAX)? {
                return Ok(Some(frame));
            }
            match self.message()? {
                Some(message) if self.unframed.is_empty() => self.unframed = BytesMut::from(message),
                Some(message) => self.unframed.extend_from_slice(&message),
                None => return Ok(None),
            }
        }
    }

    fn message(&mut self) -> Result<Option<Bytes>, LinkError> {
        let Some(context) = &mut self.websocket else {
            return Ok(None);
        };
        let mut pipe = Pipe {
            input: &mut self.input,
            output: &mut self.output,
        };
        loop {
            match context.read(&mut pipe) {
                Ok(Message::Binary(bytes)) => return Ok(Some(bytes)),
                Ok(Message::Text(text)) => return Ok(Some(MessageBytes::from(text))),
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Ok(Message::Close(close)) => {
                    let why = close.map(|close| format!(" with {} {}", close.code, close.reason));
                    return Err(LinkError::Closed(why.unwrap_or_default()));
                }
                Err(WebSocketError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Ok(None);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Appends a frame to the output.
    ///
    /// # Errors
    /// When it does not fit, or the WebSocket is closing.
    pub(crate) fn write(&mut self, frame: &Frame, version: Version) -> Result<(), LinkError> {
        let Some(context) = &mut self.websocket else {
            return Ok(wkproto::encode(frame, version, &mut self.output)?);
        };
        wkproto::encode(frame, version, &mut self.scratch)?;
        let mut pipe = Pipe {
            input: &mut self.input,
            output: &mut self.output,
        };
        let message = self.scratch.split().freeze();
        Ok(context.write(&mut pipe, Message::Binary(message))?)
    }
}

/// The two buffers as the socket of a WebSocket.
struct Pipe<'a> {
    input: &'a mut BytesMut,
    output: &'a mut BytesMut,
}

impl Read for Pipe<'_> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let length = target.len().min(self.input.len());
        self.input.copy_to_slice(&mut target[..length]);
        Ok(length)
    }
}

impl Write for Pipe<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_wire::wkproto::{Send, SendAck};

    fn send(number: u32) -> Frame {
        Frame::Send(Send {
            client_seq: number,
            payload: Bytes::from(vec![7; 300]),
            ..Send::default()
        })
    }

    #[test]
    fn frames_stand_back_to_back_on_tcp() {
        let mut link = Link::new(Transport::Tcp);
        for number in 0..3 {
            link.write(&send(number), Version::LATEST).expect("fits");
        }
        let mut peer = Link::new(Transport::Tcp);
        peer.input = link.output;
        for number in 0..3 {
            let frame = peer.frame(Version::LATEST).expect("whole");
            assert_eq!(frame, Some(send(number)));
        }
        assert_eq!(peer.frame(Version::LATEST).expect("nothing more"), None);
    }

    #[test]
    fn a_websocket_message_carries_one_frame_masked_outwards_and_plain_inwards() {
        let mut link = Link::new(Transport::WebSocket);
        link.write(&send(1), Version::LATEST).expect("fits");
        link.write(&send(2), Version::LATEST).expect("fits");
        let mut server = WebSocketContext::new(Role::Server, None);
        let mut pipe = Pipe {
            input: &mut link.output,
            output: &mut link.input,
        };
        for number in 1..=2 {
            let message = server.read(&mut pipe).expect("a message").into_data();
            let frame = wkproto::decode_all(&message, Version::LATEST, BODY_BYTES_MAX);
            assert_eq!(frame, Ok(send(number)));
            let ack = Frame::SendAck(SendAck {
                client_seq: number,
                ..SendAck::default()
            });
            let mut bytes = BytesMut::new();
            wkproto::encode(&ack, Version::LATEST, &mut bytes).expect("fits");
            server
                .write(&mut pipe, Message::Binary(bytes.freeze()))
                .expect("written");
            server.flush(&mut pipe).expect("flushed");
        }
        for number in 1..=2 {
            match link.frame(Version::LATEST).expect("whole") {
                Some(Frame::SendAck(ack)) => assert_eq!(ack.client_seq, number),
                other => panic!("{other:?}"),
            }
        }
        assert!(link.frame(Version::LATEST).expect("nothing more").is_none());
    }
}
