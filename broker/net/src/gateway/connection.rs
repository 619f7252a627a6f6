//! The task of one connection: moves bytes, keeps deadlines, and hands frames to and from the shard.
//!
//! It reads only while its shard takes what was read, its output is below a bound and not too many requests wait, so that
//! a connection holds a bounded amount of unread input. It never waits for one thing alone: a slow client, a full shard
//! and a deadline are all awaited together.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use penstock_core::client::{CloseReason, ServerFrame};
use penstock_core::types::{ConnectionId, Reason};
use penstock_wire::{jsonrpc, wkproto::Frame, wkproto::Version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until, timeout};

use super::clock::Clock;
use super::connections::Outbox;
use super::latency::Unanswered;
use super::link::{End, Link, OUTPUT_BYTES_HIGH};
use super::listen::Admission;
use super::rpc::{self, RpcSession};
use super::wk::{self, WkSession};
use super::{Dispatch, Inbound, Offer, Shared};

/// Least and most room for one read, in bytes: it grows while a peer fills it.
const READ_BYTES_MIN: usize = 4 * 1024;
const READ_BYTES_MAX: usize = 64 * 1024;
/// What is read and thrown away after a close, so that unread input does not reset the connection under the last bytes.
const DRAIN_BYTES_MAX: usize = 256 * 1024;

/// The protocol of a connection, fixed by its first bytes.
enum Dialect {
    Unknown,
    Wk(Box<WkSession>),
    Rpc(Box<RpcSession>),
}

/// One open connection.
pub(super) struct Connection<D: Dispatch> {
    id: ConnectionId,
    shared: Arc<Shared<D>>,
    admission: Admission<D>,
    stream: TcpStream,
    outbox: Arc<Outbox>,
    link: Link,
    dialect: Dialect,
    /// Read and not taken by the shard yet.
    pending: VecDeque<Inbound>,
    /// The shard has been told of this connection and must be told of its end.
    is_announced: bool,
    /// The client said that it leaves.
    is_leaving: bool,
    /// The last step stopped before the end of the input or of the queue, because the output was full.
    is_input_left: bool,
    is_outbox_left: bool,
    read_bytes: usize,
    clock: Clock,
    unanswered: Unanswered,
}

impl<D: Dispatch> Connection<D> {
    /// A connection over `stream`; with `upgraded`, a WebSocket whose first bytes these are.
    pub(super) fn new(
        id: ConnectionId,
        stream: TcpStream,
        upgraded: Option<BytesMut>,
        outbox: Arc<Outbox>,
        admission: Admission<D>,
    ) -> Self {
        let now = Instant::now();
        let (link, dialect) = match upgraded {
            Some(input) => (Link::websocket(input), Dialect::Unknown),
            None => (Link::raw(), Dialect::Wk(Box::new(WkSession::new()))),
        };
        Self {
            id,
            shared: admission.shared(),
            admission,
            stream,
            outbox,
            link,
            dialect,
            pending: VecDeque::new(),
            is_announced: false,
            is_leaving: false,
            is_input_left: false,
            is_outbox_left: false,
            read_bytes: READ_BYTES_MIN,
            clock: Clock::new(now),
            unanswered: Unanswered::default(),
        }
    }

    /// Serves the connection until it ends.
    pub(super) async fn run(mut self) {
        let end = self.serve().await;
        self.finish(end).await;
    }

