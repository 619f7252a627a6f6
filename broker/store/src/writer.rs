//! Group commit (M-9): shards write into the memtable themselves, one thread per instance syncs for all of them and says
//! how far each shard is durable.

use crate::error::Error;
use crate::store::Store;
use penstock_core::rows::{Instance, Write};
use penstock_core::types::Ticket;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a shard waits for a disk that does not keep up, before the store counts as failed.
const WAIT_MAX: Duration = Duration::from_secs(30);
const TEND_INTERVAL: Duration = Duration::from_secs(1);
/// With so many effects in one sync the next one begins not before [`SYNC_INTERVAL`] after it: on a fast disk syncs one upon the
/// other take processor time that the effects themselves need, and a message waits for at most this longer.
const BUSY_EFFECTS: u32 = 16;
const SYNC_INTERVAL: Duration = Duration::from_millis(1);

/// A sync that took less than this is worth doing on the shard's own thread when nothing else waits for it: to wake another thread
/// and to be woken by it takes longer.
const QUICK_SYNC: Duration = Duration::from_micros(500);

/// Who hears what became durable. Called on the writer's threads: hand over and return.
pub trait Listener: Send + Sync {
    /// Every effect of the shard on the instance up to this ticket is durable. Per shard and instance in rising order.
    fn stored(&self, shard: u16, instance: Instance, through: Ticket);

    /// The store stopped. Called once; nothing is reported as stored afterwards (R14).
    fn poisoned(&self, error: &Error);
}

#[derive(Debug, Default)]
struct Waiting {
    /// The newest written ticket of each shard. What is older is covered by it: the queue holds one entry per shard.
    tickets: BTreeMap<u16, Ticket>,
    bytes: u64,
    /// Effects since the last sync began.
    effects: u32,
    /// The syncer waits for work.
    idle: bool,
    /// How long the last sync took.
    last_sync: Option<Duration>,
    stopping: bool,
}

/// What one sync makes durable.
struct Work {
    tickets: BTreeMap<u16, Ticket>,
    effects: u32,
}

impl Waiting {
    fn take(&mut self) -> Work {
        self.bytes = 0;
        Work {
            tickets: std::mem::take(&mut self.tickets),
            effects: std::mem::take(&mut self.effects),
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// Something waits, or the writer stops.
    work: Condvar,
    /// A sync ended.
    room: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Shared {
    store: Arc<Store>,
    listener: Box<dyn Listener>,
    meta: Queue,
    data: Queue,
    /// Held while anything is reported, so that nothing can follow the report of the failure.
    failed: Mutex<bool>,
    stopping: AtomicBool,
}

/// The way for all shards to write. Dropping it syncs what is written and reports it.
pub struct Writer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Writer").finish_non_exhaustive()
    }
}

impl Writer {
    /// Starts the syncers and the housekeeping. Fails when the system gives no thread.
    pub fn start(store: Arc<Store>, listener: Box<dyn Listener>) -> std::io::Result<Writer> {
        let shared = Arc::new(Shared {
            store,
            listener,
            meta: Queue::default(),
            data: Queue::default(),
            failed: Mutex::new(false),
            stopping: AtomicBool::new(false),
        });
        let mut writer = Writer {
            shared,
            threads: Vec::new(),
        };
        writer.spawn("store-meta", |shared| shared.run_syncer(Instance::Meta))?;
        writer.spawn("store-data", |shared| shared.run_syncer(Instance::Data))?;
        writer.spawn("store-tend", |shared| shared.run_housekeeping())?;
        Ok(writer)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(&Shared) + Send + 'static) -> std::io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name(name.to_owned());
        self.threads.push(thread.spawn(move || run(&shared))?);
        Ok(())
    }

    /// Executes a Store effect of a shard: visible on return, reported to [`Listener::stored`] once durable, after the next
    /// [`Writer::flush`] at the latest. Called by the shard's own thread, tickets rising. Waits only when more than the configured
    /// bytes are unsynced.
    pub fn submit(
        &self,
        shard: u16,
        instance: Instance,
        ticket: Ticket,
        writes: &[Write],
    ) -> Result<(), Error> {
        self.shared.submit(shard, instance, ticket, writes)
    }

    /// Has everything synced that was submitted. With `alone` the caller has nothing else to do: on a quick disk it then syncs
    /// itself, and what is durable has been reported on return.
    pub fn flush(&self, alone: bool) {
        for instance in [Instance::Meta, Instance::Data] {
            self.shared.flush(instance, alone);
        }
    }

    /// The store behind it.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.shared.store
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        for queue in [&self.shared.meta, &self.shared.data] {
            queue.lock().stopping = true;
            queue.work.notify_all();
            queue.room.notify_all();
        }
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            if thread.join().is_err() {
                tracing::error!("a thread of the store panicked");
            }
        }
    }
}

