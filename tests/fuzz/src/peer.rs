//! The other side of a connection, down to single bytes.

use bytes::{Buf as _, Bytes, BytesMut};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// An answer that takes longer does not come: every deadline of the node that these targets can meet is shorter.
const PATIENCE: Duration = Duration::from_secs(60);

/// A WebSocket request that is taken.
pub const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                           Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A connection to the node.
#[derive(Debug)]
pub struct Peer {
    stream: TcpStream,
    /// Read and not taken yet.
    pub input: BytesMut,
}

impl Peer {
    /// Connects.
    ///
    /// # Panics
    /// When nobody listens.
    #[must_use]
    pub fn open(address: SocketAddr) -> Peer {
        let stream = TcpStream::connect(address).expect("the node listens");
        stream.set_nodelay(true).expect("an open socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("an open socket");
        stream.set_write_timeout(Some(PATIENCE)).expect("an open socket");
        Peer {
            stream,
            input: BytesMut::new(),
        }
    }

    /// Connects and becomes a WebSocket.
    ///
    /// # Panics
    /// When the upgrade is refused.
    #[must_use]
    pub fn websocket(address: SocketAddr) -> Peer {
        let mut peer = Peer::open(address);
        peer.write(&[UPGRADE.as_bytes()]);
        let head = peer.head().expect("a response");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        peer
    }

    /// Writes the pieces one by one. The peer may have closed before the last of them; the answer tells.
    ///
    /// # Panics
    /// When the node takes nothing for long.
    pub fn write(&mut self, pieces: &[&[u8]]) {
        for piece in pieces {
            match self.stream.write_all(piece) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("the node takes no bytes"),
                Err(_) => return,
            }
        }
    }

    /// Says that nothing more comes.
    pub fn half_close(&mut self) {
        // It fails when the node closed first.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads more, if anything has come; says whether the end is still to come.
    ///
    /// # Panics
    /// When the node neither answers nor closes.
    pub fn read(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => false,
            Ok(length) => {
                self.input.extend_from_slice(&buffer[..length]);
                true
            }
            // The fuzzer looks at its clock by a signal.
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("the node neither answers nor closes")
            }
            Err(_) => false,
        }
    }

    /// Reads to the end and returns everything that came.
    pub fn rest(&mut self) -> Bytes {
        while self.read() {}
        self.input.split().freeze()
    }

    /// The head of an HTTP response; none when the node closed instead.
    ///
    /// # Panics
    /// When it is no text.
    pub fn head(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.input.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = self.input.split_to(end + 4);
                return Some(String::from_utf8(head.to_vec()).expect("a head is text"));
            }
            if !self.read() {
                return None;
            }
        }
    }

    /// The next WebSocket frame; none at the end.
    ///
    /// # Panics
    /// When the node writes what a server may not (RFC 6455).
    pub fn frame(&mut self) -> Option<ServerFrame> {
        loop {
            if let Some(frame) = take_frame(&mut self.input) {
                return Some(frame);
            }
            if !self.read() {
                assert!(
                    self.input.is_empty(),
                    "the stream ends within a frame: {:?}",
                    self.input
                );
                return None;
            }
        }
    }
}

/// A WebSocket frame of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFrame {
    /// 1 text, 2 binary, 8 close, 10 pong.
    pub opcode: u8,
    /// What it carries.
    pub payload: Bytes,
}

impl ServerFrame {
    /// The code, if it is a close.
    #[must_use]
    pub fn close_code(&self) -> Option<u16> {
        let code = self.payload.first_chunk::<2>().copied()?;
        (self.opcode == 8).then_some(u16::from_be_bytes(code))
    }
}

fn take_frame(input: &mut BytesMut) -> Option<ServerFrame> {
    let (first, second) = (*input.first()?, *input.get(1)?);
    assert_eq!(first & 0xf0, 0x80, "a whole message without reserved bits");
    let opcode = first & 0x0f;
    assert!(matches!(opcode, 1 | 2 | 8 | 10), "opcode {opcode}");
    assert_eq!(second & 0x80, 0, "a server does not mask");
    let (head, length) = match second {
        126 => (
            4,
            usize::from(u16::from_be_bytes(*input.get(2..)?.first_chunk()?)),
        ),
        127 => {
            let length = u64::from_be_bytes(*input.get(2..)?.first_chunk()?);
            (10, usize::try_from(length).expect("a length of a frame"))
        }
        short => (2, usize::from(short)),
    };
    if input.len() < head + length {
        return None;
    }
    input.advance(head);
    Some(ServerFrame {
        opcode,
        payload: input.split_to(length).freeze(),
    })
}

/// A whole masked message of a client.
#[must_use]
pub fn message(opcode: u8, payload: &[u8]) -> Vec<u8> {
    client_frame(0x80 | opcode, Some([1, 2, 3, 4]), None, payload)
}

/// A frame of a client with any first byte, mask and claimed length; the length of the payload unless another is claimed.
#[must_use]
pub fn client_frame(first: u8, mask: Option<[u8; 4]>, claimed: Option<Vec<u8>>, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    let length = claimed.unwrap_or_else(|| match payload.len() {
        short @ 0..126 => vec![u8::try_from(short).unwrap_or_default()],
        middle @ 126..65_536 => {
            let middle = u16::try_from(middle).unwrap_or_default();
            [&[126][..], &middle.to_be_bytes()].concat()
        }
        long => [&[127][..], &(long as u64).to_be_bytes()].concat(),
    });
    let flag = if mask.is_some() { 0x80 } else { 0 };
    frame.extend(length.iter().take(1).map(|byte| (byte & 0x7f) | flag));
    frame.extend(length.iter().skip(1));
    frame.extend(mask.into_iter().flatten());
    let mask = mask.unwrap_or_default();
    frame.extend(
        payload
            .iter()
            .zip(mask.iter().cycle())
            .map(|(byte, mask)| byte ^ mask),
    );
    frame
}

/// Posts a JSON body and returns the whole response.
#[must_use]
pub fn post(address: SocketAddr, route: &str, body: &str) -> String {
    let mut peer = Peer::open(address);
    let length = body.len();
    let head = format!(
        "POST {route} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
    );
    peer.write(&[head.as_bytes(), body.as_bytes()]);
    String::from_utf8_lossy(&peer.rest()).into_owned()
}
