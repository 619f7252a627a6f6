//! One connection under load: sends what is due, acknowledges what comes, and keeps the account that the verdict is made of.

use std::collections::HashMap;
use std::future::{Future as _, pending};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Buf as _;
use penstock_wire::client::acknowledgement;
use penstock_wire::reason::Reason;
use penstock_wire::wkproto::{Flags, Frame, Recv, Send, SendAck};
use tokio::io::{AsyncReadExt as _, Interest};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep_until};

use crate::link::LinkError;
use crate::meter::{Batch, Meter};
use crate::pace::Clock;
use crate::payload::{Content, Stamp};
use crate::plan::Lane;
use crate::session::{Session, reason_name};
use crate::verify::Witness;

/// Nothing is sent while more than this waits for the socket, in bytes: the server does not take it.
const OUTPUT_BYTES_HIGH: usize = 256 * 1024;
/// Room for one read, in bytes.
const READ_BYTES: usize = 16 * 1024;
/// Reads in a row before the others get their turn.
const READS_IN_A_ROW: usize = 16;
/// Sends in a row before the others get their turn.
const SENDS_IN_A_ROW: usize = 64;
/// A sender that was refused waits this long.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(10);
/// Clients ping this often.
const PING_INTERVAL: Duration = Duration::from_secs(60);

/// What the connections do at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Nothing is sent.
    Quiet,
    /// Sends are under way.
    Run,
    /// No new sends; what is owed still comes.
    Drain,
    /// The connections close.
    Stop,
}

/// What the connections of a run share.
pub(crate) struct Shared {
    /// The run's clock.
    pub(crate) clock: Clock,
    /// The run.
    pub(crate) run: u64,
    /// Bytes of a payload.
    pub(crate) payload: usize,
    /// Sends without an answer in the closed loop; `None` in the open loop.
    pub(crate) window: Option<usize>,
    /// What was due before this does not count, in nanoseconds of the clock.
    pub(crate) count_from_ns: AtomicU64,
    /// The counters.
    pub(crate) meter: Meter,
}

/// What a connection leaves behind.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What it sent and received.
    pub(crate) witness: Witness,
    /// Why it ended early.
    pub(crate) lost: Option<String>,
    /// Sends that were never answered.
    pub(crate) unanswered: u64,
}

/// A send that waits for its answer.
struct Pending {
    channel: u32,
    seq: u32,
    receivers: u64,
    due_ns: u64,
}

/// One connection under load.
pub(crate) struct Traffic {
    number: usize,
    session: Session,
    lanes: Vec<Lane>,
    shared: Arc<Shared>,
    phase: watch::Receiver<Phase>,
    /// Due times of the open loop.
    due: Option<mpsc::UnboundedReceiver<u64>>,
    ping: Interval,
    paused_until: Option<Instant>,
    client_seq: u32,
    in_flight: HashMap<u32, Pending>,
    batch: Batch,
    witness: Witness,
}

enum Event {
    Socket(io::Result<tokio::io::Ready>),
    Phase(bool),
    Due(u64),
    PauseEnds,
    Ping,
}

async fn next_due(due: &mut Option<mpsc::UnboundedReceiver<u64>>) -> u64 {
    match due {
        Some(due) => match due.recv().await {
            Some(due_ns) => due_ns,
            None => pending().await,
        },
        None => pending().await,
    }
}

async fn pause_ends(paused_until: Option<Instant>) {
    match paused_until {
        Some(until) => sleep_until(until).await,
        None => pending().await,
    }
}

