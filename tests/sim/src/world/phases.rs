//! The phases of a run: chaos, then an end to all faults, then the cluster must converge within its time (check 8).

use super::{Happening, World};
use crate::census;
use crate::clients::Link;
use crate::coverage::Met;
use std::time::Duration;

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Faults come.
    Chaos,
    /// No more faults; every channel has yet to accept a send.
    Healing,
    /// Everything is sent; what remains is to arrive everywhere.
    Converging,
    /// All is well.
    Done,
}

/// Whether messages still come to the open sessions.
#[derive(Debug, Default)]
pub(super) struct CatchingUp {
    offers: usize,
    /// When there were fewer for the last time.
    changed_at: Duration,
}

/// A run of delivery may take this long, with all that is tried again in it.
const OFFERS_WITHIN: Duration = Duration::from_secs(10);
/// The longest pause between two attempts of a binding, and time for its work: one that is told of offline recipients gets a page of one
/// message at a time, of some hundred messages.
const FOLLOWED_WITHIN: Duration = Duration::from_secs(150);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A group or token that was not made is asked for again after this long.
const SET_UP_EVERY: Duration = Duration::from_secs(2);

impl World {
    /// Looks after set-up and phases.
    pub(super) fn look(&mut self) {
        let healed = self.settings.chaos;
        let millis = self.now.as_millis();
        if !self.clients.is_set_up() && millis % SET_UP_EVERY.as_millis() < LOOK_EVERY.as_millis() {
            let mut wishes = Vec::new();
            self.clients.set_up(&mut wishes);
            self.grant(0, wishes);
        }
        match self.phase {
            Phase::Chaos if self.now >= healed => {
                self.phase = Phase::Healing;
                self.heal();
                self.clients.quiet = true;
                if self.settings.silent {
                    self.silence();
                }
            }
            Phase::Healing => self.probe(),
            Phase::Converging => self.converge(),
            Phase::Chaos | Phase::Done => {}
        }
        self.note_offers();
        self.note_online();
        let until = healed + self.alone + self.settings.convergence;
        let late = self.now >= until && self.phase != Phase::Done && !self.clients.away;
        if late && !self.is_catching_up() && !self.is_following() {
            self.did_not_converge();
        }
        self.agenda.put(self.now + LOOK_EVERY, Happening::Look);
    }

    /// Once everything is set up, somebody says something in every channel.
    fn probe(&mut self) {
        // Routes are announced again within a touch interval and the clients' pings.
        let recovered = self.settings.chaos + self.alone + Duration::from_secs(6);
        if self.clients.away && (self.now < recovered || self.is_left_behind()) {
            return;
        }
        if std::mem::replace(&mut self.clients.away, false) {
            self.alone = self.now - self.settings.chaos;
            return;
        }
        if !self.clients.is_set_up() || self.now < recovered {
            return;
        }
        for channel in 0..self.clients.talks.len() {
            if let Some(&user) = self.clients.talks[channel].members.first() {
                self.clients.say(self.now, user, channel, &mut self.oracle);
            }
        }
        let open = self.clients.users.iter().filter_map(|user| match user.link {
            Link::Up { connection } => Some(connection),
            Link::Down { .. } | Link::Opening { .. } => None,
        });
        self.oracle.notified.peaceful = open.collect();
        self.phase = Phase::Converging;
    }

    /// Everything ends in the middle of its work, and nobody is there when it begins anew.
    fn silence(&mut self) {
        self.clients.away = true;
        for node in 0..self.nodes.len() {
            self.crash(node, Some(Duration::from_secs(1)));
        }
    }

    /// Whether something that follows a channel still has to do although nobody uses the channel. It may take as long as with
    /// traffic (PC-1, PC-2).
    fn is_left_behind(&mut self) -> bool {
        let membership = census::membership_missing(&self.nodes, &self.oracle).map(|what| ("PC-2", what));
        let left = membership.or_else(|| self.behind().map(|what| ("PC-1", what)));
        let until = self.settings.chaos + self.settings.convergence + FOLLOWED_WITHIN;
        match left {
            Some((rule, what)) if self.now >= until => {
                self.oracle.violate(rule, format!("without traffic, {what}"));
                true
            }
            left => left.is_some(),
        }
    }

    fn converge(&mut self) {
        if self.clients.settled()
            && self.missing_offers().is_none()
            && census::membership_missing(&self.nodes, &self.oracle).is_none()
            && census::routes_astray(&self.nodes, self.clients.users.len()).is_none()
            && self.plugins_astray().is_none()
            && self.behind().is_none()
            && self.miscounted().is_none()
            && self.unanswered().is_none()
            && self.untold().is_none()
            && census::difference(&self.nodes, &self.invariants, &self.oracle).is_none()
        {
            census::read_all(&self.nodes, &self.invariants, &mut self.oracle);
            self.check_published();
            self.phase = Phase::Done;
        }
    }

    fn note_offers(&mut self) {
        let offers = self.oracle.sessions.offers();
        if std::mem::replace(&mut self.catching_up.offers, offers) < offers {
            self.catching_up.changed_at = self.now;
        }
    }

