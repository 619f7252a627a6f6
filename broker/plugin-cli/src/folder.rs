//! A plugin's folder: its manifest, how it is built, where its component lies.

use crate::arguments::Options;
use anyhow::{Context as _, Result, bail, ensure};
use penstock_plugin_host::Manifest;
use serde::Deserialize;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// What the plugin says of itself.
pub(crate) const MANIFEST: &str = "plugin.toml";
/// How it is built.
pub(crate) const RECIPE: &str = "build.toml";

/// What says nothing about the component.
const NOT_SOURCES: [&str; 3] = ["README.md", "binding.toml", "fixtures"];
/// Folders that builds make.
const MADE: [&str; 5] = ["__pycache__", "build", "node_modules", "target", "venv"];
/// A file that builds make, beside those with these endings. A crate whose own is newer is built again.
const LOCK: &str = "Cargo.lock";
const MADE_ENDINGS: [&str; 2] = [".wasm", ".partial"];

/// The languages that plugins are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Language {
    Rust,
    JavaScript,
    Python,
    C,
}

impl Language {
    const ALL: [(&str, Language); 6] = [
        ("rust", Language::Rust),
        ("javascript", Language::JavaScript),
        ("python", Language::Python),
        ("c", Language::C),
        ("js", Language::JavaScript),
        ("py", Language::Python),
    ];

    /// The language of this name.
    pub(crate) fn of(name: &str) -> Option<Language> {
        let found = Language::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, language)| *language)
    }

    /// Its name, which is also the folder of its template.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Language::Rust => "rust",
            Language::JavaScript => "javascript",
            Language::Python => "python",
            Language::C => "c",
        }
    }
}

/// How a plugin is built: `build.toml`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    /// The language. Rust needs nothing else.
    pub(crate) language: Language,
    /// What the steps leave: a component, or a core module that carries the metadata of one.
    pub(crate) component: Option<PathBuf>,
    /// The world of a core module that does not say it.
    pub(crate) world: Option<String>,
    /// Files that pin the tools of the build: one folder on the machine for all plugins with the same ones, which the steps
    /// name as `{tools}` and fill.
    #[serde(default)]
    pub(crate) tools: Vec<PathBuf>,
    /// What is done, in order.
    #[serde(default)]
    pub(crate) step: Vec<Step>,
}

/// One step of a build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    /// A program with its arguments.
    pub(crate) run: Vec<String>,
    /// Programs that must be there before the first step.
    #[serde(default)]
    pub(crate) needs: Vec<String>,
    /// The line that installs them.
    pub(crate) install: Option<String>,
    /// The step is left out when this file is there, and newer than `newer_than`.
    pub(crate) unless: Option<String>,
    /// What `unless` is compared with.
    #[serde(default)]
    pub(crate) newer_than: Vec<PathBuf>,
}

/// A plugin's folder.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// What the plugin says of itself.
    pub(crate) manifest: Manifest,
    /// The same, as it stands in the file.
    pub(crate) manifest_text: Vec<u8>,
    /// How it is built.
    pub(crate) recipe: Recipe,
}

/// The folder that was named, or the one that the command runs in.
pub(crate) fn path(options: &Options) -> PathBuf {
    options.folder.clone().unwrap_or_else(|| PathBuf::from("."))
}

impl Folder {
    /// Reads a plugin's folder.
    pub(crate) fn open(options: &Options) -> Result<Folder> {
        let path = path(options);
        let manifest_path = path.join(MANIFEST);
        let manifest_text = fs::read(&manifest_path).with_context(|| {
            format!(
                "{}: this is no plugin's folder. `penstock plugin new` makes one; --dir names another",
                manifest_path.display()
            )
        })?;
        let manifest = Manifest::parse(&manifest_text)
            .map_err(|why| anyhow::anyhow!("{}: {why}", manifest_path.display()))?;
        let recipe = recipe(&path)?;
        Ok(Folder {
            path,
            manifest,
            manifest_text,
            recipe,
        })
    }

    /// Where its component lies.
    pub(crate) fn component_path(&self) -> PathBuf {
        self.path.join(format!("{}.wasm", self.manifest.name))
    }

    /// Whether a source is newer than the component, or there is none.
    pub(crate) fn is_stale(&self) -> Result<bool> {
        let component = self.component_path();
        let Ok(built) = modified(&component) else {
            return Ok(true);
        };
        Ok(newer_below(&self.path, built, &component)? || self.newer_elsewhere(built, &component)?)
    }

