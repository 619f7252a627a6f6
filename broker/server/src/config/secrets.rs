//! Tables of secrets by name, in the configuration and in a file of their own. No secret is ever part of an error.

use super::values::{Error, Values, table};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use toml::Value;

/// Permissions that others have.
const OTHERS: u32 = 0o077;

/// Where secrets of one kind stand, and how one is read.
pub(super) struct Kind<Secret> {
    /// The key of the table.
    pub(super) table: &'static str,
    /// The key that names the file.
    pub(super) file: &'static str,
    /// How a line of the file looks.
    pub(super) form: &'static str,
    /// Reads one value, or says what is wrong with it without repeating it.
    pub(super) parse: fn(&Value) -> Result<Secret, String>,
}

/// Reads the table, and the file that the other key names.
pub(super) fn read<Secret>(values: &Values, kind: &Kind<Secret>) -> Result<BTreeMap<String, Secret>, Error> {
    let mut secrets = BTreeMap::new();
    add(kind, kind.table, values.value(kind.table), &mut secrets)?;
    let path = values.text(kind.file)?;
    if !path.is_empty() {
        let text = private(path).map_err(|why| failed(kind.file, path, why))?;
        let table = table(&text).map_err(|why| {
            let why = format!("not TOML of the form {}: {why}", kind.form);
            failed(kind.file, path, why)
        })?;
        add(kind, kind.file, &Value::Table(table), &mut secrets)?;
    }
    Ok(secrets)
}

pub(super) fn failed(key: &'static str, path: &str, why: String) -> Error {
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

fn add<Secret>(
    kind: &Kind<Secret>,
    key: &'static str,
    value: &Value,
    secrets: &mut BTreeMap<String, Secret>,
) -> Result<(), Error> {
    let refused = |name: &str, why: &str| {
        Err(Error::Secret {
            key,
            name: name.to_owned(),
            why: why.to_owned(),
        })
    };
    let Some(table) = value.as_table() else {
        return refused("", &format!("lines of the form {}", kind.form));
    };
    for (name, value) in table {
        if !penstock_egress::is_credential_name(name) {
            return refused(name, "a name of 1 to 64 letters, digits, `-`, `_` and `.`");
        }
        let secret = match (kind.parse)(value) {
            Ok(secret) => secret,
            Err(why) => return refused(name, &why),
        };
        if secrets.insert(name.clone(), secret).is_some() {
            return refused(
                name,
                "it stands in the configuration and in the file: in one of them",
            );
        }
    }
    Ok(())
}
