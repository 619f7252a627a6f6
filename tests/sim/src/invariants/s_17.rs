//! S17 and AP-2 for what plugins publish: each answer to a message stands in its channel once, however often the message was handed
//! out, and an answer to an answer to an answer is the last one.

use penstock_core::codec::decode_message;
use penstock_core::message::Record;
use penstock_core::plugins::HOPS_MAX;
use std::collections::BTreeSet;

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

    /// Looks at the log of the answers.
    ///
    /// # Errors
    /// The first answer that stands there twice, has gone too far, or is missing although its plugin was told that it is there.
    pub fn check(&self, records: &[Record]) -> Result<(), String> {
        let mut found = BTreeSet::new();
        for record in records {
            let Ok(message) = decode_message(record.body.clone()) else {
                return Err(format!("record {} is no message", record.seq.0));
            };
            if !(1..=HOPS_MAX).contains(&message.draft.hops) {
                let hops = message.draft.hops;
                return Err(format!("the answer at {} has {hops} hops", record.seq.0));
            }
            let name = String::from_utf8_lossy(&message.draft.payload).into_owned();
            if let Some(twice) = found.replace(name) {
                return Err(format!(
                    "`{twice}` stands there twice, the second time at {}",
                    record.seq.0
                ));
            }
        }
        match self.told.difference(&found).next() {
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

    fn record(seq: u64, hops: u8, name: &str) -> Record {
        let mut message = decode_message(Bytes::new()).expect("an empty one");
        message.draft.hops = hops;
        message.draft.payload = Bytes::copy_from_slice(name.as_bytes());
        Record {
            seq: Seq(seq),
            leader_epoch: LeaderEpoch(1),
            stamp_ms: 1,
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
        assert_eq!(published.check(&good), Ok(()));
        published.told("a".to_owned());
        assert_eq!(published.check(&good), Ok(()));
        published.told("c".to_owned());
        assert!(published.check(&good).unwrap_err().contains("`c` is not there"));
        let twice = [record(1, 1, "a"), record(2, 1, "a")];
        assert!(published.check(&twice).unwrap_err().contains("twice"));
        for hops in [0, HOPS_MAX + 1] {
            assert!(published.check(&[record(1, hops, "a")]).is_err());
        }
        assert!(Published::handed(3).is_ok() && Published::handed(4).is_err());
    }
}
