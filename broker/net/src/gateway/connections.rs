//! The open connections of a node, and the bounded queue of frames to each of them.
//!
//! Shards push from their threads; a connection's own task takes. A queue over its bound closes its connection, whatever
//! the client does, so that one slow reader costs a bounded amount of memory and delays nobody (rule PC-4).

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use penstock_core::client::{CloseReason, ServerFrame};
use penstock_core::types::ConnectionId;
use tokio::sync::Notify;

const STRIPES: u64 = 64;
/// What a queued frame costs beside its texts and payload, in bytes: about what its head takes on the wire.
const FRAME_BYTES: usize = 128;

/// How much may wait for one client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OutboundLimits {
    /// Bytes, as on the wire.
    pub bytes: usize,
    /// Frames.
    pub frames: usize,
}

/// The open connections of this process by id.
#[derive(Debug)]
pub struct Connections {
    limits: OutboundLimits,
    stripes: Vec<Mutex<HashMap<ConnectionId, Arc<Outbox>>>>,
}

impl Connections {
    /// No connections yet; each will get a queue with these limits.
    #[must_use]
    pub fn new(limits: OutboundLimits) -> Self {
        Self {
            limits,
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
        }
    }

    /// Queues frames for clients, in their order, and wakes each client's task once, when all stand in their queues: tasks that
    /// wake for every frame would take the processor from the shard that goes on. An unknown connection is gone already: its
    /// frames are dropped, and its shard has been told or is about to be.
    pub fn push(&self, frames: impl IntoIterator<Item = (ConnectionId, ServerFrame)>) {
        let mut asleep = Vec::new();
        for (connection, frame) in frames {
            if let Some(outbox) = self.find(connection)
                && outbox.push(frame, self.limits)
            {
                asleep.push(outbox);
            }
        }
        for outbox in asleep {
            outbox.wake.notify_one();
        }
    }

    /// Closes a connection after what has been queued for it.
    pub fn close(&self, connection: ConnectionId, reason: CloseReason) {
        if let Some(outbox) = self.find(connection) {
            outbox.close(reason);
        }
    }

    /// Closes every connection after what has been queued for it.
    pub fn close_all(&self, reason: CloseReason) {
        for stripe in &self.stripes {
            let outboxes: Vec<_> = locked(stripe).values().cloned().collect();
            for outbox in outboxes {
                outbox.close(reason);
            }
        }
    }

    /// How many connections are open.
    #[must_use]
    pub fn count(&self) -> usize {
        self.stripes.iter().map(|stripe| locked(stripe).len()).sum()
    }

    pub(super) fn open(&self, connection: ConnectionId) -> Arc<Outbox> {
        let outbox = Arc::new(Outbox::default());
        if let Some(stripe) = self.stripe(connection) {
            locked(stripe).insert(connection, Arc::clone(&outbox));
        }
        outbox
    }

    pub(super) fn forget(&self, connection: ConnectionId) {
        if let Some(stripe) = self.stripe(connection) {
            locked(stripe).remove(&connection);
        }
    }

    fn find(&self, connection: ConnectionId) -> Option<Arc<Outbox>> {
        locked(self.stripe(connection)?).get(&connection).cloned()
    }

    fn stripe(&self, connection: ConnectionId) -> Option<&Mutex<HashMap<ConnectionId, Arc<Outbox>>>> {
        // The remainder is below 64, so it fits.
        self.stripes.get((connection.0 % STRIPES) as usize)
    }
}

/// The frames that wait for one client.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    state: Mutex<Queue>,
    wake: Notify,
    /// Apart from `wake`, because a connection with a full output waits for this one only.
    wake_to_close: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<ServerFrame>,
    bytes: usize,
    close: Option<CloseReason>,
}

impl Outbox {
    /// Whether the task is to be woken: it goes on by itself with a queue that it has not emptied.
    fn push(&self, frame: ServerFrame, limits: OutboundLimits) -> bool {
        let mut queue = locked(&self.state);
        if queue.close.is_some() {
            return false;
        }
        let bytes = queue.bytes + frame_bytes(&frame);
        if queue.frames.len() >= limits.frames || bytes > limits.bytes {
            // What waits will not be read; give the memory back now rather than when the close is through.
            *queue = Queue {
                close: Some(CloseReason::OutboundOverflow),
                ..Queue::default()
            };
            self.wake_to_close.notify_one();
            return true;
        }
        queue.bytes = bytes;
        queue.frames.push_back(frame);
        queue.frames.len() == 1
    }

    /// The first reason stands.
    pub(super) fn close(&self, reason: CloseReason) {
        locked(&self.state).close.get_or_insert(reason);
        self.wake.notify_one();
        self.wake_to_close.notify_one();
    }

