//! The input of a call in the form of a fixture, as `penstock plugin test` reads it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use penstock_core::hooks::call::{Call, HttpRequest, StatusBatch, Work};
use penstock_core::hooks::gates::Request;
use penstock_core::hooks::registry::Captured;
use penstock_core::message::{Draft, Message};
use penstock_core::types::{ChannelKey, Uid};
use serde_json::{Map, Value, json};

/// Bytes of all payloads of one input, as they are written.
const PAYLOADS_BYTES_MAX: usize = 768 << 10;
/// What stands in place of a token.
pub(super) const NO_TOKEN: &str = "***";

/// Whether the payloads and bodies are in an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payloads {
    /// All of them are.
    Kept,
    /// Some were too large, and their lengths stand there instead.
    Cut,
    /// None of them: the binding wants none kept.
    LeftOut,
}

impl Payloads {
    /// Its name, as people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Payloads::Kept => "kept",
            Payloads::Cut => "cut",
            Payloads::LeftOut => "left-out",
        }
    }
}

/// All that a guest is told in a call, as a fixture without what must come of it. A token is never in it.
#[must_use]
pub fn input_of(call: &Call, config: &Map<String, Value>, captured: Captured) -> (Value, Payloads) {
    let mut writer = Writer::new(captured);
    let mut input = Map::new();
    input.insert("hook".to_owned(), json!(call.work.hook().name()));
    input.insert("config".to_owned(), Value::Object(config.clone()));
    let mut put = |name: &str, value: Value| {
        input.insert(name.to_owned(), value);
    };
    let channel = call.channel.as_ref();
    match &call.work {
        Work::BeforeSend { drafts, wall_ms } => {
            let drafts = drafts
                .iter()
                .map(|draft| Value::Object(writer.draft(channel, draft)));
            put("messages", drafts.collect());
            put("time_ms", json!(wall_ms));
        }
        Work::PersistAfter {
            incarnation,
            messages,
            ..
        } => {
            put("messages", writer.messages(channel, messages));
            put("incarnation", json!(incarnation.0));
        }
        Work::Offline {
            incarnation,
            message,
            uids,
        } => {
            put(
                "messages",
                writer.messages(channel, std::slice::from_ref(&**message)),
            );
            put("incarnation", json!(incarnation.0));
            put("uids", texts(uids));
        }
        Work::Webhook {
            window,
            messages,
            uids,
        } => {
            put("messages", writer.messages(channel, messages));
            put("incarnation", json!(window.incarnation.0));
            if !uids.is_empty() {
                put("uids", texts(uids));
            }
        }
        Work::OnlineStatus(batch) => {
            put("statuses", statuses(batch));
            put("time_ms", json!(batch.wall_ms));
        }
        Work::Connect { request, wall_ms } => {
            put("connects", json!([connect(request)]));
            put("time_ms", json!(wall_ms));
        }
        Work::Route { request, wall_ms } => {
            put("requests", json!([writer.request(request)]));
            put("time_ms", json!(wall_ms));
        }
    }
    (Value::Object(input), writer.payloads)
}

fn texts(uids: &[Uid]) -> Value {
    uids.iter().map(|uid| uid.as_str()).collect()
}

fn statuses(batch: &StatusBatch) -> Value {
    json!({ "slot": batch.slot.0, "number": batch.number, "users": batch.statuses })
}

fn connect(request: &Request) -> Value {
    json!({
        "uid": request.uid.as_str(),
        "token": NO_TOKEN,
        "device_id": &*request.device_id,
        "device_flag": request.flag.0,
        "address": &*request.address,
    })
}

/// Writes what has payloads, within the room for them.
struct Writer {
    captured: Captured,
    room: usize,
    payloads: Payloads,
}

impl Writer {
    fn new(captured: Captured) -> Writer {
        Writer {
            captured,
            room: PAYLOADS_BYTES_MAX,
            payloads: match captured {
                Captured::Payload => Payloads::Kept,
                Captured::Headers | Captured::Off => Payloads::LeftOut,
            },
        }
    }

