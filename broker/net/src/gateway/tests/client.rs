//! Clients for the tests, down to single bytes.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use penstock_wire::encryption::{SessionCipher, public_key_text};
use penstock_wire::wkproto::{self, BODY_BYTES_MAX, Connack, Connect, Frame, Recv, Send, Version};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const SECRET: [u8; 32] = [9; 32];
/// Longer than anything takes, shorter than the default idle timeout: what should come at once must not need it.
const PATIENCE: Duration = Duration::from_secs(10);

/// A CONNECT with a key of its own.
pub(super) fn connect(version: u8, uid: &str, token: &str) -> Connect {
    Connect {
        version,
        device_flag: 1,
        device_id: "d1".into(),
        uid: uid.into(),
        token: token.into(),
        client_timestamp_ms: 1_700_000_000_000,
        client_key: public_key_text(SECRET),
        ..Connect::default()
    }
}

pub(super) fn encoded(frame: &Frame, version: Version) -> BytesMut {
    let mut bytes = BytesMut::new();
    wkproto::encode(frame, version, &mut bytes).expect("a test frame fits");
    bytes
}

/// A client over TCP.
pub(super) struct TcpClient {
    stream: TcpStream,
    input: BytesMut,
    version: Version,
    cipher: Option<SessionCipher>,
}

impl TcpClient {
    pub(super) async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the gateway listens");
        Self {
            stream,
            input: BytesMut::new(),
            version: Version::LATEST,
            cipher: None,
        }
    }

    /// Opens, connects as `uid` and checks the CONNACK.
    pub(super) async fn session(address: SocketAddr, version: u8, uid: &str) -> Self {
        let mut client = Self::open(address).await;
        client.send(&Frame::Connect(connect(version, uid, "t"))).await;
        client.version = Version::negotiate(version);
        let Some(Frame::Connack(connack)) = client.frame().await else {
            panic!("no CONNACK");
        };
        client.connected(&connack);
        client
    }

    fn connected(&mut self, connack: &Connack) {
        assert_eq!(connack.reason_code, 1);
        let cipher = SessionCipher::agree(SECRET, &connack.server_key, &connack.salt);
        self.cipher = Some(cipher.expect("the server's key is good"));
    }

    pub(super) fn cipher(&self) -> &SessionCipher {
        self.cipher.as_ref().expect("the session is open")
    }

    pub(super) fn set_version(&mut self, version: Version) {
        self.version = version;
    }

    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        self.stream
            .write_all(bytes)
            .await
            .expect("the gateway takes bytes");
    }

    pub(super) async fn send(&mut self, frame: &Frame) {
        let bytes = encoded(frame, self.version);
        self.raw(&bytes).await;
    }

    pub(super) async fn send_sealed(&mut self, mut send: Send) {
        self.cipher().seal_send(&mut send);
        self.send(&Frame::Send(send)).await;
    }

    /// The next frame, `None` at the end of the stream.
    pub(super) async fn frame(&mut self) -> Option<Frame> {
        loop {
            let decoded = wkproto::decode(&mut self.input, self.version, BODY_BYTES_MAX);
            if let Some(frame) = decoded.expect("the gateway writes good frames") {
                return Some(frame);
            }
            if self.read().await == 0 {
                assert!(self.input.is_empty(), "the stream ends within a frame");
                return None;
            }
        }
    }

    async fn read(&mut self) -> usize {
        let read = timeout(PATIENCE, self.stream.read_buf(&mut self.input)).await;
        read.expect("the gateway answers in time").unwrap_or_default()
    }

    pub(super) fn open_recv(&self, recv: &Recv) -> Bytes {
        self.cipher().open_recv(recv).expect("the gateway seals well")
    }

    /// A PING is answered: the session is well.
    pub(super) async fn is_well(&mut self) {
        self.send(&Frame::Ping).await;
        assert_eq!(self.frame().await, Some(Frame::Pong));
    }
}

/// A frame of a WebSocket.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct WebSocketFrame {
    pub(super) opcode: u8,
    pub(super) payload: Bytes,
}

impl WebSocketFrame {
    /// The close code, if it is a close.
    pub(super) fn close_code(&self) -> Option<u16> {
        (self.opcode == 8).then(|| u16::from_be_bytes([self.payload[0], self.payload[1]]))
    }

    pub(super) fn json(&self) -> Value {
        assert_eq!(self.opcode, 1, "JSON-RPC goes out as text: {self:?}");
        serde_json::from_slice(&self.payload).expect("the gateway writes JSON")
    }

