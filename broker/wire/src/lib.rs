//! Penstock's wire formats: what goes over a socket or into a stored record, as values and bytes.
//!
//! What it contains: the WKProto frames and their codec ([`wkproto`]), the session encryption ([`encryption`]), the
//! client's side of a session ([`client`]), the JSON-RPC messages ([`jsonrpc`]), the reason codes ([`reason`]) and the
//! spelling of channel ids ([`channel_id`]).
//!
//! What it lacks: sockets, clocks, randomness, and any knowledge of the broker's decisions. Every limit and every
//! random byte is an argument, so that the same call gives the same bytes everywhere.

#![deny(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::unwrap_used,
        reason = "a test that hits one of these has found a fault and should stop there"
    )
)]

pub mod channel_id;
pub mod client;
pub mod encryption;
pub mod jsonrpc;
pub mod reason;
pub mod storage;
pub mod wkproto;
