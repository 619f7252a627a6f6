//! What the plugin of some channels does to the others: honest clients write to each other while a filter, which is not bound
//! to what they write, does the worst that it can.

use crate::honest::Honest;
use crate::{Node, Raw, Say, bind, component, deploy};
use anyhow::{Context as _, Result};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// What the filter does to each of its messages.
const DEEDS: [(&str, &str); 6] = [
    ("nothing", "fine"),
    ("a trap", "trap"),
    ("memory without end", "grow"),
    ("a loop without end", "loop"),
    ("a flood of lines", "flood"),
    ("a frame that claims more than there is", "badframe-huge"),
];
/// Sessions whose messages the filter sees; each sends its next one when the last is answered.
const WRITERS: usize = 4;
/// Pairs of honest clients, who send ten messages a second each.
const PAIRS: usize = 10;
/// Each deed at full size.
const SECONDS: u32 = 20;

/// Does each deed for so much of the full time, against a node of its own, and tells how the honest fared. That none of their
/// messages was refused, lost or out of order is demanded; their times depend on the machine, which all share.
///
/// # Errors
/// When an honest client was not served.
pub fn run(percent: u32, say: Say<'_>) -> Result<()> {
    let lasts = Duration::from_secs(1) * SECONDS * percent / 100;
    for (deed, word) in DEEDS {
        let node = Node::start(&[])?;
        deploy(&node, "scripted-filter", &component("scripted-filter")?)?;
        let uids: Vec<String> = (0..WRITERS).map(writer).collect();
        let binding =
            json!({ "plugin": "scripted-filter", "hook": "before-send", "selector": { "uids": uids } });
        bind(&node, "scripted-filter", &binding)?;
        let honest = Honest::open(&node, "h", PAIRS)?;
        let over = AtomicBool::new(false);
        let (served, judged) = thread::scope(|scope| -> Result<_> {
            let (node, over) = (&node, &over);
            let writers: Vec<_> = (0..WRITERS)
                .map(|number| scope.spawn(move || write(node, number, word, over)))
                .collect();
            scope.spawn(move || {
                thread::sleep(lasts);
                over.store(true, Ordering::Relaxed);
            });
            let served = honest.talk(node, over);
            let mut judged = 0;
            for writes in writers {
                judged += writes.join().expect("no panic")?;
            }
            Ok((served?, judged))
        })
        .with_context(|| format!("beside {deed}"))?;
        say(&format!("{deed}, {judged} times: {served}"));
    }
    Ok(())
}

fn writer(number: usize) -> String {
    format!("writer{number}")
}

/// Writes until it is over. How many messages were answered, whatever the answer.
fn write(node: &Node, number: usize, word: &str, over: &AtomicBool) -> Result<u64> {
    let mut session = Raw::session(node.websocket(), &writer(number), "d")?;
    let mut answered = 0;
    while !over.load(Ordering::Relaxed) {
        let id = answered.to_string();
        let params = json!({
            "channelId": format!("away{number}"), "channelType": 1, "clientMsgNo": id,
            "payload": { "type": 1, "content": word },
        });
        session.call(&id, "send", &params)?;
        session.answer(&id)?;
        answered += 1;
    }
    Ok(answered)
}
