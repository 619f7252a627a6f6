//! `plugin_frame`: what a guest returns from `before-send`, to the decoder of the flat frame.
//!
//! A second reader, which follows `broker/docs/plugin-frame.md` word by word, says of each answer whether it is one, and what it
//! means. The decoder agrees, and never reads beyond what the guest gave.

use crate::input::Input;
use bytes::Bytes;
use penstock_core::hooks::pipeline::Verdict;
use penstock_core::message::{Draft, MessageFlags, REFUSAL_BYTES_MAX};
use penstock_core::types::{Reason, Uid};
use penstock_plugin_host::frame::{LAYOUT, VERDICTS_ENTRY, VERDICTS_HEADER, verdicts};
use std::sync::Arc;

/// Most drafts of one call.
const DRAFTS_MAX: usize = 5;
/// Longest topic, bytes, as the page has it.
const TOPIC_BYTES_MAX: usize = 1_024;

/// One verdict, as the second reader sees it.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Allow,
    Reject(u8, String),
    Rewrite {
        payload: Option<Vec<u8>>,
        topic: Option<String>,
        expire_s: Option<u32>,
    },
}

/// Runs one input.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let drafts: Vec<Draft> = (0..input.below(DRAFTS_MAX)).map(draft).collect();
    let payload_bytes_max = [0, 16, 32_767][input.below(3)];
    let index = index(&mut input, drafts.len());
    let arena = input.remaining();
    let found = verdicts(arena, &index, &drafts, payload_bytes_max);
    let seen = read(arena, &index, drafts.len(), payload_bytes_max);
    let found = match (found, seen) {
        (Ok(found), Some(seen)) => found.into_iter().zip(seen).zip(&drafts),
        (Err(error), None) => return assert!(!error.to_string().is_empty()),
        (found, seen) => panic!("decoded as {found:?}, but it is {seen:?}"),
    };
    for ((found, seen), draft) in found {
        assert!(agrees(&found, &seen, draft), "{found:?} is not {seen:?}");
    }
}

fn draft(number: usize) -> Draft {
    Draft {
        from_uid: Uid::new("ann"),
        client_msg_no: Arc::from("n"),
        flags: MessageFlags::default(),
        setting: 0,
        expire_s: 7,
        topic: Arc::from("topic"),
        payload: Bytes::from(format!("payload {number}")),
        origin: None,
        subscribers: Arc::from([]),
        attributes: None,
        hops: 0,
    }
}

/// Words of an index: mostly such as a guest would write, so that the search begins behind the header.
fn index(input: &mut Input<'_>, drafts: usize) -> Vec<u32> {
    if input.rarely(8) {
        return (0..input.below(64)).map(|_| word(input)).collect();
    }
    let header = VERDICTS_HEADER + small(input);
    let entry = VERDICTS_ENTRY + small(input);
    let count = if input.rarely(8) {
        word(input)
    } else {
        u32::try_from(drafts).unwrap_or_default()
    };
    let mut index = vec![LAYOUT, header, entry, count];
    index.resize(header as usize, 0);
    for _ in 0..drafts {
        let first = index.len();
        index.push(u32::try_from(input.below(4)).unwrap_or_default());
        index.extend((1..entry).map(|_| word(input)));
        if input.rarely(2) {
            index[first + 1] %= 256;
            index[first + 4] %= 8;
        }
    }
    if input.rarely(8) {
        index.truncate(input.below(64));
    }
    index
}

/// A later layout may have more words: now and then there are some.
fn small(input: &mut Input<'_>) -> u32 {
    if input.rarely(8) {
        u32::try_from(input.below(4)).unwrap_or_default()
    } else {
        0
    }
}

fn word(input: &mut Input<'_>) -> u32 {
    u32::try_from(input.number() & u64::from(u32::MAX)).unwrap_or_default()
}

