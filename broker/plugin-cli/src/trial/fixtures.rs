//! Fixtures: what a plugin is given, and what it must answer.

use super::channels::ExpectedPublish;
use super::connects::{Connecting, ExpectedDecision};
use super::places::Exchange;
use super::routes::{Asking, ExpectedAnswer};
use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use penstock_core::hooks::call::{Window, Work};
use penstock_core::message::{Committed, Draft, Message, MessageFlags, Refusal};
use penstock_core::types::{ChannelKey, ChannelKind, Incarnation, MessageId, Seq, Uid};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The folder of fixtures.
pub(super) const FOLDER: &str = "fixtures";
/// The time of every fixture, ms since 1970: the plugin sees it as the time, so that a run is like the one before.
pub(super) const WALL_MS: u64 = 1_700_000_000_000;
/// The first message id.
const MESSAGE_ID: i64 = 1_000;

/// A case.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fixture {
    /// The configuration; what it lacks comes from the manifest.
    #[serde(default)]
    pub(super) config: Map<String, Value>,
    /// The hook that is called; the manifest's first unless given.
    pub(super) hook: Option<String>,
    /// The keys of the plugin before, texts.
    #[serde(default)]
    pub(super) keys: BTreeMap<String, String>,
    /// All of its keys after.
    pub(super) expect_keys: Option<BTreeMap<String, String>>,
    /// What the plugin asks over HTTP, and what answers it.
    #[serde(default)]
    pub(super) http: Vec<Exchange>,
    /// Values that it may see, by name.
    #[serde(default)]
    pub(super) secrets: BTreeMap<String, String>,
    /// All that it publishes, in order.
    pub(super) expect_published: Option<Vec<ExpectedPublish>>,
    /// Messages; those of one channel that follow each other are one batch.
    #[serde(default)]
    pub(super) messages: Vec<Given>,
    /// Of connect, in place of messages: who wants to connect.
    #[serde(default)]
    pub(super) connects: Vec<Connecting>,
    /// Of route, in place of messages: requests over HTTP.
    #[serde(default)]
    pub(super) requests: Vec<Asking>,
    /// Of offline, and of webhook for `msg.offline`: the recipients who are, ascending.
    #[serde(default)]
    pub(super) uids: Vec<String>,
    /// What must come of it.
    pub(super) expect: Expected,
}

/// A message.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Given {
    /// The sender.
    from: String,
    /// 1 a person, 2 a group.
    #[serde(default = "group")]
    channel_type: u8,
    /// The channel; of two persons the canonical id.
    channel_id: String,
    /// A text, or any other JSON, which is sent as its text.
    payload: Value,
    #[serde(default)]
    topic: String,
    /// Seconds until it is no longer shown; 0 for ever.
    #[serde(default)]
    expire: u32,
    #[serde(default)]
    client_msg_no: Option<String>,
    /// Times that it went through a plugin that published it.
    #[serde(default)]
    hops: u8,
}

pub(super) fn group() -> u8 {
    ChannelKind::GROUP.0
}

/// What must come of the messages.
#[derive(Clone, Debug)]
pub(super) enum Expected {
    /// Of before-send: one for each message.
    Verdicts(Vec<ExpectedVerdict>),
    /// Of persist-after, webhook and offline.
    Outcome(ExpectedOutcome),
    /// Of connect: one for each connection.
    Decisions(Vec<ExpectedDecision>),
    /// Of route: one for each request.
    Answers(Vec<ExpectedAnswer>),
}

/// A verdict. What is not named is not compared.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ExpectedVerdict {
    /// As it is.
    Allow(bool),
    /// Not at all.
    Reject(ExpectedRefusal),
    /// Changed.
    Rewrite(ExpectedRewrite),
}

