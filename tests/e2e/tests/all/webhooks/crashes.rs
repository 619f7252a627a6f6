//! The broker is killed in the middle of bursts, again and again: what was acknowledged arrives, in order, under ids that stay.

use super::receiver::{Answer, Receiver, Seen};
use super::{SECRET, broker, hook, make, send_to};
use anyhow::{Result, ensure};
use penstock_e2e::until;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

const KILLS: u64 = 20;
const CHANNELS: [&str; 3] = ["one", "two", "three"];

/// Sends to each channel until it is told to stop. What was acknowledged.
fn burst(http: &str, round: u64, over: &Arc<AtomicBool>) -> Vec<thread::JoinHandle<Vec<String>>> {
    let senders = CHANNELS.into_iter().map(|channel| {
        let (http, over) = (http.to_owned(), Arc::clone(over));
        thread::spawn(move || {
            let mut acknowledged = Vec::new();
            for number in 0.. {
                let name = format!("{channel}-{round}-{number}");
                // Whether one that a dead broker did not answer was stored is its own secret.
                match send_to(&http, channel, &name) {
                    Ok(true) => acknowledged.push(name),
                    Ok(false) | Err(_) if over.load(Ordering::Relaxed) => break,
                    Ok(false) | Err(_) => thread::sleep(Duration::from_millis(1)),
                }
                if over.load(Ordering::Relaxed) {
                    break;
                }
            }
            acknowledged
        })
    });
    senders.collect()
}

/// Every id has one content, and no channel goes on before what is before has come.
fn check(seen: &[Seen]) -> Result<()> {
    let mut contents: BTreeMap<&str, &[Value]> = BTreeMap::new();
    let mut reached: BTreeMap<String, u64> = BTreeMap::new();
    for request in seen {
        ensure!(request.verified == [true], "not verified: {}", request.id);
        let known = contents.entry(&request.id).or_insert(&request.messages);
        ensure!(*known == request.messages, "{} has another content", request.id);
        for message in &request.messages {
            let channel = message["channel_id"].as_str().unwrap_or_default();
            let seq = message["message_seq"].as_u64().unwrap_or_default();
            let last = reached.entry(channel.to_owned()).or_default();
            let first = request.messages[0]["message_seq"].as_u64().unwrap_or_default();
            // Within a request they follow each other, and it begins where the channel is, or before.
            ensure!(
                first <= *last + 1 && seq - first < request.messages.len() as u64,
                "{channel} goes from {last} on with {seq} in {first}"
            );
        }
        let end = request.messages.last().filter(|_| request.taken);
        if let Some(end) = end {
            let channel = end["channel_id"].as_str().unwrap_or_default();
            let last = reached.entry(channel.to_owned()).or_default();
            *last = (*last).max(end["message_seq"].as_u64().unwrap_or_default());
        }
    }
    Ok(())
}

#[test]
fn twenty_kills_in_the_middle_of_bursts_lose_nothing() -> Result<()> {
    let mut node = broker(&[SECRET])?;
    // Some requests fail, so that windows are repeated without a crash too.
    let receiver = Receiver::start(&[SECRET], |number| match number % 17 {
        5 => Answer::Status(500),
        _ => Answer::Status(200),
    })?;
    for channel in CHANNELS {
        make(&node, channel)?;
    }
    hook(&node, "hook", &receiver, "*", &json!({}))?;
    let acknowledged: Mutex<BTreeSet<String>> = Mutex::default();
    let keep = |senders: Vec<thread::JoinHandle<Vec<String>>>| {
        let mut acknowledged = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        for sender in senders {
            acknowledged.extend(sender.join().unwrap_or_default());
        }
    };
    for round in 0..KILLS {
        let over = Arc::new(AtomicBool::new(false));
        let senders = burst(node.http(), round, &over);
        // Another moment of a burst each time.
        thread::sleep(Duration::from_millis(120 + round * 37 % 200));
        node.kill()?;
        over.store(true, Ordering::Relaxed);
        keep(senders);
        node.restart()?;
    }
    // Nobody says anything any more.
    let acknowledged = acknowledged.into_inner().unwrap_or_else(PoisonError::into_inner);
    ensure!(
        acknowledged.len() > 200,
        "only {} messages were sent",
        acknowledged.len()
    );
    let missing = |seen: &[Seen]| -> usize {
        let taken = seen.iter().filter(|request| request.taken);
        let arrived: BTreeSet<&str> = taken
            .flat_map(|request| &request.messages)
            .filter_map(|message| message["client_msg_no"].as_str())
            .collect();
        acknowledged
            .iter()
            .filter(|name| !arrived.contains(name.as_str()))
            .count()
    };
    let arrived = until("everything that was acknowledged arrives", || {
        Ok(missing(&receiver.seen()) == 0)
    });
    let seen = receiver.seen();
    arrived.map_err(|error| {
        error.context(format!(
            "{} of {} are missing",
            missing(&seen),
            acknowledged.len()
        ))
    })?;
    check(&seen)
}
