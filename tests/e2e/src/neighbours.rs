//! What the plugin of some channels does to the others: honest clients write to each other while a filter or a webhook, which is not
//! bound to what they write, does the worst that it can.

use crate::honest::Honest;
use crate::{Node, Raw, Say, bind, component, deploy};
use anyhow::{Context as _, Result};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A plugin that does what a message says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plugin {
    Filter,
    Webhook,
}

/// What a plugin does to each of its messages.
const DEEDS: [(&str, Plugin, &str); 10] = [
    ("nothing", Plugin::Filter, "fine"),
    ("a trap", Plugin::Filter, "trap"),
    ("memory without end", Plugin::Filter, "grow"),
    ("a loop without end", Plugin::Filter, "loop"),
    ("a flood of lines", Plugin::Filter, "flood"),
    (
        "a frame that claims more than there is",
        Plugin::Filter,
        "badframe-huge",
    ),
    ("a webhook that traps", Plugin::Webhook, "trap"),
    ("a webhook with memory without end", Plugin::Webhook, "grow"),
    ("a webhook that loops without end", Plugin::Webhook, "loop"),
    ("a webhook of 10,000 requests", Plugin::Webhook, "many"),
];
/// Nobody listens there.
const NOWHERE: &str = "127.0.0.1:9";
/// Sessions whose messages the plugin sees; each sends its next one when the last is answered.
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
    for (deed, plugin, word) in DEEDS {
        let node = beside(plugin)?;
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

/// A node with a plugin that is told of what the writers write.
fn beside(plugin: Plugin) -> Result<Node> {
    let secrets = "webhooks.secrets={ s = [\"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"] }";
    let node = Node::start(&["--set", secrets])?;
    let uids: Vec<String> = (0..WRITERS).map(writer).collect();
    let (name, mut binding) = match plugin {
        Plugin::Filter => ("scripted-filter", json!({ "hook": "before-send" })),
        Plugin::Webhook => {
            let url = format!("http://{NOWHERE}/");
            let binding = json!({
                "hook": "webhook", "attempts_max": 1, "grants": [format!("egress:{NOWHERE}")],
                "config": { "url": url, "secret": "s" },
            });
            ("scripted-webhook", binding)
        }
    };
    binding["plugin"] = json!(name);
    binding["selector"] = json!({ "uids": uids });
    deploy(&node, name, &component(name)?)?;
    bind(&node, name, &binding)?;
    Ok(node)
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
