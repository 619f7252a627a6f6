//! The grants of the groups led here: who leads and keeps each channel (M-4, M-5).

use super::Shard;
use super::continuation::{Reading, Then};
use super::groups::{Proposer, ReplyTo};
use super::peer::{Reply, Request, VoterProgress};
use super::step::Step;
use super::turn::Turn;
use crate::channel;
use crate::effect::Effect;
use crate::rows::Miss;
use crate::slot::grants::{Input, NodeLife, Output, Report, Unresolved, World};
use crate::slot::{self, Lane};
use crate::types::{ChannelKey, GroupId};

impl Shard {
    /// Someone wants to know who leads a channel.
    pub(super) fn resolve(&mut self, group: GroupId, channel: ChannelKey, reply_to: ReplyTo) {
        let token = self.next_token();
        if let Some(host) = self.groups.get_mut(&group) {
            host.questions.insert(token, reply_to);
            let input = Input::Resolve {
                token,
                channels: vec![channel],
            };
            self.queue.push_back(Step::Grants { group, input });
        }
    }

    /// Steps the grants of a group.
    pub(super) fn grants_input(
        &mut self,
        turn: &mut Turn<'_>,
        group: GroupId,
        input: Input,
    ) -> Result<(), Miss> {
        let Some(host) = self.groups.get_mut(&group) else {
            return Ok(());
        };
        let mut outputs = Vec::new();
        host.grants.handle(turn.now, input, &turn.rows, &mut outputs)?;
        for output in outputs {
            match output {
                Output::Propose { token, command } => {
                    let name = self.next_token();
                    if let Some(host) = self.groups.get_mut(&group) {
                        host.proposals.insert(name, Proposer::Grants(token));
                    }
                    let input = slot::Input::Propose {
                        token: name,
                        lane: Lane::Reserved,
                        command,
                    };
                    self.queue.push_back(Step::Group { group, input });
                }
                Output::Read { token, request } => {
                    let read = self.reading(Reading::Grants { group, token });
                    turn.out.push(Effect::Read { token: read, request });
                }
                Output::Resolved { token, answers } => {
                    let question = self
                        .groups
                        .get_mut(&group)
                        .and_then(|host| host.questions.remove(&token));
                    let answer = answers.into_iter().next();
                    if let (Some(reply_to), Some((_, answer))) = (question, answer) {
                        let reply = match answer {
                            Ok(meta) => Reply::Resolved(meta),
                            Err(Unresolved::NotLeader { hint }) => Reply::NotLeader { hint },
                            Err(Unresolved::Busy) => Reply::Busy,
                            Err(Unresolved::Unavailable | Unresolved::Fenced) => Reply::Unavailable,
                        };
                        self.reply(turn, reply_to, reply);
                    }
                }
            }
        }
        Ok(())
    }

    /// A replica says what the slot group should know of its voters or epoch.
    pub(super) fn tell_voters(
        &mut self,
        turn: &mut Turn<'_>,
        channel: &ChannelKey,
        output: &channel::Output,
    ) {
        let progress = match *output {
            channel::Output::CaughtUp {
                learner,
                leader_epoch,
            } => VoterProgress::CaughtUp {
                learner: learner.node,
                leader_epoch,
            },
            channel::Output::VoterChangeDone { leader_epoch, .. } => {
                VoterProgress::Committed { leader_epoch }
            }
            channel::Output::NeedEpoch { epoch } => VoterProgress::Withheld {
                node: self.config.node,
                epoch,
            },
            _ => return,
        };
        let request = Request::VoterChange {
            group: self.directory.group_of(channel.slot()),
            channel: channel.clone(),
            progress,
        };
        self.call(turn, request, Then::Nothing);
    }

    /// A replica of a channel says how far a voter change is, or which epoch it needs.
    pub(super) fn on_voter_progress(&mut self, group: GroupId, channel: ChannelKey, progress: VoterProgress) {
        let report = match progress {
            VoterProgress::CaughtUp {
                learner,
                leader_epoch,
            } => Report::CaughtUp {
                learner,
                leader_epoch,
            },
            VoterProgress::Committed { leader_epoch } => Report::BothQuorums { leader_epoch },
            VoterProgress::Withheld { node, epoch } => Report::Withheld { node, epoch },
        };
        self.queue.push_back(Step::Grants {
            group,
            input: Input::Report { channel, report },
        });
    }

    /// The nodes changed: every group's grants hear of it.
    pub(super) fn spread_world(&mut self) {
        let world = self.world();
        let groups: Vec<GroupId> = self.groups.keys().copied().collect();
        for group in groups {
            self.queue.push_back(Step::Grants {
                group,
                input: Input::World(world.clone()),
            });
        }
    }

    /// The nodes as this shard sees them. New channels are placed only when enough nodes are known that an acknowledged
    /// message is on a majority of the copies from the first byte on (GA-3).
    fn world(&self) -> World {
        let mut world = World {
            replace_after: self.config.limits.replace_after,
            ..World::default()
        };
        for (node, state, since) in self.liveness.nodes() {
            if let Some(boots) = state.boots {
                let dead_since = (!state.alive).then_some(since);
                world.nodes.insert(node, NodeLife { boots, dead_since });
            }
        }
        let copies = usize::from(self.config.copies).min(self.config.nodes.len());
        world.copies = u8::try_from(copies).unwrap_or(u8::MAX);
        if world.nodes.len() > copies / 2 {
            world.placeable = self.config.nodes.iter().copied().collect();
        }
        world
    }
}
