//! `penstock serve`: one node until SIGTERM; [`Running`] is the same node for who has it in a process of their own.

use crate::config::Settings;
use crate::driver::{Clock, Node};
use crate::node::{self, Surroundings};
use crate::plugins::{self, Plugins};
use crate::wiring::{Api, EndProcess, GatewayClients, Mailboxes, NoPeers};
use anyhow::{Context, anyhow, bail};
use penstock_core::admin::{Answer, Ask};
use penstock_core::message::DedupeRow;
use penstock_core::types::NodeId;
use penstock_net::Bound;
use penstock_net::gateway::{self, Connections, Gateway, OutboundLimits, Sockets};
use penstock_net::http;
use penstock_net::origin::Origins;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// How long a node may take from its start to readiness before it gives up.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// Name of the threads that run tasks of connections.
const NET_THREADS: &str = "net";
const DAY_MS: u64 = 86_400_000;

/// Runs a node until it is told to stop.
///
/// # Errors
/// When the configuration is not safe, or something it needs is refused.
pub fn run(settings: Settings, dev: bool) -> anyhow::Result<()> {
    check_safety(&settings, dev)?;
    start_logging(&settings);
    end_with_any_thread();
    if dev && settings.api_key_sha256.is_some() {
        tracing::warn!("auth.api_key_sha256 is set, but has no effect with --dev");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name(NET_THREADS)
        .build()?;
    runtime.block_on(serve(settings, dev))
}

/// Production needs its secrets; development stays on this machine (S5).
fn check_safety(settings: &Settings, dev: bool) -> anyhow::Result<()> {
    if dev {
        let addresses = [
            ("gateway.tcp_listen", settings.gateway.tcp_listen),
            ("gateway.ws_listen", settings.gateway.ws_listen),
            ("http.listen", settings.http.listen),
        ];
        for (key, address) in addresses {
            if !address.ip().is_loopback() {
                bail!(
                    "--dev listens on loopback only, but {key} is {address}: use 127.0.0.1, or leave --dev out"
                );
            }
        }
    } else if settings.api_key_sha256.is_none() {
        bail!(
            "auth.api_key_sha256 is not set: run `penstock key` and put the hash into the configuration, or try things \
             out with --dev"
        );
    }
    Ok(())
}

fn start_logging(settings: &Settings) {
    // The configuration has checked it.
    let filter = tracing_subscriber::EnvFilter::new(&settings.log_level);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    // A second node in the same process (tests) keeps the first one's logging.
    let _ = if settings.log_json {
        lines.json().try_init()
    } else {
        lines.try_init()
    };
}

/// A thread that panicked has left its shard, or its part of the store, for ever: what waits for it would time out while the
/// node looks alive. So the process ends, and the next one recovers (R14). A task of a connection is caught by the runtime, and ends
/// that connection alone.
fn end_with_any_thread() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if std::thread::current().name() != Some(NET_THREADS) {
            std::process::abort();
        }
    }));
}

async fn serve(settings: Settings, dev: bool) -> anyhow::Result<()> {
    if dev {
        tokio::spawn(say_that_it_is_open());
    }
    let running = Running::start(&settings, dev).await?;
    let page = serves_demo_page(&settings, dev).then(|| format!("http://{}/", running.http()));
    let (tcp, websocket) = (running.tcp(), running.websocket());
    announce(&settings, tcp, websocket, running.http(), page.as_deref())?;
    wait_for_the_end().await?;
    running.stop().await
}

/// Whoever reads the log of a node in development mode sees it, wherever they begin (S5).
async fn say_that_it_is_open() {
    let mut minutes = tokio::time::interval(Duration::from_secs(60));
    loop {
        minutes.tick().await;
        tracing::warn!("development mode: every token is accepted, no API key is needed, loopback only");
    }
}

/// A node with everything around it, in this process.
pub struct Running {
    node: Arc<Node>,
    plugins: Arc<Plugins>,
    gateway: Gateway<Mailboxes>,
    http: http::Server,
    housekeeping: [tokio::task::JoinHandle<()>; 2],
    drain: Duration,
}

