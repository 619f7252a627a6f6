//! What the pieces of a message's way cost, each alone: `cargo bench --workspace --bench micro`. What they mean and how to compare them
//! is in `broker/docs/bench.md`.
//!
//! Nothing here is a stand-in: the codecs, the shard and the store are those of the broker. Every run checks what came out, so that a
//! piece that got faster by leaving something out fails instead. Without `--bench` each runs once, as a test.

mod append;
mod codec;
mod disk;
mod fan_out;
mod node;

use std::time::Duration;

/// How long each piece is measured at least, unless the command line says otherwise: a hundred runs of some microseconds say little.
const MEASURED: Duration = Duration::from_secs(1);

fn main() {
    divan::Divan::default()
        .min_time(MEASURED)
        .config_with_args()
        .main();
}
