//! Bytes as a fixture gives them: a text, JSON, base64, or a length alone.

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde_json::Value;

/// Longest stand-in of what was not kept, bytes.
const STAND_IN_BYTES_MAX: usize = 16 << 20;

/// The ways of giving bytes under one name.
#[derive(Clone, Debug, Default)]
pub(super) struct Forms {
    /// A text, or any other JSON, which is sent as its text.
    pub(super) value: Option<Value>,
    /// Base64.
    pub(super) base64: Option<String>,
    /// Their number, where nobody kept them.
    pub(super) length: Option<usize>,
}

/// The bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) bytes: Bytes,
    /// They stand in for others of the same number.
    pub(super) stands_in: bool,
}

impl Content {
    pub(super) fn text(text: &str) -> Content {
        Content {
            bytes: Bytes::copy_from_slice(text.as_bytes()),
            stands_in: false,
        }
    }
}

impl Forms {
    /// The bytes; none when they are given in no way.
    pub(super) fn read(self, name: &str) -> Result<Option<Content>> {
        let whole = |bytes: Vec<u8>| {
            Some(Content {
                bytes: Bytes::from(bytes),
                stands_in: false,
            })
        };
        match (self.value, self.base64, self.length) {
            (None, None, None) => Ok(None),
            (Some(Value::String(text)), None, None) => Ok(whole(text.into_bytes())),
            (Some(json), None, None) => Ok(whole(json.to_string().into_bytes())),
            (None, Some(base64), None) => {
                let bytes = STANDARD.decode(base64);
                let bytes = bytes.with_context(|| format!("{name}_base64: it is not standard base64"))?;
                Ok(whole(bytes))
            }
            (None, None, Some(length)) => {
                ensure!(
                    length <= STAND_IN_BYTES_MAX,
                    "{name}_bytes: at most {STAND_IN_BYTES_MAX}"
                );
                Ok(Some(Content {
                    bytes: Bytes::from(vec![b'x'; length]),
                    stands_in: true,
                }))
            }
            _ => bail!("{name}: say it once, as `{name}`, `{name}_base64` or `{name}_bytes`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: Option<Value>, base64: Option<&str>, length: Option<usize>) -> Result<Option<Content>> {
        let base64 = base64.map(str::to_owned);
        Forms {
            value,
            base64,
            length,
        }
        .read("payload")
    }

    #[test]
    fn bytes_are_given_in_one_way() -> Result<()> {
        let bytes =
            |content: Option<Content>| content.map(|content| (content.bytes.to_vec(), content.stands_in));
        assert_eq!(
            bytes(read(Some(json!("a")), None, None)?),
            Some((b"a".to_vec(), false))
        );
        assert_eq!(
            bytes(read(Some(json!([1])), None, None)?),
            Some((b"[1]".to_vec(), false))
        );
        assert_eq!(bytes(read(None, Some("/w=="), None)?), Some((vec![0xff], false)));
        assert_eq!(bytes(read(None, None, Some(3))?), Some((b"xxx".to_vec(), true)));
        assert_eq!(read(None, None, None)?, None);
        for wrong in [
            read(Some(json!("a")), Some("/w=="), None),
            read(None, Some("?"), None),
            read(None, None, Some(usize::MAX)),
        ] {
            let refused = wrong.expect_err("is wrong").to_string();
            assert!(refused.contains("payload"), "{refused}");
        }
        Ok(())
    }
}
