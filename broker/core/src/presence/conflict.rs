//! Which sessions of a user cannot live side by side (client contract 5.2).

use crate::types::{DeviceLevel, Route};

/// Whether a new session ends this older one: same user and flag, and the new one is a master or the same device. An empty
/// device id names no device, so two of them are not the same.
#[must_use]
pub fn evicts(new: &Route, old: &Route) -> bool {
    new.uid == old.uid && new.flag == old.flag && (new.level == DeviceLevel::Master || same_device(new, old))
}

/// Whether two sessions exclude each other whichever came first. A master and a slave of another device do not: the
/// slave may have come later.
#[must_use]
pub fn exclude(one: &Route, other: &Route) -> bool {
    evicts(one, other) && evicts(other, one)
}

fn same_device(one: &Route, other: &Route) -> bool {
    !one.device_id.is_empty() && one.device_id == other.device_id
}
