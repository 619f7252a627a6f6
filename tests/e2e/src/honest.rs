//! Clients that behave while others do not: pairs of users that write to each other at a steady pace, and demand that every
//! message is stored and arrives, once and in order.

use crate::{Node, PATIENCE, Raw, TEXT, post};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// From one message of a client to its next.
const GAP: Duration = Duration::from_millis(100);

/// How long something took, each time.
#[derive(Clone, Debug, Default)]
pub struct Latencies(Vec<Duration>);

impl Latencies {
    /// What so many of a thousand did not exceed.
    pub fn quantile(&self, of_thousand: usize) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let at = (sorted.len() * of_thousand).div_ceil(1_000).saturating_sub(1);
        sorted.get(at).copied().unwrap_or_default()
    }
}

impl fmt::Display for Latencies {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [median, most, last] = [500, 990, 1_000].map(|share| self.quantile(share));
        write!(formatter, "p50 {median:.1?}, p99 {most:.1?}, longest {last:.1?}")
    }
}

/// What honest clients got. Times are counted from when a message was due, so that a client that was held up does not
/// hide it.
#[derive(Clone, Debug, Default)]
pub struct Served {
    /// To its SENDACK.
    pub acknowledged: Latencies,
    /// To its arrival at the other user.
    pub delivered: Latencies,
    /// How many came again, because their RECVACK took long.
    pub repeated: u64,
}

impl Served {
    /// How many messages were sent. All of them were stored and arrived.
    pub fn messages(&self) -> u64 {
        self.acknowledged.0.len() as u64
    }

    fn add(&mut self, other: Self) {
        self.acknowledged.0.extend(other.acknowledged.0);
        self.delivered.0.extend(other.delivered.0);
        self.repeated += other.repeated;
    }
}

impl fmt::Display for Served {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} honest messages, all stored and delivered; SENDACK {}; RECV {}; {} came twice",
            self.messages(),
            self.acknowledged,
            self.delivered,
            self.repeated
        )
    }
}

/// One client.
struct Client {
    uid: String,
    peer: String,
    reader: Raw,
    writer: Mutex<Raw>,
    /// When its first message is due, after the beginning.
    offset: Duration,
    /// The number of its last message, once it is known.
    last: AtomicU64,
}

/// Clients with open sessions.
pub struct Honest {
    clients: Vec<Client>,
}

impl Honest {
    /// Opens this many pairs of sessions, of users whose names begin so. They must not have written to each other before.
    ///
    /// # Errors
    /// When one is not admitted.
    pub fn open(node: &Node, name: &str, pairs: usize) -> Result<Self> {
        let count = pairs * 2;
        let open = |number: usize| {
            let uid = format!("{name}{number}");
            let reader = Raw::session(node.websocket(), &uid, "d")?;
            Ok(Client {
                peer: format!("{name}{}", number ^ 1),
                writer: Mutex::new(reader.second()?),
                reader,
                uid,
                offset: GAP * number as u32 / count as u32,
                last: AtomicU64::new(u64::MAX),
            })
        };
        let clients = (0..count).map(open).collect::<Result<_>>()?;
        Ok(Self { clients })
    }

    /// Writes until it is over, and demands that all was stored and arrived. A failure makes it over, so that whoever
    /// attacks meanwhile ends too.
    ///
    /// # Errors
    /// A message that was lost, refused or out of order, or a session that was closed.
    pub fn talk(mut self, node: &Node, over: &AtomicBool) -> Result<Served> {
        let begin = Instant::now();
        let offsets: Vec<Duration> = self.clients.iter().map(|client| client.offset).collect();
        let served = thread::scope(|scope| {
            let mut running = Vec::new();
            for (number, client) in self.clients.iter_mut().enumerate() {
                let Client {
                    uid,
                    peer,
                    reader,
                    writer,
                    offset,
                    last,
                } = client;
                let (uid, peer, writer, last) = (&*uid, &*peer, &*writer, &*last);
                let due = begin + *offset;
                let writes = scope.spawn(move || write(uid, peer, writer, last, due, over));
                let peer_due = begin + offsets[number ^ 1];
                let reads = scope.spawn(move || {
                    let outcome = read(reader, peer, writer, last, [due, peer_due]);
                    if outcome.is_err() {
                        over.store(true, Ordering::Relaxed);
                    }
                    outcome.with_context(|| format!("the honest {uid}"))
                });
                running.push((reads, writes));
            }
            let mut served = Served::default();
            let mut outcome = Ok(());
            for (reads, writes) in running {
                match reads.join().expect("no panic") {
                    Ok(one) => served.add(one),
                    Err(error) => outcome = outcome.and(Err(error)),
                }
                let written = writes.join().expect("no panic");
                outcome = outcome.and(written);
            }
            outcome.map(|()| served)
        })?;
        self.all_stored(node)?;
        Ok(served)
    }

