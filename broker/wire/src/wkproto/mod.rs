//! WKProto, the binary protocol of the existing clients (client contract, section 1).
//!
//! A frame is one byte of type and flags, a length of one to four base-128 groups, and a body whose layout depends on
//! the session's [`Version`]. PING and PONG are a single byte. [`decode`] takes frames off a growing buffer and refuses
//! malformed input as early as it can be known; [`encode`] appends one frame to a buffer.

mod decode;
mod encode;
mod frame;
mod setting;
#[cfg(test)]
mod tests;

pub use decode::{DecodeError, decode, decode_all};
pub use encode::{EncodeError, encode, encoded_length};
pub use frame::{
    Connack, Connect, Disconnect, Event, Frame, FrameType, LegacyStream, Recv, RecvAck, Send, SendAck, Sub,
    SubAck,
};
pub use setting::{Flags, Setting};

/// The longest body that a peer may announce before it is authenticated, in bytes.
pub const BODY_BYTES_BEFORE_AUTH_MAX: usize = 4 * 1024;
/// The longest body of any frame, in bytes.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;
/// The longest string in a frame, in bytes: its length travels as a signed 16-bit number.
pub const STRING_BYTES_MAX: usize = 32_767;

/// The protocol version of a session, between 1 and 6. It fixes the layout of every frame after CONNECT.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version(u8);

impl Version {
    /// The newest version, with 64-bit message sequences. CONNECT itself has one layout in all versions.
    pub const LATEST: Self = Self(6);
    /// What a failure CONNACK is encoded with while nothing has been negotiated.
    pub const UNNEGOTIATED: Self = Self(5);

    /// The session version for the one that a client announced: itself, or the latest for 0 and for the unknown.
    #[must_use]
    pub const fn negotiate(announced: u8) -> Self {
        match announced {
            1..=6 => Self(announced),
            0 | 7..=u8::MAX => Self::LATEST,
        }
    }

    /// The number, 1 to 6.
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// The server-version byte of the CONNACK for a client that announced this version. Older clients, the JavaScript
    /// SDK among them, do not know the byte and would misread what follows, so they must not get it.
    #[must_use]
    pub const fn server_version_for(announced: u8) -> Option<u8> {
        if announced > 3 { Some(Self::LATEST.0) } else { None }
    }

    const fn has_expire(self) -> bool {
        self.0 >= 3
    }

    const fn has_node_id(self) -> bool {
        self.0 >= 4
    }

    const fn has_legacy_stream(self) -> bool {
        self.0 >= 2 && self.0 < 5
    }

    const fn has_wide_sequence(self) -> bool {
        self.0 >= 6
    }
}
