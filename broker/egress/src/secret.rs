//! Keys that requests are signed with.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// What stands before the base64 of a secret.
const PREFIX: &str = "whsec_";
/// Bytes of a secret, after Standard Webhooks.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A key that requests are signed with. It has no text form on purpose.
#[derive(Clone)]
pub struct Secret(hmac::Key);

/// Why a text is no secret. The text is not repeated.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvalidSecret {
    /// No prefix.
    #[error("a secret begins with whsec_")]
    Prefix,
    /// Not base64.
    #[error("after whsec_, a secret is base64 of its bytes (with padding)")]
    Base64,
    /// Too short or too long.
    #[error("a secret has 24 to 64 bytes, this one has {0}: make one with `penstock key`")]
    Length(usize),
}

impl Secret {
    /// The secret of this text: `whsec_` and base64 of 24 to 64 bytes.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Secret, InvalidSecret> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(InvalidSecret::Prefix)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| InvalidSecret::Base64)?;
        if !BYTES.contains(&bytes.len()) {
            return Err(InvalidSecret::Length(bytes.len()));
        }
        Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, &bytes)))
    }

    /// The text of these bytes, for who makes secrets.
    #[must_use]
    pub fn text_of(bytes: &[u8]) -> String {
        format!("{PREFIX}{}", STANDARD.encode(bytes))
    }

    pub(crate) fn key(&self) -> &hmac::Key {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_secret_is_one() {
        let refused = |text: &str| Secret::parse(text).err();
        assert_eq!(
            refused("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
            Some(InvalidSecret::Prefix)
        );
        assert_eq!(refused("whsec_*"), Some(InvalidSecret::Base64));
        for (length, valid) in [(23, false), (24, true), (64, true), (65, false)] {
            let text = Secret::text_of(&vec![7; length]);
            let expected = (!valid).then_some(InvalidSecret::Length(length));
            assert_eq!(refused(&text), expected);
        }
    }
}
