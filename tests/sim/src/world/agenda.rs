//! What is yet to happen, in the order in which it will.

use penstock_core::admin::Answer;
use penstock_core::client::{ClientFrame, ServerFrame};
use penstock_core::effect::Event;
use penstock_core::rows::Instance;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Something that happens at a time.
#[derive(Debug)]
pub enum Happening {
    /// An event reaches a shard; with a life, only in that process.
    Arrive {
        /// Index of the node.
        node: usize,
        /// The process that it is meant for.
        life: Option<u32>,
        /// The shard.
        shard: u16,
        /// What.
        event: Event,
    },
    /// A shard that was at work looks at its mailbox.
    Drain {
        /// Index of the node.
        node: usize,
        /// Its process.
        life: u32,
        /// The shard.
        shard: u16,
    },
    /// A shard's timer rings.
    Timer {
        /// Index of the node.
        node: usize,
        /// Its process.
        life: u32,
        /// The shard.
        shard: u16,
    },
    /// A sync is done.
    Synced {
        /// Index of the node.
        node: usize,
        /// Its process.
        life: u32,
        /// The instance.
        instance: Instance,
    },
    /// A client's frame reaches its node; without one, the connection is closed.
    ToServer {
        /// Number of the connection.
        connection: usize,
        /// The frame.
        frame: Option<ClientFrame>,
    },
    /// A frame reaches a client; without one, the connection is closed.
    ToClient {
        /// Number of the connection.
        connection: usize,
        /// The frame.
        frame: Option<ServerFrame>,
    },
    /// A gateway tries a refused frame again.
    Retry {
        /// Number of the connection.
        connection: usize,
    },
    /// A call of the HTTP API is answered, or is not within its caller's time.
    Answered {
        /// Number of the call.
        call: usize,
        /// The answer.
        answer: Option<Answer>,
    },
    /// A user looks at the clock.
    User(usize),
    /// The next fault.
    Fault,
    /// A process starts.
    Start(usize),
    /// A paused process goes on.
    Resume {
        /// Index of the node.
        node: usize,
        /// Its process.
        life: u32,
    },
    /// A blow falls.
    Blow {
        /// Which.
        blow: super::Blow,
        /// Index of the node that acts.
        node: usize,
        /// Index of the node that it deals with.
        other: usize,
    },
    /// Somebody changes the registry of plugins.
    Deploy,
    /// The run looks after its set-up and its phases.
    Look,
}

/// Events in order of time; what happens at the same time happens in the order in which it was put in.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(Duration, u64, usize)>>,
    happenings: Vec<Option<Happening>>,
    free: Vec<usize>,
    sequence: u64,
}

impl Agenda {
    pub(super) fn put(&mut self, at: Duration, happening: Happening) {
        self.sequence += 1;
        let slot = if let Some(slot) = self.free.pop() {
            self.happenings[slot] = Some(happening);
            slot
        } else {
            self.happenings.push(Some(happening));
            self.happenings.len() - 1
        };
        self.heap.push(Reverse((at, self.sequence, slot)));
    }

    pub(super) fn take(&mut self) -> Option<(Duration, Happening)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        let happening = self.happenings[slot]
            .take()
            .expect("every slot of the heap is filled");
        Some((at, happening))
    }
}
