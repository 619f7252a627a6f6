//! Turns events into webhooks, posted to the binding's `url` with the name of the event in its query: `msg.notify`, a JSON array of
//! messages for each batch; `msg.offline`, a JSON object for each message and page of recipients who are offline: the message with their
//! `to_uids`; and `user.onlinestatus`, a JSON array of texts for users that came or went.
//!
//! The configuration: `{"url": "https://hooks.example.org/chat", "secret": "name", "events": ["msg.notify"]}`. The broker reads all of
//! it too: it delivers to no other place than that of `url`, signs with the secret of that name in its configuration, and follows the
//! channels for these events.
//!
//! Command messages (sync once) are left out: they are not part of a conversation. A batch whose array would be too long becomes
//! several requests, cut at the same messages every time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use penstock_plugin_sdk::{Batch, Event, Failure, FailureKind, Header, HttpRequest, Message, Webhook};
use serde::Deserialize;
use serde_json::{Value, json};

/// The event of committed messages.
const NOTIFY: &str = "msg.notify";
/// That of a committed message with recipients who are offline.
const OFFLINE: &str = "msg.offline";
/// That of users that came or went.
const ONLINE_STATUS: &str = "user.onlinestatus";
/// All events that this plugin sends.
const EVENTS: [&str; 3] = [NOTIFY, OFFLINE, ONLINE_STATUS];
/// A body is cut before a message that would make it longer than this, bytes.
const BODY_BYTES_MAX: usize = 512 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    url: String,
    /// The broker's business.
    #[serde(rename = "secret")]
    _secret: String,
    events: Vec<String>,
}

/// The webhook.
pub struct Hook {
    /// Where each event goes that is wanted; an empty text without a `url`.
    notify: Option<String>,
    offline: Option<String>,
    online_status: Option<String>,
}

impl Webhook for Hook {
    fn new(config: &str) -> Result<Self, String> {
        let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        let is_known = |event: &&String| EVENTS.contains(&event.as_str());
        if let Some(unknown) = config.events.iter().find(|event| !is_known(event)) {
            let known = EVENTS.join(", ");
            return Err(format!(
                "events: `{unknown}` is not one that this plugin sends: {known}"
            ));
        }
        if config.url.contains('#') {
            return Err("url: it has a fragment (#), which is never sent".to_owned());
        }
        let place = |event: &str| {
            let wanted = config.events.iter().any(|wanted| wanted == event);
            wanted.then(|| match config.url.as_str() {
                "" => String::new(),
                url => with_event(url, event),
            })
        };
        Ok(Self {
            notify: place(NOTIFY),
            offline: place(OFFLINE),
            online_status: place(ONLINE_STATUS),
        })
    }

    fn render(
        &mut self,
        event: Event,
        batch: &Batch<'_>,
        uids: &[String],
    ) -> Result<Vec<HttpRequest>, Failure> {
        let place = match event {
            Event::MessageNotify => &self.notify,
            Event::MessageOffline => &self.offline,
            Event::UserOnlineStatus => &self.online_status,
        };
        let Some(url) = place else {
            return Ok(Vec::new());
        };
        if url.is_empty() {
            return Err(Failure {
                kind: FailureKind::Retry,
                after_ms: 0,
                message: "the configuration of the binding has no url".to_owned(),
            });
        }
        let shown = batch.messages().filter(|message| !message.is_command());
        let bodies = match event {
            Event::MessageNotify => arrays(shown.map(|message| object(&message).to_string())),
            Event::MessageOffline => shown.map(|message| absent(&message, uids).to_string()).collect(),
            Event::UserOnlineStatus => arrays(uids.iter().map(|status| json!(status).to_string())),
        };
        Ok(bodies.into_iter().map(|body| request(url, body)).collect())
    }
}

fn request(url: &str, body: String) -> HttpRequest {
    HttpRequest {
        method: "POST".to_owned(),
        url: url.to_owned(),
        headers: vec![Header {
            name: "content-type".to_owned(),
            value: "application/json".to_owned(),
        }],
        body: body.into_bytes(),
    }
}

