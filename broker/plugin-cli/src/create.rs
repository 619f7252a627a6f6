//! `penstock plugin new`: a folder with a plugin that works.

use crate::arguments::Options;
use crate::build::is_there;
use crate::embedded::{CONTRACT, File, SDK, SDK_WORKSPACE, TEMPLATES};
use crate::folder::Language;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Longest name, bytes: that of a plugin.
const NAME_BYTES_MAX: usize = 64;
/// An ending that a template's file has so that tools do not take it for their own.
const ENDING: &str = ".template";
/// Where the contract lies in a plugin's folder.
const CONTRACT_FOLDER: &str = "wit/v1";
/// The same for Rust: the SDK looks for it beside itself.
const VENDORED_CONTRACT: &str = "vendor/wit/v1";
const VENDORED_SDK: &str = "vendor/penstock-plugin-sdk";

/// Hooks that templates answer: the first unless it is said, which every language has.
const HOOKS: [&str; 6] = [
    FIRST_HOOK,
    "persist-after",
    "webhook",
    "connect",
    "offline",
    "route",
];
const FIRST_HOOK: &str = "before-send";
/// The folder of fixtures, which belong to one hook.
const FIXTURES: &str = "fixtures/";

/// Makes the folder.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let name = options
        .word
        .as_deref()
        .context("name the plugin: penstock plugin new NAME --lang rust")?;
    check_name(name)?;
    let language = options
        .language
        .as_deref()
        .context("choose a language: --lang rust, javascript, python or c")?;
    let language = Language::of(language)
        .with_context(|| format!("--lang {language}: rust, javascript, python or c"))?;
    let hook = options.hook.as_deref().unwrap_or(FIRST_HOOK);
    ensure!(
        HOOKS.contains(&hook),
        "--hook {hook}: the templates answer {}",
        HOOKS.join(", ")
    );
    let folder = options.folder.clone().unwrap_or_default().join(name);
    ensure!(
        !folder.exists(),
        "{} is there already: choose another name, or remove it",
        folder.display()
    );
    let files = files(name, language, hook)?;
    for (path, text) in &files {
        write(&folder.join(path), text)?;
    }
    writeln!(
        out,
        "{}: a plugin in {}, {} files. Next:\n\n  cd {}\n  {program} plugin test\n  {program} plugin deploy",
        folder.display(),
        language.name(),
        files.len(),
        folder.display(),
        program = program()
    )?;
    Ok(())
}

/// How the shell finds this program: by its name if there is one of that name, else where it is.
fn program() -> String {
    const NAME: &str = "penstock";
    let here = std::env::current_exe().ok().filter(|_| !is_there(NAME));
    here.map_or_else(|| NAME.to_owned(), |here| here.display().to_string())
}

fn check_name(name: &str) -> Result<()> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    ensure!(
        name.as_bytes().first().is_some_and(u8::is_ascii_lowercase)
            && name.len() <= NAME_BYTES_MAX
            && name.bytes().all(plain),
        "`{}`: lower-case letters, digits and `-`, beginning with a letter, at most {NAME_BYTES_MAX}",
        name.escape_default()
    );
    Ok(())
}

/// Files of a table below a folder, with their paths within it.
fn below(files: &'static [File], folder: &str) -> Vec<(&'static str, &'static str)> {
    files
        .iter()
        .filter_map(|file| Some((file.path.strip_prefix(folder)?, file.text)))
        .collect()
}

/// The template: that of the language, and for another hook what is different for it.
fn template(language: Language, hook: &str) -> Result<Vec<(&'static str, &'static str)>> {
    let mut files = below(TEMPLATES, &format!("{}/", language.name()));
    ensure!(
        !files.is_empty(),
        "this build has no template for {}",
        language.name()
    );
    if hook != FIRST_HOOK {
        let other = below(TEMPLATES, &format!("{}-{hook}/", language.name()));
        ensure!(
            !other.is_empty(),
            "--hook {hook}: there is a template for it in Rust: --lang rust"
        );
        files.retain(|(path, _)| !path.starts_with(FIXTURES) && !other.iter().any(|(new, _)| new == path));
        files.extend(other);
    }
    Ok(files)
}

