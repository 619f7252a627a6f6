//! What a run leaves: a report for machines, and a few lines for people.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use crate::machine::{Machine, Usage};
use crate::meter::{Counts, Latencies, Percentiles};
use crate::options::{Mode, Options};
use crate::session::{Arrived, reason_name};
use crate::verify::Verdict;

/// The report of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    /// The server.
    pub(crate) target: String,
    /// The kind of load.
    pub(crate) mode: &'static str,
    /// Connections, those of the background included.
    pub(crate) connections: usize,
    /// Bytes of a payload before encryption.
    pub(crate) payload: usize,
    /// Messages per second that were asked for; absent in the closed loop.
    pub(crate) rate: Option<u64>,
    /// Sends without an answer per connection; absent in the open loop.
    pub(crate) window: Option<u32>,
    /// Groups, where there are any.
    pub(crate) groups: Option<usize>,
    /// Members of each group.
    pub(crate) members: Option<usize>,
    /// The protocol version that was announced.
    pub(crate) protocol: u8,
    /// Threads that drove the connections.
    pub(crate) threads: usize,
    /// Seconds that were measured.
    pub(crate) duration_s: f64,
    /// Seconds of traffic before that.
    pub(crate) warm_up_s: f64,
    /// The machine.
    pub(crate) machine: Machine,
    /// How the connections were opened.
    pub(crate) connect: Connecting,
    /// The traffic, where there was any.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) traffic: Option<Traffic>,
    /// The process that was watched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) process: Option<Process>,
    /// The storm of logins, in login mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) login: Option<Login>,
}

/// How connections were opened.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Connecting {
    /// How many are open.
    pub(crate) connected: usize,
    /// How many failed, by reason.
    pub(crate) failed: BTreeMap<String, u64>,
    /// How long all took.
    pub(crate) seconds: f64,
    /// Opened per second.
    pub(crate) per_s: f64,
    /// From the start of each to its CONNACK; in a storm, from when it was due.
    pub(crate) connack_ms: Percentiles,
    /// Connections that ended before the run did, by reason.
    pub(crate) lost: BTreeMap<String, u64>,
}

/// The traffic of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Traffic {
    /// Sends per measured second.
    pub(crate) sent_per_s: f64,
    /// Acknowledgements per measured second.
    pub(crate) acked_per_s: f64,
    /// New messages received per measured second, at all connections.
    pub(crate) delivered_per_s: f64,
    /// From when a send was due to its SENDACK.
    pub(crate) sendack_ms: Percentiles,
    /// From when a send was due to each of its RECVs.
    pub(crate) recv_ms: Percentiles,
    /// From when a send was due until the tool wrote it: the tool's own part in the above. Open loop only.
    pub(crate) schedule_lag_ms: Option<Percentiles>,
    /// Counts of the whole run, warm-up and drain included.
    pub(crate) totals: Totals,
    /// What was wrong.
    pub(crate) verify: Verdict,
    /// Refused sends of the whole run, by reason.
    pub(crate) refused: BTreeMap<String, u64>,
    /// Per second.
    pub(crate) series: Vec<Second>,
    /// Curves for charts: share of all, milliseconds.
    pub(crate) curves: Curves,
}

/// Counts of a whole run, in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Totals {
    /// Sends written.
    pub(crate) sent: u64,
    /// Acknowledged sends.
    pub(crate) acked: u64,
    /// Sends that were never answered.
    pub(crate) unanswered: u64,
    /// Sends that were due but could not be written before the end.
    pub(crate) unsent: u64,
    /// What the acknowledged sends must lead to: each at every other member.
    pub(crate) owed: u64,
    /// New messages received.
    pub(crate) delivered: u64,
    /// Messages received that are not of this run.
    pub(crate) foreign: u64,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Second {
    /// When it ended, in seconds since the traffic began.
    pub(crate) at_s: f64,
    /// Whether it is measured; otherwise it is warm-up.
    pub(crate) measured: bool,
    /// Acknowledgements per second.
    pub(crate) acked_per_s: f64,
    /// New messages received per second.
    pub(crate) delivered_per_s: f64,
    /// Of the acknowledgements that came in it and count.
    pub(crate) sendack_p99_ms: Option<f64>,
    /// Of the messages that came in it and count.
    pub(crate) recv_p99_ms: Option<f64>,
}

/// Two distributions as curves.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Curves {
    /// Of the acknowledgements.
    pub(crate) sendack: Vec<(f64, f64)>,
    /// Of the messages received.
    pub(crate) recv: Vec<(f64, f64)>,
}

