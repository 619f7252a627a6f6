//! Dead letters of a binding: listed, handed to the plugin once more, removed.

use super::{Job, answer};
use crate::admin::{Answer, Failure, LettersAsk};
use crate::plugins::{DeadLetter, LetterName, letters_slot};
use crate::rows::{Key, Table};
use crate::shard::Shard;
use crate::shard::continuation::Then;
use crate::shard::peer::{Redelivery, Reply, Request};
use crate::shard::turn::Turn;
use crate::slot::{command, keys, rows};
use crate::types::{Incarnation, LeaderEpoch, Seq, Token};
use bytes::Bytes;
use penstock_wire::storage::v1;
use std::collections::VecDeque;
use std::sync::Arc;

/// Letters of one page, and of one removal.
const LETTERS_AT_ONCE: usize = 1_000;

/// What is done about dead letters.
#[derive(Debug)]
pub(in crate::shard) enum LettersJob {
    /// A page is read.
    List,
    /// The plugin has the message of one.
    Replay { binding: Arc<str>, name: LetterName },
    /// The plugin has messages of a range.
    Range,
}

impl Shard {
    /// Lists, replays or removes.
    pub(super) fn ask_letters(&mut self, turn: &mut Turn<'_>, ask: Token, wanted: LettersAsk) {
        match wanted {
            LettersAsk::List {
                binding,
                after,
                limit,
            } => {
                if !(1..=LETTERS_AT_ONCE).contains(&(limit as usize)) {
                    return refuse(turn, ask, "`limit` must be from 1 to 1000");
                }
                let slot = letters_slot(&binding);
                self.keep_ask(turn, ask, Job::Letters(LettersJob::List));
                let request = Request::Page {
                    group: self.directory.group_of(slot),
                    slot,
                    table: Table::DeadLetter,
                    prefix: keys::letters_prefix(&binding),
                    after: after.and_then(|name| row_key(keys::letter(&binding, name))),
                    rows_max: limit,
                };
                self.call(turn, request, Then::Ask { ask });
            }
            LettersAsk::Replay {
                binding,
                channel,
                name,
            } => {
                let request = Request::Redeliver {
                    channel,
                    incarnation: Incarnation(0),
                    leader_epoch: LeaderEpoch(0),
                    binding: Arc::clone(&binding),
                    what: Redelivery::Letter(name),
                };
                self.keep_ask(turn, ask, Job::Letters(LettersJob::Replay { binding, name }));
                self.call(turn, request, Then::Ask { ask });
            }
            LettersAsk::Range {
                binding,
                channel,
                from,
                through,
            } => {
                if from == Seq(0) || from > through {
                    return refuse(turn, ask, "`from` must be at least 1 and at most `to`");
                }
                let request = Request::Redeliver {
                    channel,
                    incarnation: Incarnation(0),
                    leader_epoch: LeaderEpoch(0),
                    binding,
                    what: Redelivery::Range(from, through),
                };
                self.keep_ask(turn, ask, Job::Letters(LettersJob::Range));
                self.call(turn, request, Then::Ask { ask });
            }
            LettersAsk::Drop { binding, names } => {
                if names.len() > LETTERS_AT_ONCE {
                    return refuse(turn, ask, "more than 1000 dead letters: remove them in parts");
                }
                self.drop_letters(turn, ask, &binding, &names);
            }
        }
    }

    fn drop_letters(&mut self, turn: &mut Turn<'_>, ask: Token, binding: &str, names: &[LetterName]) {
        let drop = command::drop_dead_letters(turn.now.wall_ms, binding, names);
        self.run_commands(turn, ask, VecDeque::from([(letters_slot(binding), drop)]));
    }

    /// A page came, or the plugin has answered.
    pub(super) fn on_letters_reply(
        &mut self,
        turn: &mut Turn<'_>,
        ask: Token,
        job: LettersJob,
        reply: Reply,
    ) {
        match (job, reply) {
            (LettersJob::List, Reply::Page { rows, more }) => {
                let letters: Option<Vec<DeadLetter>> = rows.iter().map(|(_, row)| letter(row)).collect();
                let answered = match letters {
                    Some(letters) => Answer::DeadLetters { letters, more },
                    None => unavailable("a stored dead letter cannot be read"),
                };
                answer(turn, ask, answered);
            }
            (LettersJob::Replay { binding, name }, Reply::Redelivered(Some(_))) => {
                self.drop_letters(turn, ask, &binding, &[name]);
            }
            (LettersJob::Range, Reply::Redelivered(Some(through))) => {
                answer(turn, ask, Answer::Replayed { through });
            }
            (LettersJob::Range, Reply::Redelivered(None)) => {
                let text = "nothing was replayed: there are no such messages, no webhook of this name is bound to the channel \
                            and enabled, or its endpoint did not take them (see the broker's log)";
                answer(turn, ask, Answer::Failed(Failure::Conflict(text.to_owned())));
            }
            (LettersJob::Replay { .. }, Reply::Redelivered(None)) => {
                let text = "the message is gone, nothing is bound to its channel, or the plugin failed again: the dead letter stays";
                answer(turn, ask, Answer::Failed(Failure::Conflict(text.to_owned())));
            }
            _ => answer(turn, ask, unavailable("no answer about dead letters")),
        }
    }
}

fn letter(row: &[u8]) -> Option<DeadLetter> {
    rows::read_letter(&rows::decode::<v1::DeadLetter>(row).ok()?).ok()
}

fn row_key(key: Key) -> Option<Bytes> {
    match key {
        Key::Slot { key, .. } => Some(key),
        _ => None,
    }
}

fn refuse(turn: &mut Turn<'_>, ask: Token, text: &str) {
    answer(turn, ask, Answer::Failed(Failure::Invalid(text.to_owned())));
}

fn unavailable(text: &str) -> Answer {
    Answer::Failed(Failure::Unavailable(text.to_owned()))
}
