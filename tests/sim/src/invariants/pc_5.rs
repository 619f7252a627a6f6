//! PC-5: first offers to a session strictly increase, and only what was offered is offered again. What each session was offered
//! is kept here for checks 5 and 6 as well.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One session as its client sees it.
#[derive(Debug, Default)]
pub struct Session {
    /// When it was accepted.
    pub since: Duration,
    /// Channel → positions that were offered.
    pub offered: BTreeMap<usize, BTreeSet<u64>>,
}

/// The sessions of a run, by the number of their connection.
#[derive(Debug, Default)]
pub struct Sessions {
    sessions: BTreeMap<usize, Session>,
    /// Offers that came again.
    pub reoffers: u64,
}

impl Sessions {
    /// A session was accepted.
    pub fn open(&mut self, connection: usize, now: Duration) {
        self.sessions.insert(
            connection,
            Session {
                since: now,
                offered: BTreeMap::new(),
            },
        );
    }

    /// The session of a connection.
    #[must_use]
    pub fn session(&self, connection: usize) -> Option<&Session> {
        self.sessions.get(&connection)
    }

    /// How many messages were offered to the sessions that are open.
    #[must_use]
    pub fn offers(&self) -> usize {
        let channels = self
            .sessions
            .values()
            .flat_map(|session| session.offered.values());
        channels.map(BTreeSet::len).sum()
    }

    /// A session is over.
    pub fn close(&mut self, connection: usize) {
        self.sessions.remove(&connection);
    }

    /// A session was offered a message.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn offer(
        &mut self,
        connection: usize,
        channel: usize,
        seq: u64,
        duplicate: bool,
    ) -> Result<(), String> {
        let Some(session) = self.sessions.get_mut(&connection) else {
            return Err(format!(
                "connection {connection} got {seq} before it was accepted"
            ));
        };
        let offered = session.offered.entry(channel).or_default();
        let last = offered.last().copied().unwrap_or(0);
        if duplicate {
            self.reoffers += 1;
            return if offered.contains(&seq) {
                Ok(())
            } else {
                Err(format!(
                    "connection {connection} got {seq} again, which it never got"
                ))
            };
        }
        offered.insert(seq);
        if seq > last {
            Ok(())
        } else {
            Err(format!(
                "connection {connection} got {seq} for the first time after {last}"
            ))
        }
    }
}
