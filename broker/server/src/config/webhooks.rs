//! What webhooks need: secrets by name, and whom to trust. No secret is ever part of an error.

use super::values::{Error, Values};
use penstock_egress::Secret;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use toml::Value;

const SECRETS: &str = "webhooks.secrets";
const SECRETS_FILE: &str = "webhooks.secrets_file";
const CA_FILE: &str = "webhooks.ca_file";
/// Secrets of one name: the old one and the new one of a rotation, and some that were forgotten.
const SECRETS_MAX: usize = 4;
/// Longest name, bytes.
const NAME_BYTES_MAX: usize = 64;
/// Permissions that others have.
const OTHERS: u32 = 0o077;

/// What webhooks need.
#[derive(Clone, Default)]
pub struct Webhooks {
    /// Secrets by name.
    pub secrets: BTreeMap<String, Vec<Secret>>,
    /// Certificates in PEM of authorities besides those of the web.
    pub authorities: Option<Vec<u8>>,
}

/// The names alone.
impl fmt::Debug for Webhooks {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Webhooks")
            .field("secrets", &self.secrets.keys())
            .finish_non_exhaustive()
    }
}

/// Reads the keys, and the files that they name.
pub(super) fn read(values: &Values) -> Result<Webhooks, Error> {
    let mut secrets = BTreeMap::new();
    add(SECRETS, values.value(SECRETS), &mut secrets)?;
    let path = values.text(SECRETS_FILE)?;
    if !path.is_empty() {
        let text = private(path).map_err(|why| failed(SECRETS_FILE, path, why))?;
        // What the parser says would show the line.
        let table: toml::Table = text.parse().map_err(|_| {
            failed(
                SECRETS_FILE,
                path,
                "not TOML of the form name = [\"whsec_…\"]".to_owned(),
            )
        })?;
        add(SECRETS_FILE, &Value::Table(table), &mut secrets)?;
    }
    let path = values.text(CA_FILE)?;
    let authorities = if path.is_empty() {
        None
    } else {
        let pem = fs::read(path).map_err(|error| failed(CA_FILE, path, error.to_string()))?;
        penstock_egress::Tls::new(Some(&pem)).map_err(|error| failed(CA_FILE, path, error.to_string()))?;
        Some(pem)
    };
    Ok(Webhooks { secrets, authorities })
}

fn failed(key: &'static str, path: &str, why: String) -> Error {
    Error::File {
        key,
        path: path.to_owned(),
        why,
    }
}

/// The text of a file that nobody else may read.
fn private(path: &str) -> Result<String, String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if metadata.permissions().mode() & OTHERS != 0 {
        return Err("others may read or write it: chmod 600".to_owned());
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

fn add(key: &'static str, value: &Value, secrets: &mut BTreeMap<String, Vec<Secret>>) -> Result<(), Error> {
    let refused = |name: &str, why: &str| {
        Err(Error::Secret {
            key,
            name: name.to_owned(),
            why: why.to_owned(),
        })
    };
    let Some(table) = value.as_table() else {
        return refused("", "a table of lists by name");
    };
    for (name, listed) in table {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.len() > NAME_BYTES_MAX || !name.bytes().all(plain) {
            return refused(name, "a name of letters, digits, `-`, `_` and `.`");
        }
        let Some(listed) = listed
            .as_array()
            .filter(|listed| (1..=SECRETS_MAX).contains(&listed.len()))
        else {
            return refused(name, "a list of one to four secrets");
        };
        let mut parsed = Vec::new();
        for text in listed {
            match text.as_str().map(Secret::parse) {
                Some(Ok(secret)) => parsed.push(secret),
                Some(Err(error)) => return refused(name, &error.to_string()),
                None => return refused(name, "secrets are texts"),
            }
        }
        if secrets.insert(name.clone(), parsed).is_some() {
            return refused(
                name,
                "it stands in the configuration and in the file: in one of them",
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::Settings;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    fn refused(text: &str) -> String {
        let error = Settings::parse(text, &[]).expect_err("refused");
        format!("{error} {error:?}")
    }

    #[test]
    fn secrets_are_read_and_never_shown() {
        let text = format!("[webhooks.secrets]\nchat = [\"{SECRET}\", \"{SECRET}\"]\n");
        let settings = Settings::parse(&text, &[]).expect("valid");
        assert_eq!(settings.webhooks.secrets["chat"].len(), 2);
        let shown = format!("{settings:?}");
        assert!(shown.contains("chat") && !shown.contains("MfKQ"), "{shown}");
        for wrong in [
            format!("chat = [\"{}\"]", &SECRET[6..]),
            format!("chat = [\"{}\"]", &SECRET[..20]),
            format!("chat = [\"{SECRET}*\"]"),
            format!("chat = \"{SECRET}\""),
            format!("\"a b\" = [\"{SECRET}\"]"),
            "chat = []".to_owned(),
        ] {
            let said = refused(&format!("[webhooks.secrets]\n{wrong}\n"));
            assert!(
                said.contains("webhooks.secrets") && !said.contains("MfKQ"),
                "{said}"
            );
        }
    }

    #[test]
    fn a_file_of_secrets_is_its_owners() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secrets.toml");
        fs::write(&path, format!("chat = [\"{SECRET}\"]\n")).expect("written");
        let text = format!("[webhooks]\nsecrets_file = \"{}\"\n", path.display());
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
        mode(0o640);
        assert!(refused(&text).contains("chmod 600"));
        mode(0o600);
        let settings = Settings::parse(&text, &[]).expect("valid");
        assert_eq!(settings.webhooks.secrets.len(), 1);
        let twice = format!("{text}[webhooks.secrets]\nchat = [\"{SECRET}\"]\n");
        assert!(refused(&twice).contains("in one of them"));
        fs::write(&path, format!("chat = {SECRET}")).expect("written");
        assert!(!refused(&text).contains("MfKQ"));
    }
}