/// A process before, and at the end while all connections were open.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Process {
    /// Resident memory before the first connection, in bytes.
    pub(crate) rss_before_bytes: u64,
    /// Resident memory at the end, in bytes.
    pub(crate) rss_bytes: u64,
    /// The difference for each connection, in bytes; only in idle mode, where nothing else grows.
    pub(crate) rss_per_connection_bytes: Option<f64>,
    /// Processor time in between, in seconds.
    pub(crate) cpu_s: f64,
}

/// The background of a storm of logins.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Login {
    /// Connections with traffic.
    pub(crate) background: usize,
    /// Acknowledgements before the storm.
    pub(crate) sendack_before_ms: Percentiles,
    /// Acknowledgements during the storm.
    pub(crate) sendack_during_ms: Percentiles,
    /// Messages received before the storm.
    pub(crate) recv_before_ms: Percentiles,
    /// Messages received during the storm.
    pub(crate) recv_during_ms: Percentiles,
}

/// What is collected while a run goes on.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Everything.
    pub(crate) total: Counts,
    /// Per second.
    pub(crate) series: Vec<Second>,
    sent: u64,
    acknowledged: u64,
    delivered: u64,
    measured: Duration,
}

/// Per second. Nothing per no time is nothing.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
#[must_use]
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        0.0
    } else {
        (count as f64 / elapsed.as_secs_f64() * 10.0).round() / 10.0
    }
}

impl Tally {
    /// Takes what was counted in the interval that ended at this time after the start of the traffic.
    pub(crate) fn interval(
        &mut self,
        counts: &Counts,
        at: Duration,
        elapsed: Duration,
        measured: bool,
    ) -> Second {
        if measured {
            self.sent += counts.sent;
            self.acknowledged += counts.acknowledged;
            self.delivered += counts.delivered;
            self.measured += elapsed;
        }
        let second = Second {
            at_s: (at.as_secs_f64() * 1_000.0).round() / 1_000.0,
            measured,
            acked_per_s: per_second(counts.acknowledged, elapsed),
            delivered_per_s: per_second(counts.delivered, elapsed),
            sendack_p99_ms: p99(&counts.sendack),
            recv_p99_ms: p99(&counts.recv),
        };
        self.series.push(second);
        self.total.add(counts);
        second
    }

    /// How long was measured.
    #[must_use]
    pub(crate) fn measured(&self) -> Duration {
        self.measured
    }

    /// The part of the report.
    #[must_use]
    pub(crate) fn report(self, verify: Verdict, unanswered: u64, given: Option<u64>) -> Traffic {
        let total = &self.total;
        Traffic {
            sent_per_s: per_second(self.sent, self.measured),
            acked_per_s: per_second(self.acknowledged, self.measured),
            delivered_per_s: per_second(self.delivered, self.measured),
            sendack_ms: total.sendack.percentiles(),
            recv_ms: total.recv.percentiles(),
            schedule_lag_ms: given.map(|_| total.lag.percentiles()),
            totals: Totals {
                sent: total.sent,
                acked: total.acknowledged,
                unanswered,
                unsent: given.unwrap_or(total.sent).saturating_sub(total.sent),
                owed: total.owed,
                delivered: total.delivered,
                foreign: total.foreign,
            },
            verify,
            refused: total
                .refused
                .iter()
                .map(|(code, count)| (reason_name(*code), *count))
                .collect(),
            curves: Curves {
                sendack: total.sendack.curve(),
                recv: total.recv.curve(),
            },
            series: self.series,
        }
    }
}

impl Connecting {
    /// Of what arrived; what is lost later is added later.
    #[must_use]
    pub(crate) fn new(arrived: &Arrived) -> Self {
        Self {
            connected: arrived.sessions.len(),
            failed: arrived.failed.clone(),
            seconds: arrived.elapsed.as_secs_f64(),
            per_s: per_second(arrived.sessions.len() as u64, arrived.elapsed),
            connack_ms: arrived.connack.percentiles(),
            lost: BTreeMap::new(),
        }
    }
}

impl Process {
    /// Of two readings; with how many idle connections lie between them, if they are idle.
    pub(crate) fn new(before: Usage, after: Usage, idle: Option<usize>) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "bytes of memory are far below 2^53")]
        let share = |idle: usize| (after.rss_bytes as f64 - before.rss_bytes as f64) / idle.max(1) as f64;
        Self {
            rss_before_bytes: before.rss_bytes,
            rss_bytes: after.rss_bytes,
            rss_per_connection_bytes: idle.map(share),
            cpu_s: after.cpu_s - before.cpu_s,
        }
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        let share = self
            .rss_per_connection_bytes
            .map_or_else(String::new, |bytes| format!(", {bytes:.0} bytes a connection"));
        format!(
            "{} KiB before, {} KiB at the end{share}, {:.1} s of processor time",
            self.rss_before_bytes / 1_024,
            self.rss_bytes / 1_024,
            self.cpu_s
        )
    }
}

