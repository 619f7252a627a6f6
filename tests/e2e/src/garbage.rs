//! Many sessions that send garbage without end, while honest clients go on (row B27 of `broker/docs/hostile.md`).

use crate::honest::{Honest, Served};
use crate::vitals::{MIB, Vitals};
use crate::{Node, PATIENCE, Raw, Say, TEXT, masked};
use anyhow::{Result, ensure};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Frames that every session owes in each second, in bursts.
const FRAMES_PER_SECOND: u32 = 50;
const BURSTS_PER_SECOND: u32 = 10;
/// In how many groups the bursts are spread over their time.
const GROUPS: u32 = 10;
/// Threads that send, each with a helper that opens what was closed.
const THREADS: usize = 4;
/// At most so many frames are written at once, by a session that has to catch up.
const BATCH: u64 = 50;
/// From one line of progress to the next.
const PROGRESS: Duration = Duration::from_secs(5);
/// One frame in so many is no JSON at all and ends its session, which is then opened again.
const ENDING_EVERY: u64 = 1_000;

/// What no method wants: unknown, of wrong types, no request, out of place, or for what is not there. All of it is answered, or
/// ignored, and the session stays.
const GARBAGE: [&str; 8] = [
    r#"{"id":"1","method":"nonsense","params":[]}"#,
    r#"{"id":"1","method":"send","params":{"channelId":5,"channelType":"x"}}"#,
    r#"{"id":"1","method":"send","params":{"channelId":"nowhere","channelType":2,"clientMsgNo":"","payload":{"type":1}}}"#,
    r#"[{"id":"1","method":"ping"}]"#,
    r#"{"method":"recvack","params":{"messageId":"99","messageSeq":99}}"#,
    r#"{"id":"1","method":"subscribe","params":{"subNo":"s","channelId":"nowhere","channelType":2}}"#,
    r#"{"id":1,"jsonrpc":"1.0"}"#,
    r#"{"id":"1","method":"send","params":{"channelId":"a@b@c","channelType":1,"clientMsgNo":"x","payload":"no base64"}}"#,
];
const ENDING: &str = r#"{"id":"1","method"#;

/// How large a flood is.
#[derive(Clone, Copy, Debug)]
pub struct Flood {
    /// Sessions that send garbage, 50 frames a second each. Every other one never reads.
    pub sessions: usize,
    /// For how long.
    pub seconds: u32,
    /// Pairs of honest clients meanwhile, each of whom sends ten messages a second.
    pub honest_pairs: usize,
}

impl Flood {
    /// As row B27 has it.
    pub const FULL: Self = Self {
        sessions: 2_000,
        seconds: 60,
        honest_pairs: 5,
    };
    /// The same kinds of garbage in a moment.
    pub const SMALL: Self = Self {
        sessions: 200,
        seconds: 1,
        honest_pairs: 2,
    };

    fn frames(&self) -> u64 {
        self.sessions as u64 * u64::from(FRAMES_PER_SECOND * self.seconds)
    }
}

/// What a flood was.
#[derive(Clone, Debug)]
pub struct Flooded {
    /// Garbage frames that were sent.
    pub sent: u64,
    /// How often the node closed a session of those that send it, which then came back.
    pub closed: u64,
    /// How often it did not admit one that came back.
    pub refused: u64,
    /// What the honest clients got meanwhile.
    pub served: Served,
}

/// Floods a node, and demands that honest clients lose nothing and that it is as well afterwards as it was before. A small
/// flood goes first, so that what is made at the first use is not counted. The log of the node must be kept.
///
/// # Errors
/// A promise that was broken, or a node that does not stand it.
pub fn run(node: &Node, flood: &Flood, say: Say<'_>) -> Result<Flooded> {
    attack(node, &Flood::SMALL, "warm", say)?;
    let before = Vitals::of(node)?;
    let (frames, closes) = (node.counted("penstock_gateway_frames_in_total")?, node.closes()?);
    let begin = Instant::now();
    let flooded = attack(node, flood, "honest", say)?;
    let seconds = begin.elapsed().as_secs_f64();
    let frames = node.counted("penstock_gateway_frames_in_total")? - frames;
    let mut reasons = node.closes()?;
    for (reason, count) in closes {
        reasons.entry(reason).and_modify(|now| *now -= count);
    }
    say(&format!(
        "{} sessions sent {} garbage frames in {seconds:.1} s; {} times one was closed and came back, {} times it was not admitted; \
         the node read {frames} frames in all",
        flood.sessions, flooded.sent, flooded.closed, flooded.refused
    ));
    say(&format!("closes as the node counts them: {reasons:?}"));
    say(&flooded.served.to_string());
    let after = before.hold(node)?;
    say(&format!(
        "before: {before}; after: {after}; at most {} MiB",
        node.resident_bytes_peak()? / MIB
    ));
    Ok(flooded)
}

