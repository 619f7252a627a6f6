//! Keeps title and description of the first link of a message, for apps that show them.
//!
//! The preview is a key of the plugin, `KIND/CHANNEL/POSITION` as in `2/room/17`, whose value is JSON with `url`, `title` and
//! `description`. An app's back end reads it by `GET /v1/plugins/link-preview/keys/2%2Froom%2F17`. What stands in it comes from a page that
//! anybody may have written: show it as text. A message without a link, or with one that leads to no page with a title, has no key.
//!
//! The binding grants `kv` and where links may lead: `http:GET https://*/` for all of the web that speaks https. The broker refuses
//! addresses inside, whatever name a link has. The configuration: `{"keep_seconds": 2592000}`, how long a preview is kept.
//!
//! At most two links are fetched in one call, each with two redirects and five seconds a request: a binding gives it 40 s.

mod link;
mod page;

use page::Page;
use penstock_plugin_sdk::{Batch, Consumer, Done, Failure, KvChange, host, host::http};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;

/// Links that one call fetches: what is left of its batch comes again.
const LINKS_MAX: usize = 2;
/// Redirects of one link.
const REDIRECTS_MAX: usize = 2;
/// Longest channel id that has previews, bytes: a key has room for it.
const CHANNEL_BYTES_MAX: usize = 400;
/// Longest life of a preview: ten years, seconds.
const KEEP_SECONDS_MAX: u64 = 10 * 366 * 86_400;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    keep_seconds: u64,
}

/// The plugin.
pub struct LinkPreview {
    keep: Duration,
}

impl Consumer for LinkPreview {
    fn new(config: &str) -> Result<Self, String> {
        let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        if !(1..=KEEP_SECONDS_MAX).contains(&config.keep_seconds) {
            return Err(format!("keep_seconds: from 1 to {KEEP_SECONDS_MAX}"));
        }
        Ok(Self {
            keep: Duration::from_secs(config.keep_seconds),
        })
    }

    fn persist_after(&mut self, batch: &Batch<'_>) -> Result<Done, Failure> {
        let mut changes = Vec::new();
        let mut fetched = 0;
        for (place, message) in batch.messages().enumerate() {
            let id = message.channel_id();
            let Some(url) = link::first(&text(message.payload())).filter(|_| id.len() <= CHANNEL_BYTES_MAX)
            else {
                continue;
            };
            if fetched == LINKS_MAX {
                let messages = u32::try_from(place).unwrap_or(u32::MAX);
                return Ok(Done { messages, changes });
            }
            fetched += 1;
            let Some(page) = fetch(&url) else { continue };
            let key = format!("{}/{id}/{}", message.channel_kind(), message.position());
            changes.push(KvChange::set_for(place, key, preview(&url, &page), self.keep));
        }
        Ok(Done::all(batch).with(changes))
    }
}

penstock_plugin_sdk::consumer!(LinkPreview);

/// The text of a payload, which is JSON with a `content` or a text.
fn text(payload: &[u8]) -> String {
    match serde_json::from_slice::<Value>(payload) {
        Ok(value) => value["content"].as_str().unwrap_or_default().to_owned(),
        Err(_) => String::from_utf8_lossy(payload).into_owned(),
    }
}

/// The page that a link leads to; none when there is none. A preview is no reason to hold up a channel: nothing is tried again.
fn fetch(link: &str) -> Option<Page> {
    let mut url = link.to_owned();
    for _ in 0..=REDIRECTS_MAX {
        let Ok(response) = http::get(&url, &[("accept", "text/html")]) else {
            host::count("unanswered", 1);
            return None;
        };
        match response.status {
            200 => {
                let is_page = http::header(&response, "content-type").is_some_and(page::is_html);
                let page = is_page.then(|| page::read(&response.body)).flatten();
                host::count(if page.is_some() { "previews" } else { "no_page" }, 1);
                return page;
            }
            301 | 302 | 303 | 307 | 308 => {
                let location = http::header(&response, "location")?;
                url = link::follow(&url, location)?;
            }
            _ => break,
        }
    }
    host::count("no_page", 1);
    None
}

fn preview(url: &str, page: &Page) -> String {
    json!({ "url": url, "title": page.title, "description": page.description }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_payload() {
        assert_eq!(text(br#"{"type":1,"content":"a"}"#), "a");
        assert_eq!(text(br#"{"type":2}"#), "");
        assert_eq!(text(b"see https://a/"), "see https://a/");
    }

    #[test]
    fn refuses_a_wrong_configuration() {
        assert!(LinkPreview::new(r#"{"keep_seconds":60}"#).is_ok());
        for config in [
            "",
            "{}",
            r#"{"keep_seconds":0}"#,
            r#"{"keep_seconds":60,"more":1}"#,
        ] {
            assert!(LinkPreview::new(config).is_err(), "{config}");
        }
    }
}