#[derive(Clone, Debug)]
pub(super) enum ExpectedRefusal {
    Any(bool),
    With(RefusalParts),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RefusalParts {
    pub(super) code: Option<u8>,
    pub(super) text: Option<String>,
}

impl RefusalParts {
    /// Whether a refusal is like this.
    pub(super) fn fit(&self, refusal: &Refusal) -> bool {
        let text = refusal.text.as_deref().unwrap_or_default();
        self.code.is_none_or(|code| code == refusal.reason.0)
            && self.text.as_deref().is_none_or(|wanted| wanted == text)
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedRewrite {
    /// A text, or JSON that the payload must be in any form.
    pub(super) payload: Option<Value>,
    pub(super) topic: Option<String>,
    pub(super) expire: Option<u32>,
}

/// What becomes of a batch of committed messages.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ExpectedOutcome {
    /// So many leading messages, of offline uids, are done.
    Done(u32),
    /// It is to be handed out again.
    Retry(bool),
    /// The first message can never be done.
    Poison(bool),
    /// Of webhook: these requests, in order.
    Requests(Vec<ExpectedRequest>),
}

/// A request. What is not named is not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedRequest {
    pub(super) method: Option<String>,
    pub(super) url: Option<String>,
    /// Those that must be among the headers; names in small letters.
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    /// A text, or JSON that the body must be in any form.
    pub(super) body: Option<Value>,
}

// By hand, because a derived choice between two shapes does not say what is wrong within one.
impl<'de> Deserialize<'de> for Expected {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let first = value.get(0);
        let named = |name: &str| first.is_some_and(|first| first.get(name).is_some());
        let read = if named("accept") || named("deny") {
            serde_json::from_value(value).map(Expected::Decisions)
        } else if named("response") {
            serde_json::from_value(value).map(Expected::Answers)
        } else if value.is_array() {
            serde_json::from_value(value).map(Expected::Verdicts)
        } else {
            serde_json::from_value(value).map(Expected::Outcome)
        };
        read.map_err(|error| D::Error::custom(format!("expect: {error}")))
    }
}

impl<'de> Deserialize<'de> for ExpectedRefusal {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        match Value::deserialize(from)? {
            Value::Bool(wanted) => Ok(ExpectedRefusal::Any(wanted)),
            parts => serde_json::from_value(parts)
                .map(ExpectedRefusal::With)
                .map_err(|error| D::Error::custom(format!("reject: {error}"))),
        }
    }
}

/// The fixtures of a plugin's folder by name, in their order.
pub(super) fn read(folder: &Path) -> Result<Vec<(String, Fixture)>> {
    let folder = folder.join(FOLDER);
    let listing = fs::read_dir(&folder).with_context(|| {
        format!(
            "{}: put cases there; the README of a new plugin says how they look",
            folder.display()
        )
    })?;
    let mut paths: Vec<PathBuf> = Vec::new();
    for entry in listing {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        if path.extension().is_some_and(|ending| ending == "json") {
            paths.push(path);
        }
    }
    ensure!(
        !paths.is_empty(),
        "{} holds no .json: without a case nothing is tested",
        folder.display()
    );
    paths.sort();
    let fixtures = paths.iter().map(|path| {
        let text = fs::read_to_string(path)?;
        let fixture = parse(&text)?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok((name, fixture))
    });
    fixtures
        .zip(&paths)
        .map(|(fixture, path): (Result<_>, _)| fixture.with_context(|| path.display().to_string()))
        .collect()
}

pub(super) fn parse(text: &str) -> Result<Fixture> {
    let fixture: Fixture = serde_json::from_str(text)?;
    if let Expected::Answers(answers) = &fixture.expect {
        ensure!(
            fixture.messages.is_empty()
                && fixture.connects.is_empty()
                && answers.len() == fixture.requests.len(),
            "expect: {} responses for {} requests; there is one for each of the requests, and no messages or connects",
            answers.len(),
            fixture.requests.len()
        );
        return Ok(fixture);
    }
    ensure!(
        fixture.requests.is_empty(),
        "expect: the response to each of the requests, such as {{\"response\":{{\"status\":200}}}}"
    );
    if let Expected::Decisions(decisions) = &fixture.expect {
        ensure!(
            fixture.messages.is_empty() && decisions.len() == fixture.connects.len(),
            "expect: {} decisions for {} connects and {} messages; there is one for each of the connects, and no message",
            decisions.len(),
            fixture.connects.len(),
            fixture.messages.len()
        );
        return Ok(fixture);
    }
    ensure!(
        fixture.connects.is_empty(),
        "expect: the decision on each of the connects, such as {{\"accept\":{{}}}} or {{\"deny\":{{}}}}"
    );
    ensure!(!fixture.messages.is_empty(), "messages: at least one");
    ensure!(
        fixture.uids.is_empty() || fixture.messages.len() == 1,
        "messages: {} of them; the uids of a case are of one message",
        fixture.messages.len()
    );
    if let Expected::Verdicts(verdicts) = &fixture.expect {
        ensure!(
            verdicts.len() == fixture.messages.len(),
            "expect: {} verdicts for {} messages; there is one for each",
            verdicts.len(),
            fixture.messages.len()
        );
    } else {
        let first = &fixture.messages[0];
        let same = |message: &Given| message.channel() == first.channel();
        ensure!(
            fixture.messages.iter().all(same),
            "messages: those of one case of persist-after or webhook are of one channel"
        );
    }
    Ok(fixture)
}

