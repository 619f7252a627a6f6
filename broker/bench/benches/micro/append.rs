//! From an Append request at the channel's leader to its answer: keys are looked up, before-send stages run, the batch gets its
//! places, is written, and committed when it is durable. What follows, above all the delivery to nobody, is done before the next
//! batch and not measured.

use crate::disk::{Disk, Files, Memory};
use crate::node::Node;
use divan::Bencher;
use divan::counter::ItemsCount;
use std::cell::RefCell;

/// The shard's own work: what it writes is durable at once.
#[divan::bench(args = [1, 16, 128], sample_size = 1)]
fn in_memory(bencher: Bencher<'_, '_>, batch: usize) {
    run(bencher, Memory::default(), batch);
}

/// The same through the store's writer: one fdatasync a batch, since the next batch waits for the answer.
#[divan::bench(args = [1, 16, 128], sample_size = 1)]
fn synced(bencher: Bencher<'_, '_>, batch: usize) {
    run(bencher, Files::new(), batch);
}

fn run(bencher: Bencher<'_, '_>, disk: impl Disk, batch: usize) {
    let node = RefCell::new(Node::with_room(disk, 1));
    bencher
        .counter(ItemsCount::new(batch))
        .with_inputs(|| {
            let mut node = node.borrow_mut();
            node.settle();
            node.drafts(batch)
        })
        .bench_local_values(|drafts| node.borrow_mut().append(drafts));
}
