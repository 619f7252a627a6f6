//! What stands on disk and in Raft logs, generated from `proto/storage`. A version stays readable for ever.

/// Version 1: commands, rows, messages and Raft state.
#[allow(
    missing_docs,
    clippy::doc_markdown,
    clippy::large_enum_variant,
    reason = "generated; the comments stand in the proto files"
)]
pub mod v1 {
    include!(concat!(env!("OUT_DIR"), "/penstock.storage.v1.rs"));
}
