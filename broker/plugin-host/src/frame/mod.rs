//! The flat frame: `broker/docs/plugin-frame.md` has the layout.

mod messages;
mod verdicts;

pub(crate) use messages::Frame;
pub(crate) use verdicts::TOPIC_BYTES_MAX;
pub use verdicts::{BadFrame, verdicts};

/// The version of the layout.
pub const LAYOUT: u32 = 1;
/// Words of a header of messages.
pub const MESSAGES_HEADER: u32 = 5;
/// Words of an entry of messages.
pub const MESSAGES_ENTRY: u32 = 26;
/// Least words of a header of verdicts.
pub const VERDICTS_HEADER: u32 = 4;
/// Least words of an entry of verdicts.
pub const VERDICTS_ENTRY: u32 = 10;
