//! A whole node in this process, as `penstock serve --dev` has it, for the targets that speak to its ports.

use anyhow::Context;
use penstock::config::Settings;
use penstock::serve::Running;
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// Users; all are members of [`GROUP`].
pub const UIDS: &[&str] = &[
    "ann", "ben", "cem", "dai", "eva", "fay", "gus", "hua", "ida", "jan", "kim", "leo",
];

/// Four users for each target that connects: sessions of one user end one another, and tests run at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// For `json_rpc`.
    JsonRpc = 0,
    /// For `websocket`.
    WebSocket = 4,
    /// For `wkproto`.
    WkProto = 8,
}

impl Users {
    /// One of the four.
    #[must_use]
    pub fn uid(self, number: usize) -> &'static str {
        UIDS[self as usize + number % 4]
    }
}

/// A group that exists.
pub const GROUP: &str = "room";

/// A disk in memory, where there is one: the targets ask for many syncs, and none of them pulls the plug.
const MEMORY_DISK: &str = "/dev/shm";

/// Threads of the node, by the beginning of their names.
const THREADS: &[&str] = &["net", "reader", "shard-", "store-"];

/// Where the node listens.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// WKProto over TCP.
    pub tcp: SocketAddr,
    /// WebSocket.
    pub websocket: SocketAddr,
    /// HTTP API.
    pub http: SocketAddr,
}

struct Started {
    runtime: Runtime,
    running: Running,
    addresses: Addresses,
    _data: TempDir,
}

#[derive(Default)]
struct Shared {
    started: Option<Started>,
    holders: usize,
}

static NODE: Mutex<Shared> = Mutex::new(Shared {
    started: None,
    holders: 0,
});

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed while it held the lock left the value whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As long as one of these is held the node goes on; with the last one it is stopped in order, so that no thread of it is in
/// the store when the process ends.
#[derive(Debug)]
#[must_use]
pub struct Hold(());

/// Keeps the node for the tests of one function.
pub fn hold() -> Hold {
    locked(&NODE).holders += 1;
    Hold(())
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut shared = locked(&NODE);
        shared.holders -= 1;
        if shared.holders == 0
            && let Some(started) = shared.started.take()
        {
            started
                .runtime
                .block_on(started.running.stop())
                .expect("the node ends in order");
        }
    }
}

/// Where the node listens; the first call starts it.
///
/// # Panics
/// When it does not start.
pub fn addresses() -> Addresses {
    let mut shared = locked(&NODE);
    shared
        .started
        .get_or_insert_with(|| start().expect("the node starts"))
        .addresses
}

/// A directory that goes away by itself, in memory where the machine has that.
///
/// # Errors
/// What the system says.
pub fn directory() -> std::io::Result<TempDir> {
    if Path::new(MEMORY_DISK).is_dir() {
        tempfile::tempdir_in(MEMORY_DISK)
    } else {
        tempfile::tempdir()
    }
}

fn start() -> anyhow::Result<Started> {
    watch_panics();
    let data = directory()?;
    let overrides = [
        format!("node.data_dir={:?}", data.path()),
        "node.shards=2".to_owned(),
        "cluster.slot_groups=2".to_owned(),
        "store.low_space_bytes=0".to_owned(),
        "gateway.tcp_listen=127.0.0.1:0".to_owned(),
        "gateway.ws_listen=127.0.0.1:0".to_owned(),
        "http.listen=127.0.0.1:0".to_owned(),
    ];
    let settings = Settings::parse("", &overrides)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_name("net")
        .build()?;
    let running = runtime.block_on(Running::start(&settings, true))?;
    let addresses = Addresses {
        tcp: running.tcp().context("TCP is served")?,
        websocket: running.websocket().context("WebSocket is served")?,
        http: running.http(),
    };
    let group = json!({ "channel_id": GROUP, "channel_type": 2, "subscribers": UIDS });
    let made = crate::peer::post(addresses.http, "/channel", &group.to_string());
    anyhow::ensure!(made.starts_with("HTTP/1.1 200 "), "the group is not made: {made}");
    Ok(Started {
        runtime,
        running,
        addresses,
        _data: data,
    })
}

/// A panic of one of the node's threads is caught by nobody here; it is kept for [`assert_well`].
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default();
            if THREADS.iter().any(|start| name.starts_with(start)) {
                locked(&PANICS).push(format!("{name}: {panic}"));
            }
            before(panic);
        }));
    });
}

/// No thread of the node has panicked.
///
/// # Panics
/// When one has.
pub fn assert_well() {
    let panics = locked(&PANICS);
    assert!(panics.is_empty(), "a thread of the node panicked: {panics:?}");
}
