//! AP-2: a known key with the same bytes is answered with the id and the position that the first attempt got, and is never refused
//! for good.

use penstock_core::types::MessageId;

/// An attempt of an acknowledged send was answered with success.
///
/// # Errors
/// Says what is wrong with it.
pub fn repeated(name: &str, first: (MessageId, u64), again: (MessageId, u64)) -> Result<(), String> {
    if first == again {
        return Ok(());
    }
    let ((first, at), (id, seq)) = (first, again);
    Err(format!("{name} is {at} ({first}), a retry says {seq} ({id})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_gets_what_its_first_attempt_got() {
        let first = (MessageId(7), 3);
        assert_eq!(repeated("op1", first, first), Ok(()));
        assert!(repeated("op1", first, (MessageId(8), 3)).is_err());
        assert!(repeated("op1", first, (MessageId(7), 4)).is_err());
    }
}
