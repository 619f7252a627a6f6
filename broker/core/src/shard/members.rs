//! Member pages for delivery, the revision first, then the page (PC-2), and for post-commit consumers.

use super::Shard;
use super::continuation::Then;
use super::peer::{Reply, Request, RowKey};
use super::step::Step;
use super::turn::Turn;
use crate::admin::List;
use crate::audience::MembersPage;
use crate::delivery::Input;
use crate::hooks::offline;
use crate::slot::{keys, rows};
use crate::types::{ChannelKey, Seq, Token, Uid};
use penstock_wire::storage::v1;

/// How far the read of a page is.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// The revision is asked for.
    Revision {
        of: ChannelKey,
        known: Option<u64>,
        after: Option<Uid>,
        members_max: u32,
    },
    /// The page is asked for.
    Page { revision: u64 },
}

/// Who reads, under its own name for the read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reader {
    /// Delivery.
    Delivery(Token),
    /// A post-commit consumer that is told of offline recipients.
    Offline(Token),
}

impl Shard {
    /// Somebody wants a page of members.
    pub(super) fn want_members(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        reader: Reader,
        stage: Stage,
    ) {
        let Stage::Revision { of, .. } = &stage else {
            return;
        };
        let group = self.directory.group_of(of.slot());
        let keys: Vec<RowKey> = super::facts::row_key(&keys::stats(of)).into_iter().collect();
        let then = Then::Members {
            channel: channel.clone(),
            reader,
            stage,
        };
        self.call(turn, Request::Rows { group, keys }, then);
    }

    /// Reads a page of the members of a channel, which had this revision.
    pub(super) fn read_members(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        reader: Reader,
        (of, revision): (&ChannelKey, u64),
        (after, members_max): (Option<Uid>, u32),
    ) {
        let request = Request::Page {
            group: self.directory.group_of(of.slot()),
            slot: of.slot(),
            table: keys::list_table(List::Subscribers),
            prefix: keys::channel_prefix(of),
            after: after.and_then(|uid| super::facts::inner_key(&keys::listed(of, List::Subscribers, &uid))),
            rows_max: members_max,
        };
        let then = Then::Members {
            channel: channel.clone(),
            reader,
            stage: Stage::Page { revision },
        };
        self.call(turn, request, then);
    }

    /// The revision or the page came.
    pub(super) fn on_members(
        &mut self,
        turn: &mut Turn<'_>,
        channel: ChannelKey,
        reader: Reader,
        stage: Stage,
        reply: Option<Reply>,
    ) {
        let page = match (stage, reply) {
            (
                Stage::Revision {
                    of,
                    known,
                    after,
                    members_max,
                },
                Some(Reply::Rows(found)),
            ) => {
                let stats = found
                    .first()
                    .and_then(Option::as_ref)
                    .and_then(|row| rows::decode::<v1::ChannelStats>(row).ok());
                let revision = stats.map_or(0, |stats| stats.revision);
                if known != Some(revision) {
                    let of = (&of, revision);
                    return self.read_members(turn, &channel, reader, of, (after, members_max));
                }
                MembersPage::Unchanged
            }
            (Stage::Page { revision }, Some(Reply::Page { rows: found, more })) => {
                let members = found
                    .iter()
                    .filter_map(|(key, value)| member(key, value))
                    .collect();
                MembersPage::Page {
                    revision,
                    members,
                    more,
                }
            }
            _ => MembersPage::Failed,
        };
        match reader {
            Reader::Delivery(token) => self.queue.push_back(Step::Delivery {
                channel,
                input: Input::Members { token, page },
            }),
            Reader::Offline(token) => {
                self.tell_offline(&channel, offline::Input::Members { token, page });
            }
        }
    }
}

fn member(key: &[u8], value: &[u8]) -> Option<(Uid, Seq)> {
    let (_, uid) = keys::read_channel_uid(key)?;
    let row = rows::decode::<v1::Subscriber>(value).ok()?;
    Some((uid, Seq(row.join_seq)))
}
