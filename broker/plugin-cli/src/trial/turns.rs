//! Calls that are made one after the other: batches of messages of one channel, connections, or requests over HTTP.

use super::connects::Connecting;
use super::fixtures::{self, Fixture, Given};
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
const ABSENT: &str = "bob";

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
    let work: Vec<Work> = match hook {
        CONNECT => fixture.connects.iter().map(Connecting::work).collect(),
        ROUTE => fixture.requests.iter().map(Asking::work).collect(),
        _ if !fixture.uids.is_empty() => return of_pages(hook, &fixture.messages, &fixture.uids),
        _ => return of_messages(hook, &fixture.messages),
    };
    work.into_iter().enumerate().map(Turn::alone).collect()
}

/// The calls for messages: those of one channel that follow each other are one batch. A gate gets each as somebody's token, a
/// router as the body of a request.
pub(super) fn of_messages(hook: &str, messages: &[Given]) -> Vec<Turn> {
    let alone: Option<fn(&str) -> Work> = match hook {
        CONNECT => Some(|text| Connecting::with_token(text).work()),
        ROUTE => Some(|text| Asking::with_body(text).work()),
        _ => None,
    };
    if let Some(work) = alone {
        let works = messages.iter().map(|given| work(&given.text()));
        return works.enumerate().map(Turn::alone).collect();
    }
    if hook == OFFLINE {
        return of_pages(hook, messages, &[ABSENT.to_owned()]);
    }
    let mut at = 0;
    let batches = messages.chunk_by(|left, right| left.channel() == right.channel());
    batches
        .map(|batch| {
            let turn = Turn {
                channel: Some(batch[0].channel()),
                work: work(hook, batch),
                at,
            };
            at += batch.len();
            turn
        })
        .collect()
}

/// A call for each message, with these recipients.
fn of_pages(hook: &str, messages: &[Given], uids: &[String]) -> Vec<Turn> {
    let turn = |(at, given): (usize, &Given)| Turn {
        channel: Some(given.channel()),
        work: if hook == OFFLINE {
            fixtures::offline(given, uids)
        } else {
            fixtures::webhook(std::slice::from_ref(given), uids)
        },
        at,
    };
    messages.iter().enumerate().map(turn).collect()
}

fn work(hook: &str, messages: &[Given]) -> Work {
    match hook {
        "persist-after" => fixtures::persist_after(messages),
        "webhook" => fixtures::webhook(messages, &[]),
        _ => fixtures::before_send(messages),
    }
}
