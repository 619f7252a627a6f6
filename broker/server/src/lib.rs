//! The server: configuration, the composition root, the production driver and the commands of `penstock`.

pub mod arguments;
pub mod config;
pub mod driver;
pub mod keys;
pub mod metrics;
pub mod node;
pub mod plugins;
pub mod serve;
mod wiring;
