//! Threads that do the blocking reads of the shards (M-13).

use super::mailbox::Mailbox;
use penstock_core::effect::Event;
use penstock_core::rows::{Key, ReadRequest, Row};
use penstock_core::types::Token;
use penstock_store::Store;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A read that may block.
pub(super) enum Job {
    /// A bounded scan.
    Read {
        shard: u16,
        token: Token,
        request: ReadRequest,
    },
    /// Point reads after a miss.
    Load {
        shard: u16,
        token: Token,
        keys: Vec<Key>,
    },
}

/// The pool. Jobs are bounded by the machines: each has few reads in flight, and held inputs are bounded. Dropping it waits for
/// the reads under way: the process may not end while a thread is in the store.
pub(super) struct Readers {
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    /// Starts `threads` readers that complete into the shards' mailboxes.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub(super) fn start(
        threads: usize,
        store: &Arc<Store>,
        mailboxes: &[Arc<Mailbox>],
    ) -> std::io::Result<Readers> {
        let (jobs, queue) = channel();
        let queue = Arc::new(Mutex::new(queue));
        let mut readers = Readers {
            jobs: Some(jobs),
            threads: Vec::with_capacity(threads),
        };
        for number in 0..threads {
            let (queue, store, mailboxes) = (Arc::clone(&queue), Arc::clone(store), mailboxes.to_vec());
            let thread = std::thread::Builder::new().name(format!("reader-{number}"));
            readers
                .threads
                .push(thread.spawn(move || serve(&queue, &store, &mailboxes))?);
        }
        Ok(readers)
    }

    /// Queues a job. After the readers have stopped the shard is stopping too and needs no answer.
    pub(super) fn submit(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that reads the store panicked");
            }
        }
    }
}

fn serve(queue: &Mutex<Receiver<Job>>, store: &Store, mailboxes: &[Arc<Mailbox>]) {
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let (shard, event) = match job {
            Ok(Job::Read {
                shard,
                token,
                request,
            }) => (
                shard,
                Event::ReadDone {
                    token,
                    page: store.read(&request),
                },
            ),
            Ok(Job::Load { shard, token, keys }) => (
                shard,
                Event::Loaded {
                    token,
                    rows: load(store, &keys),
                },
            ),
            Err(_) => return,
        };
        if let Some(mailbox) = mailboxes.get(usize::from(shard)) {
            mailbox.complete(event);
        }
    }
}

/// Loads rows. When the store has failed nothing is found and nothing matters any more: the node is ending (R14).
fn load(store: &Store, keys: &[Key]) -> Vec<(Key, Option<Row>)> {
    store.load(keys).unwrap_or_else(|error| {
        tracing::error!(%error, "rows cannot be loaded");
        Vec::new()
    })
}
