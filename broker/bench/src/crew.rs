//! All connections of a run together: started, paced, watched and stopped.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::meter::Counts;
use crate::pace::{Schedule, nanoseconds, ticks};
use crate::plan::Plan;
use crate::report::{Second, Tally};
use crate::session::Session;
use crate::traffic::{Outcome, Phase, Shared, Traffic};
use crate::verify::Witness;

/// How often the end of a drain is looked for.
const DRAIN_LOOK: Duration = Duration::from_millis(20);
/// How long a finished run still listens for what comes twice.
const SETTLE: Duration = Duration::from_millis(300);

/// The connections of a run.
pub(crate) struct Crew {
    shared: Arc<Shared>,
    phase: watch::Sender<Phase>,
    tasks: Vec<JoinHandle<Outcome>>,
    feeds: Vec<mpsc::UnboundedSender<u64>>,
    pace: Option<Pace>,
}

/// The thread that hands out what is due.
#[derive(Clone, Default)]
struct Pace {
    given: Arc<AtomicU64>,
    ends: Arc<AtomicBool>,
    done: Arc<AtomicBool>,
}

/// What a crew leaves behind.
#[derive(Debug, Default)]
pub(crate) struct Aftermath {
    /// What each connection saw, by its number.
    pub(crate) witnesses: Vec<Witness>,
    /// Connections that ended early, by reason.
    pub(crate) lost: BTreeMap<String, u64>,
    /// Sends that were never answered.
    pub(crate) unanswered: u64,
}

impl Crew {
    /// Sets these sessions to the work of this plan; they are quiet at first.
    #[must_use]
    pub(crate) fn new(plan: &Plan, sessions: Vec<(usize, Session)>, shared: Arc<Shared>) -> Self {
        let (phase, listens) = watch::channel(Phase::Quiet);
        let mut crew = Self {
            shared,
            phase,
            tasks: Vec::with_capacity(sessions.len()),
            feeds: Vec::new(),
            pace: None,
        };
        for (number, session) in sessions {
            let lanes = plan.lanes[number].clone();
            let due = (crew.shared.window.is_none() && !lanes.is_empty()).then(|| {
                let (feed, due) = mpsc::unbounded_channel();
                crew.feeds.push(feed);
                due
            });
            let shared = Arc::clone(&crew.shared);
            let traffic = Traffic::new(number, session, lanes, shared, listens.clone(), due);
            crew.tasks.push(tokio::spawn(traffic.run()));
        }
        crew
    }

    /// The time on the crew's clock.
    #[must_use]
    pub(crate) fn now_ns(&self) -> u64 {
        self.shared.clock.now_ns()
    }

    /// Lets the traffic begin, with a rate or as fast as answers come. The times of the crew's clock: when it starts, from
    /// when it counts, when it ends.
    pub(crate) fn begin(&mut self, rate: Option<u64>, [start_ns, counted_ns, end_ns]: [u64; 3]) {
        self.shared.count_from_ns.store(counted_ns, Ordering::Relaxed);
        self.phase.send_replace(Phase::Run);
        let Some(per_second) = rate else { return };
        let feeds = std::mem::take(&mut self.feeds);
        let clock = self.shared.clock;
        let pace = Pace::default();
        self.pace = Some(pace.clone());
        std::thread::spawn(move || {
            let schedule = Schedule { start_ns, per_second };
            let senders = feeds.len().max(1) as u64;
            schedule.keep(clock, end_ns, |number, due_ns| {
                if pace.ends.load(Ordering::Relaxed) {
                    return false;
                }
                let sender = usize::try_from(number % senders).unwrap_or_default();
                // A connection that was lost takes nothing; the report says how many were.
                if feeds.get(sender).is_some_and(|feed| feed.send(due_ns).is_ok()) {
                    pace.given.fetch_add(1, Ordering::Relaxed);
                }
                true
            });
            pace.done.store(true, Ordering::Release);
        });
    }

