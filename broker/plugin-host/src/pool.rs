//! The warm instances of one thread.

use crate::instance::Guest;
use penstock_core::hooks::call::Version;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// An instance that was not called for so long is dropped.
const IDLE: Duration = Duration::from_secs(60);
/// How often idle ones are looked for.
const TEND: Duration = Duration::from_secs(5);

/// At most one instance of each version: a thread runs one call at a time.
pub(crate) struct Pool {
    guests: BTreeMap<Version, (Guest, Instant)>,
    tended: Instant,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool {
            guests: BTreeMap::new(),
            tended: Instant::now(),
        }
    }
}

impl Pool {
    pub(crate) fn take(&mut self, version: &Version) -> Option<Guest> {
        self.guests.remove(version).map(|(guest, _)| guest)
    }

    pub(crate) fn put(&mut self, version: Version, guest: Guest) {
        self.guests.insert(version, (guest, Instant::now()));
    }

    /// Drops what is not used any more: of versions that are gone, and idle ones.
    pub(crate) fn tend(&mut self, is_loaded: impl Fn(&Version) -> bool) {
        let now = Instant::now();
        if now.duration_since(self.tended) < TEND {
            return;
        }
        self.tended = now;
        self.guests
            .retain(|version, (_, used)| is_loaded(version) && now.duration_since(*used) < IDLE);
    }
}
