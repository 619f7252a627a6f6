//! What webhooks need: secrets by name, and whom to trust. No secret is ever part of an error.

use super::secrets::{self, Kind};
use super::values::{Error, Values};
use penstock_egress::Secret;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use toml::Value;

const KIND: Kind<Vec<Secret>> = Kind {
    table: "webhooks.secrets",
    file: "webhooks.secrets_file",
    form: "name = [\"whsec_…\"]",
    parse,
};
const CA_FILE: &str = "webhooks.ca_file";
/// Secrets of one name: the old one and the new one of a rotation, and some that were forgotten.
const SECRETS_MAX: usize = 4;

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
    let path = values.text(CA_FILE)?;
    let authorities = if path.is_empty() {
        None
    } else {
        let pem = fs::read(path).map_err(|error| secrets::failed(CA_FILE, path, error.to_string()))?;
        penstock_egress::Tls::new(Some(&pem))
            .map_err(|error| secrets::failed(CA_FILE, path, error.to_string()))?;
        Some(pem)
    };
    Ok(Webhooks {
        secrets: secrets::read(values, &KIND)?,
        authorities,
    })
}

/// The secrets of one name.
fn parse(value: &Value) -> Result<Vec<Secret>, String> {
    let listed = value
        .as_array()
        .filter(|listed| (1..=SECRETS_MAX).contains(&listed.len()))
        .ok_or("a list of one to four secrets")?;
    let one = |text: &Value| {
        let text = text.as_str().ok_or("secrets are texts")?;
        Secret::parse(text).map_err(|error| error.to_string())
    };
    listed.iter().map(one).collect()
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
