//! Every row of the shared byte cases, each with a bystander that must not notice.

use penstock_core::client::CloseReason;
use penstock_wire::wkproto::{Frame, Version};

use super::Edge;
use super::client::{TcpClient, WebSocketClient, WebSocketFrame};

const CASES: &str = include_str!("../../../../../tests/conformance/cases/frames.tsv");

struct Case {
    name: &'static str,
    bytes: Vec<u8>,
    must: &'static str,
}

fn cases() -> Vec<Case> {
    CASES
        .lines()
        .skip(1)
        .map(|line| {
            let mut columns = line.split('\t');
            let name = columns.next().expect("a name");
            let hex = columns.next().expect("bytes");
            let must = columns.next().expect("what must happen").trim_end();
            let bytes = (0..hex.len()).step_by(2);
            let bytes = bytes
                .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex"))
                .collect();
            Case { name, bytes, must }
        })
        .collect()
}

/// How many connections have been closed for what a peer did.
fn refused(edge: &Edge) -> [u64; 3] {
    [
        CloseReason::ProtocolError,
        CloseReason::PolicyViolation,
        CloseReason::AuthFailed,
    ]
    .map(|reason| edge.metrics.closed(reason))
}

#[tokio::test]
async fn every_row_ends_as_it_must() {
    let edge = Edge::start().await;
    let mut bystander = TcpClient::session(edge.tcp(), 6, "bystander").await;
    let cases = cases();
    assert_eq!(cases.len(), 28);
    for case in &cases {
        match case.name.split('-').next() {
            Some("ws") => websocket_case(&edge, case).await,
            Some("wk") => {
                tcp_case(&edge, case).await;
                binary_message_case(&edge, case).await;
            }
            Some("rpc") => rpc_case(&edge, case).await,
            _ => panic!("no way to run {}", case.name),
        }
        bystander.is_well().await;
    }
    assert_eq!(
        edge.metrics.closed(CloseReason::ConnectTimeout),
        0,
        "nothing waited for a timeout"
    );
}

async fn websocket_case(edge: &Edge, case: &Case) {
    let mut client = WebSocketClient::open(edge.websocket()).await;
    let before = refused(edge);
    client.raw(&case.bytes).await;
    let first = client
        .frame()
        .await
        .unwrap_or_else(|| panic!("{}: no answer", case.name));
    match case.must {
        "pong with the same 125 bytes" => {
            let payload = case.bytes[6..].to_vec();
            assert_eq!(payload.len(), 125);
            assert_eq!(
                first,
                WebSocketFrame {
                    opcode: 10,
                    payload: payload.into()
                }
            );
        }
        // Accepted: it is a PING, which may not come before CONNECT.
        "accept or close 1002, never crash" => {
            assert_eq!(first.close_code(), Some(1008));
            assert_eq!(refused(edge)[1], before[1] + 1);
        }
        must => {
            let allowed: Vec<_> = must
                .split([' ', 'o', 'r'])
                .filter_map(|word| word.parse::<u16>().ok())
                .collect();
            assert!(!allowed.is_empty(), "{}: unknown outcome {must}", case.name);
            let code = first
                .close_code()
                .unwrap_or_else(|| panic!("{}: {first:?}", case.name));
            assert!(allowed.contains(&code), "{}: {code}", case.name);
            assert_eq!(client.frame().await, None, "{}", case.name);
            if case.name != "ws-close-reserved-1005" {
                assert_eq!(refused(edge)[0], before[0] + 1, "{}", case.name);
            }
        }
    }
}

async fn tcp_case(edge: &Edge, case: &Case) {
    let mut client = TcpClient::open(edge.tcp()).await;
    let before = refused(edge);
    client.raw(&case.bytes).await;
    client.set_version(Version::UNNEGOTIATED);
    if case.must == "CONNACK reason 21, then close" {
        let Some(Frame::Connack(connack)) = client.frame().await else {
            panic!("no CONNACK")
        };
        assert_eq!(
            (connack.reason_code, connack.server_key.as_str(), connack.node_id),
            (21, "", 0)
        );
    }
    assert_eq!(client.frame().await, None, "{}", case.name);
    assert_refused(edge, case, before);
}

async fn binary_message_case(edge: &Edge, case: &Case) {
    let mut client = WebSocketClient::open(edge.websocket()).await;
    let before = refused(edge);
    client.message(2, &case.bytes).await;
    if case.must == "CONNACK reason 21, then close" {
        let connack = client.frame().await.expect("a CONNACK").wk(Version::UNNEGOTIATED);
        assert!(matches!(connack, Frame::Connack(connack) if connack.reason_code == 21));
    }
    let code = client.close_code().await;
    let expected = match case.name {
        "wk-length-1MiB+1" => 1009,
        _ if case.must.contains("policy") || case.must.contains("CONNACK") => 1008,
        _ => 1002,
    };
    assert_eq!(code, expected, "{}", case.name);
    assert_refused(edge, case, before);
}

fn assert_refused(edge: &Edge, case: &Case, before: [u64; 3]) {
    let mut expected = before;
    let index = match case.must {
        "closed: policy" => 1,
        "CONNACK reason 21, then close" => 2,
        must if must.starts_with("closed") => 0,
        must => panic!("{}: unknown outcome {must}", case.name),
    };
    expected[index] += 1;
    assert_eq!(refused(edge), expected, "{}", case.name);
}

async fn rpc_case(edge: &Edge, case: &Case) {
    let mut client = WebSocketClient::open(edge.websocket()).await;
    client.message(1, &case.bytes).await;
    let answer = client.json().await;
    let code = answer["error"]["code"].as_i64();
    match case.must {
        "closed with a parse error object" => {
            assert_eq!(code, Some(-32700));
            assert_eq!(client.close_code().await, 1002);
        }
        "an answer or a stated refusal, not a silent close" => {
            assert_eq!(code, Some(-32600));
            stays(&mut client).await;
        }
        "error object code -32601, connection stays" => {
            assert_eq!((code, answer["id"].as_str()), (Some(-32601), Some("1")));
            stays(&mut client).await;
        }
        "closed: depth limit" => {
            assert_eq!(code, Some(-32600));
            assert!(
                answer["error"]["message"]
                    .as_str()
                    .is_some_and(|text| text.contains("64 levels"))
            );
            assert_eq!(client.close_code().await, 1002);
        }
        must => panic!("{}: unknown outcome {must}", case.name),
    }
}

/// The connection stays: it can still connect.
async fn stays(client: &mut WebSocketClient) {
    client
        .text(r#"{"id":"c","method":"connect","params":{"uid":"later","token":"t"}}"#)
        .await;
    assert_eq!(client.json().await["result"]["reasonCode"], 1);
}
