//! The deadlines of one connection.

use penstock_core::client::CloseReason;
use tokio::time::Instant;

use super::Config;

/// What the deadlines are counted from. The caller sets the instants.
pub(super) struct Clock {
    /// When the running step began.
    pub(super) now: Instant,
    opened: Instant,
    /// When CONNECT came.
    pub(super) connect_came: Option<Instant>,
    /// When the last whole frame came; only that is a sign of life (rule PR-5).
    pub(super) last_frame: Instant,
    /// Since when the peer has taken no byte of what is to be written.
    pub(super) write_stalled: Option<Instant>,
    /// Since when the connection is to be closed once its queue is written, and why.
    pub(super) closing: Option<(Instant, CloseReason)>,
}

impl Clock {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            now,
            opened: now,
            connect_came: None,
            last_frame: now,
            write_stalled: None,
            closing: None,
        }
    }

    /// The next deadline and what missing it means.
    pub(super) fn due(&self, is_open: bool, config: &Config) -> (Instant, CloseReason) {
        let waiting = match self.connect_came {
            _ if is_open => (self.last_frame + config.idle_timeout, CloseReason::IdleTimeout),
            Some(came) => (came + config.activation_timeout, CloseReason::ActivationFailed),
            None => (self.opened + config.connect_timeout, CloseReason::ConnectTimeout),
        };
        let stalled = self
            .write_stalled
            .map(|since| (since + config.write_timeout, CloseReason::OutboundOverflow));
        let closing = self
            .closing
            .map(|(since, reason)| (since + config.close_timeout, reason));
        [stalled, closing].into_iter().flatten().fold(
            waiting,
            |first, other| {
                if other.0 < first.0 { other } else { first }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_earliest_deadline_stands() {
        let config = Config::default();
        let start = Instant::now();
        let mut clock = Clock::new(start);
        let later = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(clock.due(false, &config), (later(5), CloseReason::ConnectTimeout));
        clock.connect_came = Some(later(1));
        assert_eq!(
            clock.due(false, &config),
            (later(11), CloseReason::ActivationFailed)
        );
        clock.last_frame = later(2);
        assert_eq!(clock.due(true, &config), (later(182), CloseReason::IdleTimeout));
        clock.write_stalled = Some(later(3));
        assert_eq!(
            clock.due(true, &config),
            (later(13), CloseReason::OutboundOverflow)
        );
        clock.closing = Some((later(4), CloseReason::Kicked));
        assert_eq!(clock.due(true, &config), (later(6), CloseReason::Kicked));
    }
}
