//! What a Raft group replicates, seen from the group: a total function from commands to rows. `slot` drives it; `slot::fsm`
//! and `controller` are the two state machines.

use crate::admin::List;
use crate::plugins::{KeyOutcome, KeyRefused};
use crate::rows::{Key, Miss, Row, Rows, Write};
use crate::types::{ChannelKey, ChannelMeta, DeviceFlag, SlotId, Uid};
use bytes::Bytes;
use std::collections::BTreeMap;

/// A state machine of a group. All its state is rows; the value itself only knows which slots are its own.
pub trait StateMachine: Send {
    /// The keys that `apply` of this command reads, so that they are loaded in one go. A hint: `apply` may read more.
    fn keys(&self, command: &[u8]) -> Vec<Key>;

    /// Applies one committed command. Total: bad bytes become the same [`Reply::Rejected`] on every replica (SL-3, F12).
    ///
    /// # Errors
    /// [`Halt::Miss`] when a row must be loaded first; [`Halt::Stop`] when this build cannot know what the command means:
    /// the group stops instead of skipping it.
    fn apply(&self, command: &[u8], rows: &mut Overlay<'_>) -> Result<Applied, Halt>;
}

/// Why a command could not be applied now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// Rows must be loaded first.
    Miss(Miss),
    /// An unknown command version: the group stops (F12).
    Stop(String),
}

impl From<Miss> for Halt {
    fn from(miss: Miss) -> Halt {
        Halt::Miss(miss)
    }
}

/// What applying a command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// For the proposer.
    pub reply: Reply,
    /// What other machines must hear.
    pub notices: Vec<Notice>,
}

impl Applied {
    /// A command that changed nothing, for a stated cause.
    #[must_use]
    pub fn rejected(rejection: Rejection) -> Applied {
        Applied {
            reply: Reply::Rejected(rejection),
            notices: Vec::new(),
        }
    }
}

/// The answer to a command, the same on every replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done.
    Done,
    /// A list, or the registry of plugins, was changed; this is its revision now.
    Revision(u64),
    /// One answer per compare-and-set, in the order of the command.
    Metas(Vec<MetaAnswer>),
    /// One outcome for each change of keys, in the order of the command.
    Keys(Vec<KeyOutcome>),
    /// Nothing was changed.
    Rejected(Rejection),
}

/// What became of one compare-and-set on a channel's meta.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaAnswer {
    /// The channel.
    pub channel: ChannelKey,
    /// Whether the row was written.
    pub result: Result<(), Rejection>,
    /// The row as it stands after the command, if any.
    pub current: Option<ChannelMeta>,
}

/// Why a command changed nothing. Decided by the command and the rows alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// The bytes are no command, or a field is out of its range.
    Malformed,
    /// A slot of the command does not belong to this group (SL-2).
    WrongSlot,
    /// More entries than one command may have.
    TooMany,
    /// What the command changes does not exist.
    Missing,
    /// The compare-and-set key differs: read again.
    Conflict,
    /// The channel is disbanded: nothing of it changes any more.
    Disbanded,
    /// The write fence of another task stands (CH-9).
    Fenced,
    /// A rule about voters, leaders or epochs forbids it (CH-4, CH-7).
    Rule,
    /// A number has no successor.
    Exhausted,
    /// A rule about plugins and bindings forbids it.
    Registry(crate::plugins::Refused),
    /// Keys of a plugin do not allow it.
    Keys(KeyRefused),
}

/// A change that other machines must hear. Only a hint to look again: rows are the truth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A channel's meta was written.
    Meta {
        /// The channel.
        channel: ChannelKey,
        /// Its meta now.
        meta: Box<ChannelMeta>,
    },
    /// A channel's definition or flags changed.
    Channel {
        /// The channel.
        channel: ChannelKey,
    },
    /// A member list changed.
    List {
        /// The channel.
        channel: ChannelKey,
        /// Which list.
        list: List,
        /// Its revision now.
        revision: u64,
    },
    /// Rows wait in the outbox of this channel.
    Outbox {
        /// The channel.
        channel: ChannelKey,
    },
    /// A membership row of a user changed.
    Membership {
        /// The user.
        uid: Uid,
        /// The channel.
        channel: ChannelKey,
    },
    /// A device token was set or cleared.
    Token {
        /// The user.
        uid: Uid,
        /// The device flag.
        flag: DeviceFlag,
    },
    /// The system uids changed.
    SystemUids,
    /// The controller's rows changed: read them and make a new view.
    Controller,
    /// Plugins or bindings changed.
    Registry,
    /// A snapshot replaced all rows of these slots: nothing cached of them holds.
    Replaced {
        /// The slots.
        slots: Vec<SlotId>,
    },
}

