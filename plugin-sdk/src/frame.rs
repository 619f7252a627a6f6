//! The messages of a call, read where they lie. `broker/docs/plugin-frame.md` has the layout.

use std::fmt;

/// Version of the layout that is read and written.
pub(crate) const LAYOUT: u32 = 1;
/// Words of the header of messages.
pub(crate) const HEADER_WORDS: usize = 5;
/// Words of an entry of messages.
pub(crate) const ENTRY_WORDS: usize = 26;

/// Words of an entry of messages; of a field of bytes, the first.
pub(crate) mod word {
    pub(crate) const CHANNEL_ID: usize = 0;
    pub(crate) const CHANNEL_KIND: usize = 2;
    pub(crate) const SENDER: usize = 3;
    pub(crate) const PAYLOAD: usize = 5;
    pub(crate) const CLIENT_MESSAGE_NUMBER: usize = 7;
    pub(crate) const TOPIC: usize = 9;
    pub(crate) const EXPIRE_SECONDS: usize = 11;
    pub(crate) const FLAGS: usize = 12;
    pub(crate) const SETTING: usize = 13;
    pub(crate) const MESSAGE_ID: usize = 14;
    pub(crate) const POSITION: usize = 16;
    pub(crate) const SERVER_TIME: usize = 18;
    pub(crate) const EVENT_ID: usize = 20;
    pub(crate) const ATTRIBUTES: usize = 22;
    pub(crate) const HOPS: usize = 24;
    /// The first words of the fields of bytes.
    pub(crate) const FIELDS: [usize; 7] = [
        CHANNEL_ID,
        SENDER,
        PAYLOAD,
        CLIENT_MESSAGE_NUMBER,
        TOPIC,
        EVENT_ID,
        ATTRIBUTES,
    ];
}

/// Why a frame cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// A layout that this crate does not know.
    Layout(u32),
    /// The index is shorter than its header says.
    Short,
    /// A field of the message at this place stands outside the arena.
    Outside(usize),
}

impl fmt::Display for FrameError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Layout(version) => write!(formatter, "layout {version} of the frame is not known"),
            Self::Short => write!(formatter, "the index is shorter than its header says"),
            Self::Outside(place) => write!(formatter, "a field of message {place} stands outside the arena"),
        }
    }
}

impl std::error::Error for FrameError {}

/// The messages of one call.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    arena: &'a [u8],
    entries: &'a [u32],
    entry_words: usize,
    length: usize,
    committed: bool,
}

impl<'a> Batch<'a> {
    /// The batch of this frame. Later minor versions of the layout are read too: what they add is skipped.
    ///
    /// # Errors
    /// When the frame is not whole.
    pub fn parse(arena: &'a [u8], index: &'a [u32]) -> Result<Self, FrameError> {
        let &[version, header, entry, length, what, ..] = index else {
            return Err(FrameError::Short);
        };
        if version != LAYOUT {
            return Err(FrameError::Layout(version));
        }
        let (header, entry_words, length) = (header as usize, entry as usize, length as usize);
        let entries = index.get(header..).ok_or(FrameError::Short)?;
        let whole = length
            .checked_mul(entry_words)
            .is_some_and(|words| words <= entries.len());
        if header < HEADER_WORDS || entry_words < ENTRY_WORDS || !whole {
            return Err(FrameError::Short);
        }
        let batch = Self {
            arena,
            entries,
            entry_words,
            length,
            committed: what == 1,
        };
        for (place, message) in batch.messages().enumerate() {
            let inside = |&first: &usize| {
                let end = (message.words[first] as usize).checked_add(message.words[first + 1] as usize);
                end.is_some_and(|end| end <= arena.len())
            };
            if !word::FIELDS.iter().all(inside) {
                return Err(FrameError::Outside(place));
            }
        }
        Ok(batch)
    }

    /// How many messages there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether the messages are stored already; otherwise somebody wants to send them.
    #[must_use]
    pub fn is_committed(&self) -> bool {
        self.committed
    }