/// The second reader: what the answer means, or nothing when it is not one.
fn read(arena: &[u8], index: &[u32], drafts: usize, payload_bytes_max: usize) -> Option<Vec<Seen>> {
    if index.is_empty() {
        return Some((0..drafts).map(|_| Seen::Allow).collect());
    }
    let wide: Vec<u128> = index.iter().map(|word| u128::from(*word)).collect();
    let [layout, header, entry, count] = *wide.first_chunk()?;
    let fits = layout == u128::from(LAYOUT)
        && header >= u128::from(VERDICTS_HEADER)
        && entry >= u128::from(VERDICTS_ENTRY)
        && count == drafts as u128
        && header + entry * count == wide.len() as u128;
    if !fits {
        return None;
    }
    let bytes = |at: u128, length: u128| -> Option<Vec<u8>> {
        let inside = at + length <= arena.len() as u128;
        inside.then(|| {
            arena
                .iter()
                .skip(at as usize)
                .take(length as usize)
                .copied()
                .collect()
        })
    };
    let text = |at: u128, length: u128, max: usize| -> Option<String> {
        let bytes = bytes(at, length).filter(|bytes| bytes.len() <= max)?;
        String::from_utf8(bytes).ok()
    };
    (0..drafts)
        .map(|number| {
            let first = header as usize + number * entry as usize;
            let word = |place: usize| wide[first + place];
            match word(0) {
                0 => Some(Seen::Allow),
                1 => {
                    let code = u8::try_from(word(1)).ok()?;
                    Some(Seen::Reject(code, text(word(2), word(3), REFUSAL_BYTES_MAX)?))
                }
                2 if word(4) < 8 => {
                    let has = |bit: u128| word(4) & bit != 0;
                    let payload = match has(1) {
                        true => {
                            Some(bytes(word(5), word(6)).filter(|bytes| bytes.len() <= payload_bytes_max)?)
                        }
                        false => None,
                    };
                    let topic = match has(2) {
                        true => Some(text(word(7), word(8), TOPIC_BYTES_MAX)?),
                        false => None,
                    };
                    Some(Seen::Rewrite {
                        payload,
                        topic,
                        expire_s: has(4).then(|| index[first + 9]),
                    })
                }
                _ => None,
            }
        })
        .collect()
}

fn agrees(found: &Verdict, seen: &Seen, draft: &Draft) -> bool {
    match (found, seen) {
        (Verdict::Allow, Seen::Allow) => true,
        (Verdict::Reject(refusal), Seen::Reject(code, text)) => {
            let reason = match code {
                0 => Reason::NOT_ALLOWED,
                code => Reason(*code),
            };
            refusal.reason == reason && refusal.text.as_deref().unwrap_or_default() == text
        }
        (
            Verdict::Rewrite(rewrite),
            Seen::Rewrite {
                payload,
                topic,
                expire_s,
            },
        ) => {
            rewrite.payload == payload.as_deref().unwrap_or(&draft.payload)
                && *rewrite.topic == *topic.as_deref().unwrap_or(&draft.topic)
                && rewrite.expire_s == expire_s.unwrap_or(draft.expire_s)
        }
        _ => false,
    }
}

/// Answers of each kind, good ones and such that break one rule.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    // Drafts, longest payload, no raw words, no more words in header and entry, count as it is.
    let head = |drafts: u8| vec![drafts, 2, 0, 0, 0, 0];
    // Kind, code, text, mask, payload, topic, expire; kept within their ranges; nothing cut off.
    let entry = |words: [u8; 10]| [&words[..], &[1]].concat();
    let end = |arena: &str| [&[0][..], arena.as_bytes()].concat();
    let arena = "words for the sender, payload";
    let entries: [&[[u8; 10]]; 7] = [
        &[[0; 10]],
        &[[1, 13, 0, 20, 0, 0, 0, 0, 0, 0]],
        &[[2, 0, 0, 0, 7, 22, 7, 0, 5, 60]],
        &[
            [2, 0, 0, 0, 1, 22, 7, 0, 0, 0],
            [1, 0, 0, 5, 0, 0, 0, 0, 0, 0],
            [0; 10],
        ],
        &[[1, 11, 25, 20, 0, 0, 0, 0, 0, 0]],
        &[[2, 0, 0, 0, 4, 0, 0, 0, 0, 9]],
        &[[3, 0, 0, 0, 0, 0, 0, 0, 0, 0]],
    ];
    let mut seeds: Vec<Vec<u8>> = entries
        .iter()
        .map(|entries| {
            let count = u8::try_from(entries.len()).unwrap_or_default();
            let words: Vec<u8> = entries.iter().flat_map(|words| entry(*words)).collect();
            [head(count), words, end(arena)].concat()
        })
        .collect();
    seeds.push(vec![3, 2, 7, 0]);
    seeds.push(Vec::new());
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_reach_every_kind_of_verdict() {
        let mut kinds = [0; 4];
        for seed in seeds() {
            let mut input = Input::new(&seed);
            let drafts = input.below(DRAFTS_MAX);
            input.u8();
            let index = index(&mut input, drafts);
            match read(input.remaining(), &index, drafts, 32_767) {
                None => kinds[3] += 1,
                Some(seen) => {
                    for seen in seen {
                        kinds[match seen {
                            Seen::Allow => 0,
                            Seen::Reject(..) => 1,
                            Seen::Rewrite { .. } => 2,
                        }] += 1;
                    }
                }
            }
        }
        assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
    }
}
