//! Blows that wait for their moment: between a write and its sync, at a promise, at the start of an epoch, at a vote, in the
//! middle of a snapshot. Which moment and which blow is drawn; nothing is scripted (M-20).

use super::inject::Loss;
use super::{Happening, World};
use crate::rng::{Rng, Stream};
use penstock_core::channel::Body;
use penstock_core::effect::Event;
use penstock_core::presence;
use penstock_core::rows::Instance;
use penstock_core::shard::{Peer, Request};
use penstock_core::slot::{self, Lane, claims};
use penstock_core::types::Route;
use std::time::Duration;

/// Blows that may wait at once.
const WAITING_MAX: usize = 4;

/// What a blow waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// A batch is written and not synced.
    Written(Instance),
    /// A leader-elect asks for a promise.
    Asked,
    /// A voter answers with its promise.
    Promised,
    /// Records leave for a follower.
    Records,
    /// A follower says where it stands.
    Progress,
    /// A Raft vote is asked for or given.
    Vote,
    /// A chunk of a snapshot leaves.
    Chunk,
    /// An epoch is led for the first time.
    Opened,
    /// Metadata with other voters are acted on.
    Voters,
    /// The first epoch of a channel is led.
    Born,
    /// The effect of a committed record leaves for the group that has to keep it.
    Effect,
    /// A session is registered at the authority of its user.
    Registered,
}

const OCCASIONS: &[Occasion] = &[
    Occasion::Written(Instance::Meta),
    Occasion::Written(Instance::Meta),
    Occasion::Written(Instance::Data),
    Occasion::Written(Instance::Data),
    Occasion::Asked,
    Occasion::Promised,
    Occasion::Records,
    Occasion::Progress,
    Occasion::Vote,
    Occasion::Chunk,
    Occasion::Opened,
    Occasion::Opened,
    Occasion::Voters,
];

/// What happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blow {
    /// The node that acts loses power.
    Crash,
    /// The node that it deals with does.
    CrashOther,
    /// Both do.
    CrashBoth,
    /// Nothing comes to it or from it for a while.
    Mute(Duration),
    /// No message of a channel log does.
    MuteLogs(Duration),
    /// What just leaves arrives once more, after the session that it speaks of has ended.
    Again,
    /// No request and no reply passes between the two for a while, though they hear each other.
    MuteCalls(Duration),
}

/// A registration that arrives once more when its session is over.
#[derive(Debug)]
pub(super) struct Kept {
    route: Route,
    node: usize,
    shard: u16,
    event: Event,
}

/// A blow that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ambush {
    occasion: Occasion,
    /// Occasions that it still lets pass.
    passes: u64,
    blow: Blow,
}

impl Ambush {
    pub(super) fn draw(rng: &mut Rng) -> Ambush {
        let occasion = rng.pick(OCCASIONS);
        let passes = match occasion {
            Occasion::Written(_) | Occasion::Records | Occasion::Progress => rng.below(40),
            Occasion::Chunk => rng.below(6),
            _ => rng.below(3),
        };
        let while_ms = rng.pick(&[(100, 590), (500, 3_000)]);
        let time = rng.time(
            Duration::from_millis(while_ms.0),
            Duration::from_millis(while_ms.1),
        );
        let blow = match occasion {
            // Nothing but a crash shows that a write is not durable.
            Occasion::Written(_) => Blow::Crash,
            _ => rng.pick(&[
                Blow::Crash,
                Blow::Crash,
                Blow::CrashOther,
                Blow::CrashBoth,
                Blow::Mute(time),
                Blow::MuteLogs(time),
            ]),
        };
        Ambush {
            occasion,
            passes,
            blow,
        }
    }
}

/// The blows that wait from the beginning of a run, for what happens but once to a channel: its first epoch, of which the
/// followers may learn late, and the effect of its first record. A stream of their own: what is drawn here moves nothing else.
pub(super) fn first(seed: u64) -> Vec<Ambush> {
    let rng = &mut Rng::new(seed, Stream::First);
    let mut ambushes = Vec::new();
    for occasion in [Occasion::Born, Occasion::Effect, Occasion::Registered] {
        let (passes, waits) = (rng.below(6), rng.permille(200));
        let time = rng.time(Duration::from_millis(700), Duration::from_secs(9));
        let blow = match occasion {
            Occasion::Born => Blow::MuteLogs(time),
            Occasion::Registered => Blow::Again,
            _ => Blow::MuteCalls(time),
        };
        if waits {
            ambushes.push(Ambush {
                occasion,
                passes,
                blow,
            });
        }
    }
    ambushes
}

impl World {
    /// One more blow waits for its moment.
    pub(super) fn lay_ambush(&mut self) {
        if self.ambushes.len() < WAITING_MAX {
            let ambush = Ambush::draw(&mut self.faults.rng);
            self.ambushes.push(ambush);
        }
    }

    /// A batch was written: says whether the node has lost power over it.
    pub(super) fn ambushed_write(&mut self, node: usize, instance: Instance) {
        if self.sprung(Occasion::Written(instance)).is_some() {
            self.coverage.fault("crash before a sync", 1);
            self.strike(Blow::Crash, node, node);
        }
    }

