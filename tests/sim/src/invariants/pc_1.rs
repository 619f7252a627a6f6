//! PC-1 for bindings that follow a channel: every committed message from where a binding began reaches an answer that says done or
//! a dead letter, in order, and nothing is passed over.

use bytes::Bytes;
use penstock_core::codec::decode_message;
use penstock_core::hooks::call::Window;
use penstock_core::message::{Message, Record};
use penstock_core::plugins::{Bound, OFFLINE_LETTER, StartAt};
use penstock_core::rows::{Key, Table, Write};
use penstock_core::types::Incarnation;
use std::collections::{BTreeMap, BTreeSet};

/// What bindings have done.
#[derive(Debug, Default)]
pub struct Followed {
    /// (creation of the binding, creation of the channel) → positions that are done or kept as dead letters.
    done: BTreeMap<(u64, Incarnation), BTreeSet<u64>>,
    /// (creation of the binding, creation of the channel, first position) → last position of a window of a webhook.
    windows: BTreeMap<(u64, Incarnation, u64), u64>,
    /// Messages that were done, each time.
    pub handled: u64,
    /// Dead letters that were kept.
    pub letters: u64,
    /// (creation of the binding, creation of the channel) of them: what is counted of their messages depends on who replays them.
    given_up: BTreeSet<(u64, Incarnation)>,
}

/// Creation of the binding, creation of the channel and position that the key of a dead letter ends with.
fn letter(key: &Bytes) -> Option<(u64, Incarnation, u64)> {
    let numbers = key.last_chunk::<24>()?;
    let number = |at: usize| {
        <[u8; 8]>::try_from(&numbers[at..at + 8])
            .map(u64::from_be_bytes)
            .ok()
    };
    // No binding of a run has two cursors.
    let binding = number(0)? & !OFFLINE_LETTER;
    Some((binding, Incarnation(number(8)?), number(16)?))
}

impl Followed {
    /// A binding is handed a run of a channel.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn handed(
        &self,
        bound: &Bound,
        incarnation: Incarnation,
        messages: &[Message],
    ) -> Result<(), String> {
        let seqs: Vec<u64> = messages.iter().map(|message| message.seq.0).collect();
        let Some(&first) = seqs.first() else {
            return Err("a run without messages".to_owned());
        };
        let everyone = bound.binding.selector.uids.is_empty();
        let fits = |pair: &[u64]| {
            if everyone {
                pair[1] == pair[0] + 1
            } else {
                pair[1] > pair[0]
            }
        };
        if !seqs.windows(2).all(fits) {
            return Err(format!("a run is not in order: {seqs:?}"));
        }
        let Some(StartAt::Seq(start)) = bound.binding.start else {
            return Ok(());
        };
        let done = self.done.get(&(bound.incarnation, incarnation));
        let passed = |seq: &u64| done.is_none_or(|done| !done.contains(seq));
        match (start..first).find(passed).filter(|_| everyone) {
            None => Ok(()),
            Some(passed) => Err(format!("a run begins at {first}, and {passed} was not done")),
        }
    }

    /// A webhook is handed a window. One that is handed out again before it is done or given up covers the same messages: what
    /// carries its id is the same (S22).
    ///
    /// # Errors
    /// When its bounds have changed.
    pub fn window(&mut self, window: Window) -> Result<(), String> {
        let (first, last) = (window.first.0, window.last.0);
        let of = (window.binding_incarnation, window.incarnation);
        // A dead letter is replayed alone.
        if self.done.get(&of).is_some_and(|done| done.contains(&first)) {
            return Ok(());
        }
        let known = *self.windows.entry((of.0, of.1, first)).or_insert(last);
        if known == last {
            Ok(())
        } else {
            Err(format!(
                "the window at {first} ended at {known}, and ends at {last} now"
            ))
        }
    }

    /// A binding says that it has done a message.
    pub fn done(&mut self, bound: &Bound, incarnation: Incarnation, seq: u64) {
        self.handled += 1;
        self.done
            .entry((bound.incarnation, incarnation))
            .or_default()
            .insert(seq);
    }

    /// A replica of a slot group has applied something.
    pub fn wrote(&mut self, writes: &[Write]) {
        for write in writes {
            if let Write::Put {
                key: Key::Slot { table, key, .. },
                ..
            } = write
                && *table == Table::DeadLetter
                && let Some((binding, incarnation, seq)) = letter(key)
            {
                let done = self.done.entry((binding, incarnation)).or_default();
                self.letters += u64::from(done.insert(seq));
                self.given_up.insert((binding, incarnation));
            }
        }
    }

    /// Whether the binding has given up anything of the channel.
    #[must_use]
    pub fn gave_up(&self, bound: &Bound, incarnation: Incarnation) -> bool {
        self.given_up.contains(&(bound.incarnation, incarnation))
    }

    /// What the binding has done or given up of the channel.
    #[must_use]
    pub fn done_by(&self, bound: &Bound, incarnation: Incarnation) -> &BTreeSet<u64> {
        static NOTHING: BTreeSet<u64> = BTreeSet::new();
        self.done
            .get(&(bound.incarnation, incarnation))
            .unwrap_or(&NOTHING)
    }

    /// A committed message that a binding has neither done nor given up.
    #[must_use]
    pub fn missing(&self, bound: &Bound, incarnation: Incarnation, records: &[Record]) -> Option<u64> {
        let done = self.done.get(&(bound.incarnation, incarnation));
        let taken = taken(bound, records);
        taken
            .into_iter()
            .find(|seq| done.is_none_or(|done| !done.contains(seq)))
    }
}

/// The positions of these records that a binding is for.
#[must_use]
pub fn taken(bound: &Bound, records: &[Record]) -> BTreeSet<u64> {
    let begins = |record: &Record| match bound.binding.start {
        None | Some(StartAt::Earliest) => true,
        Some(StartAt::Seq(seq)) => record.seq.0 >= seq,
        // Stamps of a channel do not go back.
        Some(StartAt::Time(ms)) => record.stamp_ms >= ms,
    };
    let takes = |record: &Record| {
        decode_message(record.body.clone())
            .is_ok_and(|message| bound.binding.takes_sender(&message.draft.from_uid))
    };
    let wanted = records.iter().filter(|record| begins(record) && takes(record));
    wanted.map(|record| record.seq.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_core::plugins::LetterName;
    use penstock_core::slot::keys;
    use penstock_core::types::Seq;

    #[test]
    fn a_letter_is_known_by_its_key() {
        let name = LetterName {
            binding_incarnation: 7,
            incarnation: Incarnation(1 << 40 | 9),
            seq: Seq(300),
        };
        let Key::Slot { key, table, slot } = keys::letter("audit", name) else {
            panic!("a row of a slot");
        };
        assert_eq!(letter(&key), Some((7, Incarnation(1 << 40 | 9), 300)));
        let mut followed = Followed::default();
        let put = Write::Put {
            key: Key::Slot { slot, table, key },
            value: Bytes::new(),
        };
        followed.wrote(&[put.clone(), put]);
        assert_eq!(followed.letters, 1);
        assert_eq!(letter(&Bytes::from_static(b"short")), None);
    }
}
