//! Refuses messages of senders that send too many: each has room for a number of messages, which comes back evenly over a
//! time.
//!
//! The configuration: `{"messages": 20, "seconds": 10, "per": "sender-and-channel"}` or `"sender"`, and `"text"`, shown to who is
//! refused. A message with a client message number counts again when it is sent again: the broker asks before it knows that
//! it has it already.
//!
//! **The counts are the instance's own.** A channel is judged by the instances of the node that has its authority, so a sender who
//! writes to channels of several nodes has the room once on each, as many times as there are instances, and all of it again when
//! an instance is replaced. It keeps floods off; it is no quota to be billed by. A filter cannot count across nodes: the
//! contract lets it read keys, and no more.

use penstock_plugin_sdk::{Filter, Message, Verdict, host};
use serde::Deserialize;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Most senders that are remembered: a table of them takes 2 MiB and a quarter.
const SENDERS_MAX: usize = 100_000;
/// Most messages and seconds of a configuration.
const MESSAGES_MAX: u64 = 1_000_000;
const SECONDS_MAX: u64 = 86_400;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    messages: u64,
    seconds: u64,
    #[serde(default)]
    per: Per,
    #[serde(default = "text")]
    text: String,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Per {
    Sender,
    #[default]
    SenderAndChannel,
}

fn text() -> String {
    "too many messages: wait a little".to_owned()
}

/// The filter.
pub struct RateGuard {
    /// The time in which the room of one message comes back, microseconds.
    message_us: u64,
    /// The time in which all of it comes back, microseconds.
    room_us: u64,
    per: Per,
    text: String,
    /// By the hash of who sends, and where: when all of the room is there again, microseconds since 1970. Two of the same hash
    /// would share their room; among so few that does not happen.
    full_at: HashMap<u64, u64>,
    hasher: RandomState,
}

impl RateGuard {
    /// Whether there is room for one more message at this time, which it takes when there is.
    fn admits(&mut self, sender: &str, channel: (u32, &str), now_us: u64) -> bool {
        let key = match self.per {
            Per::Sender => self.hasher.hash_one(sender),
            Per::SenderAndChannel => self.hasher.hash_one((sender, channel)),
        };
        let full_at = self.full_at.get(&key).map_or(now_us, |&at| at.max(now_us)) + self.message_us;
        if full_at - now_us > self.room_us {
            return false;
        }
        if self.full_at.len() >= SENDERS_MAX {
            self.forget(now_us);
        }
        self.full_at.insert(key, full_at);
        true
    }

    /// Forgets those who have all of their room; when that leaves too many, everybody.
    fn forget(&mut self, now_us: u64) {
        self.full_at.retain(|_, full_at| *full_at > now_us);
        if self.full_at.len() > SENDERS_MAX / 2 {
            self.full_at.clear();
            host::warn("more senders than are remembered: the counts begin anew");
        }
    }
}

impl Filter for RateGuard {
    fn new(config: &str) -> Result<Self, String> {
        let config: Config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        if config.messages == 0 || config.messages > MESSAGES_MAX {
            return Err(format!("messages: {}, from 1 to {MESSAGES_MAX}", config.messages));
        }
        if config.seconds == 0 || config.seconds > SECONDS_MAX {
            return Err(format!("seconds: {}, from 1 to {SECONDS_MAX}", config.seconds));
        }
        let message_us = (config.seconds * 1_000_000 / config.messages).max(1);
        Ok(Self {
            message_us,
            room_us: message_us * config.messages,
            per: config.per,
            text: config.text,
            full_at: HashMap::new(),
            hasher: RandomState::new(),
        })
    }

    fn before_send(&mut self, message: Message<'_>) -> Verdict {
        let channel = (message.channel_kind(), message.channel_id());
        if self.admits(message.sender(), channel, host::now_ms() * 1_000) {
            return Verdict::Allow;
        }
        Verdict::Reject {
            code: 0,
            text: self.text.clone(),
        }
    }
}

penstock_plugin_sdk::filter!(RateGuard);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const NOW: u64 = 1_700_000_000 * SECOND;
    const ROOM: (u32, &str) = (2, "room");

    fn guard(config: &str) -> RateGuard {
        RateGuard::new(config).unwrap()
    }

    #[test]
    fn room_is_used_up_and_comes_back_evenly() {
        let mut guard = guard(r#"{"messages": 2, "seconds": 10}"#);
        let mut admits = |seconds| guard.admits("alice", ROOM, NOW + seconds * SECOND);
        assert!(admits(0) && admits(0) && !admits(0));
        assert!(!admits(4));
        assert!(admits(5) && !admits(5));
        assert!(admits(100) && admits(100) && !admits(100));
        // A clock that is set back gives no room, and takes none.
        assert!(!admits(99));
        assert!(admits(105));
    }

    #[test]
    fn each_sender_has_a_room_and_each_channel_too_when_it_says_so() {
        for (per, other_channel) in [("sender", false), ("sender-and-channel", true)] {
            let mut guard = guard(&format!(r#"{{"messages": 1, "seconds": 10, "per": "{per}"}}"#));
            assert!(guard.admits("alice", ROOM, NOW));
            assert!(guard.admits("bob", ROOM, NOW));
            assert!(!guard.admits("alice", ROOM, NOW));
            assert_eq!(guard.admits("alice", (1, "room"), NOW), other_channel, "{per}");
            assert_eq!(guard.admits("alice", (2, "hall"), NOW), other_channel, "{per}");
        }
    }

    #[test]
    fn so_many_are_remembered_and_no_more() {
        let mut guard = guard(r#"{"messages": 1, "seconds": 10}"#);
        let mut now = NOW;
        for round in 0..3 {
            for sender in 0..SENDERS_MAX {
                assert!(guard.admits(&format!("{round} {sender}"), ROOM, now));
            }
            assert!(guard.full_at.len() <= SENDERS_MAX);
            now += 5 * SECOND;
        }
        now += 20 * SECOND;
        guard.forget(now);
        assert!(guard.full_at.is_empty());
    }

    #[test]
    fn refuses_a_wrong_configuration() {
        for config in [
            "",
            "{}",
            r#"{"messages": 0, "seconds": 1}"#,
            r#"{"messages": 1, "seconds": 0}"#,
            r#"{"messages": 1, "seconds": 86401}"#,
            r#"{"messages": 1, "seconds": 1, "per": "planet"}"#,
        ] {
            assert!(RateGuard::new(config).is_err(), "{config}");
        }
    }
}