    async fn serve(&mut self) -> End {
        let timer = sleep_until(self.due().0);
        tokio::pin!(timer);
        loop {
            self.clock.now = Instant::now();
            if let Some(end) = self.step() {
                return end;
            }
            let (due, overdue) = self.due();
            if due < timer.deadline() {
                timer.as_mut().reset(due);
            }
            let wants_output = self.link.output.len() < OUTPUT_BYTES_HIGH;
            tokio::select! {
                result = self.stream.readable(), if self.wants_input() => {
                    if result.is_err() || self.read().is_err() {
                        return self.gone();
                    }
                }
                result = self.stream.writable(), if !self.link.output.is_empty() => {
                    if result.is_err() {
                        return CloseReason::PeerClosed.into();
                    }
                }
                () = self.outbox.changed(), if wants_output => {}
                reason = self.outbox.closing(), if self.clock.closing.is_none() => {
                    if reason == CloseReason::OutboundOverflow {
                        // The queue is gone, and the peer does not read what is left.
                        return reason.into();
                    }
                    self.clock.closing = Some((Instant::now(), reason));
                }
                () = self.shared.dispatch.room(self.id), if !self.pending.is_empty() => {}
                () = timer.as_mut() => {
                    // The deadline may have moved since the timer was set.
                    if Instant::now() >= due {
                        return self.late(overdue);
                    }
                    timer.as_mut().reset(due);
                }
            }
        }
    }

    /// Everything that can be done without waiting.
    fn step(&mut self) -> Option<End> {
        if let Some(end) = self.take_input() {
            // What is queued already stands before the end, a kick's DISCONNECT above all.
            return Some(self.take_outbox().unwrap_or(end));
        }
        let end = self.take_outbox();
        let written = self.write();
        self.link.flush_control();
        self.link.shrink();
        let can_go_on = self.link.output.len() < OUTPUT_BYTES_HIGH
            && (self.is_outbox_left || self.is_input_left && self.wants_input());
        if can_go_on {
            // What was left for want of room has room now, and nothing else would wake this task for it.
            self.outbox.nudge();
        }
        end.or_else(|| written.is_err().then(|| CloseReason::PeerClosed.into()))
    }

    fn wants_input(&self) -> bool {
        self.pending.is_empty() && self.may_take_more()
    }

    fn may_take_more(&self) -> bool {
        let is_full = match &self.dialect {
            Dialect::Rpc(session) => session.is_full(),
            Dialect::Unknown | Dialect::Wk(_) => false,
        };
        !is_full && !self.is_leaving && self.link.output.len() < OUTPUT_BYTES_HIGH
    }