    /// Whether only offers are missing and more of them come: where pages and runs are small, delivery may be minutes behind
    /// its channel. What its cursor has not passed is late, but not missed (PC-1).
    fn is_catching_up(&self) -> bool {
        self.phase == Phase::Converging
            && self.now < self.catching_up.changed_at + OFFERS_WITHIN
            && self.clients.settled()
            && self.missing_offers().is_some()
    }

    /// Whether a binding that failed again and again before still waits for its next attempt: it comes within the longest pause.
    fn is_following(&self) -> bool {
        let until = self.settings.chaos + self.alone + self.settings.convergence + FOLLOWED_WITHIN;
        self.now < until
            && self.plugins.deployer.is_some()
            && (self.behind().is_some()
                || self.miscounted().is_some()
                || self.unanswered().is_some()
                || self.untold().is_some()
                || self.plugins_astray().is_some())
    }

    fn did_not_converge(&mut self) {
        let seconds = self.settings.convergence.as_secs();
        let what = if self.phase == Phase::Healing {
            "not everything could be set up".to_owned()
        } else if !self.clients.settled() {
            self.clients.unsettled(&self.oracle)
        } else if let Some(missing) = self.missing_offers() {
            return self.oracle.violate("check-6", missing);
        } else if let Some(missing) = census::membership_missing(&self.nodes, &self.oracle) {
            return self.oracle.violate("PC-2", missing);
        } else if let Some(astray) = census::routes_astray(&self.nodes, self.clients.users.len()) {
            return self.oracle.violate("PR-2", astray);
        } else if let Some(astray) = self.plugins_astray() {
            return self.oracle.violate("M-19", astray);
        } else if let Some(behind) = self.behind() {
            return self.oracle.violate("PC-1", behind);
        } else if let Some(miscounted) = self.miscounted() {
            return self.oracle.violate("M-18", miscounted);
        } else if let Some(unanswered) = self.unanswered() {
            return self.oracle.violate("PC-1", unanswered);
        } else if let Some(untold) = self.untold() {
            return self.oracle.violate("PR-6", untold);
        } else {
            census::difference(&self.nodes, &self.invariants, &self.oracle).unwrap_or_default()
        };
        self.oracle
            .violate("check-8", format!("{seconds} s after the last fault: {what}"));
    }

    /// A committed message that was sent after a member's open session was accepted, and that this session was never
    /// offered: its client knows of no reason to pull (PC-1). What was sent before is for it to pull.
    fn missing_offers(&self) -> Option<String> {
        for user in &self.clients.users {
            let Link::Up { connection } = user.link else {
                continue;
            };
            let session = self.oracle.sessions.session(connection)?;
            let is_user = |index: usize| self.oracle.users[index] == user.uid;
            for talk in &self.clients.talks {
                if !talk.members.iter().any(|&member| is_user(member)) {
                    continue;
                }
                let offered = session.offered.get(&talk.channel);
                for (seq, (_, operation)) in &self.oracle.channels[talk.channel].log.known {
                    let sent = &self.oracle.operations[*operation];
                    if !is_user(sent.user)
                        && session.since < sent.invoked
                        && !offered.is_some_and(|offered| offered.contains(seq))
                    {
                        let (uid, key) = (&user.uid, &self.oracle.channels[talk.channel].key);
                        return Some(format!(
                            "{uid}, online since {:?} on connection {connection}, was never offered {seq} of {key}, \
                             sent at {:?}",
                            session.since, sent.invoked
                        ));
                    }
                }
            }
        }
        None
    }

    /// What a process has counted is lost with it.
    pub(super) fn count_process(&mut self, node: usize) {
        for host in &self.nodes[node].hosts {
            let counters = host.shard.summary().counters;
            self.coverage.meet_many(Met::Evictions, counters.evictions);
            self.coverage.meet_many(Met::Resumed, counters.resumed);
        }
    }

    /// Moves the counters of all parts into the coverage of the run.
    pub(super) fn close_books(&mut self) {
        for node in 0..self.nodes.len() {
            self.count_process(node);
        }
        let coverage = &mut self.coverage;
        coverage.virtual_time = self.now;
        coverage.acknowledged = self.oracle.acknowledged;
        coverage.meet_many(Met::DeduplicatedRetries, self.oracle.deduplicated);
        coverage.meet_many(Met::Reoffers, self.oracle.sessions.reoffers);
        coverage.meet_many(Met::Resends, self.clients.resends);
        coverage.meet_many(Met::Quarantines, self.oracle.suspended.quarantines);
        coverage.fault("message followed", self.oracle.followed.handled);
        coverage.fault("dead letter", self.oracle.followed.letters);
        coverage.fault("change of a key", self.oracle.counted.wanted);
        coverage.fault("online status told", self.oracle.online_status.told);
        coverage.fault("lost message", self.network.lost);
        coverage.fault("repeated message", self.network.duplicated);
        coverage.fault("delayed message", self.network.reordered);
    }
}
