//! How a request ended that was not taken.

use std::time::Duration;

/// Why a request was not taken. Bounded set: a metrics label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The rules do not allow the endpoint.
    Forbidden,
    /// Its name has no address.
    Resolve,
    /// Nobody listens, or the connection broke before an answer.
    Connect,
    /// No trust, or no common language.
    Tls,
    /// No answer within the time.
    Timeout,
    /// What came back is not HTTP, or its head is too large.
    Protocol,
    /// A redirect: it is not followed.
    Redirect,
    /// The endpoint is gone for good (410).
    Gone,
    /// It has too much to do (429, 503).
    Busy,
    /// It refuses the request (other 4xx).
    Refused,
    /// It failed (other 5xx), or its status is none.
    Failed,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 11] = [
        Reason::Forbidden,
        Reason::Resolve,
        Reason::Connect,
        Reason::Tls,
        Reason::Timeout,
        Reason::Protocol,
        Reason::Redirect,
        Reason::Gone,
        Reason::Busy,
        Reason::Refused,
        Reason::Failed,
    ];

    /// Its name, as metrics label it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Forbidden => "forbidden",
            Reason::Resolve => "resolve",
            Reason::Connect => "connect",
            Reason::Tls => "tls",
            Reason::Timeout => "timeout",
            Reason::Protocol => "protocol",
            Reason::Redirect => "redirect",
            Reason::Gone => "gone",
            Reason::Busy => "busy",
            Reason::Refused => "refused",
            Reason::Failed => "failed",
        }
    }

    /// What an answer with this status means; none when it was taken.
    pub(crate) const fn of_status(status: u16) -> Option<Reason> {
        match status {
            200..=299 => None,
            300..=399 => Some(Reason::Redirect),
            410 => Some(Reason::Gone),
            429 | 503 => Some(Reason::Busy),
            400..=499 => Some(Reason::Refused),
            _ => Some(Reason::Failed),
        }
    }
}

/// Why a request was not taken, and for how long the endpoint wants to be left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Why.
    pub reason: Reason,
    /// In words, for the operator; nothing secret.
    pub text: String,
    /// `Retry-After` of a 429 or 503.
    pub after: Option<Duration>,
}

impl Trouble {
    pub(crate) fn new(reason: Reason, text: impl Into<String>) -> Trouble {
        Trouble {
            reason,
            text: text.into(),
            after: None,
        }
    }
}

/// The pause that `Retry-After` asks for: seconds, or a date.
pub(crate) fn retry_after(value: &str, now: std::time::SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value.trim()).ok()?;
    Some(date.duration_since(now).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_2xx_is_taken_and_nothing_else() {
        for status in [200, 201, 204, 299] {
            assert_eq!(Reason::of_status(status), None);
        }
        for (status, reason) in [
            (101, Reason::Failed),
            (301, Reason::Redirect),
            (308, Reason::Redirect),
            (400, Reason::Refused),
            (410, Reason::Gone),
            (429, Reason::Busy),
            (500, Reason::Failed),
            (503, Reason::Busy),
            (600, Reason::Failed),
        ] {
            assert_eq!(Reason::of_status(status), Some(reason));
        }
    }

    #[test]
    fn a_pause_in_seconds_or_until_a_date() {
        let now = std::time::SystemTime::now();
        assert_eq!(retry_after(" 17 ", now), Some(Duration::from_secs(17)));
        let date = httpdate::fmt_http_date(now + Duration::from_secs(60));
        let pause = retry_after(&date, now).expect("a date");
        assert!(
            (Duration::from_secs(58)..=Duration::from_secs(60)).contains(&pause),
            "{pause:?}"
        );
        assert_eq!(
            retry_after("Thu, 01 Jan 1970 00:00:00 GMT", now),
            Some(Duration::ZERO)
        );
        assert_eq!(retry_after("soon", now), None);
    }
}
