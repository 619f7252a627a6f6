//! What strangers and bad clients may try, seen from outside. The name of a test begins with the row of
//! `broker/docs/hostile.md` that it is about.

mod bytes;
mod floods;
mod foreign;
mod histories;
mod inputs;
mod plugins;
mod secrets;
mod sockets;
mod start;

use anyhow::Result;
use penstock_e2e::{MIB, Node, post, still_serves, until};
use serde_json::{Value, json};

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
