//! The production driver: threads that step the shards of one node over RocksDB and tokio.
//!
//! # Owns
//! One thread per shard, the reader threads and the mailboxes between them, the gateway and the HTTP API.
//!
//! # Absent
//! Decisions. Every one is made by `penstock-core`; the simulator drives the same shards.

mod answers;
mod clock;
mod counted;
mod mailbox;
mod reader;
mod shared;
mod thread;

pub use answers::Answers;
pub use clock::Clock;
pub use counted::{Counted, Lags};
pub use mailbox::{Drained, Mailbox};
pub use shared::{Clients, Fatal, Plugins, Transport};

use penstock_core::admin::{Answer, Ask, Failure};
use penstock_core::effect::Event;
use penstock_core::hooks::registry::Registry;
use penstock_core::shard::{Config, Image, Peer, Shard};
use penstock_core::types::NodeId;
use penstock_store::{Store, Writer};
use shared::Shared;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long an `Ask` is waited for; longer than every deadline inside the core.
const ASK_TIMEOUT: Duration = Duration::from_secs(15);

/// What a node is made of, besides its shards.
pub struct Parts {
    /// The way to its store, open.
    pub writer: Writer,
    /// Its mailboxes, one per shard; made first because the store's syncers complete into them.
    pub mailboxes: Vec<Arc<Mailbox>>,
    /// The gateway.
    pub clients: Arc<dyn Clients>,
    /// Other nodes.
    pub transport: Arc<dyn Transport>,
    /// The end.
    pub fatal: Arc<dyn Fatal>,
    /// The plugins.
    pub plugins: Arc<dyn Plugins>,
    /// Reader threads.
    pub readers: usize,
}

/// A running node.
pub struct Node {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    next_ask: AtomicUsize,
}

impl Node {
    /// Starts one thread per shard. `shards` are in order of their index.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(shards: Vec<(Config, Image)>, parts: Parts) -> std::io::Result<Node> {
        let node = shards.first().map_or(NodeId(0), |(config, _)| config.node);
        let readers = reader::Readers::start(parts.readers, parts.writer.store(), &parts.mailboxes)?;
        let shared = Arc::new(Shared {
            node,
            clock: Clock::default(),
            store: Arc::clone(parts.writer.store()),
            writer: parts.writer,
            mailboxes: parts.mailboxes,
            readers,
            answers: Answers::default(),
            clients: parts.clients,
            transport: parts.transport,
            fatal: parts.fatal,
            plugins: parts.plugins,
            counted: counted::Board::new(shards.len()),
            registry: tokio::sync::watch::Sender::default(),
        });
        let mut threads = Vec::new();
        for (config, image) in shards {
            let index = config.shard;
            let mailbox = Arc::clone(&shared.mailboxes[usize::from(index)]);
            let thread = std::thread::Builder::new().name(format!("shard-{index}"));
            let shared = Arc::clone(&shared);
            threads.push(thread.spawn(move || {
                thread::ShardThread::new(Shard::new(config, image), index, mailbox, shared).run();
            })?);
        }
        Ok(Node {
            shared,
            threads,
            next_ask: AtomicUsize::new(0),
        })
    }

    /// A message from another node.
    pub fn receive(&self, from: NodeId, message: Peer) {
        self.shared.receive(from, message);
    }

    /// Asks the core; every answer comes within a bound.
    pub async fn ask(&self, ask: Ask) -> Answer {
        let (token, answer) = self.shared.answers.register();
        let shard = self.next_ask.fetch_add(1, Ordering::Relaxed) % self.shared.mailboxes.len();
        if self.shared.mailboxes[shard]
            .admit(Event::Ask { token, ask })
            .is_err()
        {
            self.shared.answers.forget(token);
            return Answer::Failed(Failure::Busy);
        }
        match tokio::time::timeout(ASK_TIMEOUT, answer).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => {
                self.shared.answers.forget(token);
                Answer::Failed(Failure::Timeout)
            }
        }
    }

    /// The plugins and bindings that the shards act on, as they change.
    #[must_use]
    pub fn registry(&self) -> tokio::sync::watch::Receiver<Arc<Registry>> {
        self.shared.registry.subscribe()
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    /// What the shards have counted, summed up, as of a moment ago.
    #[must_use]
    pub fn counted(&self) -> Counted {
        self.shared.counted.sum()
    }

    /// How far each binding that follows channels is behind in the channels that are led here, as of some seconds ago.
    #[must_use]
    pub fn lags(&self) -> Lags {
        self.shared.counted.lags()
    }

    /// Refuses new work and ends the shards once their queues are empty; then nothing more is written.
    pub fn stop(self) {
        for mailbox in &self.shared.mailboxes {
            mailbox.stop();
        }
        for thread in self.threads {
            // A shard that panicked has already ended the process through the panic hook.
            let _ = thread.join();
        }
    }
}
