//! Packets that were valid before they were changed, before the login and within sessions, while honest clients go on (row
//! B53 of `broker/docs/hostile.md`).
//!
//! A changed packet counts when it is sure that the node has judged it. So those after which a session goes on come first,
//! and a valid call behind them, whose answer shows that they were read; which those are, our own decoder says. Then comes
//! one that may do anything, and the end of the stream, and the node must close. A session that ends before its time
//! counts as one.

mod change;
mod packets;
mod ways;

pub use change::Dice;

use crate::honest::{Honest, Served};
use crate::vitals::{MIB, Vitals};
use crate::{Node, Say};
use anyhow::Result;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use ways::{Attacker, WAYS};

/// As many as row B53 has.
pub const FULL: u64 = 10_000_000;
/// The same kinds in a moment.
pub const SMALL: u64 = 4_000;

/// Connections that are open at once.
const THREADS: u64 = 16;
/// Pairs of honest clients.
const HONEST_PAIRS: usize = 1;
/// From one line of progress to the next.
const PROGRESS: Duration = Duration::from_secs(5);

/// What was tried.
#[derive(Clone, Debug)]
pub struct Tried {
    /// Changed packets that the node has judged.
    pub judged: u64,
    /// Connections that brought them.
    pub connections: u64,
    /// Connections that ended before their time, so that only one packet of each counts.
    pub cut_short: u64,
    /// What the honest clients got meanwhile.
    pub served: Served,
}

/// What is counted over all threads.
#[derive(Default)]
struct Counts {
    /// By way.
    judged: [AtomicU64; WAYS.len()],
    connections: [AtomicU64; WAYS.len()],
    cut_short: AtomicU64,
}

impl Counts {
    fn total(&self) -> u64 {
        sum(&self.judged)
    }

    /// The way that is furthest behind its share.
    fn next(&self) -> usize {
        let behind = |way: &usize| self.judged[*way].load(Ordering::Relaxed) * 1_000 / WAYS[*way].share;
        (0..WAYS.len()).min_by_key(behind).unwrap_or_default()
    }
}

fn sum(counts: &[AtomicU64]) -> u64 {
    counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
}

/// Sends this many changed packets to a node, and demands that honest clients lose nothing and that it is as well afterwards
/// as it was before. Some go first, so that what is made at the first use is not counted. The log of the node must be kept.
///
/// # Errors
/// A promise that was broken, a node that does not stand it, or one that does not close a connection.
pub fn run(node: &Node, size: u64, say: Say<'_>) -> Result<Tried> {
    attack(node, SMALL.min(size), "warm", say)?;
    let before = Vitals::of(node)?;
    let closes = node.closes()?;
    let begin = Instant::now();
    let (tried, counts) = attack(node, size, "honest", say)?;
    let seconds = begin.elapsed().as_secs_f64();
    let mut reasons = node.closes()?;
    for (reason, count) in closes {
        reasons.entry(reason).and_modify(|now| *now -= count);
    }
    say(&format!(
        "{} changed packets over {} connections in {seconds:.1} s; {} connections ended before their time",
        tried.judged, tried.connections, tried.cut_short
    ));
    for (way, (judged, connections)) in WAYS.iter().zip(counts.judged.iter().zip(&counts.connections)) {
        say(&format!(
            "  {}: {} over {} connections",
            way.name,
            judged.load(Ordering::Relaxed),
            connections.load(Ordering::Relaxed)
        ));
    }
    say(&format!("closes as the node counts them: {reasons:?}"));
    say(&tried.served.to_string());
    let after = before.hold(node)?;
    say(&format!(
        "before: {before}; after: {after}; at most {} MiB",
        node.resident_bytes_peak()? / MIB
    ));
    Ok(tried)
}

fn attack(node: &Node, size: u64, name: &str, say: Say<'_>) -> Result<(Tried, Counts)> {
    let honest = Honest::open(node, name, HONEST_PAIRS)?;
    let over = AtomicBool::new(false);
    let counts = Counts::default();
    let (served, outcome) = thread::scope(|scope| {
        let honest = scope.spawn(|| honest.talk(node, &over));
        let working: Vec<_> = (0..THREADS)
            .map(|number| {
                let (counts, over) = (&counts, &over);
                scope.spawn(move || work(node, number, size, counts, over))
            })
            .collect();
        let mut told = Instant::now();
        while !working.iter().all(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(50));
            if told.elapsed() >= PROGRESS {
                told = Instant::now();
                tell(node, size, &counts, say);
            }
        }
        let outcomes = working.into_iter().map(|one| one.join().expect("no panic"));
        let outcome = outcomes.fold(Ok(()), Result::and);
        over.store(true, Ordering::Relaxed);
        (honest.join().expect("no panic"), outcome)
    });
    // What the honest clients lack is worth more than what the others met.
    let served = served?;
    outcome?;
    let tried = Tried {
        judged: counts.total(),
        connections: sum(&counts.connections),
        cut_short: counts.cut_short.load(Ordering::Relaxed),
        served,
    };
    Ok((tried, counts))
}

/// A line of progress.
fn tell(node: &Node, size: u64, counts: &Counts, say: Say<'_>) {
    if let Ok(memory) = node.resident_bytes() {
        say(&format!(
            "{} of {size} changed packets, {} connections, {} MiB",
            counts.total(),
            sum(&counts.connections),
            memory / MIB
        ));
    }
}

/// One connection after another, until there were enough packets.
fn work(node: &Node, number: u64, size: u64, counts: &Counts, over: &AtomicBool) -> Result<()> {
    let mut attacker = Attacker::new(node, number);
    while counts.total() < size && !over.load(Ordering::Relaxed) {
        let way = counts.next();
        let round = attacker.connect(&WAYS[way]);
        let round = round.inspect_err(|_| over.store(true, Ordering::Relaxed))?;
        counts.judged[way].fetch_add(round.judged, Ordering::Relaxed);
        counts.connections[way].fetch_add(1, Ordering::Relaxed);
        counts
            .cut_short
            .fetch_add(u64::from(round.is_cut_short), Ordering::Relaxed);
    }
    Ok(())
}
