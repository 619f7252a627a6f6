//! Member pages for delivery: the revision first, then the page (PC-2).

use super::Shard;
use super::continuation::Then;
use super::peer::{Reply, Request, RowKey};
use super::step::Step;
use super::turn::Turn;
use crate::admin::List;
use crate::delivery::{Input, MembersPage};
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

impl Shard {
    /// Delivery wants a page of members.
    pub(super) fn want_members(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        token: Token,
        stage: Stage,
    ) {
        let Stage::Revision { of, .. } = &stage else {
            return;
        };
        let group = self.directory.group_of(of.slot());
        let keys: Vec<RowKey> = super::facts::row_key(&keys::stats(of)).into_iter().collect();
        let then = Then::Members {
            channel: channel.clone(),
            token,
            stage,
        };
        self.call(turn, Request::Rows { group, keys }, then);
    }

    /// The revision or the page came.
    pub(super) fn on_members(
        &mut self,
        turn: &mut Turn<'_>,
        channel: ChannelKey,
        token: Token,
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
                if known == Some(revision) {
                    MembersPage::Unchanged
                } else {
                    let request = Request::Page {
                        group: self.directory.group_of(of.slot()),
                        slot: of.slot(),
                        table: keys::list_table(List::Subscribers),
                        prefix: keys::channel_prefix(&of),
                        after: after.and_then(|uid| {
                            super::facts::inner_key(&keys::listed(&of, List::Subscribers, &uid))
                        }),
                        rows_max: members_max,
                    };
                    let then = Then::Members {
                        channel,
                        token,
                        stage: Stage::Page { revision },
                    };
                    return self.call(turn, request, then);
                }
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
        self.queue.push_back(Step::Delivery {
            channel,
            input: Input::Members { token, page },
        });
    }
}

fn member(key: &[u8], value: &[u8]) -> Option<(Uid, Seq)> {
    let (_, uid) = keys::read_channel_uid(key)?;
    let row = rows::decode::<v1::Subscriber>(value).ok()?;
    Some((uid, Seq(row.join_seq)))
}