    /// Moves waiting frames of about `budget` bytes to `frames`. Says why to close once nothing waits any more.
    pub(super) fn take(&self, budget: usize, frames: &mut Vec<ServerFrame>) -> Option<CloseReason> {
        let mut queue = locked(&self.state);
        let mut taken = 0;
        while taken < budget {
            let Some(frame) = queue.frames.pop_front() else {
                queue.frames = VecDeque::new();
                return queue.close;
            };
            let bytes = frame_bytes(&frame);
            queue.bytes = queue.bytes.saturating_sub(bytes);
            taken += bytes;
            frames.push(frame);
        }
        None
    }

    /// Completes when the connection is to be closed after what is queued. Says why.
    pub(super) async fn closing(&self) -> CloseReason {
        loop {
            if let Some(reason) = locked(&self.state).close {
                return reason;
            }
            self.wake_to_close.notified().await;
        }
    }

    /// Completes [`Outbox::changed`] once more.
    pub(super) fn nudge(&self) {
        self.wake.notify_one();
    }

    /// Completes when something has been pushed or the connection is to be closed since the last call.
    pub(super) async fn changed(&self) {
        self.wake.notified().await;
    }
}

/// About what a frame takes on the wire after encryption and base64.
fn frame_bytes(frame: &ServerFrame) -> usize {
    FRAME_BYTES
        + match frame {
            ServerFrame::Recv {
                message, channel_id, ..
            } => {
                let draft = &message.message.draft;
                let texts = draft.client_msg_no.len() + draft.topic.len() + channel_id.len();
                texts + (draft.payload.len() + 16).div_ceil(3) * 4
            }
            ServerFrame::SendAck { client_msg_no, .. }
            | ServerFrame::OutcomeUnknown { client_msg_no, .. } => client_msg_no.len(),
            ServerFrame::SubAck {
                sub_no, channel_id, ..
            } => sub_no.len() + channel_id.len(),
            ServerFrame::Connack { .. } | ServerFrame::Pong | ServerFrame::Disconnect { .. } => 0,
        }
}

/// No code panics while it holds one of these locks half-way through a change, so the state behind is whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: OutboundLimits = OutboundLimits {
        bytes: 10 * FRAME_BYTES,
        frames: 4,
    };

    fn long_ack() -> ServerFrame {
        ServerFrame::OutcomeUnknown {
            client_seq: 1,
            client_msg_no: "x".repeat(6 * FRAME_BYTES).into(),
        }
    }

    #[test]
    fn frames_come_in_order_and_the_close_after_them() {
        let connections = Connections::new(LIMITS);
        let connection = ConnectionId(7);
        let outbox = connections.open(connection);
        connections.push([(connection, ServerFrame::Pong)]);
        connections.push([(connection, long_ack())]);
        connections.close(connection, CloseReason::Kicked);
        connections.close(connection, CloseReason::ServerStop);
        connections.push([(connection, ServerFrame::Pong)]);
        let mut frames = Vec::new();
        assert_eq!(outbox.take(1, &mut frames), None);
        assert_eq!(frames, [ServerFrame::Pong]);
        assert_eq!(outbox.take(usize::MAX, &mut frames), Some(CloseReason::Kicked));
        assert_eq!(frames, [ServerFrame::Pong, long_ack()]);
    }

    #[test]
    fn too_many_frames_or_bytes_close_and_free_the_queue() {
        for (frame, fitting) in [(ServerFrame::Pong, 4), (long_ack(), 1)] {
            let outbox = Outbox::default();
            for _ in 0..fitting {
                outbox.push(frame.clone(), LIMITS);
            }
            assert_eq!(locked(&outbox.state).close, None);
            outbox.push(frame, LIMITS);
            let mut frames = Vec::new();
            assert_eq!(
                outbox.take(usize::MAX, &mut frames),
                Some(CloseReason::OutboundOverflow)
            );
            assert_eq!(frames, []);
        }
    }

    #[test]
    fn a_drained_queue_takes_again() {
        let outbox = Outbox::default();
        for _ in 0..20 {
            outbox.push(long_ack(), LIMITS);
            let mut frames = Vec::new();
            assert_eq!(outbox.take(usize::MAX, &mut frames), None);
            assert_eq!(frames.len(), 1);
        }
        assert_eq!(locked(&outbox.state).bytes, 0);
    }

    #[test]
    fn a_forgotten_connection_takes_nothing() {
        let connections = Connections::new(LIMITS);
        let outbox = connections.open(ConnectionId(64));
        assert_eq!(connections.count(), 1);
        connections.forget(ConnectionId(64));
        connections.push([(ConnectionId(64), ServerFrame::Pong)]);
        assert_eq!(connections.count(), 0);
        assert_eq!(outbox.take(usize::MAX, &mut Vec::new()), None);
    }
}
