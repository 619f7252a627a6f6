//! Plugins that do the worst while they render: the message becomes a dead letter, the log of the binding says what was wrong and what to
//! do, nothing is sent that is not to be, and other channels, bindings and senders go on.

use super::receiver::{Answer, Receiver};
use super::{SECRET, broker, hook, make};
use crate::GROUP;
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use penstock_e2e::{Node, Raw, component, deploy, get, post, still_serves, until};
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

const NAME: &str = "scripted-webhook";
/// The binding of the one that does harm, and the channel of it.
const BOMBS: &str = "bombs";
const BOMBED: &str = "bombed";

/// What a word does, the class of the dead letter, and a part of what the log says.
const WORDS: [(&str, &str, &str); 17] = [
    ("trap", "trap", "unreachable"),
    ("panic", "trap", "scripted to panic"),
    ("recurse", "trap", "stack exhausted"),
    ("grow", "memory", "raise `limits.memory_mib`"),
    ("loop", "timeout", "raise `deadline_ms`"),
    ("huge", "bad-output", "more than 2 MiB would cross"),
    (
        "long",
        "bad-output",
        "a body of 1835008 bytes; at most 1572864: cut the batch",
    ),
    (
        "many",
        "bad-output",
        "10000 requests for one batch; at most 16: put several",
    ),
    (
        "path",
        "bad-output",
        "at most 4096: put what is long into the body",
    ),
    (
        "elsewhere",
        "bad-output",
        "bind a webhook of its own to the other place",
    ),
    ("nowhere", "bad-output", "request 1: its URL is none"),
    ("inject", "bad-output", "a value is printable ASCII on one line"),
    ("split", "bad-output", "header `a\\r\\nx-injected: b`: not one"),
    (
        "smuggle",
        "bad-output",
        "method `POST / HTTP/1.1\\r`: use one of POST",
    ),
    (
        "sign",
        "bad-output",
        "header `webhook-signature`: the broker sets it",
    ),
    ("host", "bad-output", "header `host`: the broker sets it"),
    ("poison", "poison", "scripted to answer poison"),
];

/// A node with two webhooks: the one that does harm in one channel, and one that tells of all channels.
struct Field {
    node: Node,
    /// The endpoint of the one that does harm.
    hostile: Receiver,
    /// Where nothing is to arrive.
    elsewhere: Receiver,
    /// The endpoint of the other one.
    calm: Receiver,
    sent: u32,
}

impl Field {
    fn new() -> Result<Field> {
        let node = broker(&[SECRET])?;
        deploy(&node, NAME, &component(NAME)?)?;
        let receiver = || Receiver::start(&[SECRET], |_| Answer::Status(200));
        let field = Field {
            node,
            hostile: receiver()?,
            elsewhere: receiver()?,
            calm: receiver()?,
            sent: 0,
        };
        make(&field.node, BOMBED)?;
        make(&field.node, "beside")?;
        hook(&field.node, "calm", &field.calm, "*", &json!({}))?;
        Ok(field)
    }

    /// Binds the one that does harm; another configuration is another version, which has not failed yet.
    fn arm(&self, config: &Value, more: &Value) -> Result<()> {
        let mut binding = json!({ "plugin": NAME, "attempts_max": 1, "config": config.clone() });
        binding["config"]["url"] = json!(self.hostile.url());
        binding["config"]["other"] = json!(self.elsewhere.url());
        binding["config"]["secret"] = json!("s");
        for (key, value) in more.as_object().context("an object")? {
            binding[key] = value.clone();
        }
        hook(&self.node, BOMBS, &self.hostile, BOMBED, &binding)
    }

    /// Sends a text, which must be stored. Its position.
    fn say(&mut self, channel: &str, text: &str) -> Result<u64> {
        self.sent += 1;
        let payload = STANDARD.encode(json!({ "type": 1, "content": text }).to_string());
        let message = json!({
            "from_uid": "alice", "channel_id": channel, "channel_type": GROUP, "payload": payload,
            "client_msg_no": format!("m{}", self.sent),
        });
        let answer = post(self.node.http(), "/message/send", &message)?;
        ensure!(answer.status == 200, "{text}: {}", answer.text);
        answer.body["message_seq"].as_u64().context("a position")
    }