    /// Nothing more becomes due.
    pub(crate) fn end_pace(&self) {
        if let Some(pace) = &self.pace {
            pace.ends.store(true, Ordering::Relaxed);
        }
    }

    /// What was counted since the last time.
    #[must_use]
    pub(crate) fn collect(&self) -> Counts {
        self.shared.meter.collect()
    }

    /// Counts the traffic of warm-up and measurement, second by second.
    pub(crate) async fn measure(&self, start_ns: u64, warm_up: Duration, measured: Duration) -> Tally {
        let mut tally = Tally::default();
        let mut last_ns = start_ns;
        for (at, counts) in ticks(warm_up, measured) {
            let tick = self.shared.clock.instant(start_ns + nanoseconds(at));
            tokio::time::sleep_until(tick.into()).await;
            let now_ns = self.shared.clock.now_ns();
            let elapsed = Duration::from_nanos(now_ns.saturating_sub(last_ns));
            let interval = self.shared.meter.collect();
            let second = tally.interval(&interval, at, elapsed, counts);
            progress(&second, &tally.total);
            last_ns = now_ns;
        }
        tally
    }

    /// Stops the sends and waits, within the limit, until everything that is owed has come.
    pub(crate) async fn drain(&self, tally: &mut Tally, limit: Duration) {
        self.phase.send_replace(Phase::Drain);
        let deadline = tokio::time::Instant::now() + limit;
        while tokio::time::Instant::now() < deadline {
            tally.total.add(&self.shared.meter.collect());
            if self.has_everything(&tally.total) {
                break;
            }
            tokio::time::sleep(DRAIN_LOOK).await;
        }
        tokio::time::sleep(SETTLE).await;
        tally.total.add(&self.shared.meter.collect());
    }

    fn has_everything(&self, total: &Counts) -> bool {
        let paced = match &self.pace {
            Some(pace) => {
                pace.done.load(Ordering::Acquire) && total.sent >= pace.given.load(Ordering::Relaxed)
            }
            None => true,
        };
        paced && total.answered() >= total.sent && total.delivered >= total.owed
    }

    /// How many sends were due; `None` in the closed loop.
    #[must_use]
    pub(crate) fn given(&self) -> Option<u64> {
        self.pace.as_ref().map(|pace| pace.given.load(Ordering::Relaxed))
    }

    /// Connections that ended already.
    #[must_use]
    pub(crate) fn ended(&self) -> usize {
        self.tasks.iter().filter(|task| task.is_finished()).count()
    }

    /// Closes the connections.
    pub(crate) async fn stop(self) -> Aftermath {
        self.phase.send_replace(Phase::Stop);
        let mut aftermath = Aftermath::default();
        for task in self.tasks {
            let outcome = task.await.unwrap_or_else(|error| Outcome {
                lost: Some(error.to_string()),
                ..Outcome::default()
            });
            if let Some(reason) = outcome.lost {
                *aftermath.lost.entry(reason).or_default() += 1;
            }
            aftermath.unanswered += outcome.unanswered;
            aftermath.witnesses.push(outcome.witness);
        }
        aftermath
    }
}

fn progress(second: &Second, total: &Counts) {
    let kind = if second.measured { "" } else { "  (warm-up)" };
    let p99 = |latency: Option<f64>| latency.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.2} ms"));
    say(&format!(
        "{:>6.1} s  acknowledged {:>8.0}/s  delivered {:>8.0}/s  p99: SENDACK {:>10}  RECV {:>10}  in flight {}{kind}",
        second.at_s,
        second.acked_per_s,
        second.delivered_per_s,
        p99(second.sendack_p99_ms),
        p99(second.recv_p99_ms),
        total.sent.saturating_sub(total.answered()),
    ));
}

/// A line of progress. Standard error belongs to people; when nobody listens any more, that is no reason to stop.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
