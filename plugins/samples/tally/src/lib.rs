//! Counts the messages of each channel in the plugin's keys, and shows what else a message may do to keys: the word `add:KEY` adds 1 to
//! a number, `set:KEY` gives a key the payload.
//!
//! The key `messages/KIND/CHANNEL` grows once for a batch, by all of its messages; `from/SENDER` grows with each message. Both are
//! exact, whatever is handed out again.
//!
//! A second binding, with the hook `route`, shows them: `GET /plugins/tally/from/SENDER` answers the number of that key.

use penstock_plugin_sdk::host::kv;
use penstock_plugin_sdk::{Batch, Consumer, Done, Failure, HttpRequest, HttpResponse, KvChange, Router};

/// Consumer and router. All that they know stands in their keys.
pub struct Tally;

impl Consumer for Tally {
    fn new(_config: &str) -> Result<Self, String> {
        Ok(Self)
    }

    fn persist_after(&mut self, batch: &Batch<'_>) -> Result<Done, Failure> {
        let mut changes = Vec::new();
        for (place, message) in batch.messages().enumerate() {
            changes.push(KvChange::increment(
                place,
                format!("from/{}", message.sender()),
                1,
            ));
            let text = String::from_utf8_lossy(message.payload()).into_owned();
            if let Some(key) = argument(&text, "add:") {
                changes.push(KvChange::increment(place, key, 1));
            }
            if let Some(key) = argument(&text, "set:") {
                changes.push(KvChange::set(place, key, text.as_bytes()));
            }
        }
        if let (Some(last), Some(message)) = (batch.len().checked_sub(1), batch.messages().next()) {
            let key = format!("messages/{}/{}", message.channel_kind(), message.channel_id());
            changes.push(KvChange::increment(last, key, batch.len() as i64));
        }
        Ok(Done::all(batch).with(changes))
    }
}

impl Router for Tally {
    fn new(_config: &str) -> Result<Self, String> {
        Ok(Self)
    }

    fn handle(&mut self, request: HttpRequest) -> HttpResponse {
        if request.method != "GET" {
            return HttpResponse::text(405, "only messages count: GET").with("allow", "GET");
        }
        match kv::get(request.path().trim_start_matches('/')) {
            Ok(Some(number)) => HttpResponse::new(200, number).with("content-type", "text/plain"),
            Ok(None) => HttpResponse::text(404, "nothing was counted under this key"),
            Err(error) => HttpResponse::text(503, format!("the key cannot be read: {error:?}")),
        }
    }
}

penstock_plugin_sdk::consumer_and_router!(Tally);

/// What follows a word, up to a space or a quotation mark.
fn argument<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(word)?;
    rest.split(['"', ' ']).next().filter(|key| !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_word_is_its_argument() {
        let text = r#"{"content":"add:total set:last"}"#;
        assert_eq!(argument(text, "add:"), Some("total"));
        assert_eq!(argument(text, "set:"), Some("last"));
        assert_eq!(argument("add: x", "add:"), None);
    }
}