    /// The messages in order.
    pub fn messages(&self) -> impl ExactSizeIterator<Item = Message<'a>> + use<'a> {
        let (arena, entries, entry_words) = (self.arena, self.entries, self.entry_words);
        (0..self.length).map(move |place| Message {
            arena,
            words: &entries[place * entry_words..][..entry_words],
        })
    }
}

/// One message of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    arena: &'a [u8],
    words: &'a [u32],
}

impl<'a> Message<'a> {
    /// The channel.
    #[must_use]
    pub fn channel_id(&self) -> &'a str {
        self.text(word::CHANNEL_ID)
    }

    /// The kind of the channel.
    #[must_use]
    pub fn channel_kind(&self) -> u32 {
        self.words[word::CHANNEL_KIND]
    }

    /// Who sends.
    #[must_use]
    pub fn sender(&self) -> &'a str {
        self.text(word::SENDER)
    }

    /// What is sent.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.bytes(word::PAYLOAD)
    }

    /// The number that the client gave it.
    #[must_use]
    pub fn client_message_number(&self) -> &'a str {
        self.text(word::CLIENT_MESSAGE_NUMBER)
    }

    /// The topic, empty for none.
    #[must_use]
    pub fn topic(&self) -> &'a str {
        self.text(word::TOPIC)
    }

    /// Seconds until it is no longer shown; 0 for ever.
    #[must_use]
    pub fn expire_seconds(&self) -> u32 {
        self.words[word::EXPIRE_SECONDS]
    }

    /// Whether it is delivered without being stored.
    #[must_use]
    pub fn is_not_stored(&self) -> bool {
        self.words[word::FLAGS] & 1 != 0
    }

    /// Whether it counts as unread.
    #[must_use]
    pub fn counts_as_unread(&self) -> bool {
        self.words[word::FLAGS] & 2 != 0
    }

    /// Whether it is a command message.
    #[must_use]
    pub fn is_command(&self) -> bool {
        self.words[word::FLAGS] & 4 != 0
    }

    /// The setting byte of the client protocol.
    #[must_use]
    pub fn setting(&self) -> u32 {
        self.words[word::SETTING]
    }

    /// Its id; 0 before it is stored.
    #[must_use]
    pub fn message_id(&self) -> u64 {
        self.long(word::MESSAGE_ID)
    }

    /// Its position in the channel; 0 before it is stored.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.long(word::POSITION)
    }

    /// When the broker took it, milliseconds since 1970.
    #[must_use]
    pub fn server_time_ms(&self) -> u64 {
        self.long(word::SERVER_TIME)
    }

    /// The key by which a message that is handed out again is known; empty before it is stored.
    #[must_use]
    pub fn event_id(&self) -> &'a str {
        self.text(word::EVENT_ID)
    }

    /// What the broker knows of the sender and the message: names and values.
    #[must_use]
    pub fn attributes(&self) -> Attributes<'a> {
        Attributes {
            rest: self.bytes(word::ATTRIBUTES),
        }
    }

    /// How often it went through a plugin that published it.
    #[must_use]
    pub fn hops(&self) -> u32 {
        self.words[word::HOPS]
    }

    fn bytes(&self, first: usize) -> &'a [u8] {
        &self.arena[self.words[first] as usize..][..self.words[first + 1] as usize]
    }

    fn text(&self, first: usize) -> &'a str {
        std::str::from_utf8(self.bytes(first)).expect("the broker writes UTF-8")
    }

    fn long(&self, first: usize) -> u64 {
        u64::from(self.words[first]) | u64::from(self.words[first + 1]) << 32
    }
}

/// The attributes of a message, in order. They end where the list is not whole.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a str, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (length, rest) = self.rest.split_first_chunk()?;
        let (name, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        let (length, rest) = rest.split_first_chunk()?;
        let (value, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        self.rest = rest;
        Some((std::str::from_utf8(name).ok()?, value))
    }
}
