//! The threads that guests run on, and the lanes in which calls wait for them: one for each version, so that a slow plugin
//! holds up its own calls alone.

mod inline;
mod lanes;
mod pace;
mod trace;

use crate::captures::{Captures, Fault};
use crate::engine::Ticker;
use crate::instance::{Guest, Prepared};
use crate::patience::Patience;
use crate::refused::Refused;
use crate::status::Usage;
pub(crate) use lanes::Crew;
use lanes::{Errand, Failing, Job, Lanes, Reply, TEND, Task, Turn};
use pace::Ran;
use penstock_core::hooks::call::{Call, Failed, Returned, Version, Work};
use penstock_core::hooks::pipeline::Failure;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Threads outside for each one inside: most of their time is waiting.
const OUTSIDE_SHARE: usize = 2;
/// Calls that may wait in one lane.
const LANE_CALLS_MAX: usize = 256;

/// Shared by the host and its threads.
pub(crate) struct Workshop {
    lanes: Mutex<Lanes>,
    /// Of each crew.
    wake: [Condvar; Crew::ALL.len()],
    ticker: Ticker,
    /// Threads of each crew.
    threads: [usize; Crew::ALL.len()],
    /// Warm instances of one version: as many as run at a time, and some for callers that run it themselves.
    warm_max: usize,
    /// The inputs of calls that failed.
    pub(crate) captures: Captures,
}

/// What became of a call.
struct Worked {
    returned: Returned,
    /// The instance, none when there was no time to start one or it could not be.
    guest: Option<Guest>,
    /// Why it must not be used again.
    retired: Option<&'static str>,
    /// How it ran, if it did.
    ran: Option<Ran>,
    /// What went wrong, in words.
    error: Option<String>,
    usage: Usage,
}

impl Worked {
    /// A call that did not run.
    fn without(failure: Failure, guest: Option<Guest>) -> Worked {
        Worked {
            returned: Err(Failed::Call(failure)),
            guest,
            retired: None,
            ran: None,
            error: None,
            usage: Usage::default(),
        }
    }

    /// What is to be captured of it, if the guest failed.
    fn fault(&mut self) -> Option<Fault> {
        let took = self.ran.as_ref()?.took;
        Fault::of(&self.returned, self.error.take(), took)
    }

    /// The instance for the next call, and the one that ends.
    fn split(guest: Option<Guest>, retired: Option<&'static str>) -> (Option<Guest>, Option<Guest>) {
        match retired {
            None => (guest, None),
            Some(_) => (None, guest),
        }
    }
}

impl Workshop {
    /// With so many threads inside.
    pub(crate) fn new(ticker: Ticker, threads: usize) -> Workshop {
        let threads = threads.max(1);
        Workshop {
            lanes: Mutex::new(Lanes::default()),
            wake: Default::default(),
            ticker,
            threads: [threads, OUTSIDE_SHARE * threads],
            warm_max: threads,
            captures: Captures::default(),
        }
    }

    /// Threads of a crew.
    pub(crate) fn threads(&self, crew: Crew) -> usize {
        self.threads[crew as usize]
    }

    /// Calls of one version at a time: one slow plugin never holds all threads.
    fn running_max(&self, crew: Crew) -> usize {
        (self.threads(crew) / 2).max(1)
    }

    /// Calls that follow channels at a time: a thread is left for what clients wait for.
    fn following_max(&self, crew: Crew) -> usize {
        self.threads(crew).saturating_sub(1).max(1)
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
        self.lock().lane(version);
    }

    /// The version can run, and this is its first instance. One that is not expected any more is let go.
    pub(crate) fn loaded(&self, version: &Version, prepared: Arc<Prepared>, first: Guest) {
        let mut lanes = self.lock();
        let Some(lane) = lanes.lanes.get_mut(version) else {
            drop(lanes);
            return drop(first);
        };
        lane.prepared = Some(prepared);
        lane.pace.begin_anew();
        let former = std::mem::replace(&mut lane.warm, vec![(first, Instant::now())]);
        self.start(&mut lanes, version);
        drop(lanes);
        drop(former);
    }

    /// Takes a version away. What waits for it is answered that it is not here.
    pub(crate) fn unload(&self, version: &Version) {
        let lane = self.lock().lanes.remove(version);
        for job in lane.map(|lane| lane.waiting).unwrap_or_default() {
            (job.reply)(Err(Failed::Call(Failure::NotReady)));
        }
    }

    /// Takes a version away that could not be loaded; one that was loaded before runs on. Whether it was still
    /// waited for.
    pub(crate) fn give_up(&self, version: &Version) -> bool {
        let loading = self
            .lock()
            .lanes
            .get(version)
            .is_some_and(|lane| lane.prepared.is_none());
        if loading {
            self.unload(version);
        }
        loading
    }

