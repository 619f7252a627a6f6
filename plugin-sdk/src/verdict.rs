//! What becomes of messages, and the frame that says it.

use crate::frame::LAYOUT;

/// Words of the header of verdicts.
pub(crate) const HEADER_WORDS: usize = 4;
/// Words of an entry of verdicts.
pub(crate) const ENTRY_WORDS: usize = 10;

/// Words of an entry of verdicts; of a field of bytes, the first.
pub(crate) mod word {
    pub(crate) const KIND: usize = 0;
    pub(crate) const CODE: usize = 1;
    pub(crate) const TEXT: usize = 2;
    pub(crate) const CHANGED: usize = 4;
    pub(crate) const PAYLOAD: usize = 5;
    pub(crate) const TOPIC: usize = 7;
    pub(crate) const EXPIRE_SECONDS: usize = 9;
}

/// What becomes of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on as it is.
    Allow,
    /// It is refused.
    Reject {
        /// The code that the sender gets; 0 leaves it to the broker.
        code: u32,
        /// Shown to the sender where its protocol has room for it; at most 1 KiB.
        text: String,
    },
    /// It goes on changed.
    Rewrite(Rewrite),
}

/// What is changed; what is none stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewrite {
    /// The new payload.
    pub payload: Option<Vec<u8>>,
    /// The new topic.
    pub topic: Option<String>,
    /// The new expiry, seconds; 0 for ever.
    pub expire_seconds: Option<u32>,
}

/// Builds the frame of the verdicts: push one for each message, in order.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    arena: Vec<u8>,
    /// Empty as long as every message is allowed, which is what filters mostly say.
    index: Vec<u32>,
    count: usize,
}

impl Verdicts {
    /// No verdict yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the verdict on the next message.
    pub fn push(&mut self, verdict: &Verdict) {
        let mut entry = [0; ENTRY_WORDS];
        match verdict {
            Verdict::Allow => {
                self.count += 1;
                if !self.index.is_empty() {
                    self.index.extend_from_slice(&entry);
                }
                return;
            }
            Verdict::Reject { code, text } => {
                entry[word::KIND] = 1;
                entry[word::CODE] = *code;
                self.field(&mut entry, word::TEXT, text.as_bytes());
            }
            Verdict::Rewrite(rewrite) => {
                entry[word::KIND] = 2;
                if let Some(payload) = &rewrite.payload {
                    entry[word::CHANGED] |= 1;
                    self.field(&mut entry, word::PAYLOAD, payload);
                }
                if let Some(topic) = &rewrite.topic {
                    entry[word::CHANGED] |= 2;
                    self.field(&mut entry, word::TOPIC, topic.as_bytes());
                }
                if let Some(seconds) = rewrite.expire_seconds {
                    entry[word::CHANGED] |= 4;
                    entry[word::EXPIRE_SECONDS] = seconds;
                }
            }
        }
        if self.index.is_empty() {
            self.index
                .extend_from_slice(&[LAYOUT, HEADER_WORDS as u32, ENTRY_WORDS as u32, 0]);
            // Those that were allowed before it.
            self.index.resize(HEADER_WORDS + self.count * ENTRY_WORDS, 0);
        }
        self.count += 1;
        self.index.extend_from_slice(&entry);
    }

    /// Arena and index. Both are empty when every message is allowed as it is.
    ///
    /// # Panics
    /// Never: a guest has less than 4 GiB, and so fewer verdicts.
    #[must_use]
    pub fn finish(mut self) -> (Vec<u8>, Vec<u32>) {
        if let Some(count) = self.index.get_mut(3) {
            *count = u32::try_from(self.count).expect("a guest has less than 4 GiB");
        }
        (self.arena, self.index)
    }

    fn field(&mut self, entry: &mut [u32; ENTRY_WORDS], first: usize, bytes: &[u8]) {
        entry[first] = u32::try_from(self.arena.len()).expect("a guest has less than 4 GiB");
        entry[first + 1] = u32::try_from(bytes.len()).expect("a guest has less than 4 GiB");
        self.arena.extend_from_slice(bytes);
    }
}
