//! SL-9: a grant never waits behind proposals that may wait. What stood in the log when the grant reached the leader stands before
//! it; of what waited then at most a window does.

use crate::oracle::Oracle;
use penstock_core::rows::{Key, Write};
use penstock_core::types::{GroupId, Token};

/// The channel that all commands of a flood name begins with this.
pub const MARK: &str = "flood-of-entries-";

/// Entries that may enter the log before the grant: inputs of a group wait in order behind rows that are loaded, so that a window that
/// was confirmed before the grant came is filled once more, and a batch goes beside it.
const BESIDE: u64 = 160;

/// A flood under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flood {
    pub(super) node: usize,
    pub(super) life: u32,
    pub(super) group: GroupId,
    /// Names the grant's proposal.
    pub(super) token: Token,
    /// Entries of the flood in the log.
    pub(super) logged: u64,
    /// How many they were when the grant came.
    pub(super) before: Option<u64>,
}

impl Flood {
    /// The leader is given a proposal.
    pub(super) fn asked(&mut self, token: Token) {
        if token == self.token {
            self.before.get_or_insert(self.logged);
        }
    }

    /// The leader writes; says whether the flood is over.
    pub(super) fn wrote(&mut self, writes: &[Write], oracle: &mut Oracle) -> bool {
        for write in writes {
            let Write::Put {
                key: Key::RaftEntry { group, .. },
                value,
            } = write
            else {
                continue;
            };
            if *group != self.group || !contains(value, MARK.as_bytes()) {
                continue;
            }
            // The entries of the flood name somebody, the grant does not.
            if contains(value, b"nobody") {
                self.logged += 1;
                continue;
            }
            let waited = self.before.map_or(0, |before| self.logged - before);
            if waited > BESIDE {
                let detail = format!(
                    "group {group}: a grant reached node {} behind {} entries of a flood, and {waited} more entered the log first",
                    self.node + 1,
                    self.before.unwrap_or(0)
                );
                oracle.violate("SL-9", detail);
            }
            return true;
        }
        false
    }
}

fn contains(value: &[u8], part: &[u8]) -> bool {
    value.windows(part.len()).any(|window| window == part)
}
