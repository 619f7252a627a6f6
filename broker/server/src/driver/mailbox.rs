//! The inbox of a shard: bounded for what may be refused, always open for completions (M-14).

use penstock_core::effect::Event;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// A shard's inbox.
#[derive(Debug)]
pub struct Mailbox {
    state: Mutex<State>,
    wake: Condvar,
    room: Notify,
    capacity: usize,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Event>,
    admissions: usize,
    stopped: bool,
    /// The shard waits: only then is it woken, since that costs a system call.
    waits: bool,
}

/// What a wait for events ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// There may be events, or the deadline has passed.
    Running,
    /// The mailbox is stopped and empty.
    Stopped,
}

impl Mailbox {
    /// A mailbox that holds at most `capacity` admissions.
    #[must_use]
    pub fn new(capacity: usize) -> Mailbox {
        Mailbox {
            state: Mutex::default(),
            wake: Condvar::new(),
            room: Notify::new(),
            capacity,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock is held stops the node through the panic hook; the queue itself stays whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event that may be refused.
    ///
    /// # Errors
    /// Gives the event back when the mailbox is full or stopped.
    pub fn admit(&self, event: Event) -> Result<(), Box<Event>> {
        let mut state = self.lock();
        if state.stopped || state.admissions >= self.capacity {
            return Err(Box::new(event));
        }
        state.admissions += 1;
        self.push(state, event);
        Ok(())
    }

    /// Completes when it is worth admitting again.
    pub fn room(&self) -> impl Future<Output = ()> + Send + '_ {
        let room = self.room.notified();
        async move {
            // Room may have come between the refusal and this call: then the next drain is not waited for.
            if self.lock().admissions < self.capacity {
                return;
            }
            room.await;
        }
    }

    /// Adds a completion: always fits, because its admission reserved for it.
    pub fn complete(&self, event: Event) {
        self.push(self.lock(), event);
    }

    fn push(&self, mut state: MutexGuard<'_, State>, event: Event) {
        state.events.push_back(event);
        let waits = std::mem::take(&mut state.waits);
        drop(state);
        if waits {
            self.wake.notify_one();
        }
    }

    /// Moves all waiting events into `into`; waits for the first until `deadline`.
    pub fn drain(&self, into: &mut VecDeque<Event>, deadline: Option<Instant>) -> Drained {
        let mut state = self.lock();
        while state.events.is_empty() {
            if state.stopped {
                return Drained::Stopped;
            }
            state.waits = true;
            state = match deadline {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        state.waits = false;
                        return Drained::Running;
                    }
                    self.wake
                        .wait_timeout(state, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
            };
        }
        std::mem::swap(into, &mut state.events);
        state.admissions = 0;
        state.waits = false;
        drop(state);
        self.room.notify_waiters();
        Drained::Running
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lock().events.is_empty()
    }

    /// Refuses admissions from now on and ends the shard once the queue is empty.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_all();
        self.room.notify_waiters();
    }
}