impl Report {
    /// A report with what is known before the run.
    #[must_use]
    pub(crate) fn new(options: &Options, machine: Machine) -> Self {
        let messages = options.mode != Mode::Idle && (options.mode != Mode::Login || options.background > 0);
        let closed = options.rate.is_none() && options.mode != Mode::Login;
        Self {
            target: options.target.url.clone(),
            mode: options.mode.name(),
            connections: options.connections + options.background,
            payload: options.payload,
            rate: options.rate,
            window: (messages && closed).then_some(options.window),
            groups: (options.mode == Mode::Group).then_some(options.groups),
            members: match options.mode {
                Mode::Group => Some(options.members),
                Mode::Fanout => Some(options.connections),
                Mode::Person | Mode::Idle | Mode::Login => None,
            },
            protocol: options.protocol,
            threads: options.threads,
            duration_s: 0.0,
            warm_up_s: if messages {
                options.warm_up.as_secs_f64()
            } else {
                0.0
            },
            machine,
            connect: Connecting::default(),
            traffic: None,
            process: None,
            login: None,
        }
    }

    /// Why the run is a failure, if it is one.
    #[must_use]
    pub(crate) fn failure(&self) -> Option<String> {
        let mut wrong = Vec::new();
        for (what, reasons) in [
            ("failed", &self.connect.failed),
            ("ended early", &self.connect.lost),
        ] {
            for (reason, count) in reasons {
                wrong.push(format!("{count} connections {what}: {reason}"));
            }
        }
        if let Some(traffic) = &self.traffic {
            let verify = &traffic.verify;
            for (count, what) in [
                (verify.missing, "missing"),
                (verify.duplicated, "duplicated"),
                (verify.reordered, "out of order"),
                (verify.corrupt, "corrupt"),
                (verify.misdirected, "misdirected"),
                (traffic.totals.unanswered, "never answered"),
                (traffic.totals.unsent, "never sent"),
            ] {
                if count > 0 {
                    wrong.push(format!("{count} messages {what}"));
                }
            }
        }
        (!wrong.is_empty()).then(|| wrong.join("; "))
    }

    /// A few lines for people.
    #[must_use]
    pub(crate) fn summary(&self) -> String {
        let mut text = format!(
            "{} at {}: {} connections opened in {:.1} s, CONNACK {}",
            self.mode,
            self.target,
            self.connect.connected,
            self.connect.seconds,
            spread(&self.connect.connack_ms)
        );
        if let Some(traffic) = &self.traffic {
            let _ = write!(
                text,
                "\n{:.1} s measured, {} bytes: {:.0} acknowledged/s, {:.0} delivered/s\nSENDACK {}\nRECV    {}",
                self.duration_s,
                self.payload,
                traffic.acked_per_s,
                traffic.delivered_per_s,
                spread(&traffic.sendack_ms),
                spread(&traffic.recv_ms)
            );
            if let Some(lag) = &traffic.schedule_lag_ms {
                let _ = write!(text, "\ntool    {}", spread(lag));
            }
            let totals = &traffic.totals;
            let _ = write!(
                text,
                "\nin all: {} sent, {} acknowledged, {} of {} deliveries, refused {:?}",
                totals.sent, totals.acked, totals.delivered, totals.owed, traffic.refused
            );
        }
        if let Some(login) = &self.login {
            let _ = write!(
                text,
                "\nbackground of {}: SENDACK p99 {:.2} ms before, {:.2} during; RECV p99 {:.2} before, {:.2} during",
                login.background,
                login.sendack_before_ms.p99,
                login.sendack_during_ms.p99,
                login.recv_before_ms.p99,
                login.recv_during_ms.p99
            );
        }
        if let Some(process) = &self.process {
            let _ = write!(text, "\nprocess: {}", process.words());
        }
        match self.failure() {
            Some(failure) => text + "\nNOT CLEAN: " + &failure,
            None => text + "\nclean: nothing missing, duplicated or out of order",
        }
    }
}

fn p99(latencies: &Latencies) -> Option<f64> {
    (!latencies.is_empty()).then(|| latencies.quantile_ms(0.99))
}

fn spread(of: &Percentiles) -> String {
    format!(
        "p50 {:.2} ms, p90 {:.2}, p99 {:.2}, p99.9 {:.2}, max {:.2}",
        of.p50, of.p90, of.p99, of.p999, of.max
    )
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
