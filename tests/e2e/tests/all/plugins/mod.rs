//! Plugins through the binary: real components, built from source, and what senders and receivers see of them.

mod author;
mod broken;
mod captures;
mod channels;
mod connect;
mod consumers;
mod desk;
mod filters;
mod inline;
mod keys;
mod languages;
mod letters;
mod offline;
mod outside;
mod publish;
mod quota;
mod refused;
mod rollout;
mod routes;
mod seen;
mod site;
mod suspended;
mod swaps;
mod workshop;

use crate::{GROUP, make_group};
use anyhow::{Context, Result};
use penstock_e2e::{Client, Node, Raw, bind, component, deploy, post};
use serde_json::{Value, json};

/// A node with a plugin of this repository that runs, bound with this configuration beside what else the binding says.
fn with(name: &str, binding: &Value) -> Result<Node> {
    let node = Node::start(&[])?;
    deploy(&node, name, &component(name)?)?;
    bind_to(&node, name, name, binding)?;
    make_group(&node, &["alice", "bob"])?;
    Ok(node)
}

/// Binds a filter under an id; what `binding` says comes on top.
fn bind_to(node: &Node, id: &str, name: &str, binding: &Value) -> Result<()> {
    // Room enough for a busy machine.
    let mut whole = json!({ "plugin": name, "hook": "before-send", "deadline_ms": 5_000 });
    for (key, value) in binding.as_object().context("an object")? {
        whole[key] = value.clone();
    }
    bind(node, id, &whole)
}

/// Sends a text to the group over JSON-RPC. The result.
fn say(raw: &mut Raw, id: &str, text: &str) -> Result<Value> {
    let payload = json!({ "type": 1, "content": text });
    let params = json!({ "channelId": "room", "channelType": GROUP, "clientMsgNo": id, "payload": payload });
    raw.call(id, "send", &params)?;
    Ok(raw.answer(id)?["result"].clone())
}

/// The contents of the group's messages.
fn history(node: &Node) -> Result<Vec<String>> {
    let question = json!({
        "login_uid": "bob", "channel_id": "room", "channel_type": GROUP,
        "start_message_seq": 1, "end_message_seq": 0, "limit": 1_000, "pull_mode": 1,
    });
    let history = post(node.http(), "/channel/messagesync", &question)?;
    let messages = history.body["messages"].as_array().cloned().context("messages")?;
    messages
        .iter()
        .map(|message| content(&message["payload"]))
        .collect()
}

/// The text of a payload in base64.
fn content(payload: &Value) -> Result<String> {
    let bytes = base64_of(payload.as_str().context("a payload")?)?;
    let payload: Value = serde_json::from_slice(&bytes)?;
    Ok(payload["content"].as_str().context("a content")?.to_owned())
}

/// Decodes standard base64.
fn base64_of(text: &str) -> Result<Vec<u8>> {
    use base64::Engine as _;
    Ok(base64::engine::general_purpose::STANDARD.decode(text)?)
}

/// The same plugin under another digest: a custom section more.
fn another(component: &[u8], text: &str) -> Vec<u8> {
    let mut other = component.to_vec();
    let name = b"remark";
    let length = u8::try_from(1 + name.len() + text.len()).expect("short");
    assert!(length < 0x80, "one byte of length");
    other.extend([0, length, 6]);
    other.extend(name);
    other.extend(text.as_bytes());
    other
}

/// The next text that a client receives.
fn next_text(client: &mut Client) -> Result<String> {
    Ok(client.received()?["text"].as_str().context("a text")?.to_owned())
}
