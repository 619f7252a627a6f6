//! Keys of the plugin that is tried: a table in memory, as a fixture gives it and expects it.

use bytes::Bytes;
use penstock_core::hooks::call::{KvChange, KvOperation};
use penstock_core::hooks::registry::{KeyOperation, KeyOutcome, KeyValue};
use penstock_plugin_host::{KeyError, Keys};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The keys. Nothing is forgotten after a time: a case is over before.
#[derive(Debug, Default)]
pub(crate) struct Table {
    keys: Mutex<BTreeMap<String, Bytes>>,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
        // The map is whole between two statements, whatever a holder died of.
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds these keys and no others.
    pub(crate) fn begin(&self, keys: &BTreeMap<String, String>) {
        let keys = keys
            .iter()
            .map(|(key, value)| (key.clone(), Bytes::from(value.clone())));
        *self.lock() = keys.collect();
    }

    /// Makes the changes that messages cause.
    ///
    /// # Errors
    /// Why one cannot be made: none is made then.
    pub(crate) fn change_all(&self, changes: &[KvChange]) -> Result<(), KeyError> {
        let mut keys = self.lock();
        let mut changed = keys.clone();
        for change in changes {
            let operation = match &change.operation {
                KvOperation::Set { value, ttl_ms } => KeyOperation::Set(KeyValue {
                    value: value.clone(),
                    ttl_ms: *ttl_ms,
                }),
                KvOperation::Increment(by) => KeyOperation::Increment(*by),
                KvOperation::Delete => KeyOperation::Delete,
            };
            changed_by(&mut changed, &change.key, operation)?;
        }
        *keys = changed;
        Ok(())
    }

    /// The keys as they are, texts where they are texts.
    pub(crate) fn shown(&self) -> BTreeMap<String, String> {
        let keys = self.lock();
        let shown = keys
            .iter()
            .map(|(key, value)| (key.clone(), String::from_utf8_lossy(value).into_owned()));
        shown.collect()
    }
}

impl Keys for Table {
    fn get(&self, _: &str, key: &str, _: Duration) -> Result<Option<Bytes>, KeyError> {
        Ok(self.lock().get(key).cloned())
    }

    fn change(
        &self,
        _: &str,
        key: &str,
        operation: KeyOperation,
        _: Duration,
    ) -> Result<KeyOutcome, KeyError> {
        changed_by(&mut self.lock(), key, operation)
    }
}

fn changed_by(
    keys: &mut BTreeMap<String, Bytes>,
    key: &str,
    operation: KeyOperation,
) -> Result<KeyOutcome, KeyError> {
    let found = keys.get(key).cloned();
    Ok(match operation {
        KeyOperation::Set(set) => {
            keys.insert(key.to_owned(), set.value);
            KeyOutcome::Done
        }
        KeyOperation::Increment(by) => {
            let text = found.unwrap_or_else(|| Bytes::from_static(b"0"));
            let number: Option<i64> = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
            let sum = number.and_then(|number| number.checked_add(by));
            let sum = sum.ok_or(KeyError::NotANumber)?;
            keys.insert(key.to_owned(), Bytes::from(sum.to_string()));
            KeyOutcome::Sum(sum)
        }
        KeyOperation::Delete => {
            keys.remove(key);
            KeyOutcome::Done
        }
        KeyOperation::CompareAndSet { expected, value } => {
            let is_expected = found == expected;
            if is_expected {
                keys.insert(key.to_owned(), value.value);
            }
            KeyOutcome::Swapped(is_expected)
        }
        KeyOperation::Forget => KeyOutcome::Done,
    })
}