/// Rows as they will be after the commands of a batch: reads fall through to the store, writes stay here until the whole
/// batch is taken. A rejected command leaves nothing behind.
pub struct Overlay<'a> {
    base: &'a dyn Rows,
    read: BTreeMap<Key, Option<Row>>,
    written: BTreeMap<Key, Option<Bytes>>,
    command: BTreeMap<Key, Option<Bytes>>,
}

impl<'a> Overlay<'a> {
    /// An empty overlay over the stored rows.
    #[must_use]
    pub fn new(base: &'a dyn Rows) -> Overlay<'a> {
        Overlay {
            base,
            read: BTreeMap::new(),
            written: BTreeMap::new(),
            command: BTreeMap::new(),
        }
    }

    /// Reads all these rows, so that what must be loaded is named in one go.
    ///
    /// # Errors
    /// [`Miss`] with every key that must be loaded.
    pub fn prefetch(&mut self, keys: impl IntoIterator<Item = Key>) -> Result<(), Miss> {
        let mut missing = Vec::new();
        for key in keys {
            if let Err(Miss(more)) = self.row(&key) {
                missing.extend(more);
            }
        }
        missing.sort();
        missing.dedup();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(Miss(missing))
        }
    }

    /// The row of `key` after everything applied so far.
    ///
    /// # Errors
    /// [`Miss`] when it must be loaded first.
    pub fn row(&mut self, key: &Key) -> Result<Option<Row>, Miss> {
        if let Some(row) = self.command.get(key).or_else(|| self.written.get(key)) {
            return Ok(row.clone());
        }
        if let Some(row) = self.read.get(key) {
            return Ok(row.clone());
        }
        let row = self.base.row(key)?;
        self.read.insert(key.clone(), row.clone());
        Ok(row)
    }

    /// Sets a row.
    pub fn put(&mut self, key: Key, value: Bytes) {
        self.command.insert(key, Some(value));
    }

    /// Removes a row.
    pub fn delete(&mut self, key: Key) {
        self.command.insert(key, None);
    }

    /// Keeps what the command wrote.
    pub fn keep(&mut self) {
        self.written.append(&mut self.command);
    }

    /// Drops what the command wrote.
    pub fn drop_command(&mut self) {
        self.command.clear();
    }

    /// The kept changes as writes, in key order, and as (key, value) pairs for whoever follows the rows.
    #[must_use]
    pub fn into_writes(self) -> Vec<Write> {
        self.written
            .into_iter()
            .map(|(key, value)| match value {
                Some(value) => Write::Put { key, value },
                None => Write::Delete { key },
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Table;

    struct Nothing;

    impl Rows for Nothing {
        fn row(&self, key: &Key) -> Result<Option<Row>, Miss> {
            match key {
                Key::Slot { key: inner, .. } if inner.as_ref() == b"far" => Err(Miss(vec![key.clone()])),
                _ => Ok(None),
            }
        }
    }

    fn key(name: &'static str) -> Key {
        Key::Slot {
            slot: SlotId(1),
            table: Table::User,
            key: Bytes::from_static(name.as_bytes()),
        }
    }

    #[test]
    fn a_dropped_command_leaves_nothing_and_a_kept_one_is_seen() {
        let mut rows = Overlay::new(&Nothing);
        rows.put(key("a"), Bytes::from_static(b"1"));
        rows.drop_command();
        assert_eq!(rows.row(&key("a")), Ok(None));
        rows.put(key("a"), Bytes::from_static(b"2"));
        rows.keep();
        rows.delete(key("a"));
        assert_eq!(rows.row(&key("a")), Ok(None));
        rows.drop_command();
        assert_eq!(rows.row(&key("a")), Ok(Some(Bytes::from_static(b"2"))));
        assert_eq!(rows.into_writes().len(), 1);
    }

    #[test]
    fn a_prefetch_names_every_missing_key_once() {
        let mut rows = Overlay::new(&Nothing);
        assert_eq!(
            rows.prefetch([key("far"), key("near"), key("far")]),
            Err(Miss(vec![key("far")]))
        );
    }
}
