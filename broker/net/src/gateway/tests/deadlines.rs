//! What a connection may not wait for, and who may not be waited for.

use std::time::Duration;

use bytes::Bytes;
use penstock_core::client::{CloseReason, Send};
use penstock_core::types::{ChannelKind, MessageId};
use penstock_wire::wkproto::{self, Frame, Setting, Version};
use tokio::time::{Instant, sleep};

use super::client::{TcpClient, WebSocketClient, connect, encoded};
use super::shard::{Seen, recv};
use super::{Edge, until};
use crate::gateway::{Config, OutboundLimits};

const SHORT: Duration = Duration::from_millis(400);

#[tokio::test]
async fn a_peer_that_does_not_connect_is_closed() {
    let edge = Edge::with(
        Config {
            connect_timeout: SHORT,
            ..Config::default()
        },
        OutboundLimits::default(),
    )
    .await;
    let mut silent = TcpClient::open(edge.tcp()).await;
    let mut no_upgrade = TcpClient::open(edge.websocket()).await;
    no_upgrade.raw(b"GET / HT").await;
    let mut half = TcpClient::open(edge.tcp()).await;
    half.raw(&encoded(&Frame::Connect(connect(6, "u1", "t")), Version::LATEST)[..20])
        .await;
    let mut upgraded = WebSocketClient::open(edge.websocket()).await;
    // WebSocket pings are no sign of life.
    upgraded.message(9, b"x").await;
    assert_eq!(upgraded.frame().await.map(|frame| frame.opcode), Some(10));
    assert_eq!(silent.frame().await, None);
    assert_eq!(half.frame().await, None);
    assert_eq!(no_upgrade.frame().await, None);
    assert_eq!(upgraded.close_code().await, 1008);
    edge.closed(CloseReason::ConnectTimeout, 4).await;
}

#[tokio::test]
async fn a_connect_without_an_answer_is_refused() {
    let edge = Edge::with(
        Config {
            activation_timeout: SHORT,
            ..Config::default()
        },
        OutboundLimits::default(),
    )
    .await;
    let mut client = TcpClient::open(edge.tcp()).await;
    client.send(&Frame::Connect(connect(6, "silent", "t"))).await;
    client.set_version(Version::UNNEGOTIATED);
    let Some(Frame::Connack(connack)) = client.frame().await else {
        panic!("no CONNACK")
    };
    assert_eq!(connack.reason_code, 15);
    assert_eq!(client.frame().await, None);
    edge.closed(CloseReason::ActivationFailed, 1).await;
    let seen = edge.shard.seen(edge.connection_of("silent").await);
    assert_eq!(seen.last(), Some(&Seen::Closed));
}

#[tokio::test]
async fn only_frames_keep_a_session_alive() {
    let edge = Edge::with(
        Config {
            idle_timeout: SHORT,
            ..Config::default()
        },
        OutboundLimits::default(),
    )
    .await;
    let mut idle = WebSocketClient::rpc_session(edge.websocket(), "idle").await;
    let mut lively = TcpClient::session(edge.tcp(), 6, "lively").await;
    let start = Instant::now();
    while start.elapsed() < SHORT * 3 {
        lively.is_well().await;
        if edge.metrics.closed(CloseReason::IdleTimeout) == 0 {
            idle.message(9, b"x").await;
        }
        sleep(SHORT / 10).await;
    }
    assert_eq!(edge.metrics.closed(CloseReason::IdleTimeout), 1);
    loop {
        let frame = idle.frame().await.expect("a close comes");
        if frame.opcode == 10 {
            continue;
        }
        assert_eq!(frame.close_code(), Some(4006));
        break;
    }
    lively.is_well().await;
}

fn large_recv() -> penstock_core::client::ServerFrame {
    let send = Send {
        client_seq: 1,
        client_msg_no: "m".into(),
        channel_id: "g".into(),
        kind: ChannelKind::GROUP,
        no_persist: false,
        red_dot: false,
        sync_once: false,
        setting: 0,
        expire_s: 0,
        topic: "".into(),
        payload: Ok(Bytes::new()),
    };
    recv(MessageId(1), &send, Bytes::from(vec![1; 32_000]))
}

