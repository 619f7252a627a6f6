//! What the runs of a channel share: tokens, caches, who failed, and how long anything is tried.

use super::members::Subscribers;
use super::owed::Owed;
use super::{Counters, Output, Settings};
use crate::audience::Audience;
use crate::types::{NodeId, Now, Seq, SlotId, Token, Uid};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// What a run is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Stored messages; the cursor goes here when it is over.
    Stored(Seq),
    /// Messages that are not stored: offered once, and nobody is owed them.
    Ephemeral,
    /// No messages: those that are owed something are looked for.
    Settling,
}

/// What outlives a run.
#[derive(Debug, Default)]
pub(super) struct Memory {
    last_token: u64,
    pub(super) subscribers: Subscribers,
    /// The whole member list of a group.
    pub(super) cache: Option<MemberList>,
    /// Nodes and slots that failed last: the next run is not held up by them as long.
    pub(super) failing_nodes: BTreeSet<NodeId>,
    pub(super) failing_slots: BTreeSet<SlotId>,
    /// Users for whom a run was given up although they may have sessions.
    pub(super) owed: Owed,
    pub(super) counters: Counters,
}

impl Memory {
    pub(super) fn issue(&mut self) -> Token {
        self.last_token += 1;
        Token(self.last_token)
    }

    /// What a new leadership must not inherit.
    pub(super) fn forget(&mut self) {
        self.subscribers = Subscribers::default();
        self.cache = None;
        self.failing_nodes.clear();
        self.failing_slots.clear();
        self.owed = Owed::default();
    }
}

/// A member list as it was at its revision.
#[derive(Debug)]
pub(super) struct MemberList {
    pub(super) revision: u64,
    /// (uid, join_seq).
    pub(super) members: Arc<[(Uid, Seq)]>,
}

/// What a run needs of its surroundings while it handles something.
pub(super) struct Context<'a> {
    pub(super) now: Now,
    pub(super) settings: &'a Settings,
    pub(super) audience: &'a Audience,
    pub(super) memory: &'a mut Memory,
    pub(super) out: &'a mut Vec<Output>,
}

impl Context<'_> {
    pub(super) fn page(&self) -> usize {
        usize::try_from(self.settings.limits.delivery_page.max(1)).unwrap_or(usize::MAX)
    }

    /// Until when something is tried: not long if it failed last time (PC-4).
    pub(super) fn patience(&self, failing: bool) -> Duration {
        let limits = &self.settings.limits;
        self.now.after(if failing {
            limits.channel_retry
        } else {
            limits.request_timeout
        })
    }

    /// The wait between two tries: it doubles.
    fn pause(&self, tries: u32) -> Duration {
        self.now.after(
            self.settings
                .limits
                .channel_retry
                .saturating_mul(1 << tries.min(6)),
        )
    }

    /// When those that are owed something are looked for first.
    pub(super) fn settle_at(&self) -> Duration {
        self.now.after(self.settings.limits.channel_retry)
    }
}

/// The tries of one question or push, within a bound (PC-4).
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    tries: u32,
    /// When this try counts as unanswered.
    pub(super) answer_by: Duration,
    give_up_at: Duration,
}

impl Effort {
    pub(super) fn new(failing: bool, context: &Context<'_>) -> Effort {
        Effort {
            tries: 0,
            answer_by: Duration::ZERO,
            give_up_at: context.patience(failing),
        }
    }

    /// Starts a try.
    pub(super) fn start(&mut self, context: &Context<'_>) {
        let least = context.now.after(context.settings.limits.channel_retry);
        self.answer_by = context.pause(self.tries).min(self.give_up_at.max(least));
        self.tries += 1;
    }

    /// When the next try starts: at once after a silence, which was wait enough. None: given up.
    pub(super) fn again_at(&self, silence: bool, context: &Context<'_>) -> Option<Duration> {
        let at = context.now.monotonic;
        let due = if silence {
            at
        } else {
            context.pause(self.tries.saturating_sub(1))
        };
        (self.give_up_at > at).then(|| due.min(self.give_up_at))
    }
}
