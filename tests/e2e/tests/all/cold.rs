//! More first uses of channels than a node can serve: what there is no room for is refused as busy, and nothing else suffers.

use crate::PERSON;
use anyhow::{Context, Result};
use penstock_e2e::{Node, Raw, TEXT, get, masked};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const SUCCESS: i64 = 1;
const RATE_LIMITED: i64 = 22;

/// A send to the user of this number, as the JSON-RPC request of the same id.
fn request(number: usize) -> Value {
    json!({
        "id": number.to_string(),
        "method": "send",
        "params": {
            "channelId": format!("friend{number}"),
            "channelType": PERSON,
            "clientMsgNo": format!("once{number}"),
            "payload": { "type": 1 },
        },
    })
}

fn reason(answer: &Value) -> Result<i64> {
    answer["result"]["reasonCode"]
        .as_i64()
        .with_context(|| format!("no answer to a send: {answer}"))
}

#[test]
fn a_flood_of_new_channels_is_refused_as_busy_and_harms_nothing() -> Result<()> {
    const SENDS: usize = 200;
    let node = Node::start(&["--set", "channel.openings_max=1"])?;
    let mut raw = Raw::session(node.websocket(), "alice", "d")?;
    // All at once, so that the second is there long before the first is stored.
    let flood: Vec<u8> = (0..SENDS)
        .flat_map(|number| masked(0x80 | TEXT, request(number).to_string().as_bytes()))
        .collect();
    raw.bytes(&flood)?;
    let mut refused = BTreeSet::new();
    let mut stored = 0;
    for _ in 0..SENDS {
        let answer = raw.json()?;
        let number: usize = answer["id"].as_str().context("an id")?.parse()?;
        match reason(&answer)? {
            SUCCESS => stored += 1,
            RATE_LIMITED => assert!(refused.insert(number), "{answer}"),
            other => panic!("reason {other}: {answer}"),
        }
    }
    assert!(stored > 0, "nothing was admitted");
    assert!(!refused.is_empty(), "nothing was refused");
    assert_eq!(get(node.http(), "/readyz")?.status, 200);

    // On the same connection: what was refused finds room, and each is the first message of its channel.
    for number in refused {
        loop {
            let call = request(number);
            raw.call(&number.to_string(), "send", &call["params"])?;
            let answer = raw.answer(&number.to_string())?;
            if reason(&answer)? == SUCCESS {
                assert_eq!(answer["result"]["messageSeq"], 1, "{answer}");
                break;
            }
            assert_eq!(reason(&answer)?, RATE_LIMITED, "{answer}");
        }
    }
    assert_eq!(node.closed("outcome_unknown")?, 0);
    assert_eq!(node.counted("penstock_gateway_connections")?, 1);
    Ok(())
}
