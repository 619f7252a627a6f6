//! Values that an operator keeps for plugins: what a header carries in their place, and who may see them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Longest value, bytes.
const BYTES_MAX: usize = 4 << 10;
/// Longest name, bytes.
const NAME_BYTES_MAX: usize = 64;
/// What stands before the name where a header wants a value.
const SCHEME: &str = "secret://";

/// A value that is never shown: it has no text form.
#[derive(Clone)]
pub struct Credential(Arc<str>);

/// Why a text is no value. The text is not repeated.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a text of 1 to {BYTES_MAX} bytes")]
pub struct InvalidCredential;

impl Credential {
    /// This text.
    ///
    /// # Errors
    /// When it is empty or too long.
    pub fn new(text: &str) -> Result<Credential, InvalidCredential> {
        let fits = (1..=BYTES_MAX).contains(&text.len());
        fits.then(|| Credential(Arc::from(text))).ok_or(InvalidCredential)
    }

    /// Whether it can stand in a header: printable ASCII on one line, without a space at either end.
    #[must_use]
    pub fn fits_header(&self) -> bool {
        self.0.bytes().all(|byte| matches!(byte, b' '..=b'~')) && self.0.trim() == &*self.0
    }

    /// The text itself, for who was granted to see it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

/// Nothing of it.
impl fmt::Debug for Credential {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Credential")
    }
}

/// Whether a text can be the name of a value.
#[must_use]
pub fn is_credential_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain)
}

/// Why a header cannot carry what it asks for.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum HeaderRefused {
    /// The name is not one of those that may be used.
    #[error("header `{header}`: grant secret:{name}")]
    NotGranted {
        /// The header.
        header: String,
        /// The name.
        name: String,
    },
    /// It stands somewhere else.
    #[error(
        "header `{header}`: secret://NAME is the whole value, or follows one word and a space, as in `Bearer secret://NAME`"
    )]
    Form {
        /// The header.
        header: String,
    },
}

/// Puts values where headers name them: as the whole value, `secret://NAME`, or after one word, as in `Bearer secret://NAME`.
///
/// # Errors
/// When one names what is not granted, or stands where nothing is replaced.
pub fn fill(
    headers: Vec<(String, String)>,
    granted: &BTreeMap<String, Credential>,
) -> Result<Vec<(String, String)>, HeaderRefused> {
    let filled = headers.into_iter().map(|(header, value)| {
        let Some((before, name)) = value.split_once(SCHEME) else {
            return Ok((header, value));
        };
        let word = before.strip_suffix(' ').unwrap_or(before);
        let one_word = word.bytes().all(|byte| byte.is_ascii_graphic());
        let whole = before.is_empty() || (before.len() > word.len() && !word.is_empty() && one_word);
        if !whole || !is_credential_name(name) {
            return Err(HeaderRefused::Form { header });
        }
        match granted.get(name) {
            Some(credential) => Ok((header, format!("{before}{}", credential.reveal()))),
            None => Err(HeaderRefused::NotGranted {
                header,
                name: name.to_owned(),
            }),
        }
    });
    filled.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(value: &str) -> Result<String, HeaderRefused> {
        let granted = BTreeMap::from([("a.b".to_owned(), Credential::new("hush").expect("a value"))]);
        let headers = vec![("x".to_owned(), value.to_owned())];
        fill(headers, &granted).map(|mut headers| headers.remove(0).1)
    }

    #[test]
    fn a_name_is_replaced_as_the_whole_value_or_after_one_word() {
        assert_eq!(filled("secret://a.b").as_deref(), Ok("hush"));
        assert_eq!(filled("Bearer secret://a.b").as_deref(), Ok("Bearer hush"));
        assert_eq!(filled("no secret: //a.b").as_deref(), Ok("no secret: //a.b"));
        let not_granted = Err(HeaderRefused::NotGranted {
            header: "x".to_owned(),
            name: "other".to_owned(),
        });
        assert_eq!(filled("secret://other"), not_granted);
        for wrong in [
            "secret://",
            "secret://a.b ",
            "secret://a.b, secret://a.b",
            "secret://a/b",
            "Bearersecret://a.b",
            " secret://a.b",
            "Bearer  secret://a.b",
            "a b secret://a.b",
        ] {
            let form = HeaderRefused::Form {
                header: "x".to_owned(),
            };
            assert_eq!(filled(wrong), Err(form), "{wrong}");
        }
    }

    #[test]
    fn a_value_is_never_shown() {
        let value = Credential::new("hush\nhush").expect("a value");
        assert_eq!(format!("{value:?}"), "Credential");
        assert!(!value.fits_header());
        for (text, fits) in [("a b", true), (" a", false), ("a\r", false), ("ä", false)] {
            assert_eq!(
                Credential::new(text).expect("a value").fits_header(),
                fits,
                "{text:?}"
            );
        }
        assert_eq!(Credential::new("").err(), Some(InvalidCredential));
        assert_eq!(Credential::new(&"x".repeat(4_097)).err(), Some(InvalidCredential));
        assert!(!is_credential_name("") && !is_credential_name("a/b") && is_credential_name("a-B_1.c"));
    }
}
