//! What checkers, metrics and other machines may see of a replica.

use super::store::Mark;
use super::{EpochTable, Replica, Role};
use crate::types::{ChannelMeta, LeaderEpoch, Seq};

/// What a replica does, seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleView {
    /// It reads what the disk holds.
    Loading,
    /// It follows, or waits.
    Follower,
    /// It gathers evidence for the epoch.
    Recovering(LeaderEpoch),
    /// It leads the epoch, whose start is not committed yet.
    Opening(LeaderEpoch),
    /// It leads the epoch and takes appends.
    Leading(LeaderEpoch),
}

/// A replica seen from outside. What is "durable" survives a crash of the process; the rest stands with writes under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// Highest promised epoch.
    pub promised: LeaderEpoch,
    /// Highest promised epoch, durable.
    pub promised_durable: LeaderEpoch,
    /// Highest accepted epoch.
    pub accepted: LeaderEpoch,
    /// Highest accepted epoch, durable.
    pub accepted_durable: LeaderEpoch,
    /// First position that the accepted epoch may write.
    pub epoch_start: Seq,
    /// First position held.
    pub log_start: Seq,
    /// Next position to be written.
    pub log_end: Seq,
    /// Next position to be written, durable.
    pub log_end_durable: Seq,
    /// Last position known to be committed.
    pub high_watermark: Seq,
    /// Stamp of the last record in memory, ms since 1970; 0 when there is none.
    pub last_stamp_ms: u64,
    /// Which epoch wrote what.
    pub epochs: EpochTable,
    /// What it does.
    pub role: RoleView,
    /// Whether it gives no evidence (CH-7, R30).
    pub withholds: bool,
    /// Version of the metadata known here.
    pub version: u64,
}

impl Replica {
    /// The replica seen from outside.
    #[must_use]
    pub fn view(&self) -> View {
        let durable: Mark = self.store.durable;
        View {
            promised: self.promised,
            promised_durable: durable.promised,
            accepted: self.accepted,
            accepted_durable: durable.accepted,
            epoch_start: self.accepted_start,
            log_start: self.log.start(),
            log_end: self.log.end(),
            log_end_durable: durable.log_end,
            high_watermark: self.high_watermark,
            last_stamp_ms: self.log.last_stamp_ms().unwrap_or(0),
            epochs: self.log.epochs.clone(),
            role: self.role_view(),
            withholds: self.withholds(),
            version: self.meta.version,
        }
    }

    /// Highest promised epoch.
    #[must_use]
    pub fn promised(&self) -> LeaderEpoch {
        self.promised
    }

    /// What it does.
    #[must_use]
    pub fn role_view(&self) -> RoleView {
        match &self.role {
            Role::Loading(_) => RoleView::Loading,
            Role::Follower => RoleView::Follower,
            Role::Recovering(recovery) => RoleView::Recovering(recovery.epoch),
            Role::Leading(leading) if leading.ready => RoleView::Leading(leading.epoch),
            Role::Leading(leading) => RoleView::Opening(leading.epoch),
        }
    }

    /// Last position known to be committed.
    #[must_use]
    pub fn high_watermark(&self) -> Seq {
        self.high_watermark
    }

    /// First position held.
    #[must_use]
    pub fn log_start(&self) -> Seq {
        self.log.start()
    }

    /// Next position to be written.
    #[must_use]
    pub fn log_end(&self) -> Seq {
        self.log.end()
    }

    /// The newest metadata known here.
    #[must_use]
    pub fn meta(&self) -> &ChannelMeta {
        &self.meta
    }
}
