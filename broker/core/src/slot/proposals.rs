//! Proposals of a group: three bounded lanes before the log (SL-9), and who waits for which entry of it.

use super::interface::{Lane, ProposeError};
use crate::limits::Limits;
use crate::types::Token;
use bytes::Bytes;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Entries proposed and not applied, up to which ordinary proposals enter the log.
const WINDOW: usize = 128;

/// Entries of one Raft message, and so of one fair turn.
const BATCH: usize = 32;

/// Bytes that may wait in one lane, as a multiple of the largest proposal.
const LANE_PROPOSALS_MAX: usize = 16;

#[derive(Debug)]
struct Waiting {
    token: Token,
    command: Bytes,
    deadline: Duration,
}

#[derive(Debug)]
struct Pending {
    token: Token,
    context: Bytes,
    deadline: Duration,
}

/// A batch on its way into the log.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) entries: Vec<(Bytes, Bytes)>,
    waiters: Vec<(Token, Duration)>,
}

#[derive(Debug)]
pub(super) struct Proposals {
    lanes: [VecDeque<Waiting>; 3],
    bytes: [usize; 3],
    pending: BTreeMap<u64, Pending>,
    process: u64,
    counter: u64,
    count_max: [usize; 3],
    command_bytes_max: usize,
    one_lane: bool,
}

impl Proposals {
    /// `process` makes the ids of this process differ from those of any other.
    pub(super) fn new(limits: &Limits, process: u64, one_lane: bool) -> Proposals {
        Proposals {
            lanes: Default::default(),
            bytes: [0; 3],
            pending: BTreeMap::new(),
            process,
            counter: 0,
            count_max: [
                limits.proposals_reserved_max,
                limits.proposals_max,
                limits.proposals_max,
            ],
            command_bytes_max: limits.proposal_bytes_max,
            one_lane,
        }
    }

    /// Queues a command.
    pub(super) fn push(
        &mut self,
        token: Token,
        lane: Lane,
        command: Bytes,
        deadline: Duration,
    ) -> Result<(), ProposeError> {
        if command.len() > self.command_bytes_max {
            return Err(ProposeError::TooLarge {
                bytes_max: self.command_bytes_max,
            });
        }
        let lane = if self.one_lane { 1 } else { lane as usize };
        let full = self.lanes[lane].len() >= self.count_max[lane]
            || self.bytes[lane] + command.len() > LANE_PROPOSALS_MAX * self.command_bytes_max;
        if full {
            return Err(ProposeError::Full);
        }
        self.bytes[lane] += command.len();
        self.lanes[lane].push_back(Waiting {
            token,
            command,
            deadline,
        });
        Ok(())
    }

    /// The next batch, in the order of the lanes. The reserved lane has a window of its own beyond the others'.
    pub(super) fn next_batch(&mut self) -> Option<Batch> {
        let mut batch = Batch {
            entries: Vec::new(),
            waiters: Vec::new(),
        };
        let mut batch_bytes = 0;
        for lane in 0..self.lanes.len() {
            let window = if lane == 0 { 2 * WINDOW } else { WINDOW };
            while batch.entries.len() < BATCH && self.pending.len() + batch.entries.len() < window {
                let Some(first) = self.lanes[lane].front() else {
                    break;
                };
                let fits = batch_bytes + first.command.len() <= self.command_bytes_max;
                if !fits && !batch.entries.is_empty() {
                    return Some(batch);
                }
                let Some(waiting) = self.lanes[lane].pop_front() else {
                    break;
                };
                self.bytes[lane] -= waiting.command.len();
                batch_bytes += waiting.command.len();
                let context = self.next_context();
                batch.entries.push((context, waiting.command));
                batch.waiters.push((waiting.token, waiting.deadline));
            }
        }
        (!batch.entries.is_empty()).then_some(batch)
    }

    /// A context that no other proposal of any process carries.
    pub(super) fn next_context(&mut self) -> Bytes {
        self.counter += 1;
        let mut context = self.process.to_be_bytes().to_vec();
        context.extend_from_slice(&self.counter.to_be_bytes());
        context.into()
    }

    /// The batch stands in the log from `first` on.
    pub(super) fn appended(&mut self, batch: Batch, first: u64) {
        let waiters = batch.entries.into_iter().zip(batch.waiters);
        for (index, ((context, _), (token, deadline))) in (first..).zip(waiters) {
            self.pending.insert(
                index,
                Pending {
                    token,
                    context,
                    deadline,
                },
            );
        }
    }

    /// One entry outside of a batch stands in the log at `index`.
    pub(super) fn appended_one(&mut self, token: Token, context: Bytes, deadline: Duration, index: u64) {
        self.pending.insert(
            index,
            Pending {
                token,
                context,
                deadline,
            },
        );
    }

