//! The message ids of a shard (AP-4, M-17): 41 bits of milliseconds since 2010, 10 of the node, 3 of the shard, 9 of a step.
//!
//! The time in an id is the wall clock held inside a lease: it never goes below what was given before, and never above
//! what is durable as reserved. A restart begins above the reservation, so a clock that was set back, or a crash, gives no
//! id twice and none out of order. After a long pause the time continues where it stopped until the next lease is durable;
//! the stamp of a message, not its id, says when it was sent.

use crate::ensure;
use crate::rows::{Key, Miss, Rows, Write};
use crate::types::{MessageId, NodeId, Now, Token};
use bytes::Bytes;
use std::time::Duration;

/// Milliseconds from 1970 to the start of the ids' time (client contract, section 6).
const EPOCH_MS: u64 = 1_288_834_974_657;
/// Largest time of an id: 41 bits.
const TIME_MAX: u64 = (1 << 41) - 1;
const STEP_BITS: u32 = 9;
const SHARD_BITS: u32 = 3;
const NODE_BITS: u32 = 10;
const STEP_MAX: u64 = (1 << STEP_BITS) - 1;
/// How far ahead of the clock a lease reaches.
const LEASE_MS: u64 = 10_000;

/// What a generator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// First input: take over where the last process stopped.
    Start,
    /// A lease is durable.
    Stored {
        /// Echo.
        token: Token,
    },
}

/// What a generator wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Store a lease; answered by [`Input::Stored`].
    Store {
        /// Names the write.
        token: Token,
        /// One row in `Data`.
        writes: Vec<Write>,
    },
}

/// Gives ids. One per shard; shared by the authorities of the shard.
#[derive(Debug)]
pub struct Generator {
    node: NodeId,
    shard: u16,
    started: bool,
    /// Time and step of the last id.
    last: (u64, u64),
    /// Ids up to this time are covered by a durable lease.
    durable: u64,
    /// The lease that is being stored.
    asked: Option<(Token, u64)>,
    /// Whether a new lease is due.
    due: bool,
    next_token: Token,
}

impl Generator {
    /// A generator of this shard of this node. It gives nothing before its first lease is durable.
    #[must_use]
    pub fn new(node: NodeId, shard: u16) -> Generator {
        assert!(node.0 < 1 << NODE_BITS, "node ids have {NODE_BITS} bits");
        assert!(
            shard < 1 << SHARD_BITS,
            "a node has at most {} shards",
            1 << SHARD_BITS
        );
        Generator {
            node,
            shard,
            started: false,
            last: (0, STEP_MAX),
            durable: 0,
            asked: None,
            due: false,
            next_token: Token(1),
        }
    }

    /// Takes one input.
    ///
    /// # Errors
    /// The row of the reservation must be loaded first; nothing has changed.
    pub fn handle(
        &mut self,
        now: Now,
        input: Input,
        rows: &dyn Rows,
        out: &mut Vec<Output>,
    ) -> Result<(), Miss> {
        match input {
            Input::Start => {
                let reserved = match rows.row(&self.key())? {
                    Some(row) => reserved(&row),
                    None => 0,
                };
                self.last = (reserved, STEP_MAX);
                self.durable = reserved;
                self.started = true;
                self.lease(now, out);
            }
            Input::Stored { token } => {
                if let Some((asked, until)) = self.asked
                    && asked == token
                {
                    self.durable = until;
                    self.asked = None;
                    // A generator that idled, or has just started, goes on from the time of its lease, not from where it
                    // stopped.
                    let begun = until.saturating_sub(LEASE_MS + 1);
                    if begun > self.last.0 {
                        self.last = (begun, STEP_MAX);
                    }
                }
            }
        }
        Ok(())
    }

    /// The next id; none while no lease covers it, which the caller answers as busy.
    pub fn next(&mut self, now: Now) -> Option<MessageId> {
        if !self.started {
            return None;
        }
        let wall = relative(now);
        let (last, last_step) = self.last;
        let mut time = if wall > self.durable { last } else { last.max(wall) };
        let mut step = if time == last { last_step + 1 } else { 0 };
        if step > STEP_MAX {
            time += 1;
            step = 0;
        }
        self.due = self.due || time.max(wall) + LEASE_MS / 2 > self.durable;
        if time > self.durable {
            return None;
        }
        ensure!(
            AP_4,
            (time, step) > self.last,
            "{time}.{step} after {last}.{last_step}"
        );
        self.last = (time, step);
        let bits = time << (NODE_BITS + SHARD_BITS + STEP_BITS)
            | u64::from(self.node.0) << (SHARD_BITS + STEP_BITS)
            | u64::from(self.shard) << STEP_BITS
            | step;
        // 63 bits at most: the time has 41.
        i64::try_from(bits).ok().map(MessageId)
    }

    /// At once when a lease is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Duration> {
        (self.due && self.asked.is_none()).then_some(Duration::ZERO)
    }

    /// Stores the next lease when one is due.
    pub fn expire(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.due && self.asked.is_none() {
            self.lease(now, out);
        }
    }

    fn lease(&mut self, now: Now, out: &mut Vec<Output>) {
        let until = (self.durable.max(relative(now)) + LEASE_MS).min(TIME_MAX);
        let token = self.next_token;
        self.next_token = Token(token.0 + 1);
        self.asked = Some((token, until));
        self.due = false;
        out.push(Output::Store {
            token,
            writes: vec![Write::Put {
                key: self.key(),
                value: Bytes::copy_from_slice(&until.to_be_bytes()),
            }],
        });
    }

    fn key(&self) -> Key {
        Key::Node {
            name: Bytes::from(format!("message-id-reserved/{}", self.shard)),
        }
    }
}

/// The wall clock as the time of an id.
fn relative(now: Now) -> u64 {
    now.wall_ms.saturating_sub(EPOCH_MS).min(TIME_MAX)
}

fn reserved(row: &[u8]) -> u64 {
    let bytes = <[u8; 8]>::try_from(row);
    ensure!(AP_4, bytes.is_ok(), "a reservation of {} bytes", row.len());
    bytes.map_or(0, u64::from_be_bytes)
}

#[cfg(test)]
#[path = "ids_tests.rs"]
mod tests;