    pub(crate) fn prepared(&self) -> Vec<(Version, Arc<Prepared>)> {
        let lanes = self.lock();
        let loaded = lanes.lanes.iter().filter_map(|(version, lane)| {
            let prepared = lane.prepared.as_ref()?;
            Some((version.clone(), Arc::clone(prepared)))
        });
        loaded.collect()
    }

    /// What runs calls of this version; none while it is not loaded.
    pub(crate) fn prepared_of(&self, version: &Version) -> Option<Arc<Prepared>> {
        self.lock().lanes.get(version)?.prepared.clone()
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
                lane.follows = call.work.follows();
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
        let Some(crew) = lane.prepared.as_deref().map(Crew::of) else {
            return;
        };
        let may = !lane.waiting.is_empty() && lane.running < self.running_max(crew);
        if may && !lane.queued {
            lane.queued = true;
            lanes.ready[crew as usize].push_back(version.clone());
            self.wake[crew as usize].notify_one();
        }
    }

    /// What is to be done next, calls in turn of the versions. None once the host stops.
    fn next(&self, crew: Crew) -> Option<Task> {
        let mut lanes = self.lock();
        loop {
            if lanes.stopped {
                return None;
            }
            let idle = lanes.idle();
            if !idle.is_empty() {
                drop(lanes);
                drop(idle);
                lanes = self.lock();
                continue;
            }
            if let Some(errand) = lanes.errands.pop_front() {
                return Some(Task::Replace(errand));
            }
            let Some(version) = lanes.next(crew, self.following_max(crew)) else {
                let waited = self.wake[crew as usize].wait_timeout(lanes, TEND);
                lanes = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            };
            if let Some(turn) = lanes.turn(&version) {
                self.start(&mut lanes, &version);
                return Some(Task::Call(turn));
            }
        }
    }

    /// A call of this life of the version ended, and this instance is left.
    fn ended(
        &self,
        version: &Version,
        (number, follows): (u64, Option<Crew>),
        guest: Option<Guest>,
        ran: Option<Ran>,
    ) {
        let mut lanes = self.lock();
        if let Some(crew) = follows {
            let following = &mut lanes.following[crew as usize];
            *following = following.saturating_sub(1);
            // One that had to wait for this may stand in the list.
            self.wake[crew as usize].notify_one();
        }
        let surplus = guest.and_then(|guest| self.put(&mut lanes, version, guest));
        if let Some(lane) = lanes.life(version, number) {
            lane.running = lane.running.saturating_sub(1);
            lane.count(ran, Instant::now());
            self.start(&mut lanes, version);
        }
        drop(lanes);
        drop(surplus);
    }

    /// Keeps an instance for the next call, if its version is still what runs and has room for it.
    fn keep(&self, version: &Version, guest: Guest) {
        let surplus = self.put(&mut self.lock(), version, guest);
        // Not within the lock.
        drop(surplus);
    }

    /// Puts an instance to the warm ones of its version, or gives it back.
    fn put(&self, lanes: &mut Lanes, version: &Version, guest: Guest) -> Option<Guest> {
        let lane = lanes.lanes.get_mut(version).filter(|lane| {
            let current = lane
                .prepared
                .as_ref()
                .is_some_and(|prepared| guest.is_of(prepared));
            current && lane.warm.len() < self.warm_max
        });
        match lane {
            Some(lane) => {
                lane.warm.push((guest, Instant::now()));
                None
            }
            None => Some(guest),
        }
    }

    /// Whether a version lacks an instance for its next call.
    fn lacks(&self, version: &Version, prepared: &Arc<Prepared>) -> bool {
        self.lock().lanes.get(version).is_some_and(|lane| {
            let current = lane
                .prepared
                .as_ref()
                .is_some_and(|now| Arc::ptr_eq(now, prepared));
            current && lane.warm.is_empty()
        })
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
        let errands: VecDeque<Errand> = std::mem::take(&mut lanes.errands);
        drop(lanes);
        drop(errands);
        for wake in &self.wake {
            wake.notify_all();
        }
        for job in waiting {
            (job.reply)(Err(Failed::Call(Failure::NotReady)));
        }
    }

    /// What a thread of a crew does until the host stops.
    pub(crate) fn run(&self, crew: Crew) {
        while let Some(task) = self.next(crew) {
            match task {
                Task::Call(turn) => self.take_turn(turn),
                Task::Replace(errand) => {
                    drop(errand.gone);
                    self.refill(&errand.version, &errand.prepared);
                    if let Some(failing) = errand.failing {
                        let Failing { call, fault } = *failing;
                        self.captures.keep(&call, &errand.prepared, fault);
                    }
                }
            }
        }
    }

