//! The HTTP request that opens a WebSocket.

use bytes::BytesMut;
use penstock_core::client::CloseReason;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::handshake::machine::TryParse as _;
use tokio_tungstenite::tungstenite::handshake::server::{Request, create_response, write_response};

use super::Config;

/// The longest request head, in bytes.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// Why a request does not become a WebSocket.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub(super) enum Refused {
    #[error("the request head is not HTTP")]
    BadRequest,
    #[error("the page, or the host name, is not one that may connect here")]
    ForeignPage,
    #[error("the peer went away")]
    Gone,
    #[error("the path is not the listener's")]
    NotFound,
    #[error("the request head is too long")]
    TooLong,
    #[error("the request is not a WebSocket upgrade of version 13")]
    UpgradeRequired,
}

/// Tells a developer who looks into the network log of a browser what to do.
const FOREIGN_PAGE: &str = "this page may not connect: add its origin to gateway.allowed_origins; a node with --dev takes \
                            pages of this machine, by the names localhost, 127.0.0.1 and [::1]\n";

/// Tells somebody who took this port for that of the HTTP API.
const NOT_A_WEBSOCKET: &str =
    "this port is for WebSocket (gateway.ws_listen); the HTTP API has another (http.listen)\n";

impl Refused {
    /// As what it is counted.
    pub(super) fn reason(self) -> CloseReason {
        match self {
            Self::ForeignPage => CloseReason::PolicyViolation,
            _ => CloseReason::ProtocolError,
        }
    }

    fn body(self) -> &'static str {
        match self {
            Self::ForeignPage => FOREIGN_PAGE,
            Self::UpgradeRequired | Self::NotFound => NOT_A_WEBSOCKET,
            _ => "",
        }
    }

    fn response(self) -> Option<&'static str> {
        match self {
            Self::BadRequest => Some("HTTP/1.1 400 Bad Request\r\n"),
            Self::ForeignPage => Some("HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\n"),
            Self::Gone => None,
            Self::NotFound => Some("HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\n"),
            Self::TooLong => Some("HTTP/1.1 431 Request Header Fields Too Large\r\n"),
            Self::UpgradeRequired => Some(
                "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nContent-Type: text/plain\r\n",
            ),
        }
    }
}

/// Reads the head and answers it. Returns what the client sent after it.
///
/// The caller bounds the time; the size is bounded here. No extension and no subprotocol is offered.
pub(super) async fn upgrade(stream: &mut TcpStream, config: &Config) -> Result<BytesMut, Refused> {
    let mut input = BytesMut::new();
    match answer(stream, config, &mut input).await {
        Ok(()) => Ok(input),
        Err(refused) => {
            if let Some(head) = refused.response() {
                let body = refused.body();
                let response = format!(
                    "{head}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                // The peer learns why if it still listens.
                let _ = stream.write_all(response.as_bytes()).await;
            }
            Err(refused)
        }
    }
}

async fn answer(stream: &mut TcpStream, config: &Config, input: &mut BytesMut) -> Result<(), Refused> {
    let request = loop {
        if let Some((length, request)) = Request::try_parse(input).map_err(|_| Refused::BadRequest)? {
            let _ = input.split_to(length);
            break request;
        }
        if input.len() >= HEAD_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        input.reserve(1024);
        let read = stream.read_buf(input).await.map_err(|_| Refused::Gone)?;
        if read == 0 {
            return Err(Refused::Gone);
        }
    };
    if request.uri().path() != config.websocket_path {
        return Err(Refused::NotFound);
    }
    // What is no text is no origin and no host of ours either.
    let header = |name: &str| {
        let value = request.headers().get(name);
        value.map(|value| value.to_str().unwrap_or_default())
    };
    if !config.origins.admit(header("origin"), header("host")) {
        return Err(Refused::ForeignPage);
    }
    let response = create_response(&request).map_err(|_| Refused::UpgradeRequired)?;
    let mut head = Vec::with_capacity(160);
    write_response(&mut head, &response).map_err(|_| Refused::BadRequest)?;
    stream.write_all(&head).await.map_err(|_| Refused::Gone)
}