    /// A message leaves for another node.
    pub(super) fn ambushed_message(&mut self, from: usize, to: usize, message: &Peer) {
        if self.ambushes.is_empty() && self.kept.is_none() {
            return;
        }
        match message {
            Peer::Exchange { exchange, .. } => {
                for (_, message) in &exchange.messages {
                    let occasion = match &message.body {
                        Body::Promise { .. } => Occasion::Asked,
                        Body::Promised(_) => Occasion::Promised,
                        Body::Replicate(replicate) if !replicate.records.is_empty() => Occasion::Records,
                        Body::Progress(_) => Occasion::Progress,
                        _ => continue,
                    };
                    self.ambushed(occasion, from, to);
                }
            }
            Peer::Request {
                request:
                    Request::Propose {
                        lane: Lane::Background,
                        ..
                    },
                ..
            } => self.ambushed(Occasion::Effect, from, to),
            Peer::Presence { .. } => self.ambushed_presence(from, to, message),
            Peer::Group {
                message: slot::Message::Chunk { .. },
                ..
            } => self.ambushed(Occasion::Chunk, from, to),
            Peer::Group { message, .. }
                if claims::claim(message).is_some_and(|claim| claim.vote.is_some()) =>
            {
                self.ambushed(Occasion::Vote, from, to);
            }
            _ => {}
        }
    }

    /// Something happens that a blow may wait for; it falls when the step is over. Calls are muted at once: what is just being
    /// sent is lost too.
    pub(super) fn ambushed(&mut self, occasion: Occasion, node: usize, other: usize) {
        match self.sprung(occasion) {
            Some(blow @ Blow::MuteCalls(_)) => self.strike(blow, node, other),
            Some(blow) => self.agenda.put(self.now, Happening::Blow { blow, node, other }),
            None => {}
        }
    }

    /// A registration leaves: it may be kept.
    fn ambushed_presence(&mut self, from: usize, to: usize, message: &Peer) {
        let Peer::Presence { requests, .. } = message else {
            return;
        };
        for request in requests {
            if let presence::Request::Register { route, .. } = request
                && self.sprung(Occasion::Registered).is_some()
            {
                self.kept = Some(Kept {
                    route: route.clone(),
                    node: to,
                    shard: message.shard(self.settings.shards),
                    event: Event::Peer {
                        from: self.nodes[from].id,
                        message: message.clone(),
                    },
                });
            }
        }
    }

    /// A message arrives at `at`: when it unregisters a session whose registration was kept, that one comes once more.
    pub(super) fn comes_again(&mut self, message: &Peer, at: Duration) {
        let Peer::Presence { requests, .. } = message else {
            return;
        };
        for request in requests {
            if let presence::Request::Unregister { route, .. } = request
                && let Some(kept) = self.kept.take_if(|kept| kept.route == *route)
            {
                let rng = &mut self.faults.rng;
                let again = at + rng.time(Duration::from_secs(1), Duration::from_secs(5));
                self.clients.repeated = Some((kept.route.uid, again));
                self.coverage.fault("registration after the end", 1);
                self.agenda.put(
                    again,
                    Happening::Arrive {
                        node: kept.node,
                        life: None,
                        shard: kept.shard,
                        event: kept.event,
                    },
                );
            }
        }
    }

    fn sprung(&mut self, occasion: Occasion) -> Option<Blow> {
        let at = self
            .ambushes
            .iter()
            .position(|ambush| ambush.occasion == occasion)?;
        if self.ambushes[at].passes > 0 {
            self.ambushes[at].passes -= 1;
            return None;
        }
        Some(self.ambushes.swap_remove(at).blow)
    }

    /// The blow falls.
    pub(super) fn strike(&mut self, blow: Blow, node: usize, other: usize) {
        if self.phase != super::phases::Phase::Chaos {
            return;
        }
        if self.trace {
            eprintln!("{:>12.6} blow: {blow:?} {node} {other}", self.now.as_secs_f64());
        }
        self.mix(node as u64 + 77);
        let until = |time: Duration| self.now + time;
        match blow {
            Blow::Crash => self.crash_hard(node),
            Blow::CrashOther => self.crash_hard(other),
            Blow::CrashBoth => {
                self.crash_hard(node);
                self.crash_hard(other);
            }
            Blow::Mute(time) => {
                self.network.mute(node, until(time));
                self.coverage.fault("muted node", 1);
            }
            Blow::MuteLogs(time) => {
                self.network.mute_logs(node, until(time));
                self.coverage.fault("muted logs", 1);
            }
            // Done where it was sent.
            Blow::Again => {}
            Blow::MuteCalls(time) => {
                self.network.mute_calls(node, other, until(time));
                self.coverage.fault("muted calls", 1);
            }
        }
    }

    /// A power cut whose losses are not drawn evenly: often the very last batch, often everything.
    fn crash_hard(&mut self, node: usize) {
        let loss = self
            .faults
            .rng
            .pick(&[Loss::Even, Loss::Last, Loss::Last, Loss::All]);
        let quick = self.faults.rng.permille(500);
        let soon = self
            .faults
            .rng
            .time(Duration::from_millis(20), Duration::from_millis(400));
        self.coverage.fault("crash", 1);
        self.crash_losing(node, quick.then_some(soon), loss);
    }
}
