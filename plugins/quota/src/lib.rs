//! Gives each sender so many messages in a channel for a time, say a thousand a day, and refuses what is beyond.
//!
//! Bind it twice, with the same configuration: under `persist-after` it counts what was stored, once for each message whatever
//! crashes, under `before-send` it refuses. Both bindings grant `kv` and `kv-read`. The count is the same on every node, and over
//! restarts. It lags a second or so behind what is sent, so that a sender may get as many messages more through as fit into that:
//! against floods bind `rate-guard` as well, which counts at once and for itself.
//!
//! The configuration: `{"messages": 1000, "seconds": 86400}`; `"unlimited"`, a list of users whom nobody counts; and `"text"`, shown to
//! who is refused. Times begin at multiples of `seconds` since 1970: a day at midnight, UTC.

use penstock_plugin_sdk::host::{self, kv::KvError};
use penstock_plugin_sdk::{Batch, Consumer, Done, Failure, FailureKind, Filter, KvChange, Message, Verdict};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Most messages and seconds of a configuration.
const MESSAGES_MAX: u64 = 1_000_000_000;
const SECONDS_MAX: u64 = 366 * 86_400;
/// What a key takes of a channel's and a user's name, bytes. Names that are longer and begin alike share a count.
const CHANNEL_BYTES_MAX: usize = 256;
const USER_BYTES_MAX: usize = 128;
/// A count is kept for so much longer than its time: a consumer that was held up counts what is past, too.
const KEPT: Duration = Duration::from_secs(86_400);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    messages: u64,
    seconds: u64,
    #[serde(default)]
    unlimited: HashSet<String>,
    #[serde(default = "text")]
    text: String,
}

fn text() -> String {
    "you have sent all the messages that you may in this channel for now".to_owned()
}

/// The plugin, as either of its bindings runs it.
pub struct Quota {
    config: Config,
}

impl Quota {
    fn made(config: &str) -> Result<Self, String> {
        let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        let in_range = |value: u64, most: u64| (1..=most).contains(&value);
        if !in_range(config.messages, MESSAGES_MAX) || !in_range(config.seconds, SECONDS_MAX) {
            return Err(format!(
                "messages: {} and seconds: {}, from 1 to {MESSAGES_MAX} and {SECONDS_MAX}",
                config.messages, config.seconds
            ));
        }
        Ok(Self { config })
    }

    /// The key that counts a message of this time, ms since 1970. A name is cut between two characters.
    fn key(&self, (kind, channel): (u32, &str), user: &str, at_ms: u64) -> String {
        let channel = &channel[..channel.floor_char_boundary(CHANNEL_BYTES_MAX)];
        let user = &user[..user.floor_char_boundary(USER_BYTES_MAX)];
        let time = at_ms / 1_000 / self.config.seconds;
        format!("{time}/{kind}/{channel}/{user}")
    }

    /// How many messages of a batch each key counts, and the place of the last of them.
    fn counted(&self, batch: &Batch<'_>) -> BTreeMap<String, (u64, usize)> {
        let mut counted = BTreeMap::new();
        for (place, message) in batch.messages().enumerate() {
            if self.config.unlimited.contains(message.sender()) {
                continue;
            }
            let channel = (message.channel_kind(), message.channel_id());
            let key = self.key(channel, message.sender(), message.server_time_ms());
            let (count, last) = counted.entry(key).or_insert((0, place));
            (*count, *last) = (*count + 1, place);
        }
        counted
    }

    /// The change of a key that has this value, for so many more messages.
    ///
    /// One channel's cursor alone writes it. When the change was made and the batch comes again, the sum is wrong, and nothing comes
    /// of it: the broker makes the change of a message once.
    fn change(&self, key: String, before: Option<&[u8]>, (count, last): (u64, usize)) -> KvChange {
        let sum = number(before).saturating_add(count);
        let life = Duration::from_secs(self.config.seconds) + KEPT;
        KvChange::set_for(last, key, sum.to_string(), life)
    }
}

/// The number that a key counts; a key that is not there, or is no number, counts from 0.
fn number(value: Option<&[u8]>) -> u64 {
    let text = value.and_then(|value| std::str::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// What the broker does when a key cannot be read: to count from 0 would lose what was counted.
fn unread(error: KvError) -> Failure {
    Failure {
        kind: FailureKind::Busy,
        after_ms: 0,
        message: format!("a count cannot be read: {error:?}"),
    }
}

impl Filter for Quota {
    fn new(config: &str) -> Result<Self, String> {
        Quota::made(config)
    }

    fn before_send(&mut self, message: Message<'_>) -> Verdict {
        if self.config.unlimited.contains(message.sender()) {
            return Verdict::Allow;
        }
        let channel = (message.channel_kind(), message.channel_id());
        let key = self.key(channel, message.sender(), host::now_ms());
        let count = number(host::kv_read::get(&key).as_deref());
        if count < self.config.messages {
            return Verdict::Allow;
        }
        Verdict::Reject {
            code: 0,
            text: self.config.text.clone(),
        }
    }
}

impl Consumer for Quota {
    fn new(config: &str) -> Result<Self, String> {
        Quota::made(config)
    }

    fn persist_after(&mut self, batch: &Batch<'_>) -> Result<Done, Failure> {
        let mut changes = Vec::new();
        for (key, counted) in self.counted(batch) {
            let before = host::kv::get(&key).map_err(unread)?;
            changes.push(self.change(key, before.as_deref(), counted));
        }
        Ok(Done::all(batch).with(changes))
    }
}

penstock_plugin_sdk::filter_and_consumer!(Quota);

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: (u32, &str) = (2, "room");
    const DAY_MS: u64 = 86_400_000;

    fn quota() -> Quota {
        Quota::made(r#"{"messages": 3, "seconds": 86400}"#).unwrap()
    }

    #[test]
    fn each_sender_channel_and_day_counts_for_itself() {
        let key = |user, at_ms| quota().key(ROOM, user, at_ms);
        assert_eq!(key("ann", DAY_MS), "1/2/room/ann");
        assert_eq!(key("ann", 2 * DAY_MS - 1), key("ann", DAY_MS));
        assert_ne!(key("ann", 2 * DAY_MS), key("ann", DAY_MS));
        assert_ne!(key("ben", DAY_MS), key("ann", DAY_MS));
        let long = quota().key((2, &"ä".repeat(600)), &"ü".repeat(600), u64::MAX);
        assert!(long.len() <= 512, "{}", long.len());
    }

    #[test]
    fn a_change_adds_to_what_is_there() {
        let change = |before: Option<&[u8]>| match quota().change("k".to_owned(), before, (2, 4)) {
            KvChange {
                message: 4,
                change: penstock_plugin_sdk::KvOperation::Set(set),
                ..
            } => String::from_utf8(set.value).unwrap(),
            other => panic!("{other:?}"),
        };
        assert_eq!(change(None), "2");
        assert_eq!(change(Some(b"40")), "42");
        assert_eq!(change(Some(b"no number")), "2");
        assert_eq!(
            change(Some(u64::MAX.to_string().as_bytes())),
            u64::MAX.to_string()
        );
    }

    #[test]
    fn refuses_a_wrong_configuration() {
        for config in [
            "",
            "{}",
            r#"{"messages": 0, "seconds": 1}"#,
            r#"{"messages": 1, "seconds": 0}"#,
            r#"{"messages": 1, "seconds": 40000000}"#,
        ] {
            assert!(Quota::made(config).is_err(), "{config}");
        }
    }
}
