//! Calls that are made one after the other: batches of messages of one channel, or connections.

use super::connects::Connecting;
use super::fixtures::{self, Fixture, Given};
use penstock_core::hooks::call::Work;
use penstock_core::types::ChannelKey;

/// The hook whose calls are about connections.
pub(super) const CONNECT: &str = "connect";

/// One call.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    pub(super) channel: Option<ChannelKey>,
    pub(super) work: Work,
    /// How many messages or connections come before it in its case.
    pub(super) at: usize,
}

/// The calls of a fixture.
pub(super) fn of_fixture(hook: &str, fixture: &Fixture) -> Vec<Turn> {
    if hook != CONNECT {
        return of_messages(hook, &fixture.messages);
    }
    let turn = |(at, connecting): (usize, &Connecting)| Turn {
        channel: None,
        work: connecting.work(),
        at,
    };
    fixture.connects.iter().enumerate().map(turn).collect()
}

/// The calls for messages: those of one channel that follow each other are one batch. A gate gets each as somebody's token.
pub(super) fn of_messages(hook: &str, messages: &[Given]) -> Vec<Turn> {
    if hook == CONNECT {
        let turn = |(at, given): (usize, &Given)| Turn {
            channel: None,
            work: Connecting::with_token(&given.text()).work(),
            at,
        };
        return messages.iter().enumerate().map(turn).collect();
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

fn work(hook: &str, messages: &[Given]) -> Work {
    match hook {
        "persist-after" => fixtures::persist_after(messages),
        "webhook" => fixtures::webhook(messages),
        _ => fixtures::before_send(messages),
    }
}