impl Traffic {
    /// The connection of the user with this number, who writes to these lanes.
    #[must_use]
    pub(crate) fn new(
        number: usize,
        session: Session,
        lanes: Vec<Lane>,
        shared: Arc<Shared>,
        phase: watch::Receiver<Phase>,
        due: Option<mpsc::UnboundedReceiver<u64>>,
    ) -> Self {
        let mut ping = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            number,
            session,
            lanes,
            shared,
            phase,
            due,
            ping,
            paused_until: None,
            client_seq: 0,
            in_flight: HashMap::new(),
            batch: Batch::default(),
            witness: Witness::default(),
        }
    }

    /// Works until the run stops or the connection is lost.
    pub(crate) async fn run(mut self) -> Outcome {
        let lost = self.work().await.err();
        self.shared.meter.take(self.number, &mut self.batch);
        Outcome {
            unanswered: self.in_flight.len() as u64,
            witness: self.witness,
            lost,
        }
    }

    async fn work(&mut self) -> Result<(), String> {
        // What came together with the CONNACK.
        self.take_frames()?;
        loop {
            let phase = *self.phase.borrow_and_update();
            if phase == Phase::Stop {
                return Ok(());
            }
            if phase == Phase::Run {
                self.fill_window()?;
            }
            self.write_out()?;
            self.shared.meter.take(self.number, &mut self.batch);
            match self.next_event(phase).await {
                Event::Socket(ready) => {
                    let ready = ready.map_err(|error| format!("the socket failed: {}", error.kind()))?;
                    if ready.is_readable() || ready.is_read_closed() {
                        self.read()?;
                    }
                }
                Event::Due(due_ns) => self.send_due(due_ns)?,
                Event::PauseEnds => self.paused_until = None,
                Event::Ping => self.write(&Frame::Ping)?,
                Event::Phase(true) => {}
                Event::Phase(false) => return Ok(()),
            }
        }
    }

    async fn next_event(&mut self, phase: Phase) -> Event {
        let waits_to_write = !self.session.link.output.is_empty();
        let interest = if waits_to_write {
            Interest::READABLE | Interest::WRITABLE
        } else {
            Interest::READABLE
        };
        // What was due in time is sent in the drain too: leaving it out would hide how late it was.
        let takes_due =
            matches!(phase, Phase::Run | Phase::Drain) && self.session.link.output.len() < OUTPUT_BYTES_HIGH;
        tokio::select! {
            ready = self.session.stream.ready(interest) => Event::Socket(ready),
            changed = self.phase.changed() => Event::Phase(changed.is_ok()),
            due_ns = next_due(&mut self.due), if takes_due => Event::Due(due_ns),
            () = pause_ends(self.paused_until) => Event::PauseEnds,
            _ = self.ping.tick() => Event::Ping,
        }
    }

    /// Keeps the window of the closed loop full.
    fn fill_window(&mut self) -> Result<(), String> {
        let Some(window) = self.shared.window else {
            return Ok(());
        };
        if self.lanes.is_empty() || self.paused_until.is_some() {
            return Ok(());
        }
        while self.in_flight.len() < window && self.session.link.output.len() < OUTPUT_BYTES_HIGH {
            self.send(self.shared.clock.now_ns())?;
        }
        Ok(())
    }

    /// Sends what is due in the open loop.
    fn send_due(&mut self, first_ns: u64) -> Result<(), String> {
        let mut next = Some(first_ns);
        let mut sends = 0;
        while let Some(due_ns) = next {
            let now_ns = self.shared.clock.now_ns();
            if self.counts(due_ns) {
                self.batch.lag_ns.push(now_ns.saturating_sub(due_ns));
            }
            self.send(due_ns)?;
            sends += 1;
            let goes_on = sends < SENDS_IN_A_ROW && self.session.link.output.len() < OUTPUT_BYTES_HIGH;
            next = match &mut self.due {
                Some(due) if goes_on => due.try_recv().ok(),
                _ => None,
            };
        }
        Ok(())
    }

    fn counts(&self, due_ns: u64) -> bool {
        due_ns >= self.shared.count_from_ns.load(Ordering::Relaxed)
    }

    fn send(&mut self, due_ns: u64) -> Result<(), String> {
        let lane = &self.lanes[self.client_seq as usize % self.lanes.len()];
        self.client_seq += 1;
        let seq = self.witness.sent.entry(lane.channel).or_default().next();
        let stamp = Stamp {
            run: self.shared.run,
            channel: lane.channel,
            sender: u32::try_from(self.number).unwrap_or(u32::MAX),
            seq,
            due_ns,
        };
        let mut send = Send {
            flags: Flags {
                red_dot: true,
                ..Flags::default()
            },
            client_seq: self.client_seq,
            client_msg_no: format!("{:x}-{}-{}", self.shared.run, self.number, self.client_seq),
            channel_id: lane.channel_id.clone(),
            channel_type: lane.channel_type,
            payload: stamp.payload(self.shared.payload),
            ..Send::default()
        };
        let pending = Pending {
            channel: lane.channel,
            seq,
            receivers: lane.receivers,
            due_ns,
        };
        self.session.cipher.seal_send(&mut send);
        self.in_flight.insert(self.client_seq, pending);
        self.batch.sent += 1;
        self.write(&Frame::Send(send))
    }

    fn write(&mut self, frame: &Frame) -> Result<(), String> {
        let written = self.session.link.write(frame, self.session.version);
        written.map_err(|error| error.to_string())
    }

    /// Writes as much as the socket takes.
    fn write_out(&mut self) -> Result<(), String> {
        let output = &mut self.session.link.output;
        while !output.is_empty() {
            match self.session.stream.try_write(output) {
                Ok(count) => output.advance(count),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(format!("the socket failed: {}", error.kind())),
            }
        }
        Ok(())
    }

    fn read(&mut self) -> Result<(), String> {
        for _ in 0..READS_IN_A_ROW {
            let input = &mut self.session.link.input;
            input.reserve(READ_BYTES);
            let room = input.capacity() - input.len();
            let read =
                pin!(self.session.stream.read_buf(input)).poll(&mut Context::from_waker(Waker::noop()));
            match read {
                Poll::Ready(Ok(0)) => return Err("the server closed the connection".to_owned()),
                Poll::Ready(Ok(count)) => {
                    self.take_frames()?;
                    if count < room {
                        // The socket is empty, and tokio knows it: no second system call is needed to learn that.
                        break;
                    }
                }
                Poll::Ready(Err(error)) => return Err(format!("the socket failed: {}", error.kind())),
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    fn take_frames(&mut self) -> Result<(), String> {
        loop {
            let next = self.session.link.frame(self.session.version);
            match next.map_err(|error: LinkError| error.to_string())? {
                Some(Frame::SendAck(ack)) => self.answered(&ack),
                Some(Frame::Recv(recv)) => self.received(&recv)?,
                Some(Frame::Disconnect(disconnect)) => {
                    let reason = reason_name(disconnect.reason_code);
                    return Err(format!("the server ended the session: {reason}"));
                }
                Some(_) => {}
                None => return Ok(()),
            }
        }
    }

    fn answered(&mut self, ack: &SendAck) {
        let Some(pending) = self.in_flight.remove(&ack.client_seq) else {
            return;
        };
        if ack.reason_code != Reason::Success.code() {
            self.batch.refused.push(ack.reason_code);
            // The open loop goes on: its rate is what was asked for.
            if self.shared.window.is_some() {
                self.paused_until = Some(Instant::now() + PAUSE_AFTER_REFUSAL);
            }
            return;
        }
        self.witness
            .sent
            .entry(pending.channel)
            .or_default()
            .promised(pending.seq);
        self.batch.acknowledged += 1;
        self.batch.owed += pending.receivers;
        if self.counts(pending.due_ns) {
            let took_ns = self.shared.clock.now_ns().saturating_sub(pending.due_ns);
            self.batch.sendack_ns.push(took_ns);
        }
    }

    fn received(&mut self, recv: &Recv) -> Result<(), String> {
        let Ok(payload) = self.session.cipher.open_recv(recv) else {
            // A client ignores what it cannot open.
            self.witness.found.corrupt += 1;
            return Ok(());
        };
        match Stamp::read(&payload, self.shared.run, self.shared.payload) {
            Content::Ours(stamp) => self.take(&stamp, recv.message_seq),
            Content::Corrupt => self.witness.found.corrupt += 1,
            Content::Foreign => self.batch.foreign += 1,
        }
        self.write(&Frame::RecvAck(acknowledgement(recv)))
    }

    fn take(&mut self, stamp: &Stamp, message_seq: u64) {
        // Some servers echo a message to its sender.
        if stamp.sender as usize == self.number {
            return;
        }
        let new = self
            .witness
            .take(stamp.channel, stamp.sender, stamp.seq, message_seq);
        if !new {
            return;
        }
        self.batch.delivered += 1;
        if self.counts(stamp.due_ns) {
            let took_ns = self.shared.clock.now_ns().saturating_sub(stamp.due_ns);
            self.batch.recv_ns.push(took_ns);
        }
    }
}
