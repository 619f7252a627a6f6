//! Keys of plugins as guests reach them: how fast, and for filters out of a copy that may be a little old.

use crate::rates::Rates;
use bytes::Bytes;
use penstock_core::hooks::registry::{KEY_BYTES_MAX, KeyOperation, KeyOutcome, KeyRefused, VALUE_BYTES_MAX};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Operations of one plugin per second, and at once.
const OPERATIONS_PER_S: f64 = 1_000.0;
/// How old a copy may be that a filter reads.
pub const COPY_AGE_MAX: Duration = Duration::from_secs(1);
/// Copies that are kept, and bytes of their values; beyond, they are read again.
const COPIES_MAX: usize = 65_536;
const COPIES_BYTES_MAX: usize = 32 << 20;

/// Why an operation came to nothing. Bounded set: a metrics label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyError {
    /// The plugin has no room left where the key is, or asks too often.
    Quota,
    /// The keys cannot be reached now; a change may have been made.
    Unavailable,
    /// The value is no number, or has no room for the sum.
    NotANumber,
    /// The key or the value is too large.
    TooLarge,
}

impl KeyError {
    /// Its name, as metrics label it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            KeyError::Quota => "quota",
            KeyError::Unavailable => "unavailable",
            KeyError::NotANumber => "not-a-number",
            KeyError::TooLarge => "too-large",
        }
    }
}

impl From<KeyRefused> for KeyError {
    fn from(refused: KeyRefused) -> KeyError {
        match refused {
            KeyRefused::Quota => KeyError::Quota,
            KeyRefused::NotANumber => KeyError::NotANumber,
            KeyRefused::TooLarge => KeyError::TooLarge,
        }
    }
}

/// Where the keys of plugins are. Called on a thread of a guest, which waits for the answer.
pub trait Keys: Send + Sync {
    /// The value of a key as it is now.
    ///
    /// # Errors
    /// When it cannot be read within this time.
    fn get(&self, plugin: &str, key: &str, within: Duration) -> Result<Option<Bytes>, KeyError>;

    /// Changes a key.
    ///
    /// # Errors
    /// Why it is not changed; after [`KeyError::Unavailable`] it may be.
    fn change(
        &self,
        plugin: &str,
        key: &str,
        operation: KeyOperation,
        within: Duration,
    ) -> Result<KeyOutcome, KeyError>;
}

/// The keys of a host that has none.
#[derive(Debug)]
pub struct NoKeys;

impl Keys for NoKeys {
    fn get(&self, _: &str, _: &str, _: Duration) -> Result<Option<Bytes>, KeyError> {
        Err(KeyError::Unavailable)
    }

    fn change(&self, _: &str, _: &str, _: KeyOperation, _: Duration) -> Result<KeyOutcome, KeyError> {
        Err(KeyError::Unavailable)
    }
}

/// A value that was read some time ago.
struct Copy {
    value: Option<Bytes>,
    read_at: Instant,
}

#[derive(Default)]
struct Copies {
    by_key: HashMap<String, Copy>,
    bytes: usize,
}

/// The way of all guests of a host to the keys.
pub(crate) struct Desk {
    keys: Arc<dyn Keys>,
    rates: Rates,
    copies: Mutex<Copies>,
    copy_age_max: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The map is whole between two statements, whatever a holder died of.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn check_key(key: &str) -> Result<(), KeyError> {
    if (1..=KEY_BYTES_MAX).contains(&key.len()) {
        Ok(())
    } else {
        Err(KeyError::TooLarge)
    }
}

impl Desk {
    pub(crate) fn new(keys: Arc<dyn Keys>, copy_age_max: Duration) -> Desk {
        Desk {
            keys,
            rates: Rates::new(OPERATIONS_PER_S),
            copies: Mutex::default(),
            copy_age_max,
        }
    }

    /// Counts an operation of a plugin, if it may have one more.
    fn admit(&self, plugin: &str) -> Result<(), KeyError> {
        if self.rates.admit(plugin) {
            Ok(())
        } else {
            Err(KeyError::Quota)
        }
    }

    /// The value as it is now.
    pub(crate) fn get(&self, plugin: &str, key: &str, within: Duration) -> Result<Option<Bytes>, KeyError> {
        check_key(key)?;
        self.admit(plugin)?;
        self.keys.get(plugin, key, within)
    }

    /// Changes a key.
    pub(crate) fn change(
        &self,
        plugin: &str,
        key: &str,
        operation: KeyOperation,
        within: Duration,
    ) -> Result<KeyOutcome, KeyError> {
        check_key(key)?;
        let (KeyOperation::Set(value) | KeyOperation::CompareAndSet { value, .. }) = &operation else {
            self.admit(plugin)?;
            return self.keys.change(plugin, key, operation, within);
        };
        if value.value.len() > VALUE_BYTES_MAX {
            return Err(KeyError::TooLarge);
        }
        self.admit(plugin)?;
        self.keys.change(plugin, key, operation, within)
    }

