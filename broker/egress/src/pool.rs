//! Connections that wait for their next request.

use crate::connection::Connection;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a connection is kept that nobody uses, and how long at all: a name may get other addresses.
const IDLE_MAX: Duration = Duration::from_secs(20);
const AGE_MAX: Duration = Duration::from_secs(60);

/// The idle connections to one place.
#[derive(Default)]
pub(crate) struct Pool {
    idle: Mutex<Vec<(Connection, Instant)>>,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Vec<(Connection, Instant)>> {
        // The list is whole between two statements, whatever a holder died of.
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The one that was used last of those that may be used.
    pub(crate) fn take(&self, may: impl Fn(&Connection) -> bool) -> Option<Connection> {
        let mut idle = self.lock();
        idle.retain(|(connection, since)| since.elapsed() < IDLE_MAX && connection.is_fresh(AGE_MAX));
        let at = idle.iter().rposition(|(connection, _)| may(connection))?;
        Some(idle.remove(at).0)
    }

    /// Keeps one that has room for another request, so many at most.
    pub(crate) fn keep(&self, connection: Connection, most: usize) {
        let mut idle = self.lock();
        if connection.is_fresh(AGE_MAX) && idle.len() < most {
            idle.push((connection, Instant::now()));
        }
    }
}