    /// Whether something outside of the folder that its recipe or its `Cargo.toml` names is newer.
    fn newer_elsewhere(&self, built: SystemTime, component: &Path) -> Result<bool> {
        for path in self.elsewhere()? {
            let path = self.path.join(path);
            let newer = match fs::metadata(&path) {
                // The build itself says what it misses.
                Err(_) => false,
                Ok(metadata) if metadata.is_dir() => newer_below(&path, built, component)?,
                Ok(_) => modified(&path)? > built,
            };
            if newer {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Paths that lead out of the folder, in the words of the steps and in the dependencies of a crate.
    fn elsewhere(&self) -> Result<Vec<PathBuf>> {
        let words = self.recipe.step.iter().flat_map(|step| &step.run);
        let tools = self.recipe.tools.iter().filter_map(|path| path.to_str());
        let mut found: Vec<PathBuf> = words
            .map(String::as_str)
            .chain(tools)
            // Also behind an option, as in `-I../include`.
            .filter_map(|word| word.find("../").map(|at| PathBuf::from(&word[at..])))
            .collect();
        if self.recipe.language == Language::Rust {
            let path = self.path.join("Cargo.toml");
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            let crate_of: toml::Table = toml::from_str(&text).with_context(|| path.display().to_string())?;
            let dependencies = crate_of.get("dependencies").and_then(toml::Value::as_table);
            let paths = dependencies
                .into_iter()
                .flat_map(toml::Table::values)
                .filter_map(|dependency| dependency.get("path")?.as_str());
            found.extend(paths.filter(|path| path.starts_with("..")).map(PathBuf::from));
        }
        Ok(found)
    }
}

/// A number that is another one when a file of this folder is: sources, fixtures, binding, but nothing that a build makes.
pub(crate) fn print(folder: &Path) -> Result<u64> {
    let mut hasher = DefaultHasher::new();
    print_below(folder, &mut hasher)?;
    Ok(hasher.finish())
}

fn print_below(folder: &Path, hasher: &mut DefaultHasher) -> Result<()> {
    let listing = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = Vec::new();
    for entry in listing {
        paths.push(entry.with_context(|| folder.display().to_string())?.path());
    }
    paths.sort();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let made = MADE.contains(&&*name)
            || name == LOCK
            || MADE_ENDINGS.iter().any(|ending| name.ends_with(ending));
        if name.starts_with('.') || made {
            continue;
        }
        name.hash(hasher);
        if path.is_dir() {
            print_below(&path, hasher)?;
        } else {
            fs::read(&path)
                .with_context(|| path.display().to_string())?
                .hash(hasher);
        }
    }
    Ok(())
}

/// `build.toml`; without one, a `Cargo.toml` says that it is a crate.
fn recipe(folder: &Path) -> Result<Recipe> {
    let path = folder.join(RECIPE);
    if !path.exists() && folder.join("Cargo.toml").exists() {
        return Ok(Recipe {
            language: Language::Rust,
            component: None,
            world: None,
            tools: Vec::new(),
            step: Vec::new(),
        });
    }
    let text =
        fs::read_to_string(&path).with_context(|| format!("{}: it says how to build", path.display()))?;
    let recipe: Recipe = toml::from_str(&text).with_context(|| path.display().to_string())?;
    if recipe.language != Language::Rust {
        ensure!(
            recipe.component.is_some() && !recipe.step.is_empty(),
            "{}: name the `component` and at least one [[step]]",
            path.display()
        );
    }
    if let Some(step) = recipe.step.iter().position(|step| step.run.is_empty()) {
        bail!(
            "{}: step {} runs nothing: name a program in `run`",
            path.display(),
            step + 1
        );
    }
    Ok(recipe)
}

/// When a file was changed.
pub(crate) fn modified(path: &Path) -> Result<SystemTime> {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    changed.with_context(|| path.display().to_string())
}

fn newer_below(folder: &Path, built: SystemTime, component: &Path) -> Result<bool> {
    let listing = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in listing {
        let path = entry.with_context(|| folder.display().to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with('.')
            || MADE.contains(&&*name)
            || NOT_SOURCES.contains(&&*name)
            || path == component
        {
            continue;
        }
        let newer = if path.is_dir() {
            newer_below(&path, built, component)?
        } else {
            modified(&path)? > built
        };
        if newer {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const TOML: &str = "name = \"shout\"\nversion = \"0.1.0\"\napi = \"1\"\nhooks = [\"before-send\"]\n";

    fn options(folder: &Path) -> Options {
        Options {
            folder: Some(folder.to_owned()),
            ..Options::default()
        }
    }

    #[test]
    fn a_component_is_stale_when_a_source_is_newer() -> Result<()> {
        let made = tempfile::tempdir()?;
        fs::write(made.path().join(MANIFEST), TOML)?;
        fs::write(made.path().join("Cargo.toml"), "")?;
        fs::create_dir_all(made.path().join("src"))?;
        fs::create_dir_all(made.path().join("target"))?;
        fs::write(made.path().join("src/lib.rs"), "")?;
        let folder = Folder::open(&options(made.path()))?;
        assert_eq!(folder.recipe.language, Language::Rust);
        assert!(folder.is_stale()?, "there is none");
        fs::write(folder.component_path(), "")?;
        let later = |path: &Path| -> Result<()> {
            let built = modified(&folder.component_path())?;
            let file = fs::File::options().append(true).create(true).open(path)?;
            Ok(file.set_modified(built + Duration::from_secs(5))?)
        };
        later(&made.path().join("target/made"))?;
        later(&made.path().join("binding.toml"))?;
        assert!(!folder.is_stale()?);
        later(&made.path().join("src/lib.rs"))?;
        assert!(folder.is_stale()?);
        Ok(())
    }

    #[test]
    fn a_component_is_stale_when_something_that_it_shares_is_newer() -> Result<()> {
        let made = tempfile::tempdir()?;
        let (plugin, shared) = (made.path().join("plugin"), made.path().join("shared"));
        for folder in [&plugin, &shared] {
            fs::create_dir(folder)?;
        }
        fs::write(plugin.join(MANIFEST), TOML)?;
        fs::write(
            plugin.join(RECIPE),
            "language = \"c\"\ncomponent = \"a\"\n[[step]]\nrun = [\"clang\", \"-I../shared\"]\n",
        )?;
        let folder = Folder::open(&options(&plugin))?;
        fs::write(folder.component_path(), "")?;
        assert!(!folder.is_stale()?);
        let header = fs::File::create(shared.join("a.h"))?;
        header.set_modified(modified(&folder.component_path())? + Duration::from_secs(5))?;
        assert!(folder.is_stale()?);
        fs::write(
            plugin.join("Cargo.toml"),
            "[dependencies]\na = { path = \"../shared\" }\nb = \"1\"\n",
        )?;
        fs::write(plugin.join(RECIPE), "language = \"rust\"\n")?;
        let folder = Folder::open(&options(&plugin))?;
        assert_eq!(folder.elsewhere()?, [Path::new("../shared")]);
        Ok(())
    }

    #[test]
    fn the_print_is_of_what_people_write() -> Result<()> {
        let made = tempfile::tempdir()?;
        let write = |name: &str, text: &str| fs::write(made.path().join(name), text);
        fs::create_dir(made.path().join("src"))?;
        write("src/plugin.c", "1")?;
        let first = print(made.path())?;
        for name in ["a.wasm", "a.partial", "Cargo.lock", ".hidden"] {
            write(name, "made")?;
        }
        write("src/plugin.c", "1")?;
        assert_eq!(print(made.path())?, first);
        write("src/plugin.c", "2")?;
        let second = print(made.path())?;
        write("binding.toml", "")?;
        assert!(first != second && print(made.path())? != second);
        Ok(())
    }

    #[test]
    fn a_recipe_that_builds_nothing_is_refused() -> Result<()> {
        let made = tempfile::tempdir()?;
        let refused = |text: &str| -> Result<String> {
            fs::write(made.path().join(RECIPE), text)?;
            Ok(recipe(made.path()).expect_err("is refused").to_string())
        };
        assert!(refused("language = \"python\"\n")?.contains("[[step]]"));
        let nothing = "language = \"c\"\ncomponent = \"a.wasm\"\n[[step]]\nrun = []\n";
        assert!(refused(nothing)?.contains("step 1 runs nothing"));
        fs::write(
            made.path().join(RECIPE),
            "language = \"c\"\ncomponent = \"a.wasm\"\n[[step]]\nrun = [\"clang\"]\nneeds = [\"clang\"]\n",
        )?;
        assert_eq!(recipe(made.path())?.step[0].needs, ["clang"]);
        Ok(())
    }

    #[test]
    fn a_folder_without_a_manifest_is_no_plugin() -> Result<()> {
        let made = tempfile::tempdir()?;
        let refused = Folder::open(&options(made.path())).expect_err("is refused");
        assert!(refused.to_string().contains("penstock plugin new"), "{refused}");
        Ok(())
    }
}
