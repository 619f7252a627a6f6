//! What is not taken, what is said of it, and that what runs goes on.

use super::{bind_to, history, say, with};
use anyhow::{Context, Result};
use penstock_e2e::{Node, PATIENCE, Raw, Response, component, get, post, propose, put, upload};
use serde_json::{Value, json};
use std::time::Instant;

const NAME: &str = "profanity-filter";

fn masking() -> Result<Node> {
    with(NAME, &json!({ "config": { "words": ["darn"] } }))
}

/// The filter still does what it did.
fn goes_on(node: &Node, id: &str) -> Result<()> {
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    assert_eq!(say(&mut raw, id, "darn")?["reasonCode"], 1);
    assert_eq!(history(node)?.last().map(String::as_str), Some("****"));
    Ok(())
}

fn says(answer: &Response, status: u16, words: &str) {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert!(answer.text.contains(words), "{}", answer.text);
}

#[test]
fn uploads_that_are_no_plugins() -> Result<()> {
    let node = masking()?;
    let refused = |bytes: &[u8], words: &str| -> Result<()> {
        says(&upload(node.http(), "/v1/plugins", bytes)?, 400, words);
        Ok(())
    };
    refused(b"", "empty")?;
    refused(b"hello", "magic number")?;
    refused(b"\0asm\x01\0\0\0", "without component metadata")?;
    refused(b"\0asm\x0d\0\x01\0", "manifest")?;
    let good = component(NAME)?;
    refused(&good[..good.len() / 2], "not WebAssembly")?;
    refused(&vec![0; (32 << 20) + 1], "at most")?;
    goes_on(&node, "after")
}

/// A component whose types stand so deep in each other.
fn nested(depth: usize) -> Vec<u8> {
    // A component type that declares one type, again and again; the innermost declares nothing.
    let types = [&[1][..], &[0x41, 1, 1].repeat(depth), &[0x41, 0]].concat();
    let mut size = types.len();
    let mut component = b"\0asm\x0d\0\x01\0\x07".to_vec();
    while size >= 0x80 {
        component.push((size & 0x7f) as u8 | 0x80);
        size >>= 7;
    }
    component.push(size as u8);
    [component, types].concat()
}

#[test]
fn types_as_deep_as_no_stack_is() -> Result<()> {
    let node = masking()?;
    let answer = upload(node.http(), "/v1/plugins", &nested(3))?;
    assert!(!answer.text.contains("did not live"), "{}", answer.text);
    for depth in [30_000, 1_000_000] {
        let answer = upload(node.http(), "/v1/plugins", &nested(depth))?;
        says(&answer, 400, "a process that looked at it did not live");
    }
    goes_on(&node, "after")
}

#[test]
fn changes_that_do_not_fit() -> Result<()> {
    let node = masking()?;
    let change =
        |action: &str, wish: Value| post(node.http(), &format!("/v1/plugins/{NAME}/{action}"), &wish);
    says(&change("rollback", json!({}))?, 409, "roll");
    says(&change("promote", json!({}))?, 409, "rollout");
    says(&change("explode", json!({}))?, 404, "propose, canary");
    says(
        &change("propose", json!({ "digest": "00" }))?,
        400,
        "64 hexadecimal digits",
    );
    says(
        &change("propose", json!({ "digest": "0".repeat(64) }))?,
        400,
        "POST it to /v1/plugins first",
    );
    says(
        &change("canary", json!({ "percent": 101 }))?,
        400,
        "from 0 to 100",
    );
    says(&change("promote", json!({ "revision": 1 }))?, 409, "revision");
    let another = post(
        node.http(),
        "/v1/plugins/another/propose",
        &json!({ "digest": digest(&node)? }),
    )?;
    says(&another, 400, "names the plugin profanity-filter");
    let bound = put(
        node.http(),
        "/v1/bindings/x",
        &json!({ "plugin": "nobody", "hook": "before-send" }),
    )?;
    says(&bound, 404, "no plugin has this name");
    let hook = put(
        node.http(),
        "/v1/bindings/x",
        &json!({ "plugin": NAME, "hook": "after-lunch" }),
    )?;
    says(&hook, 400, "before-send, persist-after, webhook, connect");
    goes_on(&node, "after")
}

fn digest(node: &Node) -> Result<Value> {
    Ok(get(node.http(), "/v1/plugins")?.body["plugins"][0]["active"]["digest"].clone())
}

#[test]
fn a_second_rollout_while_one_is_open() -> Result<()> {
    let node = masking()?;
    let component = component(NAME)?;
    let other = [&component[..], &[0, 2, 1, b'a']].concat();
    assert_eq!(propose(&node, NAME, &other)?.status, 200);
    let third = [&component[..], &[0, 2, 1, b'b']].concat();
    says(&propose(&node, NAME, &third)?, 409, "open");
    goes_on(&node, "after")
}

/// The state that the node shows of a binding's version, once there is one.
fn state(node: &Node, binding: &str) -> Result<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let here = get(node.http(), "/v1/plugins")?.body["here"].clone();
        let versions = here.as_array().context("versions")?;
        if let Some(version) = versions.iter().find(|version| version["binding"] == binding) {
            return Ok(version.clone());
        }
        anyhow::ensure!(Instant::now() < deadline, "nothing of {binding}: {here}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn a_configuration_that_init_refuses_is_shown_and_the_policy_decides() -> Result<()> {
    let node = masking()?;
    bind_to(&node, "strict", NAME, &json!({ "config": { "words": [""] } }))?;
    let version = state(&node, "strict")?;
    assert_eq!(version["state"], "failed");
    assert!(
        version["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("words: one is empty")),
        "{version}"
    );
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    assert_ne!(say(&mut raw, "1", "hello")?["reasonCode"], 1);
    let open = json!({ "config": { "words": [""] }, "on_error": { "not-ready": "allow" } });
    bind_to(&node, "strict", NAME, &open)?;
    assert_eq!(say(&mut raw, "2", "darn")?["reasonCode"], 1);
    assert_eq!(history(&node)?, ["****"]);
    Ok(())
}

#[test]
fn a_damaged_cache_is_made_anew() -> Result<()> {
    let mut node = masking()?;
    goes_on(&node, "before")?;
    let folder = node.data().join("plugins").join("compiled");
    let mut damaged = 0;
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "cwasm") {
            // A file of its own: the old one is mapped by the running node.
            let half = std::fs::read(&path)?;
            std::fs::remove_file(&path)?;
            std::fs::write(&path, &half[..half.len() / 2])?;
            damaged += 1;
        }
    }
    assert_eq!(damaged, 1);
    node.kill_and_restart()?;
    goes_on(&node, "after")
}