    /// Hands frames to the shard until there are no more or it takes no more.
    fn take_input(&mut self) -> Option<End> {
        self.is_input_left = false;
        loop {
            if !self.offer_pending() {
                return None;
            }
            if self.is_leaving {
                return Some(CloseReason::PeerClosed.into());
            }
            if !self.may_take_more() {
                self.is_input_left = true;
                return None;
            }
            match self.take_frame() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(end) => return Some(end),
            }
        }
    }

    fn offer_pending(&mut self) -> bool {
        while let Some(event) = self.pending.pop_front() {
            let is_first = matches!(event, Inbound::Opened);
            match self.shared.dispatch.offer(self.id, event) {
                Offer::Taken => self.is_announced |= is_first,
                Offer::Full(event) => {
                    self.pending.push_front(event);
                    self.shared.metrics.mailbox_full.add(1);
                    return false;
                }
            }
        }
        true
    }

    /// Reads one frame of the dialect, if it has come.
    fn take_frame(&mut self) -> Result<bool, End> {
        match &mut self.dialect {
            Dialect::Unknown => match self.link.message()? {
                Some(message) => self.choose_dialect(message).map(|()| true),
                None => Ok(false),
            },
            Dialect::Wk(session) => match self.link.frame(session.version())? {
                Some(frame) => {
                    let step = session.accept(frame);
                    self.wk_step(step).map(|()| true)
                }
                None => Ok(false),
            },
            Dialect::Rpc(_) => match self.link.message()? {
                Some(message) => self.rpc_message(&message).map(|()| true),
                None => Ok(false),
            },
        }
    }

    /// The first byte that is not white space decides for the life of the connection (client contract, section 3.3).
    fn choose_dialect(&mut self, message: Bytes) -> Result<(), End> {
        let first = message
            .iter()
            .find(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'));
        match first {
            None => Ok(()),
            Some(b'{' | b'[') => {
                self.dialect = Dialect::Rpc(Box::new(RpcSession::new()));
                self.rpc_message(&message)
            }
            Some(_) => {
                self.dialect = Dialect::Wk(Box::new(WkSession::new()));
                self.link.unframe(&message);
                Ok(())
            }
        }
    }

    fn wk_step(&mut self, step: wk::Step) -> Result<(), End> {
        self.came();
        match step {
            wk::Step::Forward(frame) => self.forward(frame),
            wk::Step::Ignore => {}
            wk::Step::Refuse(frame, reason) => {
                self.write_wk(&frame, Version::UNNEGOTIATED);
                return Err(reason.into());
            }
            wk::Step::Close(reason) => return Err(reason.into()),
        }
        Ok(())
    }

    fn rpc_message(&mut self, message: &[u8]) -> Result<(), End> {
        let parsed = jsonrpc::parse(message, self.link.body_bytes_max());
        let Dialect::Rpc(session) = &mut self.dialect else {
            return Ok(());
        };
        let step = session.accept(parsed);
        self.came();
        match step {
            rpc::Step::Forward(frame) => self.forward(frame),
            rpc::Step::Answer(text, frame) => {
                self.write_rpc(&text);
                if let Some(frame) = frame {
                    self.forward(frame);
                }
            }
            rpc::Step::Refuse(text, reason) => {
                self.write_rpc(&text);
                return Err(reason.into());
            }
        }
        Ok(())
    }

    /// A whole frame came: only that counts as a sign of life (rule PR-5).
    fn came(&mut self) {
        self.clock.last_frame = self.clock.now;
        self.shared.metrics.frames_in.add(1);
    }

    fn forward(&mut self, mut frame: penstock_core::client::ClientFrame) {
        use penstock_core::client::ClientFrame;
        self.unanswered.came(&frame, self.clock.now);
        match &mut frame {
            ClientFrame::Connect(connect) => {
                connect.address = crate::addresses::peer(&self.stream);
                self.clock.connect_came = Some(self.clock.now);
                self.pending.push_back(Inbound::Opened);
            }
            ClientFrame::Disconnect { .. } => self.is_leaving = true,
            ClientFrame::Send(_)
            | ClientFrame::RecvAck { .. }
            | ClientFrame::Ping
            | ClientFrame::Subscribe(_) => {}
        }
        self.pending.push_back(Inbound::Frame(frame));
    }

    /// Puts queued frames into the output, up to its bound.
    fn take_outbox(&mut self) -> Option<End> {
        let mut frames = Vec::new();
        self.is_outbox_left = true;
        while self.link.output.len() < OUTPUT_BYTES_HIGH {
            let close = self
                .outbox
                .take(OUTPUT_BYTES_HIGH - self.link.output.len(), &mut frames);
            let is_last = frames.is_empty();
            for frame in frames.drain(..) {
                if let Some(end) = self.write_server_frame(frame) {
                    return Some(close.map_or(end, End::from));
                }
            }
            if let Some(reason) = close {
                return Some(reason.into());
            }
            if is_last {
                self.is_outbox_left = false;
                break;
            }
        }
        None
    }

    /// Encodes one frame. A failure CONNACK is the end.
    fn write_server_frame(&mut self, frame: ServerFrame) -> Option<End> {
        let now = self.clock.now;
        self.unanswered
            .answered(&frame, now, &self.shared.metrics.sendack);
        let connack = match &frame {
            ServerFrame::Connack { reason, .. } => Some(*reason),
            _ => None,
        };
        match &mut self.dialect {
            Dialect::Unknown => {}
            Dialect::Wk(session) => {
                if let Some((frame, version)) = session.reply(frame) {
                    self.write_wk(&frame, version);
                }
            }
            Dialect::Rpc(session) => {
                if let Some(text) = session.reply(frame) {
                    self.write_rpc(&text);
                }
            }
        }
        match connack {
            Some(Reason::SUCCESS) => {
                self.link.authenticated();
                self.admission.authenticated();
                self.clock.last_frame = self.clock.now;
                None
            }
            Some(Reason::SYSTEM_ERROR) => Some(CloseReason::ActivationFailed.into()),
            Some(_) => Some(CloseReason::AuthFailed.into()),
            None => None,
        }
    }

    fn write_wk(&mut self, frame: &Frame, version: Version) {
        match self.link.write_frame(frame, version) {
            Ok(()) => self.shared.metrics.frames_out.add(1),
            Err(error) => {
                self.shared.metrics.frames_unencodable.add(1);
                tracing::debug!(connection = self.id.0, %error, "a frame was left out");
            }
        }
    }

    fn write_rpc(&mut self, text: &str) {
        self.link.write_text(text);
        self.shared.metrics.frames_out.add(1);
    }

    /// Reads once. An error or the end of the stream is an error.
    fn read(&mut self) -> Result<(), ()> {
        self.link.input.reserve(self.read_bytes);
        let room = self.link.input.capacity() - self.link.input.len();
        // Polled once: unlike a try, a read that leaves room tells tokio that the socket is empty.
        let read = pin!(self.stream.read_buf(&mut self.link.input));
        match read.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(0) | Err(_)) => Err(()),
            Poll::Ready(Ok(length)) => {
                self.shared.metrics.bytes_in.add(length as u64);
                self.read_bytes = if length == room {
                    (self.read_bytes * 2).min(READ_BYTES_MAX)
                } else {
                    (self.read_bytes / 2).max(READ_BYTES_MIN)
                };
                Ok(())
            }
            Poll::Pending => Ok(()),
        }
    }

    /// Writes what the socket takes.
    fn write(&mut self) -> Result<(), ()> {
        while !self.link.output.is_empty() {
            match self.stream.try_write(&self.link.output) {
                Ok(0) => return Err(()),
                Ok(length) => {
                    self.link.output.advance(length);
                    self.shared.metrics.bytes_out.add(length as u64);
                    self.clock.write_stalled = None;
                }
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.clock.write_stalled.get_or_insert(self.clock.now);
                    return Ok(());
                }
                Err(_) => return Err(()),
            }
        }
        self.clock.write_stalled = None;
        Ok(())
    }

    fn is_open(&self) -> bool {
        match &self.dialect {
            Dialect::Unknown => false,
            Dialect::Wk(session) => session.is_open(),
            Dialect::Rpc(session) => session.is_open(),
        }
    }

    fn due(&self) -> (Instant, CloseReason) {
        self.clock.due(self.is_open(), &self.shared.config)
    }

    fn late(&mut self, overdue: CloseReason) -> End {
        if overdue == CloseReason::ActivationFailed {
            let refusal = ServerFrame::refusal(Reason::SYSTEM_ERROR);
            self.write_server_frame(refusal);
        }
        overdue.into()
    }

    /// The peer is gone; what it sent before is judged all the same, because a refusal says more than "gone".
    fn gone(&mut self) -> End {
        self.take_input()
            .unwrap_or_else(|| CloseReason::PeerClosed.into())
    }

    /// Tells the shard first, then gives the peer a bounded time to take what is written.
    async fn finish(&mut self, end: End) {
        self.outbox.close(end.reason);
        self.shared.connections.forget(self.id);
        if self.is_announced {
            self.shared.dispatch.closed(self.id);
        }
        self.shared.metrics.count_close(end.reason);
        tracing::debug!(
            connection = self.id.0,
            reason = super::close_label(end.reason),
            "connection closed"
        );
        self.link.write_close(end);
        let limit: Duration = self.shared.config.close_timeout;
        // A peer that does not take its last bytes in time has lost them.
        let _ = timeout(limit, self.flush_and_drain()).await;
    }

    async fn flush_and_drain(&mut self) -> std::io::Result<()> {
        let output = std::mem::take(&mut self.link.output);
        self.stream.write_all(&output).await?;
        self.shared.metrics.bytes_out.add(output.len() as u64);
        self.stream.shutdown().await?;
        // On the heap, so that the task of an idle connection does not hold its place.
        let mut thrown_away = BytesMut::with_capacity(READ_BYTES_MIN);
        let mut drained = 0;
        while drained < DRAIN_BYTES_MAX {
            match self.stream.read_buf(&mut thrown_away).await? {
                0 => break,
                length => drained += length,
            }
            thrown_away.clear();
        }
        Ok(())
    }
}
