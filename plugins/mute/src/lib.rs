//! Moderators mute users of a channel by a message, and messages of muted users are refused.
//!
//! `/mute USER` in a channel mutes a user there for so many seconds, `/mute USER 60` for another time, and `/unmute USER` ends it. Bind
//! it twice, with the same configuration: under `persist-after` it reads the commands of moderators and keeps who is muted in its
//! keys, under `before-send` it refuses. Both bindings grant `kv` and `kv-read`. A mute holds within about a second, on every node,
//! and over restarts.
//!
//! The configuration: `{"moderators": ["ann"], "seconds": 600}` and `"text"`, shown to who is refused.

use penstock_plugin_sdk::{Batch, Consumer, Done, Failure, Filter, KvChange, Message, Verdict, host};
use serde::Deserialize;
use serde_json::Value;
use std::collections::HashSet;
use std::time::Duration;

/// Longest time that a mute may last: a year, seconds.
const SECONDS_MAX: u64 = 366 * 86_400;
/// Longest name of a user, bytes: a key has room for it beside its channel.
const USER_BYTES_MAX: usize = 128;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    moderators: HashSet<String>,
    seconds: u64,
    #[serde(default = "text")]
    text: String,
}

fn text() -> String {
    "you are muted in this channel".to_owned()
}

/// What a moderator wants.
#[derive(Debug, PartialEq, Eq)]
enum Command<'a> {
    Mute(&'a str, u64),
    Unmute(&'a str),
}

/// The plugin, as either of its bindings runs it.
pub struct Mute {
    config: Config,
}

impl Mute {
    fn made(config: &str) -> Result<Self, String> {
        let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        if config.seconds == 0 || config.seconds > SECONDS_MAX {
            return Err(format!("seconds: {}, from 1 to {SECONDS_MAX}", config.seconds));
        }
        Ok(Self { config })
    }

    /// The change of keys that a message at this place of its batch causes.
    fn change(&self, place: usize, sender: &str, channel: (u32, &str), payload: &[u8]) -> Option<KvChange> {
        if !self.config.moderators.contains(sender) {
            return None;
        }
        let content = content(payload);
        Some(match command(&content, self.config.seconds)? {
            Command::Mute(user, seconds) => {
                KvChange::set_for(place, key(channel, user), sender, Duration::from_secs(seconds))
            }
            Command::Unmute(user) => KvChange::delete(place, key(channel, user)),
        })
    }
}

/// The text of a payload, which is JSON with a `content` or a text.
fn content(payload: &[u8]) -> String {
    let value: Value = serde_json::from_slice(payload).unwrap_or_default();
    match value["content"].as_str() {
        Some(content) => content.to_owned(),
        None => String::from_utf8_lossy(payload).into_owned(),
    }
}

fn command(content: &str, seconds: u64) -> Option<Command<'_>> {
    let mut words = content.split_whitespace();
    let word = words.next()?;
    let user = words.next().filter(|user| user.len() <= USER_BYTES_MAX)?;
    match (word, words.next()) {
        ("/mute", None) => Some(Command::Mute(user, seconds)),
        ("/mute", Some(wanted)) => {
            let wanted = wanted
                .parse()
                .ok()
                .filter(|wanted| (1..=SECONDS_MAX).contains(wanted));
            wanted.map(|wanted| Command::Mute(user, wanted))
        }
        ("/unmute", None) => Some(Command::Unmute(user)),
        _ => None,
    }
}

/// The key of a user who is muted in a channel. A long channel id is shortened: then a mute may hold in another channel too.
fn key((kind, id): (u32, &str), user: &str) -> String {
    let id = &id[..id.floor_char_boundary(256)];
    format!("{kind}/{id}/{user}")
}

impl Filter for Mute {
    fn new(config: &str) -> Result<Self, String> {
        Mute::made(config)
    }

    fn before_send(&mut self, message: Message<'_>) -> Verdict {
        // Nobody mutes a moderator, who could not take it back.
        if self.config.moderators.contains(message.sender()) || message.sender().len() > USER_BYTES_MAX {
            return Verdict::Allow;
        }
        let key = key((message.channel_kind(), message.channel_id()), message.sender());
        match host::kv_read::get(&key) {
            None => Verdict::Allow,
            Some(_) => Verdict::Reject {
                code: 0,
                text: self.config.text.clone(),
            },
        }
    }
}

impl Consumer for Mute {
    fn new(config: &str) -> Result<Self, String> {
        Mute::made(config)
    }

    fn persist_after(&mut self, batch: &Batch<'_>) -> Result<Done, Failure> {
        let changes = batch.messages().enumerate().filter_map(|(place, message)| {
            let channel = (message.channel_kind(), message.channel_id());
            self.change(place, message.sender(), channel, message.payload())
        });
        Ok(Done::all(batch).with(changes.collect()))
    }
}

penstock_plugin_sdk::filter_and_consumer!(Mute);

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: (u32, &str) = (2, "room");

    fn mute() -> Mute {
        Mute::made(r#"{"moderators": ["mod"], "seconds": 600}"#).unwrap()
    }

    #[test]
    fn commands_are_read_and_nothing_like_one() {
        assert_eq!(command("/mute ann", 600), Some(Command::Mute("ann", 600)));
        assert_eq!(command(" /mute ann 60 ", 600), Some(Command::Mute("ann", 60)));
        assert_eq!(command("/unmute ann", 600), Some(Command::Unmute("ann")));
        for other in [
            "",
            "/mute",
            "/mute ann 0",
            "/mute ann soon",
            "/unmute ann 5",
            "mute ann",
            "please /mute ann",
        ] {
            assert_eq!(command(other, 600), None, "{other}");
        }
    }

    #[test]
    fn only_moderators_mute() {
        let payload = br#"{"type":1,"content":"/mute ann"}"#;
        let change = mute().change(3, "mod", ROOM, payload).unwrap();
        assert_eq!((change.message, change.key.as_str()), (3, "2/room/ann"));
        assert!(mute().change(0, "ann", ROOM, payload).is_none());
        assert!(mute().change(0, "mod", ROOM, b"/unmute ann").is_some());
        assert!(mute().change(0, "mod", ROOM, b"hello").is_none());
    }

    #[test]
    fn refuses_a_wrong_configuration() {
        for config in [
            "",
            "{}",
            r#"{"moderators": [], "seconds": 0}"#,
            r#"{"moderators": [], "seconds": 40000000}"#,
        ] {
            assert!(Mute::made(config).is_err(), "{config}");
        }
    }
}
