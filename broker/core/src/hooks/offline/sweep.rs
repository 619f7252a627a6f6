//! One consumer on its way through the recipients of one message.

use super::Attempt;
use crate::audience::Presence;
use crate::message::Message;
use crate::types::{Now, Seq, SlotId, Token, Uid};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Where the next recipients come from: those after this uid.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Derived(Option<Uid>),
    Members(Option<Uid>),
    End,
}

/// A page of recipients that are looked for.
#[derive(Debug)]
pub(super) struct Page {
    /// Where the recipients after the page come from.
    pub(super) next: Place,
    /// Those of whom it is not known yet.
    pub(super) unknown: BTreeMap<SlotId, Vec<Uid>>,
    pub(super) offline: Vec<Uid>,
    /// Until when it is asked again.
    pub(super) give_up_at: Duration,
}

#[derive(Debug)]
pub(super) enum State {
    /// An attempt has failed; the next one begins here.
    Resting,
    Reading {
        token: Token,
        give_up_at: Duration,
    },
    /// A page could not be read.
    ReadingPaused {
        until: Duration,
        give_up_at: Duration,
    },
    Looking {
        token: Token,
        /// Slots that have not answered.
        waiting: BTreeSet<SlotId>,
        page: Page,
    },
    LookingPaused {
        until: Duration,
        page: Page,
    },
    Calling {
        token: Token,
        uids: Vec<Uid>,
        next: Place,
    },
}

/// A consumer on its way through the recipients of one message.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) attempt: Attempt,
    pub(super) seq: Seq,
    /// None while it rests.
    pub(super) message: Option<Arc<Message>>,
    /// Where the page under way begins.
    pub(super) place: Place,
    pub(super) state: State,
}

/// Whether somebody may be told of a message: commands and messages whose request named the recipients are not for it.
pub(super) fn concerns(message: &Message, now: Now) -> bool {
    let draft = &message.draft;
    let is_plain = !draft.flags.sync_once && !draft.flags.no_persist && draft.subscribers.is_empty();
    is_plain && !message.expired(now.wall_ms)
}

impl Sweep {
    pub(super) fn paused_until(&self) -> Option<Duration> {
        match &self.state {
            State::LookingPaused { until, .. } | State::ReadingPaused { until, .. } => Some(*until),
            State::Resting | State::Reading { .. } | State::Looking { .. } | State::Calling { .. } => None,
        }
    }

    /// The question that it waits for.
    pub(super) fn asked(&self) -> Option<Token> {
        match &self.state {
            State::Reading { token, .. } | State::Looking { token, .. } | State::Calling { token, .. } => {
                Some(*token)
            }
            State::Resting | State::ReadingPaused { .. } | State::LookingPaused { .. } => None,
        }
    }

    /// A page of these, without the sender.
    pub(super) fn page(&self, uids: Vec<Uid>, next: Place, give_up_at: Duration) -> Page {
        let sender = self.message.as_ref().map(|message| &message.draft.from_uid);
        let mut unknown: BTreeMap<SlotId, Vec<Uid>> = BTreeMap::new();
        for uid in uids.into_iter().filter(|uid| Some(uid) != sender) {
            unknown.entry(uid.slot()).or_default().push(uid);
        }
        Page {
            next,
            unknown,
            offline: Vec::new(),
            give_up_at,
        }
    }
}

impl Page {
    /// What is known of a slot: who may have a session that is not known of stays unknown.
    pub(super) fn learn(&mut self, slot: SlotId, presence: Presence, unknown_is_offline: bool) {
        let Some(uids) = self.unknown.remove(&slot) else {
            return;
        };
        let (users, complete, doubtful) = match presence {
            Presence::Known {
                users,
                complete,
                doubtful,
            } => (users, complete, doubtful),
            Presence::Unknown => (Vec::new(), false, Vec::new()),
        };
        let online: BTreeSet<Uid> = users
            .into_iter()
            .filter(|(_, routes)| !routes.is_empty())
            .map(|(uid, _)| uid)
            .collect();
        let is_doubtful = |uid: &Uid| !complete || doubtful.iter().any(|route| route.uid == *uid);
        let rest = uids.into_iter().filter(|uid| !online.contains(uid));
        let (unknown, offline): (Vec<Uid>, Vec<Uid>) =
            rest.partition(|uid| is_doubtful(uid) && !unknown_is_offline);
        self.offline.extend(offline);
        if !unknown.is_empty() {
            self.unknown.insert(slot, unknown);
        }
    }
}
