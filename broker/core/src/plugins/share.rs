//! Which channels and users a canary takes.

use crate::types::{ChannelKey, SlotId, Uid};

/// The hundredth of the channels that this one belongs to in a rollout: the same on every node, another in every rollout.
#[must_use]
pub fn share(rollout: u64, channel: &ChannelKey) -> u8 {
    hundredth(rollout, channel.id.bytes().chain([channel.kind.0]))
}

/// The hundredth of the users that this one belongs to in a rollout.
#[must_use]
pub fn user_share(rollout: u64, uid: &Uid) -> u8 {
    hundredth(rollout, uid.as_str().bytes())
}

/// The hundredth of the slots that this one belongs to in a rollout.
#[must_use]
pub fn slot_share(rollout: u64, slot: SlotId) -> u8 {
    hundredth(rollout, slot.0.to_be_bytes().into_iter())
}

fn hundredth(rollout: u64, bytes: impl Iterator<Item = u8>) -> u8 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ rollout.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in bytes {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 32)).wrapping_mul(0x94d0_49bb_1331_11eb);
    // The remainder is below 100.
    ((hash >> 32) % 100) as u8
}