/// A message with recipients of it who are offline.
fn absent(message: &Message<'_>, uids: &[String]) -> Value {
    let mut object = object(message);
    object["to_uids"] = json!(uids);
    object
}

/// The URL with the event in its query; what is there already stays.
fn with_event(url: &str, event: &str) -> String {
    let between = match url.split_once('?') {
        None => '?',
        Some((_, "")) => return format!("{url}event={event}"),
        Some(_) => '&',
    };
    format!("{url}{between}event={event}")
}

/// JSON arrays of these values, each within the bound unless it holds a single value.
fn arrays(values: impl Iterator<Item = String>) -> Vec<String> {
    let mut arrays: Vec<String> = Vec::new();
    for value in values {
        match arrays.last_mut() {
            Some(last) if last.len() + value.len() + 2 <= BODY_BYTES_MAX => {
                last.push(',');
                last.push_str(&value);
            }
            _ => arrays.push(format!("[{value}")),
        }
    }
    for array in &mut arrays {
        array.push(']');
    }
    arrays
}

/// A message as receivers know it. Numbers of 64 bits that JavaScript would round stand as text too.
fn object(message: &Message<'_>) -> Value {
    let id = message.message_id().cast_signed();
    let mut object = json!({
        "header": {
            "no_persist": 0,
            "red_dot": u8::from(message.counts_as_unread()),
            "sync_once": u8::from(message.is_command()),
        },
        "setting": message.setting(),
        "expire": message.expire_seconds(),
        "message_id": id,
        "message_idstr": id.to_string(),
        "client_msg_no": message.client_message_number(),
        "message_seq": message.position(),
        "from_uid": message.sender(),
        "channel_id": message.channel_id(),
        "channel_type": message.channel_kind(),
        "timestamp": message.server_time_ms() / 1_000,
        "payload": STANDARD.encode(message.payload()),
    });
    if !message.topic().is_empty() {
        object["topic"] = json!(message.topic());
    }
    object
}

