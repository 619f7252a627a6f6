//! The threads that guests run on, and the lanes in which calls wait for them: one for each version, so that a slow plugin
//! holds up its own calls alone.

use crate::engine::Ticker;
use crate::instance::{Guest, Prepared};
use crate::pool::Pool;
use crate::refused::Refused;
use penstock_core::hooks::call::{Call, Failed, Returned, Version, Work};
use penstock_core::hooks::pipeline::Failure;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Calls that may wait in one lane.
const LANE_CALLS_MAX: usize = 256;

/// Is told the result of a call, exactly once.
pub(crate) type Reply = Box<dyn FnOnce(Returned) + Send>;

/// A call that waits.
struct Job {
    call: Call,
    reply: Reply,
    since: Instant,
}

/// The calls of one version.
#[derive(Default)]
struct Lane {
    waiting: VecDeque<Job>,
    /// None while it is still being loaded.
    prepared: Option<Arc<Prepared>>,
    running: usize,
    /// Whether it stands in the list of lanes that have work.
    queued: bool,
}

#[derive(Default)]
struct Lanes {
    lanes: BTreeMap<Version, Lane>,
    /// Versions with work that may start, in turn.
    ready: VecDeque<Version>,
    stopped: bool,
}

/// Shared by the host and its threads.
pub(crate) struct Workshop {
    lanes: Mutex<Lanes>,
    wake: Condvar,
    ticker: Ticker,
    /// Calls of one version at a time: one slow plugin never holds all threads.
    running_max: usize,
}

impl Workshop {
    pub(crate) fn new(ticker: Ticker, threads: usize) -> Workshop {
        Workshop {
            lanes: Mutex::new(Lanes::default()),
            wake: Condvar::new(),
            ticker,
            running_max: (threads / 2).max(1),
        }
    }