    fn letters(&self) -> Result<Vec<Value>> {
        let page = get(self.node.http(), &format!("/v1/bindings/{BOMBS}/dead-letters"))?.body;
        page["dead_letters"].as_array().cloned().context("letters")
    }

    /// Waits for the dead letter of a message.
    fn letter(&self, seq: u64) -> Result<Value> {
        let find = || -> Result<Option<Value>> {
            let mut letters = self.letters()?;
            letters.retain(|letter| letter["message_seq"] == seq);
            Ok(letters.pop())
        };
        until(&format!("the dead letter of message {seq}"), || {
            Ok(find()?.is_some())
        })?;
        find()?.context("it is there")
    }

    /// What the versions of the binding that run have logged.
    fn lines(&self) -> Result<Vec<String>> {
        let lines = get(self.node.http(), &format!("/v1/bindings/{BOMBS}/logs"))?.body;
        let lines = lines.as_array().context("lines")?.iter();
        Ok(lines
            .filter_map(|line| Some(line["text"].as_str()?.to_owned()))
            .collect())
    }

    /// Failed calls of this class.
    fn failures(&self, class: &str) -> Result<u64> {
        let here = get(self.node.http(), "/v1/plugins")?.body["here"].clone();
        let versions = here.as_array().context("versions")?.iter();
        let its = versions.filter(|version| version["binding"] == BOMBS);
        Ok(its
            .filter_map(|version| version["failures"][class].as_u64())
            .sum())
    }

    fn until_taken(&self, receiver: &Receiver, channel: &str, wanted: &[u64]) -> Result<()> {
        let taken = || receiver.taken(channel);
        until(&format!("{wanted:?} of {channel}"), || {
            Ok(taken().len() >= wanted.len())
        })?;
        ensure!(taken() == wanted, "{channel}: {:?}, not {wanted:?}", taken());
        Ok(())
    }
}

#[test]
fn b73_bombs_while_a_webhook_is_rendered() -> Result<()> {
    let mut field = Field::new()?;
    let process = field.node.process();
    let (mut fine, mut all) = (Vec::new(), Vec::new());
    let mut beside = Vec::new();
    for (round, (word, class, said)) in WORDS.into_iter().enumerate() {
        let deadline_ms = if word == "loop" { 500 } else { 15_000 };
        field.arm(&json!({ "round": round }), &json!({ "deadline_ms": deadline_ms }))?;
        let bomb = field.say(BOMBED, word)?;
        beside.push(field.say("beside", "hello")?);
        let letter = field.letter(bomb)?;
        // What is poison is given up without another attempt.
        let attempts = u32::from(class != "poison");
        assert_eq!(
            (&letter["cause"], &letter["attempts"]),
            (&json!(class), &json!(attempts)),
            "{word}: {letter}"
        );
        let lines = field.lines()?;
        assert!(lines.iter().any(|line| line.contains(said)), "{word}: {lines:?}");
        assert!(class == "poison" || field.failures(class)? > 0, "{word}");
        let after = field.say(BOMBED, "fine")?;
        fine.push(after);
        field.until_taken(&field.hostile, BOMBED, &fine)?;
        all.extend([bomb, after]);
    }
    // A flood of lines is cut short, and harms nothing.
    let flood = field.say(BOMBED, "flood")?;
    fine.push(flood);
    all.push(flood);
    field.until_taken(&field.hostile, BOMBED, &fine)?;
    assert!(field.lines()?.len() <= 1_000);
    // Nothing else was sent, and what was is signed.
    let seen = field.hostile.seen();
    assert_eq!(seen.len(), fine.len());
    assert!(seen.iter().all(|seen| seen.verified == [true]));
    assert!(field.elsewhere.seen().is_empty());
    field.until_taken(&field.calm, "beside", &beside)?;
    field.until_taken(&field.calm, BOMBED, &all)?;
    still_serves(&field.node, process, "bombs in a webhook")
}

