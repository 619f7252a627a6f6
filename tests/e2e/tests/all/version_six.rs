//! A client over TCP that speaks version 6, in the same channel as the SDK and JSON-RPC.

use crate::{GROUP, make_group};
use anyhow::{Context, Result, bail};
use bytes::{Bytes, BytesMut};
use penstock_e2e::{Client, Node, PATIENCE};
use penstock_wire::client::{ClientKey, acknowledgement};
use penstock_wire::encryption::SessionCipher;
use penstock_wire::wkproto::{BODY_BYTES_MAX, Frame, Send, Version, decode, encode};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

/// The client's secret: any 32 bytes.
const SECRET: [u8; 32] = [7; 32];

/// A session over TCP.
struct Tcp {
    stream: TcpStream,
    input: BytesMut,
    cipher: SessionCipher,
    sent: u32,
}

fn read(stream: &mut TcpStream, input: &mut BytesMut) -> Result<Frame> {
    loop {
        if let Some(frame) = decode(input, Version::LATEST, BODY_BYTES_MAX)? {
            return Ok(frame);
        }
        let mut bytes = [0; 4_096];
        let count = stream.read(&mut bytes)?;
        if count == 0 {
            bail!("the server closed");
        }
        input.extend_from_slice(bytes.get(..count).unwrap_or_default());
    }
}

fn write(stream: &mut TcpStream, frame: &Frame) -> Result<()> {
    let mut out = BytesMut::new();
    encode(frame, Version::LATEST, &mut out)?;
    stream.write_all(&out).context("the server is gone")
}

impl Tcp {
    fn connect(node: &Node, uid: &str) -> Result<Tcp> {
        let mut stream = TcpStream::connect(node.tcp())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let key = ClientKey::new(SECRET);
        let connect = key.connect(6, uid, "any", &format!("tcp-{uid}"));
        write(&mut stream, &Frame::Connect(connect))?;
        let mut input = BytesMut::new();
        match read(&mut stream, &mut input)? {
            Frame::Connack(ack) => {
                let cipher = key.admitted(&ack)?;
                assert_eq!((ack.server_version, ack.node_id), (Some(6), 1));
                Ok(Tcp {
                    stream,
                    input,
                    cipher,
                    sent: 0,
                })
            }
            other => bail!("not admitted: {other:?}"),
        }
    }

    fn send(&mut self, channel: &str, text: &str) -> Result<(i64, u64, u8)> {
        self.sent += 1;
        let mut send = Send {
            client_seq: self.sent,
            client_msg_no: format!("tcp-{}", self.sent),
            channel_id: channel.to_owned(),
            channel_type: GROUP,
            payload: Bytes::from(json!({ "type": 1, "content": text }).to_string()),
            ..Send::default()
        };
        self.cipher.seal_send(&mut send);
        write(&mut self.stream, &Frame::Send(send))?;
        match read(&mut self.stream, &mut self.input)? {
            Frame::SendAck(ack) => Ok((ack.message_id, ack.message_seq, ack.reason_code)),
            other => bail!("not an acknowledgement: {other:?}"),
        }
    }

    fn receive(&mut self) -> Result<(String, u64, Value)> {
        match read(&mut self.stream, &mut self.input)? {
            Frame::Recv(recv) => {
                let payload = self.cipher.open_recv(&recv)?;
                write(&mut self.stream, &Frame::RecvAck(acknowledgement(&recv)))?;
                Ok((recv.from_uid, recv.message_seq, serde_json::from_slice(&payload)?))
            }
            other => bail!("not a message: {other:?}"),
        }
    }
}

#[test]
fn version_6_over_tcp_the_sdk_and_json_rpc_share_a_channel() -> Result<()> {
    let node = Node::start(&[])?;
    make_group(&node, &["tcp", "web", "rpc"])?;
    let mut tcp = Tcp::connect(&node, "tcp")?;
    let mut web = Client::sdk(node.websocket(), "web", "any")?;
    let mut rpc = Client::rpc(node.websocket(), "rpc", "any")?;

    let (id, seq, reason) = tcp.send("room", "from TCP")?;
    assert_eq!((seq, reason), (1, 1));
    for other in [&mut web, &mut rpc] {
        let received = other.received()?;
        assert_eq!(
            (&received["seq"], &received["text"], &received["from"]),
            (&json!(1), &json!("from TCP"), &json!("tcp"))
        );
        assert_eq!(received["id"], id.to_string());
    }
    web.send("room", GROUP, "from the SDK", "")?;
    let (from, seq, payload) = tcp.receive()?;
    assert_eq!(
        (from.as_str(), seq, &payload["content"]),
        ("web", 2, &json!("from the SDK"))
    );
    rpc.send("room", GROUP, "from JSON-RPC", "r1")?;
    let (from, seq, payload) = tcp.receive()?;
    assert_eq!(
        (from.as_str(), seq, &payload["content"]),
        ("rpc", 3, &json!("from JSON-RPC"))
    );
    Ok(())
}

#[test]
fn a_payload_that_cannot_be_opened_is_answered_and_the_session_goes_on() -> Result<()> {
    let node = Node::start(&[])?;
    make_group(&node, &["tcp"])?;
    let mut tcp = Tcp::connect(&node, "tcp")?;
    let forged = Send {
        client_seq: 99,
        channel_id: "room".to_owned(),
        channel_type: GROUP,
        msg_key: "0".repeat(32),
        payload: Bytes::from_static(b"AAAA"),
        ..Send::default()
    };
    write(&mut tcp.stream, &Frame::Send(forged))?;
    match read(&mut tcp.stream, &mut tcp.input)? {
        Frame::SendAck(ack) => assert_eq!((ack.client_seq, ack.reason_code), (99, 8)),
        other => bail!("not an acknowledgement: {other:?}"),
    }
    assert_eq!(tcp.send("room", "still here")?.2, 1);
    Ok(())
}
