//! Verdicts on their way from a guest. Nothing in them is believed before it is checked.

use super::{LAYOUT, VERDICTS_ENTRY, VERDICTS_HEADER};
use crate::typed::refusal_code;
use bytes::Bytes;
use penstock_core::hooks::pipeline::{Rewrite, Verdict};
use penstock_core::message::{Draft, REFUSAL_BYTES_MAX, Refusal};
use std::sync::Arc;

/// Longest topic, bytes, as the protocol has it.
pub(crate) const TOPIC_BYTES_MAX: usize = 1_024;

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// Too short for its own header, or of another layout.
    #[error("the header of the verdicts is not one of layout {LAYOUT}")]
    Header,
    /// Not one verdict for each message.
    #[error("{found} verdicts for {wanted} messages")]
    Count {
        /// Entries of the answer.
        found: u32,
        /// Messages of the call.
        wanted: usize,
    },
    /// The index has not the words that its header promises.
    #[error("the index has {found} words, its header promises {wanted}")]
    Length {
        /// Words.
        found: usize,
        /// Promised.
        wanted: u64,
    },
    /// A field lies outside the arena.
    #[error("verdict {entry}: bytes {at} to {at}+{length} lie outside of the arena of {arena}")]
    Range {
        /// Of the answer.
        entry: usize,
        /// Offset.
        at: u32,
        /// Length.
        length: u32,
        /// Bytes of the arena.
        arena: usize,
    },
    /// A text is not UTF-8.
    #[error("verdict {0}: a text is not UTF-8")]
    Text(usize),
    /// A number that means nothing.
    #[error("verdict {entry}: {what} {found} means nothing")]
    Value {
        /// Of the answer.
        entry: usize,
        /// Which number.
        what: &'static str,
        /// Its value.
        found: u32,
    },
    /// Something is longer than it may be.
    #[error("verdict {entry}: {what} of {found} bytes, at most {max} are allowed")]
    Long {
        /// Of the answer.
        entry: usize,
        /// What.
        what: &'static str,
        /// Bytes.
        found: usize,
        /// Limit.
        max: usize,
    },
}

/// One verdict for each of the drafts, from what a guest returned.
///
/// # Errors
/// When the answer is not exactly that.
pub fn verdicts(
    arena: &[u8],
    index: &[u32],
    drafts: &[Draft],
    payload_bytes_max: usize,
) -> Result<Vec<Verdict>, BadFrame> {
    if index.is_empty() {
        return Ok(vec![Verdict::Allow; drafts.len()]);
    }
    let &[layout, header, entry, count, ..] = index else {
        return Err(BadFrame::Header);
    };
    if layout != LAYOUT || header < VERDICTS_HEADER || entry < VERDICTS_ENTRY {
        return Err(BadFrame::Header);
    }
    if usize::try_from(count) != Ok(drafts.len()) {
        return Err(BadFrame::Count {
            found: count,
            wanted: drafts.len(),
        });
    }
    let words = u64::from(header) + u64::from(entry) * u64::from(count);
    if u64::try_from(index.len()) != Ok(words) {
        return Err(BadFrame::Length {
            found: index.len(),
            wanted: words,
        });
    }
    let entries = index[header as usize..].chunks_exact(entry as usize);
    let reader = Reader {
        arena,
        payload_bytes_max,
    };
    entries
        .zip(drafts)
        .enumerate()
        .map(|(at, (words, draft))| reader.verdict(at, words, draft))
        .collect()
}

struct Reader<'a> {
    arena: &'a [u8],
    payload_bytes_max: usize,
}

impl Reader<'_> {
    fn verdict(&self, at: usize, words: &[u32], draft: &Draft) -> Result<Verdict, BadFrame> {
        match words[0] {
            0 => Ok(Verdict::Allow),
            1 => self.rejection(at, words),
            2 => self.rewrite(at, words, draft),
            found => Err(BadFrame::Value {
                entry: at,
                what: "verdict",
                found,
            }),
        }
    }

    fn rejection(&self, at: usize, words: &[u32]) -> Result<Verdict, BadFrame> {
        let code = u8::try_from(words[1]).map_err(|_| BadFrame::Value {
            entry: at,
            what: "code",
            found: words[1],
        })?;
        let text = self.text(at, "text", words[2], words[3], REFUSAL_BYTES_MAX)?;
        Ok(Verdict::Reject(Refusal {
            reason: refusal_code(code),
            text: (!text.is_empty()).then(|| Arc::from(text)),
        }))
    }

    fn rewrite(&self, at: usize, words: &[u32], draft: &Draft) -> Result<Verdict, BadFrame> {
        let mask = words[4];
        if mask > 7 {
            return Err(BadFrame::Value {
                entry: at,
                what: "mask",
                found: mask,
            });
        }
        let payload = if mask & 1 == 0 {
            draft.payload.clone()
        } else {
            let payload = self.bytes(at, words[5], words[6])?;
            if payload.len() > self.payload_bytes_max {
                return Err(BadFrame::Long {
                    entry: at,
                    what: "payload",
                    found: payload.len(),
                    max: self.payload_bytes_max,
                });
            }
            Bytes::copy_from_slice(payload)
        };
        let topic = if mask & 2 == 0 {
            Arc::clone(&draft.topic)
        } else {
            Arc::from(self.text(at, "topic", words[7], words[8], TOPIC_BYTES_MAX)?)
        };
        let expire_s = if mask & 4 == 0 { draft.expire_s } else { words[9] };
        Ok(Verdict::Rewrite(Rewrite {
            payload,
            expire_s,
            topic,
        }))
    }

    fn text(
        &self,
        entry: usize,
        what: &'static str,
        at: u32,
        length: u32,
        max: usize,
    ) -> Result<&str, BadFrame> {
        let bytes = self.bytes(entry, at, length)?;
        if bytes.len() > max {
            return Err(BadFrame::Long {
                entry,
                what,
                found: bytes.len(),
                max,
            });
        }
        std::str::from_utf8(bytes).map_err(|_| BadFrame::Text(entry))
    }

    fn bytes(&self, entry: usize, at: u32, length: u32) -> Result<&[u8], BadFrame> {
        let end = u64::from(at) + u64::from(length);
        let range = usize::try_from(end)
            .ok()
            .and_then(|end| self.arena.get(at as usize..end));
        range.ok_or(BadFrame::Range {
            entry,
            at,
            length,
            arena: self.arena.len(),
        })
    }
}