#[test]
fn b73_bombs_about_who_is_offline_and_who_comes_and_goes() -> Result<()> {
    let mut field = Field::new()?;
    let process = field.node.process();
    field.arm(&json!({ "events": ["msg.offline"] }), &json!({}))?;
    for (word, class) in [
        ("trap", "trap"),
        ("many", "bad-output"),
        ("elsewhere", "bad-output"),
    ] {
        let bomb = field.say(BOMBED, word)?;
        let letter = field.letter(bomb)?;
        assert_eq!(
            (&letter["cause"], &letter["event"]),
            (&json!(class), &json!("msg.offline")),
            "{word}: {letter}"
        );
    }
    let fine = field.say(BOMBED, "fine")?;
    field.until_taken(&field.hostile, BOMBED, &[fine])?;

    let events = json!({ "events": ["user.onlinestatus"] });
    let everybody = json!({ "selector": {} });
    field.arm(&events, &everybody)?;
    let before = field.hostile.seen().len();
    let dropped = || field.node.counted("penstock_online_status_dropped_total");
    // That it came and that it went are two events.
    drop(Raw::session(field.node.websocket(), "trapper", "d")?);
    until("it is dropped", || Ok(dropped()? == 2))?;
    drop(Raw::session(field.node.websocket(), "elsewhere", "d")?);
    until("that is dropped too", || Ok(dropped()? == 4))?;
    // Nothing of it holds up what comes.
    let mut calm = events;
    calm["calm"] = json!(true);
    field.arm(&calm, &everybody)?;
    let told = |uid: &str| {
        let seen = field.hostile.seen().split_off(before);
        let texts = seen.into_iter().flat_map(|seen| seen.messages);
        texts
            .filter(|text| text.as_str().is_some_and(|text| text.starts_with(uid)))
            .count()
    };
    let _trapper = Raw::session(field.node.websocket(), "trapper", "d")?;
    until("it is told of", || Ok(told("trapper-1-1") == 1))?;
    assert!(field.elsewhere.seen().is_empty());
    still_serves(&field.node, process, "bombs about users")
}

#[test]
fn s16_a_webhook_that_keeps_failing_is_switched_off_and_what_is_left_waits() -> Result<()> {
    const MESSAGES: usize = 30;
    let mut field = Field::new()?;
    field.arm(&json!({}), &json!({}))?;
    for _ in 0..MESSAGES {
        field.say(BOMBED, "trap")?;
        field.say("beside", "hello")?;
    }
    let all: Vec<u64> = (1..).take(MESSAGES).collect();
    until("it is switched off", || {
        let plugins = get(field.node.http(), "/v1/plugins")?.body["plugins"].clone();
        let mut plugins = plugins.as_array().context("plugins")?.iter();
        Ok(plugins.any(|plugin| plugin["name"] == NAME && plugin["disabled"] == true))
    })?;
    // The other webhook of the same channel goes on, and so do senders.
    field.until_taken(&field.calm, BOMBED, &all)?;
    field.until_taken(&field.calm, "beside", &all)?;
    // Another configuration is no way out.
    field.arm(&json!({ "calm": true }), &json!({}))?;
    thread::sleep(Duration::from_millis(1_500));
    assert!(field.hostile.seen().is_empty());
    // What it was not called for is not given up.
    let given_up = field.letters()?.len();
    ensure!((5..MESSAGES).contains(&given_up), "{given_up} dead letters");
    let released = post(
        field.node.http(),
        &format!("/v1/plugins/{NAME}/release"),
        &json!({}),
    )?;
    assert_eq!(released.status, 200, "{}", released.text);
    field.until_taken(&field.hostile, BOMBED, &all[given_up..])?;
    assert_eq!(field.letters()?.len(), given_up);
    Ok(())
}
