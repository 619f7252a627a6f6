//! Bytes that every store shares: the value that holds a batch of a channel's records, and the pages made of such values.

pub mod record_block;
pub mod record_page;
