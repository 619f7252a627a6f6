//! A consumer that asks places and for secrets as a message tells it to, for tests of the broker. A message is a JSON text:
//!
//! | field | what it does |
//! |---|---|
//! | `url` | asks there, with `method` (GET unless given), `headers` (an object) and `body` |
//! | `times` | asks so often |
//! | `url_bytes`, `pad`, `body_bytes` | makes the URL, a header or the body so many bytes long |
//! | `reveal` | asks for the secret of this name, and logs how long it is |
//!
//! What came of it is a line of the log: `answered 200 BODY`, or the error. A message that tells it nothing is done.

use penstock_plugin_sdk::{Batch, Consumer, Done, Failure, Header, HttpRequest, host};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Default, Deserialize)]
#[serde(default)]
struct Script {
    url: String,
    method: Option<String>,
    headers: BTreeMap<String, String>,
    body: String,
    times: Option<u32>,
    url_bytes: usize,
    pad: usize,
    body_bytes: usize,
    reveal: Option<String>,
}

/// The consumer.
pub struct Fetcher;

impl Consumer for Fetcher {
    fn new(_config: &str) -> Result<Self, String> {
        Ok(Self)
    }

    fn persist_after(&mut self, batch: &Batch<'_>) -> Result<Done, Failure> {
        for message in batch.messages() {
            act(&script(message.payload()));
        }
        Ok(Done::all(batch))
    }
}

penstock_plugin_sdk::consumer!(Fetcher);

/// The script of a payload: its `content` as JSON.
fn script(payload: &[u8]) -> Script {
    #[derive(Default, Deserialize)]
    struct Text {
        content: String,
    }
    let text: Text = serde_json::from_slice(payload).unwrap_or_default();
    serde_json::from_str(&text.content).unwrap_or_default()
}

fn act(script: &Script) {
    if let Some(name) = &script.reveal {
        let said = match host::secrets::reveal(name) {
            Some(value) => format!("revealed {} bytes", value.len()),
            None => "revealed nothing".to_owned(),
        };
        host::info(&said);
    }
    if script.url.is_empty() {
        return;
    }
    let request = request(script);
    for _ in 0..script.times.unwrap_or(1) {
        let said = match host::http::send(&request) {
            Ok(response) => {
                let body = String::from_utf8_lossy(&response.body);
                format!(
                    "answered {} {}",
                    response.status,
                    &body[..body.floor_char_boundary(100)]
                )
            }
            Err(error) => format!("{error:?}"),
        };
        host::info(&said);
    }
}

fn request(script: &Script) -> HttpRequest {
    let headers = script.headers.iter().map(|(name, value)| Header {
        name: name.clone(),
        value: value.clone(),
    });
    let pad = (script.pad > 0).then(|| Header {
        name: "x-pad".to_owned(),
        value: "p".repeat(script.pad),
    });
    let long = "b".repeat(script.body_bytes);
    HttpRequest {
        method: script.method.clone().unwrap_or_else(|| "GET".to_owned()),
        url: format!("{}{}", script.url, "u".repeat(script.url_bytes)),
        headers: headers.chain(pad).collect(),
        body: if long.is_empty() {
            script.body.clone().into_bytes()
        } else {
            long.into_bytes()
        },
    }
}