    /// The value as it is now or was a moment ago. Only what has to be fetched counts as an operation.
    pub(crate) fn read(&self, plugin: &str, key: &str, within: Duration) -> Result<Option<Bytes>, KeyError> {
        check_key(key)?;
        let name = format!("{plugin}\0{key}");
        let now = Instant::now();
        if let Some(copy) = lock(&self.copies).by_key.get(&name)
            && now.duration_since(copy.read_at) < self.copy_age_max
        {
            return Ok(copy.value.clone());
        }
        self.admit(plugin)?;
        // It is as old as the question.
        let value = self.keys.get(plugin, key, within)?;
        let mut copies = lock(&self.copies);
        copies.keep(name, Copy { value, read_at: now }, self.copy_age_max);
        let kept = copies.by_key.get(&format!("{plugin}\0{key}"));
        Ok(kept.and_then(|copy| copy.value.clone()))
    }
}

impl Copies {
    fn keep(&mut self, name: String, copy: Copy, age_max: Duration) {
        if self.by_key.len() >= COPIES_MAX || self.bytes >= COPIES_BYTES_MAX {
            let now = copy.read_at;
            self.by_key
                .retain(|_, copy| now.saturating_duration_since(copy.read_at) < age_max);
            self.bytes = self.by_key.iter().map(|(name, copy)| bytes(name, copy)).sum();
            if self.by_key.len() >= COPIES_MAX || self.bytes >= COPIES_BYTES_MAX {
                self.by_key.clear();
                self.bytes = 0;
            }
        }
        self.bytes += bytes(&name, &copy);
        let size = name.len();
        if let Some(former) = self.by_key.insert(name, copy) {
            self.bytes -= size + former.value.map_or(0, |value| value.len());
        }
    }
}

fn bytes(name: &str, copy: &Copy) -> usize {
    name.len() + copy.value.as_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_core::hooks::registry::KeyValue;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Says how often it was asked.
    #[derive(Default)]
    struct Counting(AtomicU32);

    impl Keys for Counting {
        fn get(&self, _: &str, _: &str, _: Duration) -> Result<Option<Bytes>, KeyError> {
            let asked = self.0.fetch_add(1, Ordering::Relaxed);
            Ok(Some(Bytes::from(asked.to_string())))
        }

        fn change(&self, _: &str, _: &str, _: KeyOperation, _: Duration) -> Result<KeyOutcome, KeyError> {
            Ok(KeyOutcome::Done)
        }
    }

    const SOON: Duration = Duration::from_secs(1);

    #[test]
    fn a_copy_is_read_again_when_it_is_old() {
        let value = |number: &'static str| Ok(Some(Bytes::from_static(number.as_bytes())));
        let lasting = Desk::new(Arc::new(Counting::default()), Duration::from_secs(3_600));
        assert_eq!(lasting.read("p", "a", SOON), value("0"));
        assert_eq!(lasting.read("p", "a", SOON), value("0"));
        assert_eq!(lasting.read("q", "a", SOON), value("1"), "another plugin");
        let fleeting = Desk::new(Arc::new(Counting::default()), Duration::ZERO);
        assert_eq!(fleeting.read("p", "a", SOON), value("0"));
        assert_eq!(fleeting.read("p", "a", SOON), value("1"));
        assert_eq!(lasting.get("p", "a", SOON), value("2"), "no copy");
    }

    #[test]
    fn copies_take_no_more_than_their_room() {
        let mut copies = Copies::default();
        let large = Bytes::from(vec![0; VALUE_BYTES_MAX]);
        for number in 0..2_000 {
            let copy = Copy {
                value: Some(large.clone()),
                read_at: Instant::now(),
            };
            copies.keep((number % 900).to_string(), copy, Duration::from_secs(3_600));
            let sum: usize = copies.by_key.iter().map(|(name, copy)| bytes(name, copy)).sum();
            assert_eq!(copies.bytes, sum);
            assert!(copies.bytes <= COPIES_BYTES_MAX + VALUE_BYTES_MAX + 3);
        }
    }

    #[test]
    fn a_plugin_may_do_so_much_in_a_second() {
        let desk = Desk::new(Arc::new(Counting::default()), SOON);
        let refused = (0..3_000)
            .filter(|_| desk.get("p", "a", SOON) == Err(KeyError::Quota))
            .count();
        assert!(refused > 0);
        assert!(desk.get("q", "a", SOON).is_ok(), "another plugin has its own");
    }

    #[test]
    fn what_is_too_large_is_not_asked() {
        let desk = Desk::new(Arc::new(Counting::default()), SOON);
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        for key in ["", &long] {
            assert_eq!(desk.get("p", key, SOON), Err(KeyError::TooLarge));
            assert_eq!(desk.read("p", key, SOON), Err(KeyError::TooLarge));
        }
        let set = |size| {
            let value = Bytes::from(vec![0; size]);
            KeyOperation::Set(KeyValue { value, ttl_ms: 0 })
        };
        assert_eq!(
            desk.change("p", "a", set(VALUE_BYTES_MAX), SOON),
            Ok(KeyOutcome::Done)
        );
        assert_eq!(
            desk.change("p", "a", set(VALUE_BYTES_MAX + 1), SOON),
            Err(KeyError::TooLarge)
        );
    }
}
