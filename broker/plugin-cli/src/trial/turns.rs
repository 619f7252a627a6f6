//! Calls that are made one after the other: batches of messages of one channel, connections, or requests over HTTP.

use super::connects::Connecting;
use super::fixtures::Fixture;
use super::given::{self, Given, Scene};
use super::routes::Asking;
use penstock_core::hooks::call::Work;
use penstock_core::types::ChannelKey;

/// The hook whose calls are about connections.
pub(super) const CONNECT: &str = "connect";
/// The hook whose calls are about requests over HTTP.
pub(super) const ROUTE: &str = "route";
/// The hook whose calls are about one message and recipients of it.
pub(super) const OFFLINE: &str = "offline";
/// Who is offline in a case that does not say it.
pub(super) const ABSENT: &str = "bob";

/// One call.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) channel: Option<ChannelKey>,
    pub(super) work: Work,
    /// How many messages, connections or requests come before it in its case.
    pub(super) at: usize,
}

impl Turn {
    /// A call that is about no channel.
    pub(super) fn alone((at, work): (usize, Work)) -> Turn {
        Turn {
            channel: None,
            work,
            at,
        }
    }
}

/// The calls of a fixture.
pub(super) fn of_fixture(hook: &str, fixture: &Fixture) -> Vec<Turn> {
    let scene = fixture.scene();
    let (connects, requests) = (fixture.connects.iter(), fixture.requests.iter());
    let work: Vec<Work> = match hook {
        CONNECT => connects.map(|connecting| connecting.work(scene)).collect(),
        ROUTE => requests.map(|asking| asking.work(scene)).collect(),
        _ if fixture.statuses.is_some() => {
            let statuses = fixture.statuses.iter();
            statuses.map(|statuses| statuses.work(scene)).collect()
        }
        _ if !fixture.uids.is_empty() => return of_pages(hook, &fixture.messages, &fixture.uids, scene),
        _ => return of_messages(hook, &fixture.messages, scene),
    };
    work.into_iter().enumerate().map(Turn::alone).collect()
}

/// The calls for messages: those of one channel that follow each other are one batch. A gate gets each as somebody's token, a
/// router as the body of a request.
pub(super) fn of_messages(hook: &str, messages: &[Given], scene: Scene) -> Vec<Turn> {
    let alone: Option<fn(&str, Scene) -> Work> = match hook {
        CONNECT => Some(|text, scene| Connecting::with_token(text).work(scene)),
        ROUTE => Some(|text, scene| Asking::with_body(text).work(scene)),
        _ => None,
    };
    if let Some(work) = alone {
        let works = messages.iter().map(|given| work(&given.text(), scene));
        return works.enumerate().map(Turn::alone).collect();
    }
    if hook == OFFLINE {
        return of_pages(hook, messages, &[ABSENT.to_owned()], scene);
    }
    let mut at = 0;
    let batches = messages.chunk_by(|left, right| left.channel() == right.channel());
    batches
        .map(|batch| {
            let turn = Turn {
                channel: Some(batch[0].channel().clone()),
                work: work(hook, batch, scene),
                at,
            };
            at += batch.len();
            turn
        })
        .collect()
}

/// A call for each message, with these recipients.
fn of_pages(hook: &str, messages: &[Given], uids: &[String], scene: Scene) -> Vec<Turn> {
    let turn = |(at, message): (usize, &Given)| Turn {
        channel: Some(message.channel().clone()),
        work: if hook == OFFLINE {
            given::offline(message, uids, scene)
        } else {
            given::webhook(std::slice::from_ref(message), uids, scene)
        },
        at,
    };
    messages.iter().enumerate().map(turn).collect()
}

fn work(hook: &str, messages: &[Given], scene: Scene) -> Work {
    match hook {
        "persist-after" => given::persist_after(messages, scene),
        "webhook" => given::webhook(messages, &[], scene),
        _ => given::before_send(messages, scene),
    }
}
