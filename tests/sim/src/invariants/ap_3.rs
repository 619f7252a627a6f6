//! AP-3: what one session sends into one channel commits and completes in the order in which it was sent, across batches and late
//! completions. Only sends that left once count: a retry stands where its first attempt does.

use std::collections::BTreeMap;

/// What a session has seen complete in a channel.
#[derive(Clone, Copy, Debug)]
struct Completed {
    client_seq: u64,
    seq: u64,
}

/// (connection, channel) → the newest completion.
#[derive(Debug, Default)]
pub struct Completions {
    newest: BTreeMap<(usize, usize), Completed>,
}

impl Completions {
    /// A send of this connection, the only attempt at it, was acknowledged.
    ///
    /// # Errors
    /// Says what is out of order.
    pub fn acknowledged(
        &mut self,
        (connection, channel): (usize, usize),
        client_seq: u64,
        seq: u64,
    ) -> Result<(), String> {
        let now = Completed { client_seq, seq };
        let Some(before) = self.newest.insert((connection, channel), now) else {
            return Ok(());
        };
        if client_seq > before.client_seq && seq > before.seq {
            return Ok(());
        }
        Err(format!(
            "connection {connection}: frame {client_seq} completes at {seq} after frame {} at {}",
            before.client_seq, before.seq
        ))
    }

    /// A connection is over.
    pub fn closed(&mut self, connection: usize) {
        self.newest.retain(|(of, _), _| *of != connection);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_of_a_session_keep_their_order() {
        let mut completions = Completions::default();
        assert_eq!(completions.acknowledged((1, 0), 4, 9), Ok(()));
        assert_eq!(completions.acknowledged((1, 1), 3, 2), Ok(()));
        assert_eq!(completions.acknowledged((1, 0), 6, 10), Ok(()));
        assert!(completions.acknowledged((1, 0), 7, 8).is_err());
        completions.closed(1);
        assert_eq!(completions.acknowledged((1, 0), 5, 1), Ok(()));
        assert!(completions.acknowledged((1, 0), 4, 2).is_err());
    }
}
