//! Three production drivers over real RocksDB in one process, over a link in memory that can be cut: the same shards,
//! threads and store as in `penstock serve`.

use anyhow::{Result, bail, ensure};
use penstock::config::Settings;
use penstock::driver::{Clients, Fatal, Node, Transport};
use penstock::node::{self, Surroundings};
use penstock::plugins::Plugins;
use penstock_core::admin::{Answer, Ask, ChannelFlags, Failure, HistoryQuery, SendAsk};
use penstock_core::client::{CloseReason, ServerFrame};
use penstock_core::message::{MessageFlags, Outcome};
use penstock_core::shard::Peer;
use penstock_core::types::{ChannelKind, ConnectionId, NodeId, Reason, Seq, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// How long a cluster may take to find itself again; it is never waited for when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which nodes are cut off, and where the nodes are.
#[derive(Default)]
struct Network {
    nodes: Mutex<BTreeMap<NodeId, Weak<Node>>>,
    cut: Mutex<BTreeSet<NodeId>>,
}

impl Network {
    fn cut(&self, node: NodeId) {
        self.cut
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(node);
    }

    fn heal(&self) {
        self.cut.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// One node's end of the network.
struct Link {
    from: NodeId,
    network: Arc<Network>,
}

impl Transport for Link {
    fn send(&self, to: NodeId, message: Peer) {
        let cut = self.network.cut.lock().unwrap_or_else(PoisonError::into_inner);
        if cut.contains(&to) || cut.contains(&self.from) {
            return;
        }
        drop(cut);
        let node = self
            .network
            .nodes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&to)
            .and_then(Weak::upgrade);
        if let Some(node) = node {
            node.receive(self.from, message);
        }
    }
}

/// Nobody is connected: these tests speak through the API.
struct NoClients;

impl Clients for NoClients {
    fn deliver(&self, _frames: &mut Vec<(ConnectionId, ServerFrame)>) {}

    fn close(&self, _connection: ConnectionId, _reason: CloseReason) {}
}

/// A node that cannot go on fails the test.
#[derive(Default)]
struct Failed(OnceLock<String>);

impl Fatal for Failed {
    fn fail(&self, why: &str) {
        let _first_counts = self.0.set(why.to_owned());
    }
}

struct Cluster {
    nodes: Vec<Arc<Node>>,
    network: Arc<Network>,
    failed: Arc<Failed>,
    _data: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Result<Cluster> {
        let data = tempfile::tempdir()?;
        let network = Arc::new(Network::default());
        let failed = Arc::new(Failed::default());
        let ids: Vec<NodeId> = (1..=3).map(NodeId).collect();
        let mut nodes = Vec::new();
        for &id in &ids {
            let overrides = [
                format!("node.id={id}"),
                format!("node.data_dir={:?}", data.path().join(id.to_string())),
                "node.shards=2".to_owned(),
                "cluster.slot_groups=4".to_owned(),
                "store.low_space_bytes=0".to_owned(),
            ];
            let settings = Settings::parse("", &overrides)?;
            let surroundings = Surroundings {
                clients: Arc::new(NoClients),
                transport: Arc::new(Link {
                    from: id,
                    network: Arc::clone(&network),
                }),
                fatal: Arc::clone(&failed) as Arc<dyn Fatal>,
                plugins: Arc::new(Plugins::start(&settings)?),
            };
            let started = Arc::new(node::start(
                &settings,
                true,
                &ids,
                node::mailboxes(&settings),
                surroundings,
            )?);
            network
                .nodes
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(id, Arc::downgrade(&started));
            nodes.push(started);
        }
        Ok(Cluster {
            nodes,
            network,
            failed,
            _data: data,
        })
    }

    async fn wait_until_ready(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        for node in &self.nodes {
            while !matches!(node.ask(Ask::Ready).await, Answer::Ready(found) if found.ready) {
                ensure!(Instant::now() < deadline, "a node did not become ready");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        Ok(())
    }

    /// Asks until the answer is not "later".
    async fn insist(&self, place: usize, ask: Ask) -> Result<Answer> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.nodes[place % self.nodes.len()].ask(ask.clone()).await;
            let later = matches!(
                answer,
                Answer::Failed(Failure::Busy | Failure::Unavailable(_) | Failure::Timeout)
                    | Answer::Sent(
                        Outcome::Unknown | Outcome::Refused(Reason::NODE_NOT_MATCH | Reason::RATE_LIMITED)
                    )
            );
            if !later {
                return Ok(answer);
            }
            ensure!(Instant::now() < deadline, "{ask:?} got nothing but {answer:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends under a number, through one of these nodes, until it is known to be committed.
    async fn send(&self, places: &[usize], number: usize) -> Result<(i64, u64)> {
        let place = places[number % places.len()];
        match self.insist(place, Ask::Send(Box::new(message(number)))).await? {
            Answer::Sent(Outcome::Committed { id, seq, .. }) => Ok((id.0, seq.0)),
            other => bail!("message {number}: {other:?}"),
        }
    }

    async fn history(&self, place: usize) -> Result<Vec<(String, i64, u64)>> {
        let query = HistoryQuery {
            login_uid: Uid::new("bob"),
            channel_id: Arc::from("room"),
            kind: ChannelKind::GROUP,
            start: Seq(1),
            end: Seq(0),
            limit: 10_000,
            newer: true,
        };
        match self.insist(place, Ask::History(query)).await? {
            Answer::Messages { messages, .. } => Ok(messages
                .iter()
                .map(|one| {
                    let message = &one.message;
                    (
                        message.draft.client_msg_no.to_string(),
                        message.id.0,
                        message.seq.0,
                    )
                })
                .collect()),
            other => bail!("no history: {other:?}"),
        }
    }
}

fn message(number: usize) -> SendAsk {
    SendAsk {
        from_uid: Uid::new("alice"),
        channel_id: Arc::from("room"),
        kind: ChannelKind::GROUP,
        subscribers: Vec::new(),
        client_msg_no: Arc::from(format!("m{number}")),
        flags: MessageFlags::default(),
        setting: 0,
        expire_s: 0,
        topic: Arc::from(""),
        payload: bytes::Bytes::from(format!("text {number}")),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_node_may_be_cut_off_and_nothing_acknowledged_is_lost() -> Result<()> {
    let cluster = Cluster::start()?;
    cluster.wait_until_ready().await?;
    let room = Ask::PutChannel {
        channel_id: Arc::from("room"),
        kind: ChannelKind::GROUP,
        flags: ChannelFlags::default(),
        reset: false,
        subscribers: vec![Uid::new("alice"), Uid::new("bob")],
    };
    assert_eq!(cluster.insist(0, room).await?, Answer::Done);

    let mut acknowledged = Vec::new();
    // First whole, then with each node cut off in turn: whichever leads the channel or its slot is among them.
    for cut in [None, Some(1), Some(2), Some(3), None] {
        let places: Vec<usize> = (0..3).filter(|place| cut != Some(place + 1)).collect();
        if let Some(node) = cut {
            cluster.network.cut(NodeId(node as u16));
        }
        for _ in 0..40 {
            let number = acknowledged.len();
            let (id, seq) = cluster.send(&places, number).await?;
            acknowledged.push((format!("m{number}"), id, seq));
        }
        cluster.network.heal();
    }

    acknowledged.sort_by_key(|(_, _, seq)| *seq);
    for place in 0..3 {
        let history = cluster.history(place).await?;
        assert_eq!(history, acknowledged, "as node {} tells it", place + 1);
    }
    assert!(
        (1..).zip(&acknowledged).all(|(seq, (_, _, found))| *found == seq),
        "seqs have gaps"
    );
    assert_eq!(cluster.failed.0.get(), None);
    Ok(())
}
