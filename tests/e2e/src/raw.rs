//! A connection by hand, for what no proper client sends: any bytes, over TCP or a WebSocket.

use crate::PATIENCE;
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};

/// Opcode of a text message.
pub const TEXT: u8 = 1;
/// Opcode of a binary message.
pub const BINARY: u8 = 2;
/// Opcode of a close.
pub const CLOSE: u8 = 8;
/// Opcode of a ping.
pub const PING: u8 = 9;
/// Opcode of a pong.
pub const PONG: u8 = 10;

/// An open connection.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
    input: Vec<u8>,
}

/// How a WebSocket ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// The code of the close, if one came.
    pub code: Option<u16>,
    /// Its text.
    pub reason: String,
    /// The text messages that came before.
    pub texts: Vec<String>,
}

impl Raw {
    /// Connects to a host and port.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn tcp(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        Self::over(stream)
    }

    /// Connects to a host and port from this address of the machine.
    ///
    /// # Errors
    /// When nobody listens, or the machine does not have the address.
    pub fn tcp_from(source: Ipv4Addr, address: &str) -> Result<Self> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((source, 0)).into())?;
        let address: SocketAddr = address.parse().context("a host and port")?;
        socket
            .connect(&address.into())
            .with_context(|| format!("cannot connect to {address} from {source}"))?;
        Self::over(socket.into())
    }

    fn over(stream: TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            input: Vec::new(),
        })
    }

    /// Asks for a WebSocket with these further header lines, and returns the head of the answer too.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn upgrade(address: &str, host: &str, headers: &str) -> Result<(Self, String)> {
        let mut raw = Self::tcp(address.trim_start_matches("ws://"))?;
        let head = format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{headers}\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        raw.bytes(head.as_bytes())?;
        let answer = raw.head()?;
        Ok((raw, answer))
    }

    /// Opens a WebSocket.
    ///
    /// # Errors
    /// When it is refused.
    pub fn websocket(address: &str) -> Result<Self> {
        let (raw, head) = Self::upgrade(address, "localhost", "")?;
        if !head.starts_with("HTTP/1.1 101 ") {
            bail!("no upgrade: {head}");
        }
        Ok(raw)
    }

    /// Opens a JSON-RPC session of this user's device.
    ///
    /// # Errors
    /// When it is not admitted.
    pub fn session(address: &str, uid: &str, device: &str) -> Result<Self> {
        let (raw, answer) = Self::asking(address, (uid, device), "any")?;
        if answer["result"]["reasonCode"] != 1 {
            bail!("not admitted: {answer}");
        }
        Ok(raw)
    }

    /// Asks for a JSON-RPC session of this user's device with this token, and returns the answer too.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn asking(address: &str, (uid, device): (&str, &str), token: &str) -> Result<(Self, Value)> {
        let mut raw = Self::websocket(address)?;
        let params = json!({ "uid": uid, "token": token, "deviceId": device, "deviceFlag": 1 });
        raw.call("connect", "connect", &params)?;
        let answer = raw.answer("connect")?;
        Ok((raw, answer))
    }

    /// A second handle of the same connection, with which another thread writes. What has come already stays with the first.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn second(&self) -> Result<Self> {
        let stream = self.stream.try_clone().context("a second handle")?;
        Ok(Self {
            stream,
            input: Vec::new(),
        })
    }

    /// The bare connection. What has come already and was not taken is lost.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Says that nothing more will be sent; what the other side still sends can be read.
    ///
    /// # Errors
    /// When the connection is gone already.
    pub fn finish(&mut self) -> Result<()> {
        self.stream
            .shutdown(Shutdown::Write)
            .context("the node has closed")
    }

    /// Sends bytes as they are.
    ///
    /// # Errors
    /// When the other side has closed.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("the node has closed")
    }

    /// Sends a WebSocket frame with this first byte, masked with zeros.
    ///
    /// # Errors
    /// When the other side has closed.
    pub fn frame(&mut self, first: u8, payload: &[u8]) -> Result<()> {
        self.bytes(&masked(first, payload))
    }

    /// Sends a JSON-RPC request.
    ///
    /// # Errors
    /// When the other side has closed.
    pub fn call(&mut self, id: &str, method: &str, params: &Value) -> Result<()> {
        let call = json!({ "id": id, "method": method, "params": params });
        self.frame(0x80 | TEXT, call.to_string().as_bytes())
    }

    /// The next WebSocket frame as opcode and payload; nothing at the end of the stream.
    ///
    /// # Errors
    /// When nothing comes in time.
    pub fn next_frame(&mut self) -> Result<Option<(u8, Vec<u8>)>> {
        loop {
            if let Some((head, length)) = self.frame_size()
                && self.input.len() >= head + length
            {
                let opcode = self.input[0] & 0x0f;
                let payload = self.input[head..head + length].to_vec();
                self.input.drain(..head + length);
                return Ok(Some((opcode, payload)));
            }
            if self.read()? == 0 {
                return Ok(None);
            }
        }
    }

    /// The next JSON text message.
    ///
    /// # Errors
    /// When none comes, or it is no JSON.
    pub fn json(&mut self) -> Result<Value> {
        loop {
            match self.next_frame()? {
                Some((TEXT, text)) => return serde_json::from_slice(&text).context("no JSON"),
                Some((CLOSE, payload)) => bail!("closed: {payload:?}"),
                Some(_) => {}
                None => bail!("the node has closed"),
            }
        }
    }

    /// The answer with this id; others are thrown away.
    ///
    /// # Errors
    /// When none comes.
    pub fn answer(&mut self, id: &str) -> Result<Value> {
        loop {
            let answer = self.json()?;
            if answer["id"] == id {
                return Ok(answer);
            }
        }
    }

    /// Reads until the other side has closed.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn ending(&mut self) -> Result<Ending> {
        let mut ending = Ending {
            code: None,
            reason: String::new(),
            texts: Vec::new(),
        };
        while let Some((opcode, payload)) = self.next_frame()? {
            match (opcode, payload.split_first_chunk()) {
                (TEXT, _) => ending.texts.push(String::from_utf8_lossy(&payload).into_owned()),
                (CLOSE, Some((code, reason))) => {
                    ending.code = Some(u16::from_be_bytes(*code));
                    ending.reason = String::from_utf8_lossy(reason).into_owned();
                }
                _ => {}
            }
        }
        Ok(ending)
    }

    /// What has come, or comes next; nothing at the end.
    ///
    /// # Errors
    /// When nothing comes in time.
    pub fn some(&mut self) -> Result<Vec<u8>> {
        if self.input.is_empty() {
            self.read()?;
        }
        Ok(std::mem::take(&mut self.input))
    }

    /// Whatever comes until the other side has closed.
    ///
    /// # Errors
    /// When it does not in time.
    pub fn rest(&mut self) -> Result<Vec<u8>> {
        while self.read()? > 0 {}
        Ok(std::mem::take(&mut self.input))
    }

    fn head(&mut self) -> Result<String> {
        loop {
            if let Some(end) = self.input.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = self.input.drain(..end + 4).collect();
                return String::from_utf8(head).context("a head is text");
            }
            if self.read()? == 0 {
                bail!("no answer to the upgrade");
            }
        }
    }

    /// The lengths of the head and of the payload of the frame that comes first.
    fn frame_size(&self) -> Option<(usize, usize)> {
        match *self.input.get(1)? & 0x7f {
            126 => {
                let length = self.input.get(2..4)?.try_into().ok()?;
                Some((4, usize::from(u16::from_be_bytes(length))))
            }
            127 => {
                let length = self.input.get(2..10)?.try_into().ok()?;
                Some((10, usize::try_from(u64::from_be_bytes(length)).ok()?))
            }
            short => Some((2, usize::from(short))),
        }
    }

    /// Reads once; 0 at the end, which a reset is too.
    fn read(&mut self) -> Result<usize> {
        let mut bytes = [0; 16_384];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                self.input.extend_from_slice(&bytes[..count]);
                Ok(count)
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(0),
            Err(error) => Err(error).context("nothing came"),
        }
    }
}

/// A WebSocket frame with this first byte, masked with zeros.
#[must_use]
pub fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    let length = payload.len();
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if short < 126 => frame.push(0x80 | short),
        (_, Ok(middle)) => {
            frame.push(0x80 | 126);
            frame.extend_from_slice(&middle.to_be_bytes());
        }
        _ => {
            frame.push(0x80 | 127);
            frame.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}
