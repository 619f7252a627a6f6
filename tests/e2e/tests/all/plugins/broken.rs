//! Guests that do what no plugin should: every call of theirs fails and nothing else does.

use super::{bind_to, history, say, with};
use anyhow::Result;
use penstock_e2e::{Node, Raw};
use serde_json::{Value, json};

const NAME: &str = "scripted-filter";
const SUCCESS: u8 = 1;

/// A message without a word for the plugin passes: what failed before it was replaced.
fn passes(raw: &mut Raw, id: &str) -> Result<()> {
    let answer = say(raw, id, "fine")?;
    assert_eq!(answer["reasonCode"], SUCCESS, "after {id}: {answer}");
    Ok(())
}

/// What is bound: with room enough for a busy machine, because it is not the time that is looked at.
fn binding(config: &Value) -> Value {
    json!({ "deadline_ms": 1_000, "config": config })
}

/// Another configuration is another version, which has not failed yet: one that fails too often is not called.
fn bind_anew(node: &Node, round: usize) -> Result<()> {
    bind_to(node, NAME, NAME, &binding(&json!({ "round": round })))
}

fn bound() -> Result<(Node, Raw)> {
    let node = with(NAME, &binding(&json!({})))?;
    let raw = Raw::session(node.websocket(), "alice", "d")?;
    Ok((node, raw))
}

#[test]
fn an_answer_that_breaks_the_layout_lets_nothing_through() -> Result<()> {
    let (node, mut raw) = bound()?;
    for (place, kind) in [
        "", "-range", "-wrap", "-text", "-many", "-huge", "-cut", "-narrow", "-kind", "-layout",
    ]
    .into_iter()
    .enumerate()
    {
        let word = format!("badframe{kind}");
        bind_anew(&node, place)?;
        let answer = say(&mut raw, &word, &word)?;
        assert_ne!(answer["reasonCode"], SUCCESS, "{word}: {answer}");
        // The text of the frame's verdicts is not believed either.
        assert_ne!(answer["reason"], "no", "{word}");
        passes(&mut raw, &format!("after {place}"))?;
    }
    assert_eq!(history(&node)?, ["fine"; 10]);
    Ok(())
}

#[test]
fn a_guest_that_fails_in_its_own_way_is_replaced() -> Result<()> {
    let (node, mut raw) = bound()?;
    for (place, word) in ["trap", "panic", "recurse", "loop", "grow"]
        .into_iter()
        .enumerate()
    {
        bind_anew(&node, place)?;
        let answer = say(&mut raw, word, word)?;
        assert_ne!(answer["reasonCode"], SUCCESS, "{word}: {answer}");
        passes(&mut raw, &format!("after {word}"))?;
    }
    assert_eq!(history(&node)?, ["fine"; 5]);
    Ok(())
}

#[test]
fn an_instance_that_cannot_start_passes_nothing_until_its_configuration_is_mended() -> Result<()> {
    let (node, mut raw) = bound()?;
    for what in ["fail", "trap", "loop"] {
        bind_to(&node, NAME, NAME, &binding(&json!({ "init": what })))?;
        assert_ne!(say(&mut raw, what, "fine")?["reasonCode"], SUCCESS, "{what}");
        bind_to(&node, NAME, NAME, &binding(&json!({})))?;
        passes(&mut raw, &format!("after {what}"))?;
    }
    assert_eq!(history(&node)?, ["fine"; 3]);
    Ok(())
}
