//! How payload bytes look in JSON.
//!
//! Inbound, an object, an array or a number is stored as its JSON text, and a string is strict base64. Outbound, bytes
//! that are a JSON object or array are embedded, and everything else is base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::is_too_deep;

/// Why a JSON value is not a payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PayloadError {
    /// A boolean or null.
    #[error("payload must be an object, an array, a number or a base64 string")]
    Kind,
    /// A string that is not strict base64.
    #[error("payload is a string but not strict base64")]
    Base64,
}

/// Payload bytes on their way out.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// JSON text, embedded as it stands.
    Json(&'a RawValue),
    /// Other bytes, written as base64.
    Bytes(&'a [u8]),
}

impl<'a> Payload<'a> {
    /// Chooses the form of stored bytes.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        let first = bytes.iter().find(|byte| !byte.is_ascii_whitespace());
        // Deep nesting is valid JSON that a receiver's parser need not survive.
        if !matches!(first, Some(b'{' | b'[')) || is_too_deep(bytes) {
            return Self::Bytes(bytes);
        }
        serde_json::from_slice(bytes).map_or(Self::Bytes(bytes), Self::Json)
    }

    /// The bytes to store for a JSON value that a client sent.
    ///
    /// # Errors
    /// [`PayloadError`] for a value that is not a payload.
    pub fn stored(value: &RawValue) -> Result<Bytes, PayloadError> {
        let text = value.get();
        match text.as_bytes().first() {
            Some(b'"') => {
                let encoded: std::borrow::Cow<'_, str> = serde_json::from_str::<Text<'_>>(text)
                    .map_err(|_| PayloadError::Base64)?
                    .0;
                BASE64
                    .decode(encoded.as_bytes())
                    .map(Bytes::from)
                    .map_err(|_| PayloadError::Base64)
            }
            Some(b'{' | b'[' | b'-' | b'0'..=b'9') => Ok(Bytes::copy_from_slice(text.as_bytes())),
            Some(_) | None => Err(PayloadError::Kind),
        }
    }
}

impl Serialize for Payload<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Json(text) => text.serialize(serializer),
            Self::Bytes(bytes) => serializer.serialize_str(&BASE64.encode(bytes)),
        }
    }
}

/// A string that is borrowed when it has no escapes.
#[derive(serde::Deserialize)]
struct Text<'a>(#[serde(borrow)] std::borrow::Cow<'a, str>);
