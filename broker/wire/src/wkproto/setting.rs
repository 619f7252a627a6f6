//! The two bit sets of a frame: header flags and the setting byte (client contract, sections 1.2 and 1.4).

/// The header flags of every frame type but CONNACK.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Flags {
    /// The frame may repeat one that was sent before.
    pub dup: bool,
    /// A command: it goes to the command channel.
    pub sync_once: bool,
    /// Counts as unread.
    pub red_dot: bool,
    /// Not to be stored.
    pub no_persist: bool,
}

impl Flags {
    /// The flags of a header byte; its high nibble is ignored.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self {
            dup: bits & 0x08 != 0,
            sync_once: bits & 0x04 != 0,
            red_dot: bits & 0x02 != 0,
            no_persist: bits & 0x01 != 0,
        }
    }

    /// The low nibble of a header byte.
    #[must_use]
    pub const fn bits(self) -> u8 {
        (self.dup as u8) << 3
            | (self.sync_once as u8) << 2
            | (self.red_dot as u8) << 1
            | self.no_persist as u8
    }
}

/// The setting byte of SEND, RECV and SUB. Unknown bits are kept.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Setting(u8);

impl Setting {
    /// No bit set.
    pub const NONE: Self = Self(0);
    /// A read receipt is asked for.
    pub const RECEIPT: Self = Self(0x80);
    /// The payload is end-to-end encrypted by the clients.
    pub const SIGNAL: Self = Self(0x20);
    /// The payload of this frame is plaintext; the message key is neither checked nor computed.
    pub const NO_ENCRYPT: Self = Self(0x10);
    /// The frame has a topic field.
    pub const TOPIC: Self = Self(0x08);
    /// The message belongs to a stream.
    pub const STREAM: Self = Self(0x02);

    /// The set of a byte.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The byte.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all bits of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// With the bits of `other` set too.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// With the bits of `other` cleared.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}