/// Every file of a new plugin, with its path within the folder.
fn files(name: &str, language: Language, hook: &str) -> Result<Vec<(PathBuf, String)>> {
    let mut files: Vec<(PathBuf, String)> = template(language, hook)?
        .into_iter()
        .map(|(path, text)| {
            (
                PathBuf::from(path.strip_suffix(ENDING).unwrap_or(path)),
                filled(text, name),
            )
        })
        .collect();
    let contract = if language == Language::Rust {
        for (path, text) in below(SDK, "") {
            let text = if path == "Cargo.toml" {
                standing_alone(text, SDK_WORKSPACE)?
            } else {
                text.to_owned()
            };
            files.push((Path::new(VENDORED_SDK).join(path), text));
        }
        VENDORED_CONTRACT
    } else {
        CONTRACT_FOLDER
    };
    for (path, text) in below(CONTRACT, "") {
        files.push((Path::new(contract).join(path), text.to_owned()));
    }
    Ok(files)
}

fn filled(text: &str, name: &str) -> String {
    text.replace("{{name}}", name)
        .replace("{{name_snake}}", &name.replace('-', "_"))
}

fn write(path: &Path, text: &str) -> Result<()> {
    let folder = path.parent().unwrap_or_else(|| Path::new(""));
    fs::create_dir_all(folder)
        .and_then(|()| fs::write(path, text))
        .with_context(|| path.display().to_string())
}

