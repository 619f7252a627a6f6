//! A webhook that renders what a message tells it to, for tests of the broker. A word anywhere in the payloads of the batch, or in the texts
//! beside it, says what; a batch without one becomes one request to the `url` of the configuration: a JSON array of messages, or of the texts
//! of users that came or went.
//!
//! | word | what it does |
//! |---|---|
//! | `trap`, `panic`, `loop`, `grow`, `recurse` | as it says |
//! | `flood` | writes 100,000 lines to the log first |
//! | `retry`, `poison`, `busy` | renders nothing, for this reason |
//! | `huge` | a request whose body has 4 MiB |
//! | `long` | a request whose body has 1.75 MiB |
//! | `many` | 10,000 requests |
//! | `path` | a request whose URL has 1 MB more |
//! | `elsewhere` | a request to the `other` of the configuration |
//! | `nowhere` | a request to what is no URL |
//! | `inject` | a request with the end of a line, and another header, in the value of a header |
//! | `split` | the same in the name of a header |
//! | `smuggle` | the same in its method |
//! | `sign` | a request with a header `webhook-signature` |
//! | `host` | a request with a header `host` |
//!
//! The configuration `{"init": "fail"}` makes the instance fail to start, `{"calm": true}` makes it obey no word.

use penstock_harm::{harm, has};
use penstock_plugin_sdk::{Batch, Event, Failure, FailureKind, Header, HttpRequest, Webhook};
use std::fmt::Write as _;

/// A body that does not cross, and one that crosses and is not taken, bytes.
const HUGE: usize = 4 << 20;
const LONG: usize = 7 << 18;
/// Requests that are too many.
const MANY: usize = 10_000;
/// What a URL has too much, bytes.
const PATH: usize = 1_000_000;
/// What stands in a header and is not to stand in a request.
const INJECTED: &str = "a\r\nx-injected: b";

/// The webhook.
pub struct Scripted {
    url: String,
    other: String,
    /// No word is obeyed.
    calm: bool,
}

impl Webhook for Scripted {
    fn new(config: &str) -> Result<Self, String> {
        if config.contains("\"fail\"") {
            return Err("scripted to fail".to_owned());
        }
        Ok(Self {
            url: text(config, "url"),
            other: text(config, "other"),
            calm: config.contains("\"calm\""),
        })
    }

    fn render(
        &mut self,
        _event: Event,
        batch: &Batch<'_>,
        uids: &[String],
    ) -> Result<Vec<HttpRequest>, Failure> {
        let payloads = batch.messages().map(|message| message.payload());
        let mut script: Vec<u8> = payloads.flatten().copied().collect();
        script.extend(uids.iter().flat_map(|uid| uid.bytes()));
        if self.calm {
            script.clear();
        }
        harm(&script);
        if let Some(failure) = failure(&script) {
            return Err(failure);
        }
        let mut request = self.request(body(batch, uids));
        if has(&script, "many") {
            // So that they cross.
            request.headers.clear();
            request.body.clear();
            return Ok(vec![request; MANY]);
        }
        self.spoil(&script, &mut request);
        Ok(vec![request])
    }
}

penstock_plugin_sdk::webhook!(Scripted);

impl Scripted {
    fn request(&self, body: String) -> HttpRequest {
        HttpRequest {
            method: "POST".to_owned(),
            url: self.url.clone(),
            headers: vec![header("content-type", "application/json")],
            body: body.into_bytes(),
        }
    }

    /// Makes a request what a word says.
    fn spoil(&self, script: &[u8], request: &mut HttpRequest) {
        if has(script, "huge") {
            request.body = vec![b' '; HUGE];
        }
        if has(script, "long") {
            request.body = vec![b' '; LONG];
        }
        if has(script, "path") {
            request.url.push_str(&"u".repeat(PATH));
        }
        if has(script, "elsewhere") {
            request.url.clone_from(&self.other);
        }
        if has(script, "nowhere") {
            request.url = "http://a b/\r\nx-injected: b".to_owned();
        }
        if has(script, "smuggle") {
            request.method = format!("POST / HTTP/1.1\r\n{INJECTED}");
        }
        let headers = [
            ("inject", "x-word", INJECTED),
            ("split", INJECTED, "b"),
            ("sign", "Webhook-Signature", "v1,AAAA"),
            ("host", "Host", "b.example"),
        ];
        for (_, name, value) in headers.into_iter().filter(|(word, ..)| has(script, word)) {
            request.headers.push(header(name, value));
        }
    }
}

fn header(name: &str, value: &str) -> Header {
    Header {
        name: name.to_owned(),
        value: value.to_owned(),
    }
}

/// A JSON array of the messages; without any, of the texts.
fn body(batch: &Batch<'_>, uids: &[String]) -> String {
    let messages = batch.messages().map(|message| {
        format!(
            "{{\"channel_id\":\"{}\",\"message_seq\":{}}}",
            message.channel_id(),
            message.position()
        )
    });
    let texts = uids.iter().map(|uid| format!("\"{uid}\""));
    let all: Vec<String> = if batch.is_empty() {
        texts.collect()
    } else {
        messages.collect()
    };
    let mut body = String::new();
    // Writing to a string cannot fail.
    let _ = write!(body, "[{}]", all.join(","));
    body
}

/// A text of the configuration; empty without one.
fn text(config: &str, name: &str) -> String {
    let rest = config.split_once(&format!("\"{name}\":\"")).map(|(_, rest)| rest);
    let text = rest.and_then(|rest| rest.split_once('"'));
    text.map_or_else(String::new, |(text, _)| text.to_owned())
}

fn failure(script: &[u8]) -> Option<Failure> {
    let (word, kind) = [
        ("retry", FailureKind::Retry),
        ("poison", FailureKind::Poison),
        ("busy", FailureKind::Busy),
    ]
    .into_iter()
    .find(|(word, _)| has(script, word))?;
    Some(Failure {
        kind,
        after_ms: 0,
        message: format!("scripted to answer {word}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(uid: &str) -> Result<Vec<HttpRequest>, Failure> {
        let config = "{\"other\":\"https://b/\",\"url\":\"https://a/\"}";
        let mut webhook = Scripted::new(config).expect("a webhook");
        let batch = Batch::parse(&[], &[1, 5, 26, 0, 1]).expect("whole");
        webhook.render(Event::UserOnlineStatus, &batch, &[uid.to_owned()])
    }

    #[test]
    fn a_word_says_what_is_rendered() {
        let one = |uid: &str| rendered(uid).expect("requests").remove(0);
        assert_eq!(one("ann").body, b"[\"ann\"]");
        assert_eq!(one("ann").url, "https://a/");
        assert_eq!(one("elsewhere").url, "https://b/");
        assert_eq!(one("inject").headers[1].value, INJECTED);
        assert_eq!(one("sign").headers[1].name, "Webhook-Signature");
        assert_eq!(one("long").body.len(), LONG);
        assert_eq!(rendered("many").expect("requests").len(), MANY);
        assert_eq!(rendered("poison").expect_err("none").kind, FailureKind::Poison);
        assert!(Scripted::new("{\"init\":\"fail\"}").is_err());
    }
}
