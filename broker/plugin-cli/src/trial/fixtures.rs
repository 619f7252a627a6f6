//! Fixtures: what a plugin is given, and what it must answer.

use super::channels::ExpectedPublish;
use super::connects::{Connecting, ExpectedDecision};
use super::given::{Given, Scene, Statuses};
use super::places::Exchange;
use super::routes::{Asking, ExpectedAnswer};
use anyhow::{Context as _, Result, ensure};
use penstock_core::message::Refusal;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The folder of fixtures.
pub(super) const FOLDER: &str = "fixtures";
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
    /// Of webhook for `user.onlinestatus`, in place of messages: users that came or went.
    pub(super) statuses: Option<Statuses>,
    /// What the plugin sees as the time of what is not stored yet, ms since 1970.
    time_ms: Option<u64>,
    /// Which creation of the channel it is: a part of event ids.
    incarnation: Option<u64>,
    /// What must come of it; without it any answer will do, but there must be one.
    pub(super) expect: Option<Expected>,
}

impl Fixture {
    /// What its calls have in common.
    pub(super) fn scene(&self) -> Scene {
        let usual = Scene::default();
        Scene {
            time_ms: self.time_ms.unwrap_or(usual.time_ms),
            incarnation: self.incarnation.unwrap_or(usual.incarnation),
        }
    }

    /// Whether a payload or body in it is one that was not kept.
    pub(super) fn stands_in(&self) -> bool {
        self.messages.iter().any(Given::stands_in) || self.requests.iter().any(Asking::stands_in)
    }
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
    let Fixture {
        messages,
        connects,
        requests,
        statuses,
        uids,
        ..
    } = &fixture;
    let kinds = [
        !messages.is_empty(),
        !connects.is_empty(),
        !requests.is_empty(),
        statuses.is_some(),
    ];
    let kinds = kinds.into_iter().filter(|is_there| *is_there).count();
    ensure!(
        kinds <= 1,
        "a case has messages, connects, requests or statuses: one of them"
    );
    match &fixture.expect {
        Some(Expected::Answers(answers)) => ensure!(
            answers.len() == requests.len(),
            "expect: {} responses for {} requests; there is one for each of the requests, and no messages or connects",
            answers.len(),
            requests.len()
        ),
        Some(Expected::Decisions(decisions)) => ensure!(
            decisions.len() == connects.len(),
            "expect: {} decisions for {} connects and {} messages; there is one for each of the connects, and no message",
            decisions.len(),
            connects.len(),
            messages.len()
        ),
        Some(Expected::Verdicts(_) | Expected::Outcome(_)) => {
            ensure!(
                requests.is_empty(),
                "expect: the response to each of the requests, such as {{\"response\":{{\"status\":200}}}}"
            );
            ensure!(
                connects.is_empty(),
                "expect: the decision on each of the connects, such as {{\"accept\":{{}}}} or {{\"deny\":{{}}}}"
            );
        }
        None => {}
    }
    ensure!(kinds == 1, "messages: at least one");
    ensure!(
        uids.is_empty() || messages.len() == 1,
        "messages: {} of them; the uids of a case are of one message",
        messages.len()
    );
    check_messages(&fixture)?;
    Ok(fixture)
}

fn check_messages(fixture: &Fixture) -> Result<()> {
    let messages = &fixture.messages;
    match &fixture.expect {
        Some(Expected::Verdicts(verdicts)) => ensure!(
            verdicts.len() == messages.len(),
            "expect: {} verdicts for {} messages; there is one for each",
            verdicts.len(),
            messages.len()
        ),
        Some(Expected::Outcome(_)) => ensure!(
            messages
                .windows(2)
                .all(|pair| pair[0].channel() == pair[1].channel()),
            "messages: those of one case of persist-after or webhook are of one channel"
        ),
        Some(Expected::Answers(_) | Expected::Decisions(_)) | None => {}
    }
    Ok(())
}