    fn messages(&mut self, channel: Option<&ChannelKey>, messages: &[Message]) -> Value {
        messages
            .iter()
            .map(|message| {
                let mut object = self.draft(channel, &message.draft);
                object.insert("message_id".to_owned(), json!(message.id.0));
                object.insert("message_seq".to_owned(), json!(message.seq.0));
                object.insert("timestamp_ms".to_owned(), json!(message.stamp_ms));
                Value::Object(object)
            })
            .collect()
    }

    /// What is as it is without being said is left out.
    fn draft(&mut self, channel: Option<&ChannelKey>, draft: &Draft) -> Map<String, Value> {
        let mut object = Map::new();
        let mut put = |name: &str, value: Value, is_usual: bool| {
            if !is_usual {
                object.insert(name.to_owned(), value);
            }
        };
        put("from", json!(draft.from_uid.as_str()), false);
        if let Some(channel) = channel {
            put("channel_type", json!(channel.kind.0), false);
            put("channel_id", json!(&*channel.id), false);
        }
        // Also an empty one: a message of a fixture that names none has one.
        put("client_msg_no", json!(&*draft.client_msg_no), false);
        put("topic", json!(&*draft.topic), draft.topic.is_empty());
        put("expire", json!(draft.expire_s), draft.expire_s == 0);
        put("setting", json!(draft.setting), draft.setting == 0);
        put("hops", json!(draft.hops), draft.hops == 0);
        let flags = [
            ("no_persist", draft.flags.no_persist),
            ("red_dot", draft.flags.red_dot),
            ("sync_once", draft.flags.sync_once),
        ];
        let set = flags.into_iter().filter(|(_, is_set)| *is_set);
        let flags: Vec<&str> = set.map(|(name, _)| name).collect();
        put("flags", json!(flags), flags.is_empty());
        let attributes = draft.attributes.iter().flat_map(|all| all.iter());
        let attributes: Vec<[&str; 2]> = attributes.map(|(name, value)| [&**name, &**value]).collect();
        put("attributes", json!(attributes), attributes.is_empty());
        self.put_bytes(&mut object, "payload", &draft.payload);
        object
    }

    fn request(&mut self, request: &HttpRequest) -> Value {
        let mut object = Map::new();
        object.insert("method".to_owned(), json!(request.method));
        object.insert("url".to_owned(), json!(request.url));
        // In their order, because a name may come twice.
        object.insert("headers".to_owned(), json!(request.headers));
        if !request.body.is_empty() {
            self.put_bytes(&mut object, "body", &request.body);
        }
        Value::Object(object)
    }

    /// A payload as a text, as base64 if it is none, or its length alone.
    fn put_bytes(&mut self, object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
        if self.captured != Captured::Payload {
            object.insert(format!("{name}_bytes"), json!(bytes.len()));
            return;
        }
        match self.fitting(bytes) {
            Some((form, text)) => {
                object.insert(format!("{name}{form}"), Value::String(text));
            }
            None => {
                self.payloads = Payloads::Cut;
                object.insert(format!("{name}_bytes"), json!(bytes.len()));
            }
        }
    }

    fn fitting(&mut self, bytes: &[u8]) -> Option<(&'static str, String)> {
        // No form is shorter than the bytes: what cannot fit is not written first.
        if bytes.len() > self.room {
            return None;
        }
        let (form, text) = match std::str::from_utf8(bytes) {
            Ok(text) => ("", text.to_owned()),
            Err(_) => ("_base64", STANDARD.encode(bytes)),
        };
        let written = text.bytes().map(written_bytes).sum();
        self.room = self.room.checked_sub(written)?;
        Some((form, text))
    }
}

/// Bytes that a byte of a text takes in JSON, at most.
const fn written_bytes(byte: u8) -> usize {
    match byte {
        0..0x20 => "\\u0000".len(),
        b'"' | b'\\' => 2,
        _ => 1,
    }
}
