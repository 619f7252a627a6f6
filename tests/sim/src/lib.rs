//! A cluster in one thread and in virtual time: the production shards of every node, a simulated network, simulated
//! disks and clocks, users who talk, faults of every kind, and an oracle outside that knows what must hold.
//!
//! One seed is one run: the same seed twice gives the same trace.
#![forbid(unsafe_code)]

pub mod census;
pub mod clients;
pub mod coverage;
pub mod disk;
pub mod faults;
pub mod invariants;
pub mod mutants;
pub mod network;
pub mod oracle;
pub mod plugins;
pub mod rng;
pub mod runner;
pub mod settings;
pub mod world;