fn attack(node: &Node, flood: &Flood, name: &str, say: Say<'_>) -> Result<Flooded> {
    let honest = Honest::open(node, name, flood.honest_pairs)?;
    let mut troops = (0..THREADS)
        .map(|first| Troop::gather(node, (first..flood.sessions).step_by(THREADS)))
        .collect::<Result<Vec<_>>>()?;
    let over = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    let (served, met) = thread::scope(|scope| {
        let honest = scope.spawn(|| honest.talk(node, &over));
        let marching: Vec<_> = troops
            .iter_mut()
            .map(|troop| scope.spawn(|| troop.march(node, flood.seconds, &sent, &over)))
            .collect();
        let mut told = Instant::now();
        while !marching.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(50));
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                tell(node, flood, &sent, say);
            }
        }
        let met: Result<Vec<Met>> = marching
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .collect();
        over.store(true, Ordering::Relaxed);
        (honest.join().expect("no panic"), met)
    });
    // What the honest clients lack is worth more than what the others met.
    let served = served?;
    let sent = sent.into_inner();
    ensure!(sent == flood.frames(), "only {sent} garbage frames were sent");
    let met = met?;
    Ok(Flooded {
        sent,
        closed: met.iter().map(|one| one.closed).sum(),
        refused: met.iter().map(|one| one.refused).sum(),
        served,
    })
}

/// A line of progress.
fn tell(node: &Node, flood: &Flood, sent: &AtomicU64, say: Say<'_>) {
    let sent = sent.load(Ordering::Relaxed);
    if let Ok(memory) = node.resident_bytes() {
        say(&format!(
            "{sent} of {} garbage frames, {} MiB",
            flood.frames(),
            memory / MIB
        ));
    }
}

/// One session that sends garbage.
struct Session {
    number: usize,
    /// Nothing while it is being opened again.
    stream: Option<TcpStream>,
    reads: bool,
    /// Frames that it should have sent by now and has not.
    owed: u64,
    /// Frames that it has begun to write in its life.
    begun: u64,
    /// The bytes of those that are not written yet, and how many frames they are.
    pending: Vec<u8>,
    pending_frames: u64,
    /// It has sent what ends it, and waits for that.
    is_ending: bool,
}

impl Session {
    /// Writes what is owed and takes what has come, without waiting. Says whether the node has closed.
    fn pump(&mut self, sent: &AtomicU64) -> Result<bool> {
        let Some(stream) = &mut self.stream else {
            return Ok(false);
        };
        if (self.reads || self.is_ending) && drained(stream)? {
            return Ok(true);
        }
        loop {
            while !self.pending.is_empty() {
                match stream.write(&self.pending) {
                    Ok(length) => drop(self.pending.drain(..length)),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                    Err(error) => return is_closed(&error).map(|()| true),
                }
            }
            sent.fetch_add(std::mem::take(&mut self.pending_frames), Ordering::Relaxed);
            if self.is_ending || self.owed == 0 {
                return Ok(false);
            }
            while self.owed > 0 && self.pending_frames < BATCH && !self.is_ending {
                self.owed -= 1;
                self.begun += 1;
                self.pending_frames += 1;
                // Not all in the same second.
                self.is_ending = (self.begun + self.number as u64 * 7).is_multiple_of(ENDING_EVERY);
                let text = match self.is_ending {
                    true => ENDING,
                    false => GARBAGE[(self.begun + self.number as u64) as usize % GARBAGE.len()],
                };
                self.pending
                    .extend_from_slice(&masked(0x80 | TEXT, text.as_bytes()));
            }
        }
    }
}

/// Takes what has come; whether the end has.
fn drained(stream: &mut TcpStream) -> Result<bool> {
    let mut bytes = [0; 16_384];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return is_closed(&error).map(|()| true),
        }
    }
}

