//! Messages that a plugin could not do: listed, handed out again, forgotten.

use super::consumers::{NAME, follow, followed, lines_until, say_all};
use anyhow::{Context, Result};
use penstock_e2e::{Node, get, post};
use serde_json::{Value, json};

fn letters(node: &Node) -> Result<Vec<Value>> {
    let page = get(node.http(), &format!("/v1/bindings/{NAME}/dead-letters"))?;
    assert_eq!(
        (page.status, &page.body["more"]),
        (200, &json!(false)),
        "{}",
        page.text
    );
    page.body["dead_letters"].as_array().cloned().context("letters")
}

/// The status of an answer.
fn change(node: &Node, action: &str, letter: &Value) -> Result<u16> {
    let path = format!("/v1/bindings/{NAME}/dead-letters/{action}");
    let which = json!({
        "id": letter["id"], "channel_id": letter["channel_id"], "channel_type": letter["channel_type"],
    });
    Ok(post(node.http(), &path, &which)?.status)
}

#[test]
fn dead_letters_are_listed_replayed_and_dropped_and_outlive_a_crash() -> Result<()> {
    let mut node = followed(&json!({ "attempts_max": 2 }))?;
    say_all(&node, &["first retry:1", "second poison", "third trap", "fourth"])?;
    lines_until(&node, "done 4 fourth")?;
    let given_up = letters(&node)?;
    let shown: Vec<Value> = given_up
        .iter()
        .map(|letter| json!([letter["message_seq"], letter["attempts"], letter["cause"]]))
        .collect();
    assert_eq!(
        json!(shown),
        json!([[1, 2, "retry"], [2, 1, "poison"], [3, 2, "trap"]])
    );

    node.kill_and_restart()?;
    assert_eq!(letters(&node)?, given_up);
    // It fails as before, and stays.
    assert_eq!(change(&node, "replay", &given_up[0])?, 409);
    follow(&node, &json!({ "attempts_max": 2, "config": { "calm": true } }))?;
    assert_eq!(change(&node, "replay", &given_up[0])?, 200);
    lines_until(&node, "done 1 first")?;
    assert_eq!(change(&node, "drop", &given_up[1])?, 200);
    assert_eq!(letters(&node)?, given_up[2..]);
    assert_eq!(change(&node, "drop", &json!({ "id": "nothing" }))?, 400);
    Ok(())
}
