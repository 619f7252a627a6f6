//! Bytes that every store shares: the value that holds a batch of a channel's records, and the pages made of such values.

pub mod record_block;
pub mod record_page;
mod stored;

pub use stored::{COMMAND_VERSION, Corrupt, decode, decode_message, encode, encode_command, encode_message};