impl Running {
    /// Takes its addresses, so that one that is in use is found before there is data; then starts the node, and when that is ready listens.
    /// Within a tokio runtime.
    ///
    /// # Errors
    /// When something that it needs is refused, or it does not become ready.
    pub async fn start(settings: &Settings, dev: bool) -> anyhow::Result<Running> {
        let gateway_config = gateway_config(settings, dev);
        let (sockets, http) = bind(settings, &gateway_config)?;
        let mailboxes = node::mailboxes(settings);
        let limits = OutboundLimits {
            bytes: settings.gateway.outbound_bytes_max,
            frames: settings.gateway.outbound_frames_max,
        };
        let connections = Arc::new(Connections::new(limits));
        let plugins = Plugins::start(settings);
        let plugins = Arc::new(plugins.context("the plugin host")?);
        let surroundings = Surroundings {
            clients: Arc::new(GatewayClients(Arc::clone(&connections))),
            transport: Arc::new(NoPeers),
            fatal: Arc::new(EndProcess),
            plugins: Arc::clone(&plugins) as Arc<dyn crate::driver::Plugins>,
        };
        let this = [NodeId(settings.node)];
        let running = Arc::new(node::start(
            settings,
            dev,
            &this,
            mailboxes.clone(),
            surroundings,
        )?);
        wait_until_ready(&running).await?;
        let following = follow_plugins(&plugins, &running, this[0]).await;

        let gateway_metrics = Arc::new(gateway::Metrics::default());
        let dispatch = Arc::new(Mailboxes(mailboxes));
        let gateway = Gateway::start(
            gateway_config,
            sockets,
            dispatch,
            Arc::clone(&connections),
            Arc::clone(&gateway_metrics),
        )
        .map_err(|failed| {
            cannot_listen(
                gateway_key(settings, failed.address),
                failed.address,
                &failed.error,
            )
        })?;
        let (tcp, ws) = (gateway.tcp_address(), gateway.websocket_address());
        let api = Arc::new(Api {
            node: Arc::clone(&running),
            plugins: plugins::Api::new(&plugins, &running),
            gateway: gateway_metrics,
        });
        let address = http.address();
        let http = http::Server::start(http, api, http_config(settings, dev, tcp, ws))
            .map_err(|error| cannot_listen("http.listen", address, &error))?;
        let housekeeping = [
            tokio::spawn(drop_old_keys(
                Arc::downgrade(&running),
                settings.limits.dedupe_window,
            )),
            following,
        ];
        Ok(Running {
            node: running,
            plugins,
            gateway,
            http,
            housekeeping,
            drain: settings.drain,
        })
    }

    /// Where WKProto over TCP is served.
    #[must_use]
    pub fn tcp(&self) -> Option<SocketAddr> {
        self.gateway.tcp_address()
    }

    /// Where WebSocket is served.
    #[must_use]
    pub fn websocket(&self) -> Option<SocketAddr> {
        self.gateway.websocket_address()
    }

    /// Where the HTTP API is served.
    #[must_use]
    pub fn http(&self) -> SocketAddr {
        self.http.address()
    }

    /// Answers what is open, closes the connections, and ends the node's threads.
    ///
    /// # Errors
    /// When a request goes on beyond the time to drain.
    pub async fn stop(self) -> anyhow::Result<()> {
        tracing::info!("draining");
        for task in &self.housekeeping {
            task.abort();
        }
        self.http.stop(self.drain).await;
        let left = tokio::time::timeout(self.drain, self.gateway.stop())
            .await
            .unwrap_or(0);
        tracing::info!(connections = left, "stopped");
        let node = tokio::time::timeout(self.drain, sole_owner(self.node))
            .await
            .context(
                "a request goes on beyond the time to drain: the node's threads were not ended in order",
            )?;
        let plugins = self.plugins;
        tokio::task::spawn_blocking(move || {
            node.stop();
            plugins.stop();
        })
        .await?;
        Ok(())
    }
}

/// The addresses of the listeners, on which nothing listens yet.
fn bind(settings: &Settings, gateway: &gateway::Config) -> anyhow::Result<(Sockets, Bound)> {
    let sockets = Sockets::bind(gateway).map_err(|failed| {
        cannot_listen(
            gateway_key(settings, failed.address),
            failed.address,
            &failed.error,
        )
    })?;
    let http = Bound::new(settings.http.listen)
        .map_err(|error| cannot_listen("http.listen", settings.http.listen, &error))?;
    Ok((sockets, http))
}

/// The key that names this address.
fn gateway_key(settings: &Settings, address: SocketAddr) -> &'static str {
    if address == settings.gateway.tcp_listen {
        "gateway.tcp_listen"
    } else {
        "gateway.ws_listen"
    }
}

/// Why a listener is missing, and what to do about it.
fn cannot_listen(key: &str, address: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    let free = SocketAddr::new(address.ip(), 0);
    let hint = match error.kind() {
        ErrorKind::AddrInUse => format!(
            "another program has this port, perhaps another node: stop it, or choose another port, as with --set {key}={free}, \
             which takes a free one"
        ),
        ErrorKind::AddrNotAvailable => {
            "no interface of this machine has this address; 0.0.0.0 stands for all of them".to_owned()
        }
        ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose a higher one".to_owned(),
        _ => format!("choose another address with --set {key}=ADDRESS:PORT"),
    };
    anyhow!("cannot listen on {key} = {address} ({error}): {hint}")
}