#[tokio::test]
async fn a_slow_client_is_closed_by_bytes_and_delays_nobody() {
    let limits = OutboundLimits {
        bytes: 1024 * 1024,
        frames: 1_000_000,
    };
    let edge = Edge::with(
        Config {
            close_timeout: SHORT,
            ..Config::default()
        },
        limits,
    )
    .await;
    let slow = TcpClient::session(edge.tcp(), 6, "slow").await;
    let mut quick = TcpClient::session(edge.tcp(), 6, "quick").await;
    let connection = edge.connection_of("slow").await;
    let mut pushed = 0;
    while edge.metrics.closed(CloseReason::OutboundOverflow) == 0 {
        edge.connections.push([(connection, large_recv())]);
        pushed += 1;
        // More than every socket buffer and the queue together.
        assert!(pushed < 2_000, "a client that reads nothing stays open");
        if pushed % 16 == 0 {
            quick.is_well().await;
        }
    }
    until(|| edge.shard.seen(connection).last() == Some(&Seen::Closed)).await;
    until(|| edge.metrics.connections.value() == 1).await;
    quick.is_well().await;
    drop(slow);
}

#[tokio::test]
async fn a_client_that_takes_no_byte_is_closed_in_time() {
    let config = Config {
        write_timeout: SHORT,
        close_timeout: SHORT,
        ..Config::default()
    };
    let limits = OutboundLimits {
        bytes: usize::MAX,
        frames: usize::MAX,
    };
    let edge = Edge::with(config, limits).await;
    let slow = TcpClient::session(edge.tcp(), 6, "slow").await;
    let connection = edge.connection_of("slow").await;
    for _ in 0..1_000 {
        edge.connections.push([(connection, large_recv())]);
    }
    edge.closed(CloseReason::OutboundOverflow, 1).await;
    drop(slow);
}

#[tokio::test]
async fn a_client_that_only_pings_and_never_reads_costs_no_memory() {
    let edge = Edge::start().await;
    let mut client = WebSocketClient::rpc_session(edge.websocket(), "u1").await;
    // Far more pongs than are kept; the last one is answered in any case.
    for round in 0..20_000u32 {
        client.message(9, &round.to_be_bytes()).await;
    }
    let mut last = 0;
    while last != 19_999 {
        let frame = client.frame().await.expect("pongs come");
        assert_eq!(frame.opcode, 10);
        let round = u32::from_be_bytes(frame.payload[..].try_into().expect("four bytes"));
        assert!(round >= last);
        last = round;
    }
}

#[tokio::test]
async fn a_full_shard_is_waited_for_and_nothing_is_lost() {
    let edge = Edge::start().await;
    let mut client = TcpClient::session(edge.tcp(), 6, "u1").await;
    edge.shard.set_full(true);
    for client_seq in 1..=100 {
        let send = wkproto::Send {
            setting: Setting::NO_ENCRYPT,
            client_seq,
            channel_id: "g".into(),
            channel_type: 2,
            ..wkproto::Send::default()
        };
        client.send(&Frame::Send(send)).await;
    }
    until(|| edge.metrics.mailbox_full.value() > 0).await;
    sleep(Duration::from_millis(50)).await;
    assert!(edge.shard.sends(edge.connection_of("u1").await).is_empty());
    edge.shard.set_full(false);
    for client_seq in 1..=100 {
        assert!(matches!(client.frame().await, Some(Frame::SendAck(ack)) if ack.client_seq == client_seq));
    }
}

#[tokio::test]
async fn a_full_shard_does_not_let_input_pile_up() {
    let edge = Edge::start().await;
    let mut client = TcpClient::session(edge.tcp(), 6, "u1").await;
    edge.shard.set_full(true);
    let before = edge.metrics.bytes_in.value();
    let send = wkproto::Send {
        setting: Setting::NO_ENCRYPT,
        channel_id: "g".into(),
        payload: Bytes::from(vec![1; 30_000]),
        ..wkproto::Send::default()
    };
    let bytes = encoded(&Frame::Send(send), Version::LATEST);
    // The socket takes what its buffers hold; the gateway must not take more than one read beyond a frame.
    let flood = async {
        for _ in 0..400 {
            client.raw(&bytes).await;
        }
    };
    assert!(
        tokio::time::timeout(SHORT, flood).await.is_err(),
        "the flood must back up"
    );
    assert!(edge.metrics.bytes_in.value() - before < 256 * 1024);
}
