//! `penstock plugin replay --local`: committed messages of a channel, in the component of the folder. Nothing is sent or changed.

use super::given::{Given, Scene};
use super::replay::{class, write_log};
use super::turns::{self, CONNECT, OFFLINE, ROUTE};
use super::{Bench, show};
use crate::api::Api;
use crate::arguments::Options;
use crate::binding::Binding;
use crate::build;
use crate::host::Local;
use anyhow::{Context as _, Result, bail, ensure};
use penstock_core::hooks::call::{Answer, Version};
use penstock_core::types::ChannelKind;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write;

/// Messages that are asked for at a time, and at most.
const PAGE: u64 = 500;
const MESSAGES_MAX: u64 = 10_000;

/// Which messages, and who reads them.
#[derive(Debug, PartialEq, Eq)]
struct Range {
    /// The channel as plugins see it.
    channel: String,
    /// The channel as its reader names it: of two persons the other one.
    asked: String,
    kind: u8,
    from: u64,
    to: u64,
    reader: String,
}

/// Runs every message of the range as a call of its own, in order.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let range = Range::of(options)?;
    let api = Api::of(options)?;
    let component = build::component(options, out)?;
    let local = Local::start()?;
    let (mut bench, binding) = Bench::of(options, &component, &local)?;
    let hook = binding.as_ref().and_then(Binding::hook).map(str::to_owned);
    let hook = hook.unwrap_or_else(|| bench.hook());
    ensure!(
        ![CONNECT, ROUTE].contains(&hook.as_str()),
        "the hook `{hook}` is about no messages: a channel has nothing to replay for it"
    );
    if hook == OFFLINE {
        writeln!(
            out,
            "offline    who was offline then is not known: {} stands in",
            turns::ABSENT
        )?;
    }
    local.keys.begin(&BTreeMap::new());
    local.places.begin(&[], &BTreeMap::new());
    let config = binding.as_ref().map(Binding::config).unwrap_or_default();
    let version = bench.load(&hook, &config)?;
    let mut tally = Tally::default();
    let mut from = range.from;
    while from <= range.to {
        let page = range.page(&api, from)?;
        let Some(last) = page.last().and_then(Given::seq) else {
            break;
        };
        local.mail.begin(&page, Scene::default());
        for given in &page {
            tally.message(&bench, (&version, &hook), given, out)?;
        }
        from = last.saturating_add(1);
    }
    writeln!(
        out,
        "{} messages, {} failed; a call may take {} ms; nothing was sent or changed",
        tally.messages,
        tally.failed,
        bench.within.as_millis()
    )?;
    if tally.failed > 0 {
        bail!("{} of {} messages failed", tally.failed, tally.messages);
    }
    Ok(())
}

#[derive(Default)]
struct Tally {
    messages: u64,
    failed: u64,
    /// The next line of the log.
    next_line: u64,
}

impl Tally {
    fn message(
        &mut self,
        bench: &Bench<'_>,
        (version, hook): (&Version, &str),
        given: &Given,
        out: &mut dyn Write,
    ) -> Result<()> {
        self.messages += 1;
        let place = given.seq().unwrap_or_default();
        for turn in turns::of_messages(hook, std::slice::from_ref(given), Scene::default()) {
            let returned = bench.ask(version, &turn);
            let (lines, next) = bench.logged_from(version, self.next_line);
            self.next_line = next;
            match class(&returned) {
                None => writeln!(out, "ok    {place}: {}", show(&returned))?,
                Some(class) => {
                    self.failed += 1;
                    writeln!(out, "FAIL  {place}: {class}: {}", show(&returned))?;
                    write_log(&lines, out)?;
                }
            }
            // What follows sees them, as it would on a broker.
            if let Ok(Answer::Done { changes, .. }) = &returned
                && let Err(error) = bench.local.keys.change_all(changes)
            {
                writeln!(out, "      its changes of keys cannot be made: {}", error.name())?;
            }
        }
        Ok(())
    }
}

impl Range {
    fn of(options: &Options) -> Result<Range> {
        let channel = options
            .channel
            .clone()
            .context("--channel CHANNEL: whose messages; of two persons ANN@BOB")?;
        let kind = options
            .kind
            .context("--type KIND: 1 for two persons, 2 for a group")?;
        let from = options.from.context("--from SEQ: the first position")?;
        let to = options.to.context("--to SEQ: the last position")?;
        ensure!(
            from >= 1 && from <= to,
            "--from {from} --to {to}: positions begin at 1, and the last is not before the first"
        );
        ensure!(
            to - from < MESSAGES_MAX,
            "--from {from} --to {to}: at most {MESSAGES_MAX} messages at a time"
        );
        let (asked, reader) = if kind == ChannelKind::PERSON.0 {
            let (left, right) = channel
                .split_once('@')
                .context("--channel: of two persons the id that plugins see, ANN@BOB")?;
            match options.reader.as_deref() {
                None => (right.to_owned(), left.to_owned()),
                Some(reader) if reader == left => (right.to_owned(), left.to_owned()),
                Some(reader) if reader == right => (left.to_owned(), right.to_owned()),
                Some(reader) => {
                    bail!("--as {reader}: one of {left} and {right}, nobody else reads what they write")
                }
            }
        } else {
            let reader = options.reader.clone();
            (
                channel.clone(),
                reader.context(
                    "--as UID: a member of the channel; messages are read as this one may read them",
                )?,
            )
        };
        Ok(Range {
            channel,
            asked,
            kind,
            from,
            to,
            reader,
        })
    }

