//! A node as it stands in production: tokens at CONNECT, an API key for HTTP.

use crate::{HELLO, PERSON};
use anyhow::Result;
use penstock_e2e::{Client, Node, Response, get, post_with_key};
use serde_json::{Value, json};
use std::process::Command;

/// `printf %s correct-horse | sha256sum`
pub(crate) const KEY: &str = "correct-horse";
pub(crate) const KEY_SHA256: &str = "9dca666eb54730714630d1519264a7bf1eeaad00b8f2edc90d3ecbfad928d163";

fn post(node: &Node, path: &str, body: &Value) -> Result<Response> {
    post_with_key(node.http(), path, body, KEY)
}

fn set_token(node: &Node, uid: &str, token: &str, level: u8) -> Result<()> {
    let body = json!({ "uid": uid, "token": token, "device_flag": 1, "device_level": level });
    assert_eq!(post(node, "/user/token", &body)?.status, 200);
    Ok(())
}

#[test]
fn the_stored_token_opens_and_every_other_is_refused() -> Result<()> {
    let node = Node::start_guarded(KEY_SHA256, &[])?;
    set_token(&node, "alice", "right", 0)?;
    let mut alice = Client::sdk(node.websocket(), "alice", "right")?;
    alice.send("bob", PERSON, "hello", "")?;
    assert_eq!(alice.acknowledgement()?["reason"], 1);
    for (uid, token) in [
        ("alice", "wrong"),
        ("alice", ""),
        ("alice", "righ"),
        ("nobody", "right"),
    ] {
        let mut refused = Client::sdk_unconnected(node.websocket(), uid, token)?;
        assert_eq!(refused.status()?, 3, "{uid} with {token:?}");
    }
    Ok(())
}

#[test]
fn the_api_key_opens_http_and_health_needs_none() -> Result<()> {
    let node = Node::start_guarded(KEY_SHA256, &[])?;
    let message = json!({ "from_uid": "a", "channel_id": "b", "channel_type": PERSON, "payload": HELLO });
    for key in ["", "wrong", "correct-horse "] {
        let path = "/message/send";
        let refused = post_with_key(node.http(), path, &message, key)?;
        // A trailing blank is no part of a header's value.
        let wanted = if key.trim_end() == KEY { 200 } else { 401 };
        assert_eq!(refused.status, wanted, "key {key:?}");
    }
    assert_eq!(post(&node, "/message/send", &message)?.status, 200);
    assert_eq!(get(node.http(), "/healthz")?.status, 200);
    assert_eq!(get(node.http(), "/metrics")?.status, 401);
    Ok(())
}

#[test]
fn a_master_device_ends_the_other_session_and_it_is_told_so() -> Result<()> {
    let node = Node::start_guarded(KEY_SHA256, &[])?;
    set_token(&node, "alice", "right", 1)?;
    let mut first = Client::sdk(node.websocket(), "alice", "right")?;
    let _second = Client::sdk(node.websocket(), "alice", "right")?;
    assert_eq!(first.kicked()?, 12);
    Ok(())
}

#[test]
fn a_node_without_its_secret_does_not_start_and_says_what_to_do() -> Result<()> {
    let data = tempfile::tempdir()?;
    let output = Command::new(penstock_e2e::binary()?)
        .args(["serve", "--data-dir"])
        .arg(data.path())
        .output()?;
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("auth.api_key_sha256") && said.contains("penstock key"),
        "{said}"
    );
    let public = ["serve", "--dev", "--set", "http.listen=0.0.0.0:0", "--data-dir"];
    let output = Command::new(penstock_e2e::binary()?)
        .args(public)
        .arg(data.path())
        .output()?;
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("loopback") && said.contains("http.listen"),
        "{said}"
    );
    Ok(())
}
