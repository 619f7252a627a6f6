//! Allows every message: what a call of it takes is what calls cost.

use penstock_plugin_sdk::{Filter, Message, Verdict};

/// The filter.
pub struct AllowAll;

impl Filter for AllowAll {
    fn new(_config: &str) -> Result<Self, String> {
        Ok(Self)
    }

    fn before_send(&mut self, _message: Message<'_>) -> Verdict {
        Verdict::Allow
    }
}

penstock_plugin_sdk::filter!(AllowAll);