    pub(super) fn wk(&self, version: Version) -> Frame {
        assert_eq!(self.opcode, 2, "WKProto goes out as binary: {self:?}");
        wkproto::decode_all(&self.payload, version, BODY_BYTES_MAX).expect("one frame a message")
    }
}

/// A client over WebSocket.
pub(super) struct WebSocketClient {
    stream: TcpStream,
    input: BytesMut,
}

impl WebSocketClient {
    pub(super) async fn open(address: SocketAddr) -> Self {
        let mut client = Self::requesting(address, "/", "").await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        client
    }

    /// Sends an upgrade request, with more headers if given.
    pub(super) async fn requesting(address: SocketAddr, path: &str, more: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the gateway listens");
        let mut client = Self {
            stream,
            input: BytesMut::new(),
        };
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{more}\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        client.raw(request.as_bytes()).await;
        client
    }

    /// The head of the response.
    pub(super) async fn head(&mut self) -> String {
        loop {
            if let Some(end) = self.input.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = self.input.split_to(end + 4);
                return String::from_utf8(head.to_vec()).expect("a head is text");
            }
            assert_ne!(self.read().await, 0, "no response");
        }
    }

    pub(super) async fn raw(&mut self, bytes: &[u8]) {
        self.stream
            .write_all(bytes)
            .await
            .expect("the gateway takes bytes");
    }

    /// Sends one masked, unfragmented frame.
    pub(super) async fn message(&mut self, opcode: u8, payload: &[u8]) {
        let mut frame = vec![0x80 | opcode];
        match payload.len() {
            length @ 0..126 => frame.push(0x80 | u8::try_from(length).expect("below 126")),
            length @ 126..65_536 => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&u16::try_from(length).expect("below 65,536").to_be_bytes());
            }
            length => {
                frame.push(0x80 | 127);
                frame.extend_from_slice(&(length as u64).to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        frame.extend_from_slice(&mask);
        frame.extend(
            payload
                .iter()
                .zip(mask.iter().cycle())
                .map(|(byte, mask)| byte ^ mask),
        );
        self.raw(&frame).await;
    }

    pub(super) async fn text(&mut self, text: &str) {
        self.message(1, text.as_bytes()).await;
    }

    /// The next frame, `None` at the end of the stream.
    pub(super) async fn frame(&mut self) -> Option<WebSocketFrame> {
        loop {
            if let Some(frame) = self.parse() {
                return Some(frame);
            }
            if self.read().await == 0 {
                assert!(self.input.is_empty(), "the stream ends within a frame");
                return None;
            }
        }
    }

    fn parse(&mut self) -> Option<WebSocketFrame> {
        let (first, second) = (*self.input.first()?, *self.input.get(1)?);
        assert_eq!(first & 0x70, 0, "no reserved bits");
        assert_eq!(first & 0x80, 0x80, "never fragmented");
        assert_eq!(second & 0x80, 0, "a server does not mask");
        let (head, length) = match second {
            126 => (
                4,
                usize::from(u16::from_be_bytes(self.input.get(2..4)?.try_into().ok()?)),
            ),
            127 => (
                10,
                usize::try_from(u64::from_be_bytes(self.input.get(2..10)?.try_into().ok()?)).ok()?,
            ),
            short => (2, usize::from(short)),
        };
        if self.input.len() < head + length {
            return None;
        }
        self.input.advance(head);
        Some(WebSocketFrame {
            opcode: first & 0x0f,
            payload: self.input.split_to(length).freeze(),
        })
    }

    async fn read(&mut self) -> usize {
        let read = timeout(PATIENCE, self.stream.read_buf(&mut self.input)).await;
        read.expect("the gateway answers in time").unwrap_or_default()
    }

    pub(super) async fn json(&mut self) -> Value {
        self.frame().await.expect("a message comes").json()
    }

    /// The close code, and that nothing follows it.
    pub(super) async fn close_code(&mut self) -> u16 {
        let code = self
            .frame()
            .await
            .expect("a close comes")
            .close_code()
            .expect("and nothing else");
        assert_eq!(self.frame().await, None);
        code
    }

    /// Opens a JSON-RPC session.
    pub(super) async fn rpc_session(address: SocketAddr, uid: &str) -> Self {
        let mut client = Self::open(address).await;
        client
            .text(&format!(
                r#"{{"id":"c","method":"connect","params":{{"uid":"{uid}","token":"t","deviceFlag":1}}}}"#
            ))
            .await;
        let connected = client.json().await;
        assert_eq!(connected["id"], "c");
        assert_eq!(connected["result"]["reasonCode"], 1);
        client
    }
}
