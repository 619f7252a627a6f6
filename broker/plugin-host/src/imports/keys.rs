//! `kv` and `kv-read`. The thread of the guest waits for the answers, so that their time counts as the guest's.

use super::{State, interface};
use crate::contract::Value;
use crate::keys::KeyError;
use bytes::Bytes;
use penstock_core::hooks::registry::{KeyOperation, KeyOutcome, KeyValue};
use std::time::{Duration, Instant};
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Linker, Lower};

/// Longest wait for one answer.
const WITHIN: Duration = Duration::from_secs(5);

/// What a filter needed could not be read: its call fails as one of the host, because to go on without would be to let pass what it
/// would have refused.
#[derive(Debug, thiserror::Error)]
#[error("the key cannot be read: {}", .0.name())]
pub(crate) struct ReadFailed(pub(crate) KeyError);

/// Why an operation failed, as guests see it.
#[derive(Clone, Copy, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
enum Error {
    #[component(name = "quota")]
    Quota,
    #[component(name = "unavailable")]
    Unavailable,
    #[component(name = "not-a-number")]
    NotANumber,
    #[component(name = "too-large")]
    TooLarge,
}

impl From<KeyError> for Error {
    fn from(error: KeyError) -> Error {
        match error {
            KeyError::Quota => Error::Quota,
            KeyError::Unavailable => Error::Unavailable,
            KeyError::NotANumber => Error::NotANumber,
            KeyError::TooLarge => Error::TooLarge,
        }
    }
}

impl State {
    /// Time that is left of the call.
    fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now()).min(WITHIN)
    }

    /// Counts an operation that began then.
    fn counted<T>(&self, began: Instant, result: Result<T, KeyError>) -> Result<T, KeyError> {
        self.board.count(|status| {
            status.host_s += began.elapsed().as_secs_f64();
            status.key_operations += 1;
            if let Err(error) = &result {
                *status.key_errors.entry(error.name()).or_default() += 1;
            }
        });
        result
    }

    fn change(&self, key: &str, operation: KeyOperation) -> Result<KeyOutcome, Error> {
        let began = Instant::now();
        let changed = self.desk.change(&self.plugin, key, operation, self.left());
        self.counted(began, changed).map_err(Error::from)
    }
}

fn value(value: Value) -> KeyValue {
    KeyValue {
        value: Bytes::from(value.value),
        ttl_ms: value.ttl_ms,
    }
}

/// Reads and changes.
pub(super) fn link_kv(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    type Store<'a> = StoreContextMut<'a, State>;
    let mut keys = linker.instance(&interface("kv"))?;
    keys.func_wrap("get", |store: Store<'_>, (key,): (String,)| {
        let state = store.data();
        let read = state.counted(Instant::now(), state.desk.get(&state.plugin, &key, state.left()));
        let read = read.map(|value| value.map(|value| value.to_vec()));
        Ok((read.map_err(Error::from),))
    })?;
    keys.func_wrap("set", |store: Store<'_>, (key, set): (String, Value)| {
        let changed = store.data().change(&key, KeyOperation::Set(value(set)));
        Ok((changed.map(drop),))
    })?;
    keys.func_wrap(
        "compare-and-set",
        |store: Store<'_>, (key, expected, set): (String, Option<Vec<u8>>, Value)| {
            let operation = KeyOperation::CompareAndSet {
                expected: expected.map(Bytes::from),
                value: value(set),
            };
            let changed = store.data().change(&key, operation);
            Ok((changed.map(|outcome| outcome == KeyOutcome::Swapped(true)),))
        },
    )?;
    keys.func_wrap("increment", |store: Store<'_>, (key, by): (String, i64)| {
        let changed = store.data().change(&key, KeyOperation::Increment(by));
        let sum = changed.and_then(|outcome| match outcome {
            KeyOutcome::Sum(sum) => Ok(sum),
            _ => Err(Error::Unavailable),
        });
        Ok((sum,))
    })?;
    keys.func_wrap("delete", |store: Store<'_>, (key,): (String,)| {
        let changed = store.data().change(&key, KeyOperation::Delete);
        Ok((changed.map(drop),))
    })
}

/// Reads out of a copy.
pub(super) fn link_kv_read(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.instance(&interface("kv-read"))?.func_wrap(
        "get",
        |store: StoreContextMut<'_, State>, (key,): (String,)| {
            let state = store.data();
            let read = state.counted(Instant::now(), state.desk.read(&state.plugin, &key, state.left()));
            match read {
                Ok(value) => Ok((value.map(|value| value.to_vec()),)),
                // No such key can be there.
                Err(KeyError::TooLarge) => Ok((None,)),
                Err(error) => Err(wasmtime::Error::new(ReadFailed(error))),
            }
        },
    )
}
