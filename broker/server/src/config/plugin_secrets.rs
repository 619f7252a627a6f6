//! Values that the operator keeps for plugins.

use super::secrets::{self, Kind};
use super::values::{Error, Values};
use penstock_egress::Credential;
use std::collections::BTreeMap;
use toml::Value;

const KIND: Kind<Credential> = Kind {
    table: "plugins.secrets",
    file: "plugins.secrets_file",
    form: "name = \"value\"",
    parse,
};

/// Reads the table and the file.
pub(super) fn read(values: &Values) -> Result<BTreeMap<String, Credential>, Error> {
    secrets::read(values, &KIND)
}

fn parse(value: &Value) -> Result<Credential, String> {
    let text = value.as_str().ok_or("a text in quotes")?;
    Credential::new(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use crate::config::Settings;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    const SECRET: &str = "gh-0123456789";

    fn refused(text: &str) -> String {
        let error = Settings::parse(text, &[]).expect_err("refused");
        format!("{error} {error:?}")
    }

    #[test]
    fn values_are_read_and_never_shown() {
        let text = format!("[plugins.secrets]\ngithub = \"{SECRET}\"\n");
        let settings = Settings::parse(&text, &[]).expect("valid");
        assert_eq!(settings.plugin_secrets["github"].reveal(), SECRET);
        let shown = format!("{settings:?}");
        assert!(shown.contains("github") && !shown.contains(SECRET), "{shown}");
        for wrong in [
            format!("github = [\"{SECRET}\"]"),
            format!("\"a b\" = \"{SECRET}\""),
            format!("\"\" = \"{SECRET}\""),
            format!("github = \"{}\"", SECRET.repeat(400)),
            "github = \"\"".to_owned(),
        ] {
            let said = refused(&format!("[plugins.secrets]\n{wrong}\n"));
            assert!(
                said.contains("plugins.secrets") && !said.contains(SECRET),
                "{said}"
            );
        }
        assert!(!refused(&format!("[plugins]\nsecrets = \"{SECRET}\"\n")).contains(SECRET));
    }

    /// Whatever is wrong with a line that holds a secret.
    #[test]
    fn a_syntax_error_is_told_by_its_place_alone() {
        for (wrong, place) in [
            (format!("github = {SECRET}"), "line 2, column 10"),
            (format!("github = \"{SECRET}"), "line 2, column "),
            (format!("github = '{SECRET}"), "line 2, column "),
            (format!("github = \"\"\"{SECRET}"), "line "),
            (format!("github = \"{SECRET}\" # \u{1}"), "line 2, column "),
            (format!("github = \"{SECRET}\\q\""), "line 2, column "),
            (format!("github = \"{SECRET}\" \"{SECRET}\""), "line 2, column "),
            (format!("github \"{SECRET}\""), "line 2, column "),
            (format!("github: \"{SECRET}\""), "line 2, column "),
            (SECRET.to_owned(), "line 2, column "),
            (format!("= \"{SECRET}\""), "line 2, column "),
            (format!("\u{e9} = \"{SECRET}\""), "line 2, column "),
            (
                format!("github = \"{SECRET}\"\ngithub = \"{SECRET}\""),
                "line 3, column 1",
            ),
            (format!("github = {{ a = \"{SECRET}\""), "line 2, column "),
            (format!("github = [\"{SECRET}\""), "line "),
        ] {
            let said = refused(&format!("[plugins.secrets]\n{wrong}\n"));
            assert!(said.contains("not valid TOML"), "{said}");
            assert!(said.contains(place) && !said.contains(SECRET), "{place}: {said}");
        }
        // Behind a key on the command line too.
        let overrides = [format!("plugins.secrets.github:{SECRET}")];
        let error = Settings::parse("", &overrides).expect_err("refused");
        let said = format!("{error} {error:?}");
        assert!(
            said.contains("plugins.secrets.github…") && !said.contains(SECRET),
            "{said}"
        );
    }

    #[test]
    fn a_file_of_values_is_its_owners() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("secrets.toml");
        fs::write(&path, format!("github = \"{SECRET}\"")).expect("written");
        let text = format!("[plugins]\nsecrets_file = \"{}\"\n", path.display());
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changed");
        mode(0o604);
        assert!(refused(&text).contains("chmod 600"));
        mode(0o600);
        let settings = Settings::parse(&text, &[]).expect("valid");
        assert_eq!(settings.plugin_secrets.len(), 1);
        fs::write(&path, format!("\ngithub = {SECRET}")).expect("written");
        let said = refused(&text);
        assert!(said.contains("line 2") && !said.contains(SECRET), "{said}");
    }
}
