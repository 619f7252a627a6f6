//! Numbers that the shards post for `/metrics`, so that a scrape never waits for a shard.

use penstock_core::shard::{Counters, Lag, View};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sums over all shards of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    /// What happened.
    pub counters: Counters,
    /// Open sessions.
    pub sessions: u64,
    /// Messages offered and not acknowledged.
    pub unacknowledged: u64,
    /// Inputs that wait for rows.
    pub held: u64,
    /// Row reads that had to go to disk.
    pub misses: u64,
    /// Channels on their way from cold to led.
    pub opening: u64,
    /// Channels in memory.
    pub hosted: u64,
}

/// How far each binding that follows channels is behind, by its id.
pub type Lags = BTreeMap<Arc<str>, Lag>;

/// The newest numbers of each shard.
#[derive(Debug)]
pub(super) struct Board(Mutex<Vec<(Counted, Lags)>>);

impl Board {
    pub(super) fn new(shards: usize) -> Board {
        Board(Mutex::new(vec![Default::default(); shards]))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Counted, Lags)>> {
        // Numbers are whole, whatever a holder died of.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn post(&self, shard: u16, view: &View) {
        let counted = Counted {
            counters: view.counters,
            sessions: view.sessions as u64,
            unacknowledged: view.unacknowledged as u64,
            held: view.held as u64,
            misses: view.misses,
            opening: view.opening as u64,
            hosted: view.hosted as u64,
        };
        if let Some((place, _)) = self.lock().get_mut(usize::from(shard)) {
            *place = counted;
        }
    }

    pub(super) fn post_lags(&self, shard: u16, lags: Lags) {
        if let Some((_, place)) = self.lock().get_mut(usize::from(shard)) {
            *place = lags;
        }
    }

    pub(super) fn lags(&self) -> Lags {
        let mut sum = Lags::new();
        for (_, lags) in self.lock().iter() {
            for (binding, lag) in lags {
                let place = sum.entry(Arc::clone(binding)).or_default();
                *place = place.plus(*lag);
            }
        }
        sum
    }

    pub(super) fn sum(&self) -> Counted {
        let board = self.lock();
        let counted = board.iter().map(|(counted, _)| counted);
        counted.fold(Counted::default(), |sum, one| Counted {
            counters: sum.counters.plus(&one.counters),
            sessions: sum.sessions + one.sessions,
            unacknowledged: sum.unacknowledged + one.unacknowledged,
            held: sum.held + one.held,
            misses: sum.misses + one.misses,
            opening: sum.opening + one.opening,
            hosted: sum.hosted + one.hosted,
        })
    }
}