    pub(crate) fn ticker(&self) -> &Ticker {
        &self.ticker
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        // The lanes are whole between two calls of the methods below, whatever a holder died of.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls of this version may wait from now on: it is being loaded.
    pub(crate) fn expect(&self, version: &Version) {
        self.lock().lanes.entry(version.clone()).or_default();
    }

    /// The version can run.
    pub(crate) fn loaded(&self, version: &Version, prepared: Arc<Prepared>) {
        let mut lanes = self.lock();
        lanes.lanes.entry(version.clone()).or_default().prepared = Some(prepared);
        self.start(&mut lanes, version);
    }

    /// Takes a version away. What waits for it is answered that it is not here.
    pub(crate) fn unload(&self, version: &Version) {
        let lane = self.lock().lanes.remove(version);
        for job in lane.map(|lane| lane.waiting).unwrap_or_default() {
            (job.reply)(Err(Failed::Call(Failure::NotReady)));
        }
    }

    pub(crate) fn prepared(&self) -> Vec<(Version, Arc<Prepared>)> {
        let lanes = self.lock();
        let loaded = lanes.lanes.iter().filter_map(|(version, lane)| {
            let prepared = lane.prepared.as_ref()?;
            Some((version.clone(), Arc::clone(prepared)))
        });
        loaded.collect()
    }

    /// Takes a call, or says at once why not.
    pub(crate) fn submit(&self, call: Call, reply: Reply) {
        let mut lanes = self.lock();
        // Once stopped, nobody would take it.
        let stopped = lanes.stopped;
        let failure = match lanes.lanes.get_mut(&call.version) {
            _ if stopped => Failure::NotReady,
            None => Failure::NotReady,
            Some(lane) if lane.waiting.len() >= LANE_CALLS_MAX => Failure::Busy,
            Some(lane) => {
                let version = call.version.clone();
                lane.waiting.push_back(Job {
                    call,
                    reply,
                    since: Instant::now(),
                });
                self.start(&mut lanes, &version);
                return;
            }
        };
        drop(lanes);
        reply(Err(Failed::Call(failure)));
    }

    /// Puts a lane into the list of those with work, if a call of it may start.
    fn start(&self, lanes: &mut Lanes, version: &Version) {
        let Some(lane) = lanes.lanes.get_mut(version) else {
            return;
        };
        let may = lane.prepared.is_some() && !lane.waiting.is_empty() && lane.running < self.running_max;
        if may && !lane.queued {
            lane.queued = true;
            lanes.ready.push_back(version.clone());
            self.wake.notify_one();
        }
    }

    /// The next call, in turn of the versions. None once the host stops.
    fn next(&self) -> Option<(Job, Arc<Prepared>)> {
        let mut lanes = self.lock();
        loop {
            if lanes.stopped {
                return None;
            }
            let Some(version) = lanes.ready.pop_front() else {
                lanes = self.wake.wait(lanes).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let Some(lane) = lanes.lanes.get_mut(&version) else {
                continue;
            };
            lane.queued = false;
            // A version that went and is expected again stands here from its former life: its calls wait on.
            let Some(prepared) = lane.prepared.clone() else {
                continue;
            };
            let Some(job) = lane.waiting.pop_front() else {
                continue;
            };
            lane.running += 1;
            self.start(&mut lanes, &version);
            return Some((job, prepared));
        }
    }

    fn ended(&self, version: &Version) {
        let mut lanes = self.lock();
        if let Some(lane) = lanes.lanes.get_mut(version) {
            lane.running = lane.running.saturating_sub(1);
        }
        self.start(&mut lanes, version);
    }

    /// Ends the threads once their calls are done; what waits is answered that it is not here.
    pub(crate) fn stop(&self) {
        let mut lanes = self.lock();
        lanes.stopped = true;
        let waiting: Vec<Job> = lanes
            .lanes
            .values_mut()
            .flat_map(|lane| lane.waiting.drain(..))
            .collect();
        drop(lanes);
        self.wake.notify_all();
        for job in waiting {
            (job.reply)(Err(Failed::Call(Failure::NotReady)));
        }
    }

    /// What a thread does until the host stops.
    pub(crate) fn run(&self) {
        let mut pool = Pool::default();
        while let Some((job, prepared)) = self.next() {
            let version = job.call.version.clone();
            let returned = self.work(&mut pool, &job, &prepared);
            self.ended(&version);
            (job.reply)(returned);
            pool.tend(|version| self.lock().lanes.contains_key(version));
        }
    }

    fn work(&self, pool: &mut Pool, job: &Job, prepared: &Arc<Prepared>) -> Returned {
        let waited = job.since.elapsed();
        prepared.board.count(|status| status.queue_s += waited.as_secs_f64());
        let returned = if waited >= job.call.within {
            // Who asked has given up by now, and the guest is not to blame.
            Err(Failed::Call(Failure::Busy))
        } else {
            self.call(pool, &job.call, prepared)
        };
        prepared.board.count(|status| {
            status.calls += 1;
            status.messages += messages(&job.call);
            if let Err(failed) = &returned {
                *status.failures.entry(failure_of(failed)).or_default() += 1;
            }
        });
        returned
    }

    fn call(&self, pool: &mut Pool, call: &Call, prepared: &Arc<Prepared>) -> Returned {
        let mut guest = match pool.take(&call.version) {
            Some(guest) => guest,
            None => Guest::start(prepared, &self.ticker).map_err(|refused| not_started(prepared, &refused))?,
        };
        let began = Instant::now();
        let (returned, retired) = guest.call(call, &self.ticker);
        let took = began.elapsed();
        prepared.board.count(|status| {
            status.guest_s += took.as_secs_f64();
            if let Some(reason) = retired {
                *status.retired.entry(reason).or_default() += 1;
            }
        });
        if retired.is_none() {
            pool.put(call.version.clone(), guest);
        }
        returned
    }
}

/// An instance that ran before does not start any more: its class is the one that operators look for.
fn not_started(prepared: &Prepared, refused: &Refused) -> Failed {
    prepared.board.log("error", 0, refused.to_string());
    Failed::Call(Failure::NotReady)
}

fn messages(call: &Call) -> u64 {
    let count = match &call.work {
        Work::BeforeSend { drafts, .. } => drafts.len(),
        Work::PersistAfter { messages, .. } => messages.len(),
    };
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// What a failed call counts as; one that the guest answered with a wish to be asked again is the guest's.
fn failure_of(failed: &Failed) -> Failure {
    match failed {
        Failed::Call(failure) => *failure,
        Failed::Retry { .. } | Failed::Poison => Failure::Host,
    }
}