    fn all_stored(&self, node: &Node) -> Result<()> {
        for pair in self.clients.chunks(2) {
            let sent: u64 = pair
                .iter()
                .map(|client| client.last.load(Ordering::Relaxed) + 1)
                .sum();
            let stored = stored(node, &pair[0].uid, &pair[0].peer)?;
            ensure!(
                stored == sent,
                "{} sent {sent} messages with {}, of which {stored} are stored",
                pair[0].uid,
                pair[0].peer
            );
        }
        Ok(())
    }
}

/// How many messages two users have in their channel, whose numbers must have no gap.
fn stored(node: &Node, uid: &str, peer: &str) -> Result<u64> {
    let mut count = 0;
    loop {
        let question = json!({
            "login_uid": uid, "channel_id": peer, "channel_type": 1, "start_message_seq": count + 1, "pull_mode": 1,
            "limit": 1_000,
        });
        let answer = post(node.http(), "/channel/messagesync", &question)?;
        ensure!(answer.status == 200, "{answer:?}");
        let messages = answer.body["messages"].as_array().context("a list")?;
        for message in messages {
            count += 1;
            ensure!(message["message_seq"] == count, "not number {count}: {message}");
        }
        if messages.is_empty() {
            return Ok(count);
        }
    }
}

/// Sends a message whenever one is due; the one that is sent when it is over says that it is the last.
fn write(
    uid: &str,
    peer: &str,
    writer: &Mutex<Raw>,
    last: &AtomicU64,
    begin: Instant,
    over: &AtomicBool,
) -> Result<()> {
    for number in 0_u32.. {
        thread::sleep((begin + GAP * number).saturating_duration_since(Instant::now()));
        let is_last = over.load(Ordering::Relaxed);
        if is_last {
            last.store(u64::from(number), Ordering::Relaxed);
        }
        let params = json!({
            "channelId": peer, "channelType": 1, "clientMsgNo": format!("{uid}-{number}"),
            "payload": { "type": 1, "number": number, "last": is_last },
        });
        locked(writer).call(&number.to_string(), "send", &params)?;
        if is_last {
            break;
        }
    }
    Ok(())
}

/// Reads answers and messages until the last of each has come. `dues` are those of the own first message and of the
/// other's.
fn read(
    reader: &mut Raw,
    peer: &str,
    writer: &Mutex<Raw>,
    last: &AtomicU64,
    dues: [Instant; 2],
) -> Result<Served> {
    let mut served = Served::default();
    let (mut answered, mut expected, mut has_all) = (0, 0, false);
    while !has_all || last.load(Ordering::Relaxed).checked_add(1) != Some(answered) {
        let frame = reader.json().with_context(|| {
            format!("within {PATIENCE:?}, after {answered} answers and {expected} messages")
        })?;
        let since = |due: Instant, number: u64| {
            let due = due + GAP * u32::try_from(number).unwrap_or(u32::MAX);
            Instant::now().saturating_duration_since(due)
        };
        let params = &frame["params"];
        if frame["method"] == "recv" && params["fromUid"] == peer {
            let number = params["payload"]["number"].as_u64().context("a number")?;
            let time = since(dues[1], number);
            acknowledge(writer, params)?;
            ensure!(number <= expected, "{expected} is missing before {number}");
            if number < expected {
                served.repeated += 1;
                continue;
            }
            served.delivered.0.push(time);
            has_all = params["payload"]["last"] == true;
            expected += 1;
        } else if let Some(number) = frame["id"].as_str() {
            let time = since(dues[0], number.parse()?);
            ensure!(frame["result"]["reasonCode"] == 1, "refused: {frame}");
            served.acknowledged.0.push(time);
            answered += 1;
        }
    }
    Ok(served)
}

fn acknowledge(writer: &Mutex<Raw>, params: &Value) -> Result<()> {
    let ack = json!({
        "method": "recvack", "params": { "messageId": params["messageId"], "messageSeq": params["messageSeq"] },
    });
    locked(writer).frame(0x80 | TEXT, ack.to_string().as_bytes())
}

fn locked(writer: &Mutex<Raw>) -> std::sync::MutexGuard<'_, Raw> {
    writer.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_what_so_many_did_not_exceed() {
        let latencies = Latencies((1..=200).rev().map(Duration::from_millis).collect());
        assert_eq!(latencies.quantile(500), Duration::from_millis(100));
        assert_eq!(latencies.quantile(990), Duration::from_millis(198));
        assert_eq!(latencies.quantile(1_000), Duration::from_millis(200));
        assert_eq!(Latencies::default().quantile(990), Duration::ZERO);
    }
}
