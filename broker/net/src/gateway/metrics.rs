//! What the gateway counts.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use penstock_core::client::CloseReason;

use super::Latency;

/// Every close reason, in the order of its counter.
const REASONS: [CloseReason; 15] = [
    CloseReason::PeerClosed,
    CloseReason::ProtocolError,
    CloseReason::PolicyViolation,
    CloseReason::ConnectTimeout,
    CloseReason::IdleTimeout,
    CloseReason::AuthFailed,
    CloseReason::ActivationFailed,
    CloseReason::Kicked,
    CloseReason::OutboundOverflow,
    CloseReason::UnacknowledgedOverflow,
    CloseReason::InboundOverflow,
    CloseReason::DeliveryMissed,
    CloseReason::OutcomeUnknown,
    CloseReason::TooManyConnections,
    CloseReason::ServerStop,
];

/// The metrics label of a close reason, which is also the text of a WebSocket close.
#[must_use]
pub const fn close_label(reason: CloseReason) -> &'static str {
    match reason {
        CloseReason::PeerClosed => "peer_closed",
        CloseReason::ProtocolError => "protocol_error",
        CloseReason::PolicyViolation => "policy_violation",
        CloseReason::ConnectTimeout => "connect_timeout",
        CloseReason::IdleTimeout => "idle_timeout",
        CloseReason::AuthFailed => "auth_failed",
        CloseReason::ActivationFailed => "activation_failed",
        CloseReason::Kicked => "kicked",
        CloseReason::OutboundOverflow => "outbound_overflow",
        CloseReason::UnacknowledgedOverflow => "unacknowledged_overflow",
        CloseReason::InboundOverflow => "inbound_overflow",
        CloseReason::DeliveryMissed => "delivery_missed",
        CloseReason::OutcomeUnknown => "outcome_unknown",
        CloseReason::TooManyConnections => "too_many_connections",
        CloseReason::ServerStop => "server_stop",
    }
}

/// A number that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// Adds one and says what it is now.
    pub fn rise(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Takes one away.
    pub fn fall(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Its value.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The gateway's counters and gauges, shared by all connections.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Open connections, authenticated or not.
    pub connections: Gauge,
    /// Connections that have not been authenticated yet.
    pub unauthenticated: Gauge,
    /// Connections accepted from a listener, those over a limit included.
    pub accepted: Counter,
    /// Failed accepts, for instance for want of file descriptors.
    pub accept_errors: Counter,
    /// Protocol frames read.
    pub frames_in: Counter,
    /// Protocol frames written.
    pub frames_out: Counter,
    /// Frames that could not be encoded for the peer's version and were left out.
    pub frames_unencodable: Counter,
    /// Bytes read from sockets.
    pub bytes_in: Counter,
    /// Bytes written to sockets.
    pub bytes_out: Counter,
    /// Times that a connection stopped reading because its shard was full.
    pub mailbox_full: Counter,
    /// From reading a SEND to writing its answer.
    pub sendack: Latency,
    closed: [Counter; REASONS.len()],
}

impl Metrics {
    /// Counts a closed connection.
    pub fn count_close(&self, reason: CloseReason) {
        if let Some(counter) = self.closed_counter(reason) {
            counter.add(1);
        }
    }

    /// How many connections were closed for this reason.
    #[must_use]
    pub fn closed(&self, reason: CloseReason) -> u64 {
        self.closed_counter(reason).map_or(0, Counter::value)
    }

    fn closed_counter(&self, reason: CloseReason) -> Option<&Counter> {
        let index = REASONS.iter().position(|other| *other == reason)?;
        self.closed.get(index)
    }

    /// Appends all of them in the Prometheus text format.
    pub fn render(&self, out: &mut String) {
        gauge(out, "connections", "Open connections", self.connections.value());
        gauge(
            out,
            "unauthenticated_connections",
            "Connections without CONNACK",
            self.unauthenticated.value(),
        );
        for (name, help, counter) in [
            ("accepted_total", "Connections accepted", &self.accepted),
            ("accept_errors_total", "Failed accepts", &self.accept_errors),
            ("frames_in_total", "Protocol frames read", &self.frames_in),
            ("frames_out_total", "Protocol frames written", &self.frames_out),
            (
                "frames_unencodable_total",
                "Frames that a peer's version cannot carry",
                &self.frames_unencodable,
            ),
            ("bytes_in_total", "Bytes read", &self.bytes_in),
            ("bytes_out_total", "Bytes written", &self.bytes_out),
            (
                "mailbox_full_total",
                "Times that a connection waited for its shard",
                &self.mailbox_full,
            ),
        ] {
            head(out, name, help, "counter");
            line(out, name, "", counter.value());
        }
        let help = "Seconds from reading a SEND to writing its answer";
        head(out, "sendack_seconds", help, "histogram");
        self.sendack.render(out, "penstock_gateway_sendack_seconds");
        head(out, "closed_total", "Connections closed", "counter");
        for (reason, counter) in REASONS.iter().zip(&self.closed) {
            let labels = format!("{{reason=\"{}\"}}", close_label(*reason));
            line(out, "closed_total", &labels, counter.value());
        }
    }
}

fn gauge(out: &mut String, name: &str, help: &str, value: u64) {
    head(out, name, help, "gauge");
    line(out, name, "", value);
}

fn head(out: &mut String, name: &str, help: &str, kind: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "# HELP penstock_gateway_{name} {help}.\n# TYPE penstock_gateway_{name} {kind}"
    );
}

fn line(out: &mut String, name: &str, labels: &str, value: u64) {
    let _ = writeln!(out, "penstock_gateway_{name}{labels} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter_and_label() {
        let metrics = Metrics::default();
        for (index, reason) in (1u64..).zip(REASONS) {
            for _ in 0..index {
                metrics.count_close(reason);
            }
        }
        let mut text = String::new();
        metrics.render(&mut text);
        for (index, reason) in (1u64..).zip(REASONS) {
            assert_eq!(metrics.closed(reason), index);
            let line = format!(
                "penstock_gateway_closed_total{{reason=\"{}\"}} {index}\n",
                close_label(reason)
            );
            assert!(text.contains(&line), "{line}");
        }
    }

    #[test]
    fn the_page_is_well_formed() {
        let metrics = Metrics::default();
        metrics.connections.rise();
        metrics.connections.rise();
        metrics.connections.fall();
        metrics.bytes_in.add(5);
        let mut text = String::new();
        metrics.render(&mut text);
        assert!(text.contains("\npenstock_gateway_connections 1\n"));
        assert!(text.contains("\npenstock_gateway_bytes_in_total 5\n"));
        assert!(
            text.lines()
                .all(|line| line.starts_with("# ") || line.split(' ').count() == 2)
        );
    }
}
