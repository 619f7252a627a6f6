//! What is counted while a run goes on. Connections count into shards of their own thread, in batches; the one that
//! reports collects the shards once a second.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest latency that is told apart, in microseconds: two minutes.
const LATENCY_US_MAX: u64 = 120_000_000;

/// Latencies in microseconds, with three significant digits.
#[derive(Clone, Debug)]
pub(crate) struct Latencies(Histogram<u64>);

/// The points of a distribution that reports show, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    /// Half were faster.
    pub(crate) p50: f64,
    /// One in ten was slower.
    pub(crate) p90: f64,
    /// One in a hundred was slower.
    pub(crate) p99: f64,
    /// One in a thousand was slower.
    pub(crate) p999: f64,
    /// The slowest.
    pub(crate) max: f64,
    /// How many there were.
    pub(crate) count: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3);
        Self(histogram.expect("the bounds are constants that fit"))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "two minutes in microseconds are far below 2^53"
)]
fn milliseconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1_000.0
}

impl Latencies {
    /// Counts one, in nanoseconds.
    pub(crate) fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds.div_ceil(1_000));
    }

    /// Counts all of another.
    pub(crate) fn add(&mut self, other: &Self) {
        // Both have the same bounds, so this cannot fail.
        let _ = self.0.add(&other.0);
    }

    /// Whether nothing was counted.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The slowest one in this share of all, in milliseconds.
    #[must_use]
    pub(crate) fn quantile_ms(&self, quantile: f64) -> f64 {
        milliseconds(self.0.value_at_quantile(quantile))
    }

    /// The points that reports show.
    #[must_use]
    pub(crate) fn percentiles(&self) -> Percentiles {
        Percentiles {
            p50: self.quantile_ms(0.5),
            p90: self.quantile_ms(0.9),
            p99: self.quantile_ms(0.99),
            p999: self.quantile_ms(0.999),
            max: milliseconds(self.0.max()),
            count: self.0.len(),
        }
    }

    /// The curve for a chart: share of all and milliseconds, closer together towards the slowest, as far as there are samples
    /// to tell.
    #[must_use]
    pub(crate) fn curve(&self) -> Vec<(f64, f64)> {
        let mut curve = Vec::new();
        let mut rest = 1.0_f64;
        while !self.is_empty() {
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
            let told_apart = rest * self.0.len() as f64 >= 1.0;
            if !told_apart {
                break;
            }
            curve.push((1.0 - rest, self.quantile_ms(1.0 - rest)));
            // Eight points for each further nine.
            rest /= 10_f64.powf(0.125);
        }
        curve
    }
}

/// What happened in some time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// SENDs written.
    pub(crate) sent: u64,
    /// SENDACKs of success.
    pub(crate) acknowledged: u64,
    /// RECVs that the acknowledged messages must lead to.
    pub(crate) owed: u64,
    /// New RECVs.
    pub(crate) delivered: u64,
    /// RECVs that do not belong to this run.
    pub(crate) foreign: u64,
    /// SENDACKs of refusal, by the code of the reason.
    pub(crate) refused: BTreeMap<u8, u64>,
    /// From when a send was due to its SENDACK.
    pub(crate) sendack: Latencies,
    /// From when a send was due to its RECV.
    pub(crate) recv: Latencies,
    /// From when a send was due until the tool wrote it.
    pub(crate) lag: Latencies,
}

impl Counts {
    /// Counts all of another.
    pub(crate) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.acknowledged += other.acknowledged;
        self.owed += other.owed;
        self.delivered += other.delivered;
        self.foreign += other.foreign;
        for (reason, count) in &other.refused {
            *self.refused.entry(*reason).or_default() += count;
        }
        self.sendack.add(&other.sendack);
        self.recv.add(&other.recv);
        self.lag.add(&other.lag);
    }

    /// Sends that the server answered.
    #[must_use]
    pub(crate) fn answered(&self) -> u64 {
        self.acknowledged + self.refused.values().sum::<u64>()
    }
}

