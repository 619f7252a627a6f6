//! Texts of a request, within the bounds that the rest of the node relies on (client contract 5.4): an id has to fit a row, any
//! other text a frame.

use penstock_core::types::Uid;
use penstock_wire::channel_id::ID_BYTES_MAX;
use penstock_wire::wkproto::STRING_BYTES_MAX;
use serde::{Deserialize, Deserializer};
use std::ops::Deref;
use std::sync::Arc;

/// A text of at most so many bytes; a longer one is refused with the request that holds it.
#[derive(Default)]
pub(super) struct Bounded<const BYTES_MAX: usize>(String);

/// A uid or channel id.
pub(super) type Id = Bounded<ID_BYTES_MAX>;

/// A text that goes into a frame, or came out of one, such as a client_msg_no.
pub(super) type Text = Bounded<STRING_BYTES_MAX>;

impl<const BYTES_MAX: usize> Deref for Bounded<BYTES_MAX> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de, const BYTES_MAX: usize> Deserialize<'de> for Bounded<BYTES_MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text.len() > BYTES_MAX {
            let what = if BYTES_MAX == ID_BYTES_MAX {
                "an id"
            } else {
                "this text"
            };
            return Err(serde::de::Error::custom(format!(
                "{what} has at most {BYTES_MAX} bytes, not {}",
                text.len()
            )));
        }
        Ok(Self(text))
    }
}

/// Uids of a request.
pub(super) fn uids(texts: &[Id]) -> Vec<Uid> {
    texts.iter().map(|text| Uid::new(text)).collect()
}

/// A shared text.
pub(super) fn text(text: &str) -> Arc<str> {
    Arc::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_id_is_taken_and_a_longer_one_is_refused_with_its_length() {
        let read = |length: usize| serde_json::from_str::<Id>(&format!("\"{}\"", "é".repeat(length / 2)));
        assert!(read(ID_BYTES_MAX).is_ok_and(|id| id.len() == ID_BYTES_MAX));
        let refused = read(ID_BYTES_MAX + 2).err().map(|error| error.to_string());
        assert!(refused.is_some_and(|text| text.starts_with("an id has at most 1000 bytes, not 1002")));
    }
}