penstock_plugin_sdk::webhook!(Hook);

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(config: &Value) -> Result<Hook, String> {
        Hook::new(&config.to_string())
    }

    /// Frames of one message for each payload, from `amy` in `room`.
    fn rendered(hook: &mut Hook, payloads: &[&[u8]], flags: u32) -> Vec<HttpRequest> {
        told(hook, (Event::MessageNotify, &[]), payloads, flags)
    }

    fn told(
        hook: &mut Hook,
        (event, uids): (Event, &[String]),
        payloads: &[&[u8]],
        flags: u32,
    ) -> Vec<HttpRequest> {
        let mut arena = b"roomamynum".to_vec();
        let mut index = vec![1, 5, 26, payloads.len() as u32, 1];
        for (at, payload) in payloads.iter().enumerate() {
            let start = arena.len() as u32;
            arena.extend_from_slice(payload);
            let seq = at as u32 + 1;
            index.extend([
                0,
                4,
                2,
                4,
                3,
                start,
                payload.len() as u32,
                7,
                3,
                0,
                0,
                60,
                flags,
                1,
            ]);
            index.extend([9, 1, seq, 0, 5_000, 0, 0, 0, 0, 0, 0, 0]);
        }
        let batch = Batch::parse(&arena, &index).expect("whole");
        hook.render(event, &batch, uids).expect("rendered")
    }

    #[test]
    fn a_batch_is_an_array_of_messages() {
        let config = json!({ "url": "https://a.example/in?k=v", "secret": "s", "events": ["msg.notify"] });
        let mut hook = hook(&config).expect("a configuration");
        let requests = rendered(&mut hook, &[b"one", b"two"], 2);
        assert_eq!(requests.len(), 1);
        assert_eq!(
            (requests[0].method.as_str(), requests[0].url.as_str()),
            ("POST", "https://a.example/in?k=v&event=msg.notify")
        );
        let body: Value = serde_json::from_slice(&requests[0].body).expect("JSON");
        assert_eq!(body.as_array().map(Vec::len), Some(2));
        let expected = json!({
            "header": { "no_persist": 0, "red_dot": 1, "sync_once": 0 },
            "setting": 1, "expire": 60, "message_id": 4_294_967_305_u64, "message_idstr": "4294967305",
            "client_msg_no": "num", "message_seq": 1, "from_uid": "amy", "channel_id": "room", "channel_type": 2,
            "timestamp": 5, "payload": "b25l",
        });
        assert_eq!(body[0], expected);
    }

    #[test]
    fn who_is_offline_stands_beside_the_message() {
        let config = json!({ "url": "https://a.example/in", "secret": "s", "events": ["msg.offline"] });
        let uids = ["bob".to_owned(), "carol".to_owned()];
        let page = (Event::MessageOffline, &uids[..]);
        let requests = told(&mut hook(&config).expect("valid"), page, &[b"one"], 2);
        let [request] = &requests[..] else {
            panic!("{} requests", requests.len())
        };
        assert_eq!(request.url, "https://a.example/in?event=msg.offline");
        let body: Value = serde_json::from_slice(&request.body).expect("JSON");
        assert_eq!(
            (&body["to_uids"], &body["message_seq"]),
            (&json!(uids), &json!(1))
        );
    }

    #[test]
    fn nothing_is_sent_of_commands_or_for_other_events() {
        let config = json!({ "url": "https://a.example/", "secret": "s", "events": ["msg.notify"] });
        assert!(rendered(&mut hook(&config).expect("valid"), &[b"x"], 4).is_empty());
        let none = json!({ "url": "https://a.example/", "secret": "s", "events": [] });
        assert!(rendered(&mut hook(&none).expect("valid"), &[b"x"], 0).is_empty());
        let other = json!({ "url": "https://a.example/", "secret": "s", "events": ["msg.offline"] });
        assert!(rendered(&mut hook(&other).expect("valid"), &[b"x"], 0).is_empty());
        let unknown = json!({ "url": "https://a.example/", "secret": "s", "events": ["msg.other"] });
        assert!(hook(&unknown).is_err());
    }

    #[test]
    fn users_that_came_or_went_are_an_array_of_texts() {
        let statuses = ["amy-0-1-7-1-1".to_owned(), "a\"b-0-0-7-0-0".to_owned()];
        let batch = Batch::parse(&[], &[1, 5, 26, 0, 1]).expect("whole");
        let rendered = |events: &[&str]| {
            let config = json!({ "url": "https://a.example/", "secret": "s", "events": events });
            let mut hook = hook(&config).expect("valid");
            hook.render(Event::UserOnlineStatus, &batch, &statuses)
                .expect("rendered")
        };
        let requests = rendered(&["user.onlinestatus"]);
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].url, "https://a.example/?event=user.onlinestatus");
        let body: Value = serde_json::from_slice(&requests[0].body).expect("JSON");
        assert_eq!(body, json!(statuses));
        assert!(rendered(&["msg.notify"]).is_empty());
    }

    #[test]
    fn a_long_batch_is_cut_at_the_same_messages_every_time() {
        let config = json!({ "url": "https://a.example/", "secret": "s", "events": ["msg.notify"] });
        let mut hook = hook(&config).expect("valid");
        let large = vec![b'x'; 150 << 10];
        let payloads: Vec<&[u8]> = vec![&large; 5];
        let first = rendered(&mut hook, &payloads, 0);
        let counts: Vec<usize> = first
            .iter()
            .map(|request| {
                serde_json::from_slice::<Vec<Value>>(&request.body)
                    .expect("JSON")
                    .len()
            })
            .collect();
        assert_eq!(counts, [2, 2, 1]);
        assert!(first.iter().all(|request| request.body.len() <= BODY_BYTES_MAX));
        let again = rendered(&mut hook, &payloads, 0);
        let bodies = |requests: &[HttpRequest]| -> Vec<Vec<u8>> {
            requests.iter().map(|request| request.body.clone()).collect()
        };
        assert_eq!(bodies(&again), bodies(&first));
    }

    #[test]
    fn the_event_stands_in_the_query() {
        for (url, expected) in [
            ("https://a", "https://a?event=e"),
            ("https://a/?", "https://a/?event=e"),
            ("https://a/?b=c", "https://a/?b=c&event=e"),
        ] {
            assert_eq!(with_event(url, "e"), expected);
        }
    }
}
