//! How many connections there may be, and how they all end.

use std::time::Duration;

use penstock_core::client::CloseReason;

use super::client::{TcpClient, WebSocketClient};
use super::shard::Seen;
use super::{Edge, until};
use crate::gateway::{Config, OutboundLimits};

#[tokio::test]
async fn connections_are_limited_in_total_and_by_address() {
    for config in [
        Config {
            connections_max: 2,
            ..Config::default()
        },
        Config {
            connections_per_address_max: 2,
            ..Config::default()
        },
    ] {
        let edge = Edge::with(config, OutboundLimits::default()).await;
        let mut first = TcpClient::session(edge.tcp(), 6, "first").await;
        let second = WebSocketClient::rpc_session(edge.websocket(), "second").await;
        let mut third = TcpClient::open(edge.tcp()).await;
        assert_eq!(third.frame().await, None);
        edge.closed(CloseReason::TooManyConnections, 1).await;
        first.is_well().await;
        assert_eq!(edge.metrics.accepted.value(), 3);
        // A place that becomes free can be taken.
        drop(second);
        until(|| edge.metrics.connections.value() == 1).await;
        TcpClient::session(edge.tcp(), 6, "fourth").await;
    }
}

#[tokio::test]
async fn strangers_are_limited_apart() {
    let config = Config {
        unauthenticated_max: 1,
        ..Config::default()
    };
    let edge = Edge::with(config, OutboundLimits::default()).await;
    let mut known = TcpClient::session(edge.tcp(), 6, "known").await;
    let stranger = TcpClient::open(edge.tcp()).await;
    until(|| edge.metrics.unauthenticated.value() == 1).await;
    let mut refused = TcpClient::open(edge.tcp()).await;
    assert_eq!(refused.frame().await, None);
    known.is_well().await;
    drop(stranger);
    until(|| edge.metrics.unauthenticated.value() == 0).await;
    TcpClient::session(edge.tcp(), 6, "later").await;
}

#[tokio::test]
async fn accepts_keep_their_rate() {
    let config = Config {
        accepts_per_second: 20,
        ..Config::default()
    };
    let edge = Edge::with(config, OutboundLimits::default()).await;
    let start = tokio::time::Instant::now();
    for _ in 0..30 {
        TcpClient::session(edge.tcp(), 6, "u1").await;
    }
    // A second's worth at once, the other ten at twenty a second.
    assert!(
        start.elapsed() >= Duration::from_millis(400),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn stopping_closes_every_connection_once_and_returns() {
    let edge = Edge::start().await;
    let mut tcp = TcpClient::session(edge.tcp(), 6, "tcp").await;
    let mut websocket = WebSocketClient::rpc_session(edge.websocket(), "ws").await;
    let mut stranger = WebSocketClient::open(edge.websocket()).await;
    until(|| edge.connections.count() == 3).await;
    let address = edge.tcp();
    let (open, (), code, stranger_code) = tokio::join!(
        edge.gateway.stop(),
        async { assert_eq!(tcp.frame().await, None) },
        websocket.close_code(),
        stranger.close_code(),
    );
    assert_eq!((open, code, stranger_code), (0, 1001, 1001));
    assert_eq!(edge.metrics.closed(CloseReason::ServerStop), 3);
    for uid in ["tcp", "ws"] {
        let seen = edge.shard.seen(edge.connection_of(uid).await);
        assert_eq!(seen.iter().filter(|event| **event == Seen::Closed).count(), 1);
    }
    drop(tcp);
    until(|| std::net::TcpStream::connect(address).is_err()).await;
}