/// Waits until the last task that asks the node has let go of it. The process may end only after the node's threads: the store
/// beneath them is torn down with it.
async fn sole_owner(mut node: Arc<Node>) -> Node {
    loop {
        match Arc::try_unwrap(node) {
            Ok(sole) => return sole,
            Err(shared) => node = shared,
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn gateway_config(settings: &Settings, dev: bool) -> gateway::Config {
    let gateway = &settings.gateway;
    gateway::Config {
        tcp: Some(gateway.tcp_listen),
        websocket: Some(gateway.ws_listen),
        origins: Origins {
            listed: gateway.allowed_origins.clone(),
            loopback_only: dev,
        },
        connect_timeout: gateway.connect_timeout,
        idle_timeout: gateway.idle_timeout,
        connections_max: gateway.connections_max as u64,
        connections_per_address_max: u32::try_from(gateway.connections_per_ip_max).unwrap_or(u32::MAX),
        ..gateway::Config::default()
    }
}

fn http_config(
    settings: &Settings,
    dev: bool,
    tcp: Option<SocketAddr>,
    ws: Option<SocketAddr>,
) -> http::Config {
    let text = |address: Option<SocketAddr>| address.map_or_else(String::new, |address| address.to_string());
    http::Config {
        api_key: settings
            .api_key_sha256
            .filter(|_| !dev)
            .map(http::ApiKey::from_sha256),
        body_bytes_max: settings.http.body_bytes_max,
        connections_max: settings.http.connections_max,
        connections_per_address_max: u32::try_from(settings.http.connections_per_ip_max).unwrap_or(u32::MAX),
        request_timeout: settings.http.request_timeout,
        tcp_addr: settings
            .http
            .external_tcp_addr
            .clone()
            .unwrap_or_else(|| text(tcp)),
        ws_addr: settings
            .http
            .external_ws_addr
            .clone()
            .unwrap_or_else(|| format!("ws://{}", text(ws))),
        payload_bytes_max: settings.limits.payload_bytes_max,
        demo_page: serves_demo_page(settings, dev),
        loopback_only: dev,
    }
}

/// The page calls routes of back ends: a node in production serves it only when told to.
fn serves_demo_page(settings: &Settings, dev: bool) -> bool {
    dev || settings.http.demo_page
}

/// Waits until every group has a leader, so that the first message finds its way.
async fn wait_until_ready(node: &Node) -> anyhow::Result<()> {
    let ready = async {
        loop {
            match node.ask(Ask::Ready).await {
                Answer::Ready(found) if found.ready => return,
                _ => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    };
    tokio::time::timeout(READY_WITHIN, ready)
        .await
        .context("the node did not become ready: see the log above")
}

/// Loads what the registry names, now and when it changes. Returns when it is loaded, so that the first message does not wait for
/// a plugin that is on its way.
async fn follow_plugins(
    plugins: &Arc<Plugins>,
    node: &Arc<Node>,
    this: NodeId,
) -> tokio::task::JoinHandle<()> {
    let registry = node.registry();
    let revision = registry.borrow().revision;
    let following = tokio::spawn(plugins::follow(
        Arc::clone(plugins),
        Arc::downgrade(node),
        this,
        registry,
    ));
    if !plugins.settled(revision, READY_WITHIN).await {
        tracing::warn!("plugins are still being loaded: until then their bindings' policies decide");
    }
    following
}

/// Idempotency rows expire by their stamps; every hour the space of the days that no window reaches is given back (M-11).
async fn drop_old_keys(node: Weak<Node>, window: Duration) {
    let mut hours = tokio::time::interval(Duration::from_secs(3_600));
    let window_ms = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
    loop {
        hours.tick().await;
        let Some(node) = node.upgrade() else { return };
        // A day more than the window, because a wall clock may have been ahead.
        let oldest_ms = Clock::wall_ms().saturating_sub(window_ms).saturating_sub(DAY_MS);
        let day = DedupeRow::day(oldest_ms);
        let dropped = tokio::task::spawn_blocking(move || node.store().drop_dedupe_before(day)).await;
        match dropped {
            Ok(Ok(())) => tracing::debug!(day, "idempotency rows of older days are dropped"),
            // A failed write has poisoned the store, which ends the process by itself.
            Ok(Err(error)) => tracing::warn!(%error, "old idempotency rows stay"),
            Err(_) => return,
        }
    }
}

/// The one line on standard output.
fn announce(
    settings: &Settings,
    tcp: Option<SocketAddr>,
    ws: Option<SocketAddr>,
    http: SocketAddr,
    page: Option<&str>,
) -> anyhow::Result<()> {
    if let Some(page) = page {
        tracing::info!("the demo page: open {page} in a browser");
    }
    let line = serde_json::json!({
        "ready": true,
        "node": settings.node,
        "ws": ws.map(|address| format!("ws://{address}")),
        "tcp": tcp.map(|address| address.to_string()),
        "http": format!("http://{http}"),
        "page": page,
        "version": env!("CARGO_PKG_VERSION"),
    });
    let mut out = std::io::stdout();
    writeln!(out, "{line}")
        .and_then(|()| out.flush())
        .context("cannot write the ready line to standard output")
}

async fn wait_for_the_end() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