/// What one connection has counted and not handed over yet. Latencies are in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// As in [`Counts`].
    pub(crate) sent: u64,
    /// As in [`Counts`].
    pub(crate) acknowledged: u64,
    /// As in [`Counts`].
    pub(crate) owed: u64,
    /// As in [`Counts`].
    pub(crate) delivered: u64,
    /// As in [`Counts`].
    pub(crate) foreign: u64,
    /// Reason codes.
    pub(crate) refused: Vec<u8>,
    /// As in [`Counts`].
    pub(crate) sendack_ns: Vec<u64>,
    /// As in [`Counts`].
    pub(crate) recv_ns: Vec<u64>,
    /// As in [`Counts`].
    pub(crate) lag_ns: Vec<u64>,
}

/// The counters of a run.
#[derive(Debug)]
pub(crate) struct Meter {
    shards: Vec<Mutex<Counts>>,
}

impl Meter {
    /// Counters for this many threads.
    #[must_use]
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            shards: (0..threads.max(1)).map(|_| Mutex::default()).collect(),
        }
    }

    /// Takes a batch of this connection and leaves it empty, its buffers kept.
    pub(crate) fn take(&self, connection: usize, batch: &mut Batch) {
        let shard = &self.shards[connection % self.shards.len()];
        let mut counts = shard.lock().unwrap_or_else(PoisonError::into_inner);
        counts.sent += std::mem::take(&mut batch.sent);
        counts.acknowledged += std::mem::take(&mut batch.acknowledged);
        counts.owed += std::mem::take(&mut batch.owed);
        counts.delivered += std::mem::take(&mut batch.delivered);
        counts.foreign += std::mem::take(&mut batch.foreign);
        for reason in batch.refused.drain(..) {
            *counts.refused.entry(reason).or_default() += 1;
        }
        for nanoseconds in batch.sendack_ns.drain(..) {
            counts.sendack.record(nanoseconds);
        }
        for nanoseconds in batch.recv_ns.drain(..) {
            counts.recv.record(nanoseconds);
        }
        for nanoseconds in batch.lag_ns.drain(..) {
            counts.lag.record(nanoseconds);
        }
    }

    /// Everything since the last time.
    #[must_use]
    pub(crate) fn collect(&self) -> Counts {
        let mut all = Counts::default();
        for shard in &self.shards {
            let counts = std::mem::take(&mut *shard.lock().unwrap_or_else(PoisonError::into_inner));
            all.add(&counts);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let mut latencies = Latencies::default();
        for millisecond in 1..=1_000 {
            latencies.record(millisecond * 1_000_000);
        }
        let percentiles = latencies.percentiles();
        let near = |value: f64, wanted: f64| (value - wanted).abs() <= wanted / 500.0;
        assert!(near(percentiles.p50, 500.0), "{percentiles:?}");
        assert!(near(percentiles.p90, 900.0), "{percentiles:?}");
        assert!(near(percentiles.p99, 990.0), "{percentiles:?}");
        assert!(near(percentiles.p999, 999.0), "{percentiles:?}");
        assert!(near(percentiles.max, 1_000.0), "{percentiles:?}");
        assert_eq!(percentiles.count, 1_000);
        let curve = latencies.curve();
        assert!(
            curve
                .windows(2)
                .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1)
        );
        assert!(
            curve
                .last()
                .is_some_and(|(share, _)| (0.998..1.0).contains(share))
        );
    }

    #[test]
    fn nothing_counted_is_no_curve() {
        assert_eq!(Latencies::default().percentiles(), Percentiles::default());
        assert_eq!(Latencies::default().curve(), []);
    }

    #[test]
    fn batches_of_all_connections_are_collected_once() {
        let meter = Meter::new(2);
        for connection in 0..5 {
            let mut batch = Batch {
                sent: 3,
                acknowledged: 2,
                delivered: 4,
                refused: vec![22],
                sendack_ns: vec![1_000_000, 2_000_000],
                ..Batch::default()
            };
            meter.take(connection, &mut batch);
            assert!(batch.sent == 0 && batch.refused.is_empty() && batch.sendack_ns.is_empty());
        }
        let counts = meter.collect();
        assert_eq!((counts.sent, counts.answered(), counts.delivered), (15, 15, 20));
        assert_eq!(counts.refused, BTreeMap::from([(22, 5)]));
        assert_eq!(counts.sendack.percentiles().count, 10);
        assert_eq!(meter.collect().sent, 0);
    }
}
