//! Threads that do the blocking reads of the shards (M-13).

use super::mailbox::Mailbox;
use penstock_core::effect::Event;
use penstock_core::rows::{Key, ReadRequest, Row};
use penstock_core::types::Token;
use penstock_store::Store;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

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

/// The pool. Jobs are bounded by the machines: each has few reads in flight, and held inputs are bounded.
pub(super) struct Readers {
    jobs: Sender<Job>,
}

impl Readers {
    /// Starts `threads` readers that complete into the shards' mailboxes. They end with the last shard, which holds the way
    /// to them, and are not waited for: nobody needs an answer then.
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
        for number in 0..threads {
            let (queue, store, mailboxes) = (Arc::clone(&queue), Arc::clone(store), mailboxes.to_vec());
            let thread = std::thread::Builder::new().name(format!("reader-{number}"));
            thread.spawn(move || serve(&queue, &store, &mailboxes))?;
        }
        Ok(Readers { jobs })
    }

    /// Queues a job. After the readers have stopped the shard is stopping too and needs no answer.
    pub(super) fn submit(&self, job: Job) {
        let _ = self.jobs.send(job);
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