    /// The batch was not taken: its waiters.
    pub(super) fn refused(batch: &Batch) -> impl Iterator<Item = Token> {
        batch.waiters.iter().map(|(token, _)| *token)
    }

    /// Who waits for the entry applied at `index`, and whether the entry is theirs: if not, theirs was replaced and will never
    /// be committed.
    pub(super) fn applied(&mut self, index: u64, context: &[u8]) -> Option<(Token, bool)> {
        let pending = self.pending.remove(&index)?;
        Some((pending.token, pending.context.as_ref() == context))
    }

    /// Everyone who waits for an entry up to `index`, when a snapshot stands in for the entries.
    pub(super) fn skipped(&mut self, index: u64) -> Vec<Token> {
        let rest = self.pending.split_off(&(index + 1));
        let skipped = std::mem::replace(&mut self.pending, rest);
        skipped.into_values().map(|pending| pending.token).collect()
    }

    /// Everyone who waits before the log: not committed, and will not be.
    pub(super) fn drain_queued(&mut self) -> Vec<Token> {
        self.bytes = [0; 3];
        self.lanes
            .iter_mut()
            .flat_map(|lane| lane.drain(..))
            .map(|waiting| waiting.token)
            .collect()
    }

    /// Everyone who waits at all.
    pub(super) fn drain(&mut self) -> Vec<Token> {
        let mut tokens = self.drain_queued();
        tokens.extend(
            std::mem::take(&mut self.pending)
                .into_values()
                .map(|pending| pending.token),
        );
        tokens
    }

    /// Whose deadline has passed: those that never reached the log, and those whose outcome is unknown.
    pub(super) fn expired(&mut self, now: Duration) -> (Vec<Token>, Vec<Token>) {
        let mut queued = Vec::new();
        for (lane, bytes) in self.lanes.iter_mut().zip(&mut self.bytes) {
            // Deadlines rise within a lane.
            while lane.front().is_some_and(|first| first.deadline <= now) {
                if let Some(waiting) = lane.pop_front() {
                    *bytes -= waiting.command.len();
                    queued.push(waiting.token);
                }
            }
        }
        let late: Vec<u64> = self
            .pending
            .iter()
            .filter(|(_, pending)| pending.deadline <= now)
            .map(|(index, _)| *index)
            .collect();
        let unknown = late
            .into_iter()
            .filter_map(|index| self.pending.remove(&index))
            .map(|pending| pending.token)
            .collect();
        (queued, unknown)
    }

    pub(super) fn queued(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposals(one_lane: bool) -> Proposals {
        Proposals::new(&Limits::default(), 1, one_lane)
    }

    fn flood(proposals: &mut Proposals) {
        for number in 0..1_000 {
            proposals
                .push(
                    Token(number),
                    Lane::Background,
                    Bytes::from_static(b"cursor"),
                    Duration::from_secs(3),
                )
                .unwrap();
        }
    }

    /// SL-9, and the fault that the simulator plants.
    #[test]
    fn a_flood_of_cursors_does_not_delay_a_grant() {
        for one_lane in [false, true] {
            let mut proposals = proposals(one_lane);
            flood(&mut proposals);
            let mut index = 1;
            while let Some(batch) = proposals.next_batch() {
                let entries = batch.entries.len() as u64;
                proposals.appended(batch, index);
                index += entries;
            }
            assert_eq!(index - 1, WINDOW as u64);
            let grant = Bytes::from_static(b"grant");
            proposals
                .push(Token(5_000), Lane::Reserved, grant, Duration::from_secs(3))
                .unwrap();
            assert_eq!(proposals.next_batch().is_some(), !one_lane);
        }
    }

    #[test]
    fn a_full_lane_and_a_large_command_are_refused() {
        let limits = Limits {
            proposals_max: 1,
            proposal_bytes_max: 8,
            ..Limits::default()
        };
        let mut proposals = Proposals::new(&limits, 1, false);
        let mut push = |bytes: &'static [u8]| {
            proposals.push(
                Token(1),
                Lane::Ordinary,
                Bytes::from_static(bytes),
                Duration::from_secs(1),
            )
        };
        assert_eq!(push(b"too large"), Err(ProposeError::TooLarge { bytes_max: 8 }));
        assert_eq!(push(b"one"), Ok(()));
        assert_eq!(push(b"two"), Err(ProposeError::Full));
    }

    #[test]
    fn everyone_who_waits_is_answered_when_the_deadline_passes() {
        let mut proposals = proposals(false);
        flood(&mut proposals);
        let batch = proposals.next_batch().unwrap();
        let taken = batch.entries.len();
        proposals.appended(batch, 10);
        let (queued, unknown) = proposals.expired(Duration::from_secs(3));
        assert_eq!((queued.len(), unknown.len()), (1_000 - taken, taken));
        assert_eq!(proposals.queued(), 0);
    }
}