/// Anything else than the end of a connection is a fault of ours.
fn is_closed(error: &std::io::Error) -> Result<()> {
    let kind = error.kind();
    let is_end = matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
    ensure!(is_end, "a garbage session: {error}");
    Ok(())
}

/// What the sessions of one thread met.
#[derive(Clone, Copy, Debug, Default)]
struct Met {
    closed: u64,
    refused: u64,
}

/// The sessions of one thread.
struct Troop {
    sessions: Vec<Session>,
}

impl Troop {
    fn gather(node: &Node, numbers: impl Iterator<Item = usize>) -> Result<Self> {
        let sessions = numbers.map(|number| {
            Ok(Session {
                number,
                stream: Some(enlist(node, number)?),
                reads: (number / THREADS).is_multiple_of(2),
                owed: 0,
                begun: 0,
                pending: Vec::new(),
                pending_frames: 0,
                is_ending: false,
            })
        });
        Ok(Self {
            sessions: sessions.collect::<Result<_>>()?,
        })
    }

    /// Sends until all that was owed is sent, or it is over; then leaves, and waits until the node has read it all.
    fn march(&mut self, node: &Node, seconds: u32, sent: &AtomicU64, over: &AtomicBool) -> Result<Met> {
        let (ask, asked) = channel();
        let (give, given) = channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                while let Ok(number) = asked.recv() {
                    if give.send((number, enlist(node, number))).is_err() {
                        break;
                    }
                }
            });
            let met = self.send(seconds, sent, over, &ask, &given);
            drop(ask);
            met
        })
    }

    fn send(
        &mut self,
        seconds: u32,
        sent: &AtomicU64,
        over: &AtomicBool,
        ask: &Sender<usize>,
        given: &Receiver<(usize, Result<TcpStream>)>,
    ) -> Result<Met> {
        let begin = Instant::now();
        let steps = seconds * BURSTS_PER_SECOND * GROUPS;
        let step_time = Duration::from_secs(1) / (BURSTS_PER_SECOND * GROUPS);
        let late = begin + Duration::from_secs(seconds.into()) + PATIENCE;
        let mut met = Met::default();
        for step in 0_u32.. {
            thread::sleep((begin + step_time * step).saturating_duration_since(Instant::now()));
            while let Ok((number, stream)) = given.try_recv() {
                self.sessions[number / THREADS].stream = stream.ok();
                if self.sessions[number / THREADS].stream.is_none() {
                    met.refused += 1;
                    ask.send(number)?;
                }
            }
            let group = (step % GROUPS) as usize;
            for session in self.sessions.iter_mut().skip(group).step_by(GROUPS as usize) {
                if step < steps {
                    session.owed += u64::from(FRAMES_PER_SECOND / BURSTS_PER_SECOND);
                }
                if session.pump(sent)? {
                    met.closed += 1;
                    // What a close has cut off is owed still.
                    session.owed += std::mem::take(&mut session.pending_frames);
                    session.pending.clear();
                    session.is_ending = false;
                    session.stream = None;
                    ask.send(session.number)?;
                }
            }
            let owes = |session: &Session| session.owed + session.pending_frames > 0;
            let is_done = step >= steps && !self.sessions.iter().any(owes);
            if is_done || over.load(Ordering::Relaxed) {
                break;
            }
            ensure!(Instant::now() < late, "the node does not take what is sent");
        }
        self.leave()?;
        Ok(met)
    }

    /// Ends all sessions. The node closes each when it has read all that was sent.
    fn leave(&mut self) -> Result<()> {
        let streams = self
            .sessions
            .iter_mut()
            .filter_map(|session| session.stream.take());
        let streams: Vec<TcpStream> = streams.collect();
        for stream in &streams {
            stream.set_nonblocking(false)?;
            // One that was closed already has ended too.
            drop(stream.shutdown(std::net::Shutdown::Write));
        }
        for mut stream in streams {
            let ended = std::io::copy(&mut stream, &mut std::io::sink());
            if let Err(error) = ended {
                is_closed(&error)?;
            }
        }
        Ok(())
    }
}

/// A session whose socket never waits.
fn enlist(node: &Node, number: usize) -> Result<TcpStream> {
    let raw = Raw::session(node.websocket(), &format!("mallory{number}"), "d")?;
    let stream = raw.into_stream();
    stream.set_nonblocking(true)?;
    Ok(stream)
}
