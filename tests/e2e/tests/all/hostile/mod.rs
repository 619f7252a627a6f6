//! What strangers and bad clients may try, seen from outside. The name of a test begins with the row of
//! `broker/docs/hostile.md` that it is about.

mod bytes;
mod floods;
mod foreign;
mod histories;
mod inputs;
mod secrets;
mod sockets;
mod start;

use anyhow::{Result, bail};
use penstock_e2e::{Node, PATIENCE, Raw, get, post};
use serde_json::{Value, json};
use std::thread;
use std::time::{Duration, Instant};

/// A mebibyte, in bytes.
const MIB: u64 = 1024 * 1024;

/// The node still serves: it is the same process, admits a user, and stores what that user sends.
fn still_serves(node: &Node, process: u32, name: &str) -> Result<()> {
    assert_eq!(node.process(), process);
    assert_eq!(get(node.http(), "/readyz")?.status, 200);
    let mut alice = Raw::session(node.websocket(), name, name)?;
    let message =
        json!({ "channelId": "bob", "channelType": 1, "clientMsgNo": "", "payload": { "type": 1 } });
    alice.call("send", "send", &message)?;
    let answer = alice.answer("send")?;
    assert_eq!(answer["result"]["reasonCode"], 1, "{answer}");
    Ok(())
}

/// Looks again and again until this holds.
fn until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > deadline {
            bail!("not within {PATIENCE:?}: {what}");
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// A group of a development node.
fn make_room(node: &Node, id: &str, members: &[String]) -> Result<()> {
    let group = json!({ "channel_id": id, "channel_type": 2, "subscribers": members });
    assert_eq!(post(node.http(), "/channel", &group)?.status, 200);
    Ok(())
}

/// A message of alice to a group, by HTTP; it must be stored.
fn say(node: &Node, group: &str, client_msg_no: &str, payload: &str) -> Result<Value> {
    let message = json!({
        "from_uid": "alice", "channel_id": group, "channel_type": 2, "client_msg_no": client_msg_no, "payload": payload,
    });
    let answer = post(node.http(), "/message/send", &message)?;
    assert_eq!(
        (answer.status, &answer.body["reason"]),
        (200, &json!(1)),
        "{answer:?}"
    );
    Ok(answer.body)
}