    fn take_turn(&self, turn: Turn) {
        let Turn {
            job,
            lane,
            prepared,
            guest,
            follows,
        } = turn;
        let mut worked = self.work(&job.call, job.since.elapsed(), &prepared, guest);
        let fault = worked.fault();
        let (kept, gone) = Worked::split(worked.guest, worked.retired);
        let retired = kept.is_none();
        self.ended(&job.call.version, (lane, follows), kept, worked.ran);
        (job.reply)(worked.returned);
        // Whoever waits for the answer does not wait for this.
        drop(gone);
        if retired {
            self.refill(&job.call.version, &prepared);
        }
        if let Some(fault) = fault.filter(|fault| self.captures.admit(&job.call, fault)) {
            self.captures.keep(&job.call, &prepared, fault);
        }
    }

    /// Starts an instance in place of one that went, so that no call waits for its `init`.
    fn refill(&self, version: &Version, prepared: &Arc<Prepared>) {
        if !self.lacks(version, prepared) {
            return;
        }
        match Guest::start(prepared, &self.ticker) {
            Ok(guest) => self.keep(version, guest),
            Err(refused) => prepared.board.log("error", 0, refused.to_string()),
        }
    }

    /// Does a call on this thread, at once.
    pub(crate) fn call_here(&self, call: &Call) -> Returned {
        let found = self.lock().lanes.get_mut(&call.version).and_then(|lane| {
            let prepared = lane.prepared.clone()?;
            Some((prepared, lane.warm.pop().map(|(guest, _)| guest)))
        });
        let Some((prepared, guest)) = found else {
            return Err(Failed::Call(Failure::NotReady));
        };
        let worked = self.work(call, Duration::ZERO, &prepared, guest);
        let (kept, gone) = Worked::split(worked.guest, worked.retired);
        drop(gone);
        match kept {
            Some(guest) => self.keep(&call.version, guest),
            None => self.refill(&call.version, &prepared),
        }
        worked.returned
    }

    fn work(&self, call: &Call, waited: Duration, prepared: &Arc<Prepared>, guest: Option<Guest>) -> Worked {
        let _span = trace::span(call).entered();
        let left = call.within.saturating_sub(waited);
        let worked = if left.is_zero() {
            // Who asked has given up by now, and the guest is not to blame.
            Worked::without(Failure::Busy, guest)
        } else {
            self.call(call, left, prepared, guest)
        };
        trace::ended(&worked.returned, waited, worked.ran.as_ref());
        prepared.board.count(|status| {
            status.calls += 1;
            status.queue_s += waited.as_secs_f64();
            status.messages += messages(call);
            status.charge(&worked.usage);
            if let Some(ran) = &worked.ran {
                status.guest_s += ran.took.as_secs_f64();
            }
            if let Some(reason) = worked.retired {
                *status.retired.entry(reason).or_default() += 1;
            }
            if let Err(failed) = &worked.returned {
                *status.failures.entry(failure_of(failed)).or_default() += 1;
            }
        });
        worked
    }

    fn call(&self, call: &Call, within: Duration, prepared: &Arc<Prepared>, guest: Option<Guest>) -> Worked {
        let started = match guest {
            Some(guest) => Ok(guest),
            None => Guest::start(prepared, &self.ticker),
        };
        let mut guest = match started {
            Ok(guest) => guest,
            Err(refused) => return Worked::without(not_started(prepared, &refused), None),
        };
        let began = Instant::now();
        let ended = guest.call(call, Patience::Until(within), &self.ticker);
        let ran = Ran {
            took: began.elapsed(),
            inline: false,
            messages: messages(call),
            failed: ended
                .returned
                .as_ref()
                .err()
                .map(|failed| failure_of(failed).name()),
        };
        Worked {
            returned: ended.returned,
            guest: Some(guest),
            retired: ended.retired,
            ran: Some(ran),
            error: ended.error,
            usage: ended.usage,
        }
    }
}

/// An instance that ran before does not start any more: its class is the one that operators look for.
fn not_started(prepared: &Prepared, refused: &Refused) -> Failure {
    prepared.board.log("error", 0, refused.to_string());
    Failure::NotReady
}

fn messages(call: &Call) -> u64 {
    let count = match &call.work {
        Work::BeforeSend { drafts, .. } => drafts.len(),
        Work::PersistAfter { messages, .. } | Work::Webhook { messages, .. } => messages.len(),
        Work::OnlineStatus(batch) => batch.statuses.len(),
        Work::Offline { .. } => 1,
        Work::Connect { .. } | Work::Route { .. } => 0,
    };
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// What a failed call counts as; one that the guest answered with a wish to be asked again is the guest's.
fn failure_of(failed: &Failed) -> Failure {
    match failed {
        Failed::Call(failure) => *failure,
        Failed::Busy { .. } => Failure::Busy,
        Failed::Retry { .. }
        | Failed::Poison
        | Failed::Undelivered { .. }
        | Failed::Later { .. }
        | Failed::Gone => Failure::Host,
    }
}
