//! How much may be done in a second.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What may still be done.
#[derive(Debug)]
pub(crate) struct Bucket {
    tokens: f64,
    refilled: Instant,
}

impl Bucket {
    /// One that holds what there may be in a second.
    pub(crate) fn full(per_s: f64, now: Instant) -> Bucket {
        Bucket {
            tokens: per_s,
            refilled: now,
        }
    }

    /// Takes one, if there is one.
    pub(crate) fn take(&mut self, per_s: f64, now: Instant) -> bool {
        let refill = now.duration_since(self.refilled).as_secs_f64() * per_s;
        self.tokens = (self.tokens + refill).min(per_s);
        self.refilled = now;
        let may = self.tokens >= 1.0;
        if may {
            self.tokens -= 1.0;
        }
        may
    }
}

/// A bucket for each plugin, which holds what it may do in a second.
pub(crate) struct Rates {
    per_s: f64,
    buckets: Mutex<BTreeMap<String, Bucket>>,
}

impl Rates {
    pub(crate) fn new(per_s: f64) -> Rates {
        Rates {
            per_s,
            buckets: Mutex::default(),
        }
    }

    /// Counts one more, if the plugin may have it. The names are those of plugins that are loaded, so that they are few.
    pub(crate) fn admit(&self, plugin: &str) -> bool {
        self.admit_at(plugin, Instant::now())
    }

    fn admit_at(&self, plugin: &str, now: Instant) -> bool {
        // The map is whole between two statements, whatever a holder died of.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full = || Bucket::full(self.per_s, now);
        let bucket = match buckets.get_mut(plugin) {
            Some(bucket) => bucket,
            None => buckets.entry(plugin.to_owned()).or_insert_with(full),
        };
        bucket.take(self.per_s, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_plugin_may_do_so_much_in_a_second() {
        let now = Instant::now();
        let rates = Rates::new(1_000.0);
        let taken = (0..2_000).filter(|_| rates.admit_at("p", now)).count();
        assert_eq!(taken, 1_000);
        assert!(rates.admit_at("q", now), "another plugin has its own");
        assert!(rates.admit_at("p", now + Duration::from_millis(2)));
    }
}
