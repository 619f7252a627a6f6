//! The consumers of committed records that move by a cursor: their wiring, and the membership rows of person channels.

use super::Shard;
use super::continuation::Then;
use super::peer::{Reply, Request};
use super::reads::Purpose;
use super::step::Step;
use super::turn::Turn;
use crate::channel;
use crate::hooks::{self, cursors};
use crate::message::Record;
use crate::rows::Miss;
use crate::slot::Lane;
use crate::slot::command::{self, MembershipChange};
use crate::types::{ChannelKey, ChannelKind, Seq, Token, Uid};
use bytes::Bytes;
use penstock_wire::channel_id;

impl Shard {
    /// Steps a channel's post-commit cursors.
    pub(super) fn cursors_input(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        input: cursors::Input,
    ) -> Result<(), Miss> {
        let Some(active) = self
            .channels
            .get_mut(channel)
            .and_then(|host| host.active.as_deref_mut())
        else {
            return Ok(());
        };
        let mut outputs = Vec::new();
        active.cursors.handle(turn.now, input, &turn.rows, &mut outputs)?;
        self.cursor_outputs(turn, channel, outputs);
        self.note_deadline(channel);
        Ok(())
    }

    pub(super) fn cursor_outputs(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        outputs: Vec<cursors::Output>,
    ) {
        for output in outputs {
            match output {
                cursors::Output::Read { token, range } => {
                    self.read_range(channel, range, Purpose::Cursors { token });
                }
                cursors::Output::Fix {
                    token,
                    consumer,
                    cursor,
                } => self.tell_replica(
                    channel,
                    channel::Input::FixCursor {
                        token,
                        consumer: Bytes::copy_from_slice(consumer.as_bytes()),
                        value: cursor.encode(),
                    },
                ),
                cursors::Output::Narrowed { token } => self.change_keys_of(turn, channel, token),
                cursors::Output::Consume {
                    token,
                    consumer,
                    records,
                } => self.consume(turn, channel, (token, &*consumer), records),
                cursors::Output::Moved { consumer, cursor } => {
                    let consumer = Bytes::copy_from_slice(consumer.as_bytes());
                    self.tell_replica(
                        channel,
                        channel::Input::Cursor {
                            consumer,
                            value: cursor.encode(),
                        },
                    );
                }
                cursors::Output::DeadLetter(given_up) => self.bury(turn, channel, &given_up),
                cursors::Output::Skipped { .. } => self.counters.skipped += 1,
            }
        }
    }

    /// Has the effect of a run done.
    fn consume(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        (token, consumer): (Token, &str),
        records: Vec<Record>,
    ) {
        if consumer == hooks::MEMBERSHIP {
            let last = records.last().map_or(Seq(0), |record| record.seq);
            self.write_membership(turn, channel, token, last);
        } else {
            self.hand_to_plugin(turn, channel, (token, consumer), records);
        }
    }

    /// The two membership rows of a person channel, at its first persisted message (PC-2). Writing them again changes
    /// nothing.
    fn write_membership(&mut self, turn: &mut Turn<'_>, channel: &ChannelKey, token: Token, through: Seq) {
        let members: Vec<Uid> = if channel.kind == ChannelKind::PERSON && !channel_id::is_command(&channel.id)
        {
            channel_id::person_members(&channel.id).map_or_else(
                |_| Vec::new(),
                |(left, right)| {
                    if left == right {
                        vec![Uid::new(left)]
                    } else {
                        vec![Uid::new(left), Uid::new(right)]
                    }
                },
            )
        } else {
            Vec::new()
        };
        if members.is_empty() {
            let input = cursors::Input::Done { token, through };
            self.queue.push_back(Step::Cursors {
                channel: channel.clone(),
                input,
            });
            return;
        }
        let Some(active) = self.active(channel) else {
            return;
        };
        active.memberships.insert(token, (members.len(), through, true));
        for uid in members {
            let change = MembershipChange::State {
                joined: true,
                join_seq: Seq(1),
                revision: 1,
            };
            let command = command::change_membership(turn.now.wall_ms, &uid, channel, change);
            let group = self.directory.group_of(uid.slot());
            let then = Then::Membership {
                channel: channel.clone(),
                token,
            };
            self.call(
                turn,
                Request::Propose {
                    group,
                    lane: Lane::Background,
                    command,
                },
                then,
            );
        }
    }

    /// One of the rows is written, or not.
    pub(super) fn on_membership_written(
        &mut self,
        channel: &ChannelKey,
        token: Token,
        reply: Option<&Reply>,
    ) {
        let Some(active) = self.active(channel) else {
            return;
        };
        let Some((left, through, good)) = active.memberships.get_mut(&token) else {
            return;
        };
        *left -= 1;
        *good &= matches!(reply, Some(Reply::Proposed(Ok(_))));
        if *left > 0 {
            return;
        }
        let (through, good) = (*through, *good);
        active.memberships.remove(&token);
        let input = if good {
            cursors::Input::Done { token, through }
        } else {
            cursors::Input::Failed {
                token,
                failure: cursors::Failure::Retry {
                    after: None,
                    cause: cursors::Cause::Asked,
                },
            }
        };
        self.queue.push_back(Step::Cursors {
            channel: channel.clone(),
            input,
        });
    }
}
