//! The HTTP API: JSON in, [`Ask`] to the core, JSON out (client contract 7).
//!
//! # Owns
//! Routes, JSON shapes, the API key, limits of connections, heads and bodies, the demo page.
//!
//! # Absent
//! Decisions. What a request may do is decided by the core; only its form is checked here.

mod auth;
mod bounded;
mod channels;
mod demo;
mod foreign;
mod json;
mod listen;
mod messages;
mod operators;
mod plugins;
mod users;

pub use auth::ApiKey;
pub use plugins::Plugins;

use crate::bound::Bound;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{any, get, post, put};
use penstock_core::admin::{Answer, Ask};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What the API needs of its node.
pub trait Node: Send + Sync + 'static {
    /// Asks the core; answered within a bound.
    fn ask(&self, ask: Ask) -> Pin<Box<dyn Future<Output = Answer> + Send + '_>>;
    /// All metrics in the Prometheus text format.
    fn metrics(&self) -> String;
    /// Its plugins.
    fn plugins(&self) -> &dyn Plugins;
}

/// Settings of the API.
#[derive(Clone, Debug)]
pub struct Config {
    /// The key that every route but health needs; none in development mode.
    pub api_key: Option<ApiKey>,
    /// Largest body, bytes.
    pub body_bytes_max: usize,
    /// Open connections.
    pub connections_max: usize,
    /// Open connections from one IPv4 address or IPv6 /64 network.
    pub connections_per_address_max: u32,
    /// How long the head of a request may take, and then its body.
    pub request_timeout: Duration,
    /// Told to clients by `/route`.
    pub tcp_addr: String,
    /// Told to clients by `/route`.
    pub ws_addr: String,
    /// Largest payload of a message, bytes.
    pub payload_bytes_max: usize,
    /// Whether the demo page is served.
    pub demo_page: bool,
    /// Whether requests that a page of another machine makes are refused: without a key they would be obeyed.
    pub loopback_only: bool,
}

/// Shared by all requests.
#[derive(Clone)]
struct State {
    node: Arc<dyn Node>,
    config: Arc<Config>,
    page: Arc<demo::Page>,
}

/// A running API.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    /// Starts to listen, and serves.
    ///
    /// # Errors
    /// When another program has begun to listen on the address since it was bound.
    pub fn start(bound: Bound, node: Arc<dyn Node>, config: Config) -> std::io::Result<Server> {
        let address = bound.address();
        let listener = bound.listen()?;
        let bounds = listen::Bounds {
            connections_max: config.connections_max,
            connections_per_address_max: config.connections_per_address_max,
            head_timeout: config.request_timeout,
        };
        let app = router(State {
            node,
            page: Arc::new(demo::Page::new(&config.ws_addr)),
            config: Arc::new(config),
        });
        let (stop, stopped) = watch::channel(false);
        let task = tokio::spawn(listen::serve(listener, app, bounds, stopped));
        Ok(Server { address, stop, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes no new connections and waits for open requests within the bound.
    pub async fn stop(self, within: Duration) {
        self.stop.send_replace(true);
        let _ = tokio::time::timeout(within, self.task).await;
    }
}

fn plugin_routes() -> Router<State> {
    Router::new()
        .route(
            "/v1/plugins",
            get(plugins::list)
                .merge(post(plugins::upload).layer(DefaultBodyLimit::max(plugins::UPLOAD_BYTES_MAX))),
        )
        .route("/v1/plugins/api", get(plugins::api))
        .route("/v1/plugins/{name}/{action}", post(plugins::change))
        .route("/v1/plugins/{name}/keys", get(plugins::keys))
        .route(
            "/v1/plugins/{name}/keys/{*key}",
            get(plugins::key)
                .put(plugins::set_key)
                .delete(plugins::delete_key)
                .layer(DefaultBodyLimit::max(plugins::KEY_BODY_BYTES_MAX)),
        )
        .route("/v1/bindings", get(plugins::bindings))
        .route("/v1/bindings/{id}", put(plugins::bind).delete(plugins::unbind))
        .route("/v1/bindings/{id}/logs", get(plugins::logs))
        .route(
            "/v1/bindings/{id}/captures",
            get(plugins::captures).delete(plugins::clear_captures),
        )
        .route("/v1/bindings/{id}/captures/{capture}", get(plugins::capture))
        .route("/v1/bindings/{id}/{action}", post(plugins::switch))
        .route("/v1/bindings/{id}/dead-letters", get(plugins::letters))
        .route(
            "/v1/bindings/{id}/dead-letters/{action}",
            post(plugins::change_letter),
        )
}

fn router(state: State) -> Router {
    let product = Router::new()
        .route("/user/token", post(users::token))
        .route("/user/device_quit", post(users::device_quit))
        .route("/user/onlinestatus", post(users::online_status))
        .route("/user/systemuids", get(users::system_uids))
        .route("/user/systemuids_add", post(users::system_uids_add))
        .route("/user/systemuids_remove", post(users::system_uids_remove))
        .route("/channel", post(channels::put))
        .route("/channel/info", post(channels::info))
        .route("/channel/delete", post(channels::delete))
        .route("/channel/subscriber_add", post(channels::subscriber_add))
        .route("/channel/subscriber_remove", post(channels::subscriber_remove))
        .route(
            "/channel/subscriber_remove_all",
            post(channels::subscriber_remove_all),
        )
        .route("/channel/blacklist_add", post(channels::blacklist_add))
        .route("/channel/blacklist_set", post(channels::blacklist_set))
        .route("/channel/blacklist_remove", post(channels::blacklist_remove))
        .route(
            "/channel/blacklist_remove_all",
            post(channels::blacklist_remove_all),
        )
        .route("/channel/whitelist", get(channels::whitelist))
        .route("/channel/whitelist_add", post(channels::whitelist_add))
        .route("/channel/whitelist_set", post(channels::whitelist_set))
        .route("/channel/whitelist_remove", post(channels::whitelist_remove))
        .route(
            "/channel/whitelist_remove_all",
            post(channels::whitelist_remove_all),
        )
        .route("/channel/messagesync", post(messages::sync))
        .route("/message/send", post(messages::send))
        .route("/message/outcome", get(messages::outcome))
        .route("/metrics", get(operators::metrics))
        .merge(plugin_routes())
        .route_layer(axum::middleware::from_fn_with_state(
            state.clone(),
            auth::require_key,
        ));
    // Whether a plugin's own routes need the key is up to its binding.
    let answered = Router::new()
        .route("/plugins/{name}", any(plugins::answer))
        .route("/plugins/{name}/", any(plugins::answer))
        .route("/plugins/{name}/{*path}", any(plugins::answer));
    // The page itself is no secret; what it calls needs the key.
    let page = if state.config.demo_page {
        Router::new()
            .route("/", get(demo::page))
            .route("/demo/{file}", get(demo::file))
    } else {
        Router::new()
    };
    // Where to connect is told to apps before they have a key; health is for probes.
    Router::new()
        .route("/route", get(operators::route))
        .route("/route/batch", post(operators::route_batch))
        .route("/healthz", get(operators::healthz))
        .route("/readyz", get(operators::readyz))
        .merge(product)
        .merge(answered)
        .merge(page)
        .method_not_allowed_fallback(json::no_method)
        .fallback(json::no_route)
        .layer(DefaultBodyLimit::max(state.config.body_bytes_max))
        .layer(axum::middleware::from_fn_with_state(
            state.clone(),
            foreign::refuse_foreign,
        ))
        .with_state(state)
}
