//! S17 and AP-2 for what plugins publish: each answer to a message stands in its channel once, however often the message was handed
//! out, and an answer to an answer to an answer is the last one.

use penstock_core::codec::decode_message;
use penstock_core::message::Record;
use penstock_core::plugins::HOPS_MAX;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// What a plugin was told that it has published.
#[derive(Debug, Default)]
pub struct Published {
    told: BTreeSet<String>,
    /// Sends of what it had been told of before.
    pub repeated: u64,
}

impl Published {
    /// The plugin is told that this is committed.
    pub fn told(&mut self, name: String) {
        if !self.told.insert(name) {
            self.repeated += 1;
        }
    }

    /// Whether it was told so.
    #[must_use]
    pub fn is_told(&self, name: &str) -> bool {
        self.told.contains(name)
    }

    /// A message that plugins have answered so often that there must be no more of it.
    ///
    /// # Errors
    /// When it has come further than it may.
    pub fn handed(depth: u32) -> Result<(), String> {
        if depth > u32::from(HOPS_MAX) {
            return Err(format!("an answer of depth {depth} was published"));
        }
        Ok(())
    }

    /// Looks at the log of the answers. What is sent again later than this after it was stored may be stored anew (AP-2).
    ///
    /// # Errors
    /// The first answer that stands there twice, has gone too far, or is missing although its plugin was told that it is there.
    pub fn check(&self, records: &[Record], window: Duration) -> Result<(), String> {
        let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        let mut found = BTreeMap::new();
        for record in records {
            let Ok(message) = decode_message(record.body.clone()) else {
                return Err(format!("record {} is no message", record.seq.0));
            };
            if !(1..=HOPS_MAX).contains(&message.draft.hops) {
                let hops = message.draft.hops;
                return Err(format!("the answer at {} has {hops} hops", record.seq.0));
            }
            let name = String::from_utf8_lossy(&message.draft.payload).into_owned();
            let before = found.insert(name.clone(), record.stamp_ms);
            if before.is_some_and(|before| record.stamp_ms < before.saturating_add(window_ms)) {
                return Err(format!(
                    "`{name}` stands there twice, the second time at {}",
                    record.seq.0
                ));
            }
        }
        match self.told.iter().find(|name| !found.contains_key(*name)) {
            None => Ok(()),
            Some(missing) => Err(format!(
                "`{missing}` is not there, and its plugin was told that it is"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use penstock_core::codec::encode_message;
    use penstock_core::types::{LeaderEpoch, MessageId, Seq};

    const WINDOW: Duration = Duration::from_secs(60);

    fn record(seq: u64, hops: u8, name: &str) -> Record {
        let mut message = decode_message(Bytes::new()).expect("an empty one");
        message.draft.hops = hops;
        message.draft.payload = Bytes::copy_from_slice(name.as_bytes());
        Record {
            seq: Seq(seq),
            leader_epoch: LeaderEpoch(1),
            stamp_ms: seq,
            id: MessageId(1),
            key: None,
            body: encode_message(&message),
            crc: 0,
        }
    }

    #[test]
    fn answers_stand_once_within_their_hops_and_none_is_missing() {
        let mut published = Published::default();
        let good = [record(1, 1, "a"), record(2, 3, "b")];
        assert_eq!(published.check(&good, WINDOW), Ok(()));
        published.told("a".to_owned());
        assert_eq!(published.check(&good, WINDOW), Ok(()));
        published.told("c".to_owned());
        assert!(
            published
                .check(&good, WINDOW)
                .unwrap_err()
                .contains("`c` is not there")
        );
        let twice = [record(1, 1, "a"), record(2, 1, "a")];
        assert!(published.check(&twice, WINDOW).unwrap_err().contains("twice"));
        let late = [record(1, 1, "a"), record(60_001, 1, "a")];
        assert!(!published.check(&late, WINDOW).unwrap_err().contains("twice"));
        for hops in [0, HOPS_MAX + 1] {
            assert!(published.check(&[record(1, hops, "a")], WINDOW).is_err());
        }
        assert!(Published::handed(3).is_ok() && Published::handed(4).is_err());
    }
}
