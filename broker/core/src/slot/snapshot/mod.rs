//! Snapshots: rows in chunks from the leader to a member that lacks the log, staged there and made current by one write
//! (SL-7, M-10).
//!
//! The leader goes on applying while it reads. Every row written meanwhile is sent again behind the pages, so that the last
//! chunk completes exactly the state of the applied index that it names.

mod receive;
mod send;

pub(in crate::slot) use receive::Receiving;
pub(in crate::slot) use send::Sending;

use crate::slot::interface::Transfer;
use crate::types::{NodeId, Term};

/// A transfer as the data of a snapshot message.
fn transfer_bytes(transfer: Transfer) -> Vec<u8> {
    let mut bytes = transfer.term.0.to_be_bytes().to_vec();
    bytes.extend_from_slice(&transfer.sender.0.to_be_bytes());
    bytes.extend_from_slice(&transfer.number.to_be_bytes());
    bytes
}

fn read_transfer(bytes: &[u8]) -> Option<Transfer> {
    let (term, rest) = bytes.split_first_chunk::<8>()?;
    let (sender, rest) = rest.split_first_chunk::<2>()?;
    let number = <[u8; 8]>::try_from(rest).ok()?;
    Some(Transfer {
        term: Term(u64::from_be_bytes(*term)),
        sender: NodeId(u16::from_be_bytes(*sender)),
        number: u64::from_be_bytes(number),
    })
}
