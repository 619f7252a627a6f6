//! What was promised against what came: none missing, none twice, none out of order.
//!
//! A sender counts its messages in each channel. A receiver keeps, for each sender in each channel, the next count that it
//! expects and the counts that were passed over. At the end every count that the server acknowledged must have come.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;

/// What one sender did in one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    count: u32,
    /// Sent without an acknowledgement: refused, or not answered. They may come or not.
    unpromised: BTreeSet<u32>,
}

impl Sent {
    /// The count of the next message.
    pub(crate) fn next(&mut self) -> u32 {
        let seq = self.count;
        self.count += 1;
        self.unpromised.insert(seq);
        seq
    }

    /// The server acknowledged this one.
    pub(crate) fn promised(&mut self, seq: u32) {
        self.unpromised.remove(&seq);
    }
}

/// How a received message stands to those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Not seen before, in order.
    InOrder,
    /// Not seen before, but after a later one.
    Late,
    /// Seen before.
    Again,
}

/// What one receiver got from one sender in one channel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    next: u32,
    passed_over: BTreeSet<u32>,
}

impl Received {
    /// Takes the message with this count.
    pub(crate) fn take(&mut self, seq: u32) -> Arrival {
        if seq >= self.next {
            self.passed_over.extend(self.next..seq);
            self.next = seq + 1;
            Arrival::InOrder
        } else if self.passed_over.remove(&seq) {
            Arrival::Late
        } else {
            Arrival::Again
        }
    }

    /// How many acknowledged messages did not come.
    fn missing(&self, sent: &Sent) -> u64 {
        let passed_over = self.passed_over.difference(&sent.unpromised).count();
        let never = (self.next..sent.count)
            .filter(|seq| !sent.unpromised.contains(seq))
            .count();
        (passed_over + never) as u64
    }
}

/// What was wrong, in messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// Acknowledged, but did not come to a member who was connected all the time.
    pub(crate) missing: u64,
    /// Came more than once.
    pub(crate) duplicated: u64,
    /// Came after a later one of its sender, or with a sequence that does not exceed the channel's last.
    pub(crate) reordered: u64,
    /// Came with another content.
    pub(crate) corrupt: u64,
    /// Came to a user who is not in the channel.
    pub(crate) misdirected: u64,
}

/// What one connection saw of its channels.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witness {
    /// What it sent, by channel.
    pub(crate) sent: BTreeMap<u32, Sent>,
    /// What it received, by channel and sender.
    pub(crate) received: HashMap<(u32, u32), Received>,
    /// The last server sequence, by channel.
    last_seq: HashMap<u32, u64>,
    /// What it found wrong on the way.
    pub(crate) found: Verdict,
}

impl Witness {
    /// Takes a message of this run; says whether it is new.
    pub(crate) fn take(&mut self, channel: u32, sender: u32, seq: u32, message_seq: u64) -> bool {
        let arrival = self.received.entry((channel, sender)).or_default().take(seq);
        if arrival == Arrival::Again {
            self.found.duplicated += 1;
            return false;
        }
        let last = self.last_seq.entry(channel).or_default();
        // A message that is not stored has no sequence.
        let backwards = message_seq != 0 && message_seq <= *last;
        if backwards || arrival == Arrival::Late {
            self.found.reordered += 1;
        }
        *last = (*last).max(message_seq);
        true
    }
}

/// Judges a whole run. `members` are the connections in each channel.
#[must_use]
pub(crate) fn judge(members: &[Vec<u32>], witnesses: &[Witness]) -> Verdict {
    let nothing = Received::default();
    let mut verdict = Verdict::default();
    let places: HashSet<(u32, u32)> = (0..)
        .zip(members)
        .flat_map(|(channel, members)| members.iter().map(move |member| (channel, *member)))
        .collect();
    for (receiver, witness) in (0..).zip(witnesses) {
        verdict.duplicated += witness.found.duplicated;
        verdict.reordered += witness.found.reordered;
        verdict.corrupt += witness.found.corrupt;
        verdict.misdirected += witness
            .received
            .keys()
            .filter(|(channel, _)| !places.contains(&(*channel, receiver)))
            .count() as u64;
    }
    for (channel, members) in (0_u32..).zip(members) {
        for sender in members {
            let Some(sent) = witnesses[*sender as usize].sent.get(&channel) else {
                continue;
            };
            verdict.missing += members
                .iter()
                .filter(|receiver| *receiver != sender)
                .map(|receiver| {
                    witnesses[*receiver as usize]
                        .received
                        .get(&(channel, *sender))
                        .unwrap_or(&nothing)
                        .missing(sent)
                })
                .sum::<u64>();
        }
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connection 0 sends five messages into channel 0, of which these were acknowledged.
    fn sender(acknowledged: &[u32]) -> Witness {
        let mut witness = Witness::default();
        let sent = witness.sent.entry(0).or_default();
        for _ in 0..5 {
            sent.next();
        }
        for seq in acknowledged {
            sent.promised(*seq);
        }
        witness
    }

    fn receiver(seqs: &[(u32, u64)]) -> Witness {
        let mut witness = Witness::default();
        for (seq, message_seq) in seqs {
            witness.take(0, 0, *seq, *message_seq);
        }
        witness
    }

    fn verdict(acknowledged: &[u32], got: &[(u32, u64)]) -> Verdict {
        judge(&[vec![0, 1]], &[sender(acknowledged), receiver(got)])
    }

    const ALL: &[u32] = &[0, 1, 2, 3, 4];

    #[test]
    fn everything_in_order_is_clean() {
        let got = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 9)];
        assert_eq!(verdict(ALL, &got), Verdict::default());
    }

    #[test]
    fn what_was_acknowledged_must_come() {
        let lost_inside_and_at_the_end = verdict(ALL, &[(0, 1), (2, 3), (3, 4)]);
        assert_eq!(
            lost_inside_and_at_the_end,
            Verdict {
                missing: 2,
                ..Verdict::default()
            }
        );
        assert_eq!(verdict(ALL, &[]).missing, 5);
        // Refused or unanswered ones may come or not.
        assert_eq!(verdict(&[0, 4], &[(0, 1), (2, 3), (4, 4)]), Verdict::default());
    }

    #[test]
    fn repeats_and_disorder_are_counted() {
        let twice = verdict(ALL, &[(0, 1), (1, 2), (1, 2), (2, 3), (3, 4), (4, 5)]);
        assert_eq!((twice.duplicated, twice.reordered, twice.missing), (1, 0, 0));
        let late = verdict(ALL, &[(0, 1), (2, 3), (1, 2), (3, 4), (4, 5)]);
        assert_eq!((late.duplicated, late.reordered, late.missing), (0, 1, 0));
        let server_seq_stands = verdict(ALL, &[(0, 1), (1, 1), (2, 3), (3, 4), (4, 5)]);
        assert_eq!(server_seq_stands.reordered, 1);
        let late_then_again = verdict(ALL, &[(0, 1), (2, 3), (1, 2), (1, 2), (3, 4), (4, 5)]);
        assert_eq!((late_then_again.duplicated, late_then_again.reordered), (1, 1));
    }

    #[test]
    fn a_message_for_somebody_else_is_found() {
        let stranger = receiver(&[(0, 1)]);
        let got = receiver(&[(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
        let verdict = judge(&[vec![0, 1]], &[sender(ALL), got, stranger]);
        assert_eq!(
            verdict,
            Verdict {
                misdirected: 1,
                ..Verdict::default()
            }
        );
    }
}
