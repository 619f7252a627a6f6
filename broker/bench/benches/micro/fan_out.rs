//! From one message that is appended to the last RECV frame that leaves the shard for a member who is online. The sessions belong to
//! the shard that leads the channel; encoding and encryption are the gateway's.

use crate::disk::Memory;
use crate::node::Node;
use divan::Bencher;
use divan::counter::ItemsCount;
use std::cell::RefCell;

/// Counts RECV frames. Every message is acknowledged before the next one, outside of what is measured.
#[divan::bench(args = [10, 100, 1000], sample_size = 1)]
fn sessions(bencher: Bencher<'_, '_>, sessions: usize) {
    let node = RefCell::new(Node::with_room(Memory::default(), sessions));
    node.borrow_mut().admit(sessions);
    let is_first = RefCell::new(true);
    bencher
        .counter(ItemsCount::new(sessions))
        .with_inputs(|| {
            let mut node = node.borrow_mut();
            if !is_first.replace(false) {
                node.acknowledge(sessions);
            }
            node.drafts(1)
        })
        .bench_local_values(|drafts| node.borrow_mut().deliver(drafts, sessions));
    node.borrow_mut().acknowledge(sessions);
}
