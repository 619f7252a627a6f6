//! Numbers that the shards post for `/metrics`, so that a scrape never waits for a shard.

use penstock_core::shard::{Counters, View};
use std::sync::{Mutex, PoisonError};

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

/// The newest numbers of each shard.
#[derive(Debug)]
pub(super) struct Board(Mutex<Vec<Counted>>);

impl Board {
    pub(super) fn new(shards: usize) -> Board {
        Board(Mutex::new(vec![Counted::default(); shards]))
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
        let mut board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = board.get_mut(usize::from(shard)) {
            *place = counted;
        }
    }

    pub(super) fn sum(&self) -> Counted {
        let board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        board.iter().fold(Counted::default(), |sum, one| Counted {
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
