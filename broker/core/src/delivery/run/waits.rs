//! What a run waits for.

use super::{Retry, Run, Source};
use std::time::Duration;

impl Run {
    /// When [`Run::expire`] has something to do.
    pub(in crate::delivery) fn next_deadline(&self) -> Option<Duration> {
        let searches = self.searches.values().map(|search| search.effort.answer_by);
        let parcels = self.parcels.values().map(|parcel| parcel.effort.answer_by);
        let retries = self.retries.iter().map(|(at, _)| *at);
        let members = match &self.source {
            Source::Asked { ask_again_at, .. } => Some(*ask_again_at),
            _ => None,
        };
        searches.chain(parcels).chain(retries).chain(members).min()
    }

    /// Targets and users that are not dealt with.
    pub(super) fn outstanding(&self) -> usize {
        let searches: usize = self.searches.values().map(|search| search.users.len()).sum();
        let parcels: usize = self.parcels.values().map(|parcel| parcel.targets.len()).sum();
        let retries = self.retries.iter().map(|(_, retry)| match retry {
            Retry::Search(_, search) => search.users.len(),
            Retry::Parcel(parcel) => parcel.targets.len(),
        });
        searches + parcels + retries.sum::<usize>()
    }
}
