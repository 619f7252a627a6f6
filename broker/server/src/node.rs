//! The composition root of one node: store, shards, threads.

use crate::config::Settings;
use crate::driver::{Clients, Fatal, Mailbox, Node, Parts, Plugins, Transport};
use crate::keys::random_id;
use bytes::Bytes;
use penstock_core::effect::Event;
use penstock_core::rows::{Instance, Key};
use penstock_core::shard::{Config, Image, group_shard};
use penstock_core::types::{Boots, DiskBoot, GroupId, NodeId, ProcessBoot, Ticket};
use penstock_store::{Listener, Options, Recovered, Store, Writer};
use std::sync::Arc;

/// Admissions that may wait for one shard.
const MAILBOX_CAPACITY: usize = 65_536;
/// Threads for blocking reads.
const READERS: usize = 2;

/// Why a node does not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No randomness.
    #[error("the system gives no random bytes: {0}")]
    Random(getrandom::Error),
    /// The store refused; says what to do.
    #[error(transparent)]
    Store(#[from] penstock_store::Error),
    /// A thread could not be started.
    #[error("a thread cannot be started")]
    Thread(#[from] std::io::Error),
}

/// What surrounds a node.
pub struct Surroundings {
    /// The gateway.
    pub clients: Arc<dyn Clients>,
    /// Other nodes.
    pub transport: Arc<dyn Transport>,
    /// The end of the process.
    pub fatal: Arc<dyn Fatal>,
    /// The plugins.
    pub plugins: Arc<dyn Plugins>,
}

/// Tells the shards what is durable.
struct Stored {
    mailboxes: Vec<Arc<Mailbox>>,
    fatal: Arc<dyn Fatal>,
}

impl Listener for Stored {
    fn stored(&self, shard: u16, instance: Instance, through: Ticket) {
        if let Some(mailbox) = self.mailboxes.get(usize::from(shard)) {
            mailbox.complete(Event::Stored { instance, through });
        }
    }

    fn poisoned(&self, error: &penstock_store::Error) {
        self.fatal.fail(&format!("the store failed: {error}"));
    }
}

/// The mailboxes of a node; made first, because everything completes into them.
#[must_use]
pub fn mailboxes(settings: &Settings) -> Vec<Arc<Mailbox>> {
    (0..settings.shards)
        .map(|_| Arc::new(Mailbox::new(MAILBOX_CAPACITY)))
        .collect()
}

/// Opens the store and starts the shards of a node of this cluster.
///
/// # Errors
/// When the data directory is refused or the system gives too little.
pub fn start(
    settings: &Settings,
    dev: bool,
    nodes: &[NodeId],
    mailboxes: Vec<Arc<Mailbox>>,
    surroundings: Surroundings,
) -> Result<Node, Error> {
    let process = ProcessBoot(random_id().map_err(Error::Random)?);
    let new_disk = DiskBoot(random_id().map_err(Error::Random)?);
    let node = NodeId(settings.node);
    let copies = usize::from(settings.copies).min(nodes.len());
    let options = Options {
        single_copy: copies == 1,
        accept_loss: settings.accept_lost_data,
        low_space_bytes: settings.low_space_bytes,
        ..Options::new(&settings.cluster, node, new_disk)
    };
    let (store, recovered) = Store::open(&settings.data_dir, options)?;
    report(&recovered);
    let boots = Boots {
        process,
        disk: recovered.disk(),
    };
    let store = Arc::new(store);
    let mut shards = Vec::new();
    for shard in 0..settings.shards {
        shards.push((
            shard_config(settings, dev, nodes, boots, shard),
            image(&store, settings.shards, shard)?,
        ));
    }
    let listener = Stored {
        mailboxes: mailboxes.clone(),
        fatal: Arc::clone(&surroundings.fatal),
    };
    let writer = Writer::start(store, Box::new(listener))?;
    let parts = Parts {
        writer,
        mailboxes,
        clients: surroundings.clients,
        transport: surroundings.transport,
        fatal: surroundings.fatal,
        plugins: surroundings.plugins,
        readers: READERS,
    };
    Ok(Node::start(shards, parts)?)
}

fn report(recovered: &Recovered) {
    match recovered {
        Recovered::New { .. } => tracing::info!("a new data directory was made"),
        Recovered::Intact { .. } => tracing::info!("the data directory is whole"),
        Recovered::Amnesiac { what, .. } => {
            tracing::warn!(
                what,
                "stored data was damaged: this node starts empty and refills from the others"
            );
        }
        Recovered::Reduced { what, .. } => {
            tracing::warn!(
                what,
                "stored data was damaged: what can be read is kept, as store.accept_lost_data allows"
            );
        }
    }
}

fn shard_config(settings: &Settings, dev: bool, nodes: &[NodeId], boots: Boots, shard: u16) -> Config {
    Config {
        node: NodeId(settings.node),
        boots,
        shard,
        shards: settings.shards,
        nodes: nodes.to_vec(),
        groups: settings.slot_groups,
        copies: settings.copies,
        seed: boots.process.0,
        limits: settings.limits.clone(),
        any_token: dev,
        person_allowlist_required: settings.person_allowlist_required,
        faults: penstock_core::shard::Faults::default(),
    }
}

/// What the disk holds of the groups of one shard.
fn image(store: &Store, shards: u16, shard: u16) -> Result<Image, Error> {
    let mut image = Image::default();
    for group in store
        .groups()?
        .into_iter()
        .filter(|&group| group_shard(group, shards) == shard)
    {
        image.groups.push((group, rows_of(store, group)?));
    }
    Ok(image)
}

fn rows_of(store: &Store, group: GroupId) -> Result<Vec<(Key, Bytes)>, Error> {
    let stored = store.group_image(group)?;
    let fixed = [
        (Key::RaftState { group }, stored.state),
        (Key::Applied { group }, stored.applied),
        (Key::Install { group }, stored.install),
    ];
    let mut rows: Vec<(Key, Bytes)> = fixed
        .into_iter()
        .filter_map(|(key, row)| row.map(|row| (key, row)))
        .collect();
    rows.extend(
        stored
            .entries
            .into_iter()
            .map(|(index, entry)| (Key::RaftEntry { group, index }, entry)),
    );
    Ok(rows)
}
