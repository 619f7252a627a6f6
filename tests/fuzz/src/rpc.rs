//! A JSON-RPC session with the node: what its messages must be answered with, and whether they were.

use crate::node::{self, GROUP, Users};
use crate::peer::{Peer, ServerFrame, message};
use penstock_wire::jsonrpc::{Call, Method, code, parse};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Longest message of an open session, in bytes: the longest body and the head of a frame.
pub const MESSAGE_BYTES_MAX: usize = penstock_wire::wkproto::BODY_BYTES_MAX;

/// How many answers each id has; none for what had no usable id.
pub type Answers = BTreeMap<Option<String>, usize>;

/// Why the node must end the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// After an error object with this code.
    Error(i64),
    /// Because the client said that it leaves.
    Leaving,
}

/// What is expected of the node.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The answers to everything before the ending.
    pub answers: Answers,
    /// Nothing counts that follows it.
    pub ending: Option<Ending>,
}

impl Expected {
    /// A message was sent. Judged by the decoder alone, which has its own tests: here it is the model of the session.
    pub fn sent(&mut self, text: &[u8]) {
        if self.ending.is_some() {
            return;
        }
        match parse(text, MESSAGE_BYTES_MAX) {
            Ok(Call { id, method }) => match method {
                Method::Connect(_) => self.ending = Some(Ending::Error(i64::from(code::OUT_OF_ORDER))),
                Method::Disconnect(_) => self.ending = Some(Ending::Leaving),
                Method::RecvAck(_) => {}
                Method::Send(_) | Method::Subscribe(_) | Method::Unsubscribe(_) | Method::Ping => {
                    *self.answers.entry(id).or_default() += 1;
                }
            },
            Err(error) if error.is_fatal() => self.ending = Some(Ending::Error(i64::from(error.code()))),
            Err(error) => *self.answers.entry(error.id().map(str::to_owned)).or_default() += 1,
        }
    }
}

/// An open session and what the node has said.
#[derive(Debug)]
pub struct RpcSession {
    /// The connection.
    pub peer: Peer,
    /// The answers that came.
    pub answers: Answers,
    /// The codes of the error objects that came.
    pub errors: Vec<i64>,
    /// The payloads of the pongs that came.
    pub pongs: Vec<Vec<u8>>,
    /// The code of the close, once it came.
    pub closed: Option<u16>,
}

impl RpcSession {
    /// Connects as one of these users.
    ///
    /// # Panics
    /// When the node does not admit it.
    #[must_use]
    pub fn open(users: Users, user: usize) -> RpcSession {
        let mut peer = Peer::websocket(node::addresses().websocket);
        let uid = users.uid(user);
        let device = if user < 8 { "r1" } else { "r2" };
        let connect = json!({ "jsonrpc": "2.0", "id": "first", "method": "connect",
            "params": { "uid": uid, "token": "t", "deviceId": device, "deviceFlag": 1 } });
        peer.write(&[&message(1, connect.to_string().as_bytes())]);
        let connected = peer.frame().expect("an answer to connect");
        let connected: Value = serde_json::from_slice(&connected.payload).expect("JSON");
        assert_eq!(connected["id"], "first");
        assert_eq!(connected["result"]["reasonCode"], 1, "{connected}");
        RpcSession {
            peer,
            answers: Answers::new(),
            errors: Vec::new(),
            pongs: Vec::new(),
            closed: None,
        }
    }

    /// Takes the next frame; none at the end.
    ///
    /// # Panics
    /// When the node writes what it may not.
    pub fn take(&mut self) -> Option<ServerFrame> {
        let frame = self.peer.frame()?;
        assert_eq!(self.closed, None, "nothing follows a close: {frame:?}");
        match frame.opcode {
            1 => self.text(&frame.payload),
            8 => self.closed = Some(frame.close_code().unwrap_or(1_005)),
            10 => self.pongs.push(frame.payload.to_vec()),
            other => panic!("opcode {other} in a session of JSON-RPC"),
        }
        Some(frame)
    }

    fn text(&mut self, payload: &[u8]) {
        let object: Value = serde_json::from_slice(payload).expect("the node writes JSON");
        assert_eq!(object["jsonrpc"], "2.0", "{object}");
        if object.get("method").is_some() {
            let method = object["method"].as_str().expect("a method has a name");
            assert!(matches!(method, "recv" | "event" | "disconnect"), "{object}");
            assert!(
                object.get("id").is_none() && object["params"].is_object(),
                "{object}"
            );
            return;
        }
        let error = object.get("error");
        assert_ne!(
            error.is_some(),
            object.get("result").is_some(),
            "one of both: {object}"
        );
        if let Some(error) = error {
            assert!(
                error["message"].as_str().is_some_and(|text| !text.is_empty()),
                "{object}"
            );
            self.errors
                .push(error["code"].as_i64().expect("an error has a code"));
        }
        let id = match &object["id"] {
            Value::Null => None,
            Value::String(id) => Some(id.clone()),
            other => panic!("an id is a string: {other}"),
        };
        *self.answers.entry(id).or_default() += 1;
    }

    /// Reads until everything expected has come.
    ///
    /// # Panics
    /// When something else comes, or the end does.
    pub fn settle(&mut self, expected: &Expected) {
        let count = |answers: &Answers| answers.values().sum::<usize>();
        while count(&self.answers) < count(&expected.answers) {
            if self.take().is_none() || self.closed.is_some() {
                panic!("the session ended with {self:?}, but {expected:?} was to come");
            }
        }
        assert_eq!(self.answers, expected.answers);
    }

    /// Says that nothing more comes and reads to the end.
    pub fn end(&mut self) {
        self.peer.half_close();
        while self.take().is_some() {}
    }

    /// Reads to the end, which must be the expected one.
    ///
    /// # Panics
    /// When it is another.
    pub fn ended(&mut self, ending: Ending) {
        self.end();
        match ending {
            Ending::Error(code) => {
                assert!(self.errors.contains(&code), "{code} was to come: {self:?}");
                assert!(matches!(self.closed, Some(1_002 | 1_008)), "{self:?}");
            }
            Ending::Leaving => assert!(matches!(self.closed, Some(1_000)), "{self:?}"),
        }
    }
}

/// A request, as applications make them.
#[must_use]
pub fn request(id: &str, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

/// A send to the group.
#[must_use]
pub fn send(id: &str, client_msg_no: &str) -> String {
    let params = json!({ "channelId": GROUP, "channelType": 2, "clientMsgNo": client_msg_no,
        "payload": { "type": 1, "content": "hi" } });
    request(id, "send", &params)
}