impl Given {
    /// A message of this payload, from nobody in particular.
    pub(super) fn of(payload: &str) -> Given {
        Given {
            from: "ann".to_owned(),
            channel_type: group(),
            channel_id: "room".to_owned(),
            payload: Value::String(payload.to_owned()),
            topic: String::new(),
            expire: 0,
            client_msg_no: None,
            hops: 0,
        }
    }

    pub(super) fn channel(&self) -> ChannelKey {
        ChannelKey::new(&self.channel_id, ChannelKind(self.channel_type))
    }

    /// The payload as it is sent.
    pub(super) fn text(&self) -> String {
        match &self.payload {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    fn draft(&self, at: usize) -> Draft {
        Draft {
            from_uid: Uid::new(&self.from),
            client_msg_no: Arc::from(
                self.client_msg_no
                    .clone()
                    .unwrap_or_else(|| format!("fixture-{at}")),
            ),
            flags: MessageFlags::default(),
            setting: 0,
            expire_s: self.expire,
            topic: Arc::from(self.topic.as_str()),
            payload: Bytes::from(self.text()),
            origin: None,
            subscribers: Arc::from([]),
            attributes: None,
            hops: self.hops,
        }
    }
}

/// The messages as one call of before-send.
pub(super) fn before_send(messages: &[Given]) -> Work {
    Work::BeforeSend {
        drafts: messages
            .iter()
            .enumerate()
            .map(|(at, given)| given.draft(at))
            .collect(),
        wall_ms: WALL_MS,
    }
}

/// The messages as one call of persist-after.
pub(super) fn persist_after(messages: &[Given]) -> Work {
    Work::PersistAfter {
        binding_incarnation: 1,
        incarnation: Incarnation(1),
        messages: committed(messages),
    }
}

/// A message as one call of offline, for these recipients.
pub(super) fn offline(message: &Given, uids: &[String]) -> Work {
    Work::Offline {
        incarnation: Incarnation(1),
        message: Box::new(committed(std::slice::from_ref(message)).remove(0)),
        uids: uids.iter().map(|uid| Uid::new(uid)).collect(),
    }
}

/// The messages as a plugin reads them.
pub(super) fn stored(messages: &[Given]) -> Vec<Arc<Committed>> {
    let channels = messages.iter().map(Given::channel);
    let stored = channels.zip(committed(messages)).map(|(channel, message)| {
        Arc::new(Committed {
            channel,
            incarnation: Incarnation(1),
            message,
        })
    });
    stored.collect()
}

/// The messages as one call of webhook; with uids one message and recipients of it who are offline.
pub(super) fn webhook(messages: &[Given], uids: &[String]) -> Work {
    Work::Webhook {
        window: Window {
            binding_incarnation: 1,
            incarnation: Incarnation(1),
            first: Seq(1),
            last: Seq(messages.len() as u64),
        },
        messages: committed(messages),
        uids: uids.iter().map(|uid| Uid::new(uid)).collect(),
    }
}

fn committed(messages: &[Given]) -> Vec<Message> {
    let committed = |(at, given): (usize, &Given)| Message {
        id: MessageId(MESSAGE_ID + at as i64),
        seq: Seq(1 + at as u64),
        stamp_ms: WALL_MS,
        draft: given.draft(at),
    };
    messages.iter().enumerate().map(committed).collect()
}
