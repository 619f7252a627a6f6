//! A cluster in one thread: virtual time, a faulty network, a faulty disk, an oracle, planted bugs.
#![forbid(unsafe_code)]

pub mod disk;
