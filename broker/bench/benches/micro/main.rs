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

fn main() {
    divan::main();
}