/// A manifest of cargo without its workspace: what it takes from there stands in it.
fn standing_alone(manifest: &str, workspace: &str) -> Result<String> {
    let mut manifest: toml::Table = toml::from_str(manifest).context("the manifest of the SDK")?;
    let workspace: toml::Table = toml::from_str(workspace).context("the workspace of the SDK")?;
    let shared = |table: &str, key: &str| {
        let found = workspace
            .get("workspace")
            .and_then(|inner| inner.get(table)?.get(key));
        found
            .cloned()
            .with_context(|| format!("the workspace of the SDK has no {table}.{key}"))
    };
    for table in ["package", "dependencies"] {
        let Some(toml::Value::Table(entries)) = manifest.get_mut(table) else {
            continue;
        };
        for (key, value) in entries.iter_mut() {
            if value.get("workspace") == Some(&toml::Value::Boolean(true)) {
                *value = shared(table, key)?;
            }
        }
    }
    if let Some(toml::Value::Table(package)) = manifest.get_mut("package") {
        package.remove("workspace");
    }
    // They are for those who change the SDK.
    manifest.remove("lints");
    toml::to_string(&manifest).context("the manifest of the SDK")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binding::Binding;
    use crate::folder::Folder;
    use crate::trial;

    const LANGUAGES: [&str; 4] = ["rust", "javascript", "python", "c"];

    fn new(folder: &Path, name: &str, language: &str) -> Result<String> {
        let options = Options {
            word: Some(name.to_owned()),
            language: Some(language.to_owned()),
            folder: Some(folder.to_owned()),
            ..Options::default()
        };
        let mut out = Vec::new();
        run(&options, &mut out)?;
        Ok(String::from_utf8(out)?)
    }

    #[test]
    fn names_are_those_of_plugins_and_nothing_is_overwritten() -> Result<()> {
        let made = tempfile::tempdir()?;
        for name in ["", "Shout", "1st", "../up", "a b", "a_b", &"a".repeat(65)] {
            assert!(new(made.path(), name, "rust").is_err(), "{name}");
        }
        assert_eq!(fs::read_dir(made.path())?.count(), 0);
        fs::create_dir(made.path().join("shout"))?;
        let refused = new(made.path(), "shout", "rust").expect_err("is there");
        assert!(refused.to_string().contains("there already"));
        let refused = new(made.path(), "other", "cobol").expect_err("unknown");
        assert!(refused.to_string().contains("rust, javascript, python or c"));
        Ok(())
    }

    #[test]
    fn every_template_makes_a_plugins_folder() -> Result<()> {
        let made = tempfile::tempdir()?;
        for language in LANGUAGES {
            let name = format!("a-{language}");
            assert!(
                new(made.path(), &name, language)?
                    .contains(&format!("cd {}", made.path().join(&name).display()))
            );
            let options = Options {
                folder: Some(made.path().join(&name)),
                ..Options::default()
            };
            let folder = Folder::open(&options)?;
            assert_eq!(folder.recipe.language.name(), language);
            assert_eq!(folder.manifest.name, name);
            let binding = Binding::of(&options, &folder.manifest, None)?.expect("a binding");
            assert_eq!(
                (binding.id.as_str(), &binding.body["hook"]),
                (name.as_str(), &"before-send".into())
            );
            assert!(!trial::fixtures(&folder.path)?.is_empty());
            for path in ["README.md", ".gitignore"] {
                assert!(folder.path.join(path).is_file(), "{language}: {path}");
            }
        }
        assert!(made.path().join("a-c/wit/v1/hooks.wit").is_file());
        let vendor = made.path().join("a-rust/vendor");
        assert!(
            vendor.join("wit/v1/hooks.wit").is_file()
                && vendor.join("penstock-plugin-sdk/src/lib.rs").is_file()
        );
        Ok(())
    }

    #[test]
    fn another_hook_has_its_own_source_and_fixtures() -> Result<()> {
        let paths = |hook: &str| -> Result<Vec<String>> {
            let files = files("shout", Language::Rust, hook)?;
            Ok(files
                .into_iter()
                .map(|(path, _)| path.display().to_string())
                .collect())
        };
        let (filter, consumer, webhook) = (paths("before-send")?, paths("persist-after")?, paths("webhook")?);
        for shared in ["Cargo.toml", "src/lib.rs", "plugin.toml"] {
            for paths in [&filter, &consumer, &webhook] {
                assert_eq!(paths.iter().filter(|path| *path == shared).count(), 1, "{shared}");
            }
        }
        let fixtures = |paths: &[String]| -> Vec<String> {
            paths
                .iter()
                .filter(|path| path.starts_with(FIXTURES))
                .cloned()
                .collect()
        };
        assert_eq!(fixtures(&consumer), ["fixtures/tags.json"]);
        assert_eq!(
            fixtures(&webhook),
            ["fixtures/lines.json", "fixtures/no-url.json"]
        );
        assert_eq!(fixtures(&paths("connect")?), ["fixtures/banned.json"]);
        assert_eq!(fixtures(&paths("route")?), ["fixtures/votes.json"]);
        assert_eq!(fixtures(&paths("offline")?), ["fixtures/absent.json"]);
        assert!(!fixtures(&filter).contains(&"fixtures/tags.json".to_owned()));
        Ok(())
    }

    #[test]
    fn nothing_is_left_to_fill_in() -> Result<()> {
        for language in LANGUAGES {
            let language = Language::of(language).expect("a language");
            for hook in HOOKS {
                // Not every language has every hook.
                let Ok(files) = files("shout", language, hook) else {
                    assert!(hook != FIRST_HOOK && language != Language::Rust);
                    continue;
                };
                for (path, text) in files {
                    let path = path.display().to_string();
                    assert!(!text.contains("{{name") && !path.ends_with(ENDING), "{path}");
                }
            }
        }
        Ok(())
    }

    #[test]
    fn the_sdk_stands_without_its_workspace() -> Result<()> {
        let text = SDK
            .iter()
            .find(|file| file.path == "Cargo.toml")
            .expect("the SDK");
        let alone: toml::Table = toml::from_str(&standing_alone(text.text, SDK_WORKSPACE)?)?;
        assert_eq!(alone["package"]["name"].as_str(), Some("penstock-plugin-sdk"));
        assert!(alone["package"]["version"].is_str() && alone["package"].get("workspace").is_none());
        assert!(alone["dependencies"]["wit-bindgen"]["version"].is_str());
        assert!(alone.get("lints").is_none());
        assert!(standing_alone("[package]\nversion.workspace = true\n", "[workspace]\n").is_err());
        Ok(())
    }

    #[test]
    fn the_name_is_filled_in() {
        assert_eq!(filled("{{name}} {{name_snake}} {name}", "a-b"), "a-b a_b {name}");
    }
}