impl Shared {
    fn queue(&self, instance: Instance) -> &Queue {
        match instance {
            Instance::Meta => &self.meta,
            Instance::Data => &self.data,
        }
    }

    fn submit(&self, shard: u16, instance: Instance, ticket: Ticket, writes: &[Write]) -> Result<(), Error> {
        self.wait_for_room(instance)?;
        let bytes = self
            .store
            .write(instance, writes)
            .inspect_err(|error| self.report_failure(error))?;
        let queue = self.queue(instance);
        let mut waiting = queue.lock();
        let before = waiting.tickets.insert(shard, ticket);
        assert!(
            before.is_none_or(|before| before < ticket),
            "tickets of a shard rise"
        );
        waiting.bytes = waiting.bytes.saturating_add(bytes);
        waiting.effects = waiting.effects.saturating_add(1);
        Ok(())
    }

    fn flush(&self, instance: Instance, alone: bool) {
        let queue = self.queue(instance);
        let mut waiting = queue.lock();
        if waiting.tickets.is_empty() || !waiting.idle {
            // A syncer at work takes them when it is done.
            return;
        }
        let is_quick = waiting.last_sync.is_some_and(|took| took < QUICK_SYNC);
        if alone && is_quick && waiting.effects < BUSY_EFFECTS {
            let work = waiting.take();
            drop(waiting);
            // A failure has been reported, and whoever submits hears of it.
            let _ = self.sync(instance, work.tickets);
        } else {
            waiting.idle = false;
            drop(waiting);
            queue.work.notify_one();
        }
    }

    fn wait_for_room(&self, instance: Instance) -> Result<(), Error> {
        let bytes_max = self.store.options().unsynced_bytes_max;
        let queue = self.queue(instance);
        let mut waiting = queue.lock();
        if waiting.bytes < bytes_max {
            return Ok(());
        }
        self.store
            .metrics()
            .of(instance)
            .waits
            .fetch_add(1, Ordering::Relaxed);
        waiting.idle = false;
        queue.work.notify_one();
        let deadline = Instant::now() + WAIT_MAX;
        while waiting.bytes >= bytes_max && !waiting.stopping {
            self.store.usable()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                drop(waiting);
                let error = self.store.poison(format!(
                    "{bytes_max} bytes waited {} s for a sync",
                    WAIT_MAX.as_secs()
                ));
                self.report_failure(&error);
                return Err(error);
            }
            waiting = queue
                .room
                .wait_timeout(waiting, left.min(TEND_INTERVAL))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        Ok(())
    }

    fn run_syncer(&self, instance: Instance) {
        while let Some(work) = self.next_work(instance) {
            let Ok(took) = self.sync(instance, work.tickets) else {
                return;
            };
            if work.effects >= BUSY_EFFECTS {
                std::thread::sleep(SYNC_INTERVAL.saturating_sub(took));
            }
        }
    }

    /// Syncs, and reports what became durable or that the store failed. Says how long the sync took.
    fn sync(&self, instance: Instance, tickets: BTreeMap<u16, Ticket>) -> Result<Duration, Error> {
        let begin = Instant::now();
        let synced = self.store.sync(instance);
        let took = begin.elapsed();
        let queue = self.queue(instance);
        queue.lock().last_sync = Some(took);
        queue.room.notify_all();
        match &synced {
            Ok(()) => self.report_stored(instance, tickets),
            Err(error) => self.report_failure(error),
        }
        synced.map(|()| took)
    }

    /// Waits for work. None when there is none left and the writer stops.
    fn next_work(&self, instance: Instance) -> Option<Work> {
        let queue = self.queue(instance);
        let mut waiting = queue.lock();
        while waiting.tickets.is_empty() {
            if waiting.stopping {
                return None;
            }
            waiting.idle = true;
            waiting = queue.work.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.idle = false;
        Some(waiting.take())
    }

    fn failed(&self) -> MutexGuard<'_, bool> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report_stored(&self, instance: Instance, tickets: BTreeMap<u16, Ticket>) {
        let failed = self.failed();
        if *failed {
            return;
        }
        for (shard, ticket) in tickets {
            self.listener.stored(shard, instance, ticket);
        }
    }

    fn report_failure(&self, error: &Error) {
        let mut failed = self.failed();
        if !*failed {
            *failed = true;
            self.listener.poisoned(error);
        }
    }

    fn run_housekeeping(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            self.store.tend();
            // Reads and housekeeping can find the store broken as well.
            if let Some(error) = self.store.poisoned() {
                self.report_failure(error);
            }
            std::thread::park_timeout(TEND_INTERVAL);
        }
    }
}
