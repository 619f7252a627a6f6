//! Commands about users that came or went.

use crate::input::Input;
use penstock_core::types::Uid;
use penstock_wire::storage::v1::{self, command::Body};

/// Sessions of this user that began or ended, or a position of a reader; mostly in the user's slot.
pub(super) fn body(input: &mut Input<'_>, uid: &str) -> Body {
    let slot = if input.rarely(12) {
        u32::from(input.u8()) * 3
    } else {
        u32::from(Uid::new(uid).slot().0)
    };
    if input.rarely(3) {
        return Body::AdvanceOnlineReader(v1::AdvanceOnlineReader {
            slot,
            binding: (*input.one_of(&["crm", "push", ""])).to_owned(),
            binding_incarnation: u64::from(input.u8() % 2),
            done: u64::from(input.u8() % 6),
            given_up: input.rarely(3),
        });
    }
    let readers = (0..input.below(3)).map(|_| v1::OnlineReader {
        binding: (*input.one_of(&["crm", "push", ""])).to_owned(),
        binding_incarnation: u64::from(input.u8() % 2),
        done: input.number(),
    });
    let readers = readers.collect();
    let registry = u64::from(input.u8() % 3);
    let changes = (0..input.below(5)).map(|_| v1::SessionChange {
        uid: uid.to_owned(),
        session: (!input.rarely(12)).then(|| v1::OnlineSession {
            node: 1 + u32::from(input.u8() % 3),
            process: 7,
            connection: u64::from(input.u8() % 4),
            owner_seq: 1,
            flag: if input.rarely(12) {
                700
            } else {
                u32::from(input.u8() % 2)
            },
        }),
        online: !input.rarely(3),
    });
    Body::NoteSessions(v1::NoteSessions {
        slot,
        registry,
        readers,
        changes: changes.collect(),
    })
}