    /// The next messages from this position on; none when there are no more.
    fn page(&self, api: &Api, from: u64) -> Result<Vec<Given>> {
        let question = json!({
            "login_uid": self.reader, "channel_id": self.asked, "channel_type": self.kind,
            "start_message_seq": from, "end_message_seq": self.to + 1, "limit": PAGE, "pull_mode": 1,
        });
        let answer = api.post("/channel/messagesync", &question)?;
        let messages = answer["messages"]
            .as_array()
            .context("the answer has no messages")?;
        messages.iter().map(|message| self.given(message)).collect()
    }

    /// A message of the API as one of a fixture.
    fn given(&self, message: &Value) -> Result<Given> {
        let is_set = |name: &&str| message["header"][*name] == 1;
        let flags: Vec<&str> = ["no_persist", "red_dot", "sync_once"]
            .into_iter()
            .filter(is_set)
            .collect();
        let seconds = message["timestamp"].as_u64().unwrap_or_default();
        let given = json!({
            "from": message["from_uid"],
            "channel_type": self.kind,
            "channel_id": self.channel,
            "payload_base64": message["payload"],
            "topic": message["topic"].as_str().unwrap_or_default(),
            "expire": message["expire"],
            "client_msg_no": message["client_msg_no"],
            "setting": message["setting"],
            "flags": flags,
            "message_id": message["message_id"],
            "message_seq": message["message_seq"],
            "timestamp_ms": seconds.saturating_mul(1_000),
        });
        serde_json::from_value(given).context("the broker's message is not one")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(channel: &str, kind: u8, reader: Option<&str>) -> Options {
        Options {
            channel: Some(channel.to_owned()),
            kind: Some(kind),
            from: Some(3),
            to: Some(7),
            reader: reader.map(str::to_owned),
            ..Options::default()
        }
    }

    #[test]
    fn a_range_is_read_by_somebody_who_may() -> Result<()> {
        let group = Range::of(&options("room", 2, Some("ann")))?;
        assert_eq!((group.asked.as_str(), group.reader.as_str()), ("room", "ann"));
        let two = Range::of(&options("ann@bob", 1, None))?;
        assert_eq!((two.asked.as_str(), two.reader.as_str()), ("bob", "ann"));
        let two = Range::of(&options("ann@bob", 1, Some("bob")))?;
        assert_eq!((two.asked.as_str(), two.reader.as_str()), ("ann", "bob"));
        for (wrong, said) in [
            (options("room", 2, None), "--as UID"),
            (options("bob", 1, Some("ann")), "ANN@BOB"),
            (options("ann@bob", 1, Some("eve")), "--as eve"),
            (
                Options {
                    to: Some(2),
                    ..options("room", 2, Some("ann"))
                },
                "--to 2",
            ),
            (
                Options {
                    to: Some(20_000),
                    ..options("room", 2, Some("ann"))
                },
                "at most",
            ),
        ] {
            let refused = Range::of(&wrong).expect_err(said).to_string();
            assert!(refused.contains(said), "{refused}");
        }
        Ok(())
    }

    #[test]
    fn a_message_of_the_api_is_one_of_a_fixture() -> Result<()> {
        let range = Range::of(&options("room", 2, Some("ann")))?;
        let given = range.given(&json!({
            "header": { "no_persist": 0, "red_dot": 1, "sync_once": 0 }, "setting": 2, "message_id": 9,
            "message_idstr": "9", "client_msg_no": "n", "message_seq": 4, "from_uid": "bob", "channel_id": "room",
            "channel_type": 2, "expire": 0, "timestamp": 7, "payload": "/w==",
        }))?;
        let penstock_core::hooks::call::Work::PersistAfter { messages, .. } =
            super::super::given::persist_after(&[given], Scene::default())
        else {
            panic!("a call of persist-after");
        };
        let message = &messages[0];
        assert_eq!((message.id.0, message.seq.0, message.stamp_ms), (9, 4, 7_000));
        assert!(message.draft.flags.red_dot && message.draft.setting == 2);
        assert_eq!(&message.draft.payload[..], b"\xff");
        Ok(())
    }
}
