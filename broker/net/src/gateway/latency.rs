//! How long clients wait for the answers to their SENDs.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use penstock_core::client::{ClientFrame, ServerFrame};
use tokio::time::Instant;

/// Upper bounds of the buckets, in microseconds, and as Prometheus writes them, in seconds. Half a millisecond is what a
/// sync of a fast disk takes; five seconds is when the outcome of a send becomes unknown by default.
const BOUNDS: [(u64, &str); 13] = [
    (500, "0.0005"),
    (1_000, "0.001"),
    (2_500, "0.0025"),
    (5_000, "0.005"),
    (10_000, "0.01"),
    (25_000, "0.025"),
    (50_000, "0.05"),
    (100_000, "0.1"),
    (250_000, "0.25"),
    (500_000, "0.5"),
    (1_000_000, "1"),
    (2_500_000, "2.5"),
    (5_000_000, "5"),
];

/// A histogram of waiting times: two additions for each answer.
#[derive(Debug, Default)]
pub struct Latency {
    /// By bound, and one for what is above all of them; not cumulative.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

impl Latency {
    /// Counts one waiting time.
    pub fn observe(&self, waited: Duration) {
        let waited_us = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        let index = BOUNDS.partition_point(|(bound_us, _)| *bound_us < waited_us);
        if let Some(bucket) = self.buckets.get(index) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(waited_us, Ordering::Relaxed);
    }

    /// How many were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .sum()
    }

    /// Appends the lines of a Prometheus histogram of this name, without its head.
    pub(super) fn render(&self, out: &mut String, name: &str) {
        let mut count = 0;
        let bounds = BOUNDS.iter().map(|(_, text)| *text).chain(["+Inf"]);
        for (bucket, bound) in self.buckets.iter().zip(bounds) {
            count += bucket.load(Ordering::Relaxed);
            // Writing to a String cannot fail.
            let _ = writeln!(out, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let sum_us = self.sum_us.load(Ordering::Relaxed);
        let _ = writeln!(out, "{name}_sum {}.{:06}", sum_us / 1_000_000, sum_us % 1_000_000);
        let _ = writeln!(out, "{name}_count {count}");
    }
}

/// The SENDs of one connection that were read and not answered, oldest first. The session answers each once and bounds how
/// many there are.
#[derive(Debug, Default)]
pub(super) struct Unanswered(VecDeque<(u64, Instant)>);

impl Unanswered {
    /// Notes when a SEND came.
    pub(super) fn came(&mut self, frame: &ClientFrame, now: Instant) {
        if let ClientFrame::Send(send) = frame {
            self.0.push_back((send.client_seq, now));
        }
    }

    /// Counts the time of an answer to a SEND. Answers keep the order of their channel, so the search ends at once or nearly so.
    pub(super) fn answered(&mut self, frame: &ServerFrame, now: Instant, latency: &Latency) {
        let (ServerFrame::SendAck { client_seq, .. } | ServerFrame::OutcomeUnknown { client_seq, .. }) =
            frame
        else {
            return;
        };
        let place = self.0.iter().position(|(waiting, _)| waiting == client_seq);
        if let Some((_, came)) = place.and_then(|place| self.0.remove(place)) {
            latency.observe(now.saturating_duration_since(came));
        }
        if self.0.is_empty() {
            // A connection that once sent a burst does not keep its room.
            self.0.shrink_to(8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_core::client::Send;
    use penstock_core::types::{ChannelKind, MessageId, Reason, Seq};

    #[test]
    fn a_time_falls_into_the_bucket_whose_bound_it_does_not_exceed() {
        let latency = Latency::default();
        for micros in [0, 500, 501, 1_000, 5_000_000, 5_000_001] {
            latency.observe(Duration::from_micros(micros));
        }
        let mut text = String::new();
        latency.render(&mut text, "x_seconds");
        for line in [
            "x_seconds_bucket{le=\"0.0005\"} 2",
            "x_seconds_bucket{le=\"0.001\"} 4",
            "x_seconds_bucket{le=\"0.0025\"} 4",
            "x_seconds_bucket{le=\"5\"} 5",
            "x_seconds_bucket{le=\"+Inf\"} 6",
            "x_seconds_sum 10.002002",
            "x_seconds_count 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert_eq!(latency.count(), 6);
    }

    #[test]
    fn bounds_rise_and_say_the_same_twice() {
        assert!(BOUNDS.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for (bound_us, text) in BOUNDS {
            let seconds: f64 = text.parse().expect("a number");
            assert!((seconds * 1e6 - bound_us as f64).abs() < 0.5, "{text}");
        }
    }

    fn send(client_seq: u64) -> ClientFrame {
        ClientFrame::Send(Send {
            client_seq,
            client_msg_no: "".into(),
            channel_id: "c".into(),
            kind: ChannelKind::GROUP,
            no_persist: false,
            red_dot: false,
            sync_once: false,
            setting: 0,
            expire_s: 0,
            topic: "".into(),
            payload: Ok(bytes::Bytes::new()),
        })
    }

    fn ack(client_seq: u64) -> ServerFrame {
        ServerFrame::SendAck {
            client_seq,
            client_msg_no: "".into(),
            id: MessageId(1),
            seq: Seq(1),
            reason: Reason::SUCCESS,
            text: None,
        }
    }

    #[test]
    fn each_send_is_counted_with_its_own_time_in_whatever_order_answers_come() {
        let (latency, mut unanswered) = (Latency::default(), Unanswered::default());
        let start = Instant::now();
        unanswered.came(&ClientFrame::Ping, start);
        for client_seq in 1..=3 {
            unanswered.came(&send(client_seq), start + Duration::from_millis(client_seq));
        }
        // 2 waited 8 ms, 1 waited 19 ms, 3 waited 97 ms; 9 was never sent and 2 is answered once.
        for (client_seq, at_ms) in [(2, 10), (1, 20), (9, 20), (2, 30), (3, 100)] {
            unanswered.answered(&ack(client_seq), start + Duration::from_millis(at_ms), &latency);
        }
        unanswered.answered(&ServerFrame::Pong, start + Duration::from_secs(9), &latency);
        let mut text = String::new();
        latency.render(&mut text, "x");
        assert!(
            text.contains("x_bucket{le=\"0.01\"} 1\nx_bucket{le=\"0.025\"} 2\n"),
            "{text}"
        );
        assert!(text.contains("x_sum 0.124000\nx_count 3\n"), "{text}");
        assert!(unanswered.0.is_empty());
    }
}
