//! What the machine must have, what it lacks, and how it gets it.

use crate::process::{exists, output, program, root, succeed};
use crate::toolchain::{DEBIAN_PACKAGES, TARGET, Toolchain};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The oldest Node.js that the client SDK runs on.
const NODE_MAJOR_MIN: u32 = 18;

/// One thing that must be there.
struct Need {
    what: &'static str,
    present: fn() -> bool,
    /// Debian and Ubuntu packages; where there are several groups separated by `|`, the first that exists is taken.
    apt: &'static [&'static str],
    /// Homebrew packages.
    brew: &'static [&'static str],
}

/// What building the broker takes: RocksDB is C++ behind a binding made with libclang, the allocator comes with a
/// configure script and a makefile, raft's messages need `protoc`.
const TO_BUILD: &[Need] = &[
    Need {
        what: "a C++ compiler",
        present: has_compiler,
        apt: &["g++"],
        brew: &["llvm"],
    },
    Need {
        what: "make",
        present: || exists("make"),
        apt: &["make"],
        brew: &["make"],
    },
    Need {
        what: "libclang",
        present: has_libclang,
        apt: &["clang", "libclang-dev"],
        brew: &["llvm"],
    },
    Need {
        what: "protoc",
        present: || exists("protoc"),
        apt: &["protobuf-compiler"],
        brew: &["protobuf"],
    },
];

/// What the end-to-end tests take besides: the JavaScript SDK's runtime, a browser for the demo page, texts in two scripts to
/// send, and what builds plugins in JavaScript, Python and C.
const TO_TEST: &[Need] = &[
    Need {
        what: "Node.js 18 or newer with npm",
        present: has_node,
        apt: &["nodejs", "npm"],
        brew: &["node"],
    },
    Need {
        what: "Chromium",
        present: has_chromium,
        apt: &["chromium|chromium-browser"],
        brew: &["chromium"],
    },
    Need {
        what: "English fortune texts",
        present: has_fortunes,
        apt: &["fortunes"],
        brew: &["fortune"],
    },
    Need {
        what: "Chinese fortune texts",
        present: has_chinese_fortunes,
        apt: &["fortunes-zh|fortune-zh"],
        brew: &[],
    },
    Need {
        what: "Python 3.10 or newer with venv",
        present: has_python,
        apt: &["python3", "python3-venv"],
        brew: &["python"],
    },
    Need {
        what: "clang and wasm-ld",
        present: || exists("clang") && exists("wasm-ld"),
        apt: &["clang", "lld"],
        brew: &["llvm", "lld"],
    },
];

/// What compiling plugins takes besides: a Rust that has the target of WebAssembly, or Debian's with the source of the
/// standard library and a linker of its LLVM's version.
const TO_BUILD_PLUGINS: &[Need] = &[Need {
    what: "a Rust that compiles to WebAssembly",
    present: compiles_plugins,
    apt: &DEBIAN_PACKAGES,
    brew: &[],
}];

/// Makes the machine able to build the broker.
pub(crate) fn ready_to_build(deadline: Instant) -> Result<(), String> {
    provide(&TO_BUILD.iter().collect::<Vec<_>>(), deadline)
}

/// Makes the machine able to compile plugins. Where there is rustup, the target is added to its Rust; where that cannot be,
/// and there is nothing to add it to, Debian's packages do.
pub(crate) fn ready_for_plugins(deadline: Instant) -> Result<(), String> {
    if !compiles_plugins() && exists("rustup") {
        let added = succeed(program("rustup", &["target", "add", TARGET]), deadline);
        if let Err(why) = added {
            println!("{why}");
        }
    }
    if cfg!(target_os = "macos") && !compiles_plugins() {
        return Err(format!(
            "run this line and start again: rustup target add {}",
            TARGET
        ));
    }
    provide(&TO_BUILD_PLUGINS.iter().collect::<Vec<_>>(), deadline)
}

/// Makes the machine able to build the broker and to run every test.
pub(crate) fn ready_to_test(deadline: Instant) -> Result<(), String> {
    provide(&TO_BUILD.iter().chain(TO_TEST).collect::<Vec<_>>(), deadline)?;
    ready_for_plugins(deadline)?;
    for tool in ["fmt", "clippy"] {
        output(crate::process::cargo(&[tool, "--version"]))
            .map_err(|_| format!("cargo {tool} is missing; run: rustup component add rustfmt clippy"))?;
    }
    Ok(())
}

fn provide(needs: &[&Need], deadline: Instant) -> Result<(), String> {
    let missing: Vec<&Need> = needs.iter().copied().filter(|need| !(need.present)()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let words: Vec<&str> = missing.iter().map(|need| need.what).collect();
    println!("this machine lacks {}", words.join(", "));
    install(&missing, deadline)?;
    let still: Vec<&str> = missing
        .iter()
        .filter(|need| !(need.present)())
        .map(|need| need.what)
        .collect();
    if still.is_empty() {
        return Ok(());
    }
    Err(format!(
        "still missing after the installation: {}; install it by hand and run again",
        still.join(", ")
    ))
}

fn install(missing: &[&Need], deadline: Instant) -> Result<(), String> {
    if exists("apt-get") {
        install_with_apt(missing, deadline)
    } else if exists("brew") {
        let packages: Vec<&str> = distinct(missing.iter().flat_map(|need| need.brew.iter().copied()));
        let arguments: Vec<&str> = ["install"].into_iter().chain(packages).collect();
        succeed(program("brew", &arguments), deadline)
    } else {
        let packages: Vec<&str> = distinct(missing.iter().flat_map(|need| need.apt.iter().copied()));
        Err(format!(
            "this machine has neither apt-get nor brew; install the counterparts of these Debian packages: {}",
            packages.join(" ")
        ))
    }
}

fn install_with_apt(missing: &[&Need], deadline: Instant) -> Result<(), String> {
    let wanted: Vec<&str> = distinct(missing.iter().flat_map(|need| need.apt.iter().copied()));
    if !is_root() {
        let packages: Vec<&str> = wanted.iter().map(|group| first_of(group)).collect();
        return Err(format!(
            "run this line and start again: sudo apt-get update && sudo apt-get install -y {}",
            packages.join(" ")
        ));
    }
    succeed(program("apt-get", &["update", "-q"]), deadline)?;
    let packages: Vec<&str> = wanted.iter().map(|group| known_to_apt(group)).collect();
    let fixed = ["install", "-y", "-q", "--no-install-recommends"];
    let arguments: Vec<&str> = fixed.into_iter().chain(packages).collect();
    let mut command = program("apt-get", &arguments);
    command.env("DEBIAN_FRONTEND", "noninteractive");
    succeed(command, deadline)
}

/// The first package of the group that the package lists know; the first of all when they know none, so that the
/// installation itself says what is wrong.
fn known_to_apt(group: &'static str) -> &'static str {
    group
        .split('|')
        .find(|package| output(program("apt-cache", &["show", "--no-all-versions", package])).is_ok())
        .unwrap_or_else(|| first_of(group))
}

fn first_of(group: &'static str) -> &'static str {
    group.split('|').next().unwrap_or(group)
}

fn distinct<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut distinct = Vec::new();
    for word in words {
        if !distinct.contains(&word) {
            distinct.push(word);
        }
    }
    distinct
}

fn is_root() -> bool {
    output(program("id", &["-u"])).is_ok_and(|id| id.trim() == "0")
}

fn compiles_plugins() -> bool {
    Toolchain::find(&root()).is_some()
}

fn has_compiler() -> bool {
    ["c++", "g++", "clang++"].into_iter().any(exists) && ["cc", "gcc", "clang"].into_iter().any(exists)
}

/// Looks where the binding generator looks: the variable that names the folder, then the usual folders.
fn has_libclang() -> bool {
    let named = env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let mut folders: Vec<PathBuf> = named.into_iter().collect();
    for fixed in [
        "/usr/lib",
        "/usr/lib64",
        "/usr/local/lib",
        "/Library/Developer/CommandLineTools/usr/lib",
        "/Applications/Xcode.app/Contents/Developer/Toolchains/XcodeDefault.xctoolchain/usr/lib",
        "/opt/homebrew/opt/llvm/lib",
        "/usr/local/opt/llvm/lib",
    ] {
        folders.push(PathBuf::from(fixed));
    }
    for entry in entries(Path::new("/usr/lib")) {
        let name = file_name(&entry);
        if name.starts_with("llvm") {
            folders.push(entry.join("lib"));
        } else if name.ends_with("-linux-gnu") {
            folders.push(entry);
        }
    }
    folders
        .iter()
        .any(|folder| entries(folder).iter().any(|entry| is_libclang(&file_name(entry))))
}

/// The library itself, not the static parts or the C++ interface beside it.
fn is_libclang(name: &str) -> bool {
    let shared = name.contains(".so") || name.ends_with(".dylib");
    shared
        && (name.starts_with("libclang.")
            || name.starts_with("libclang-") && !name.starts_with("libclang-cpp"))
}

fn has_node() -> bool {
    let major = output(program("node", &["--version"]))
        .ok()
        .and_then(|version| node_major(&version));
    exists("npm") && major.is_some_and(|major| major >= NODE_MAJOR_MIN)
}

fn node_major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// Debian packages the part that makes environments on its own.
fn has_python() -> bool {
    let asks = "import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))";
    output(program("python3", &["-c", asks])).is_ok()
}

/// The names by which `tests/e2e/browser.mjs` looks for it.
const BROWSERS: &[&str] = &[
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

fn has_chromium() -> bool {
    BROWSERS.iter().copied().any(exists)
}

const FORTUNES: &[&str] = &[
    "/usr/share/games/fortunes",
    "/opt/homebrew/share/games/fortunes",
    "/usr/local/share/games/fortunes",
];

fn has_fortunes() -> bool {
    FORTUNES
        .iter()
        .any(|folder| Path::new(folder).join("fortunes").is_file())
}

/// Homebrew has no package of them: there the English ones must do.
fn has_chinese_fortunes() -> bool {
    cfg!(target_os = "macos")
        || FORTUNES.iter().any(|folder| {
            ["chinese", "tang300", "song100"]
                .iter()
                .any(|name| Path::new(folder).join(name).exists())
        })
}

/// What stands in a folder, nothing when it cannot be listed.
pub(crate) fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(folder) else {
        return Vec::new();
    };
    listing.filter_map(Result::ok).map(|entry| entry.path()).collect()
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Whether the end-to-end tests' JavaScript packages can be installed exactly as committed.
pub(crate) fn has_lock_file() -> bool {
    root().join("tests/e2e/package-lock.json").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_version_of_node() {
        assert_eq!(node_major("v20.20.2\n"), Some(20));
        assert_eq!(node_major("v8.1.0"), Some(8));
        assert_eq!(node_major("command not found"), None);
    }

    #[test]
    fn tells_the_library_from_its_neighbours() {
        for name in [
            "libclang.so",
            "libclang-14.so.1",
            "libclang.so.14",
            "libclang.dylib",
            "libclang-14.0.6.so",
        ] {
            assert!(is_libclang(name), "{name}");
        }
        for name in [
            "libclang-cpp.so.14",
            "libclangAST.a",
            "libclang.a",
            "libclang_rt.asan.so",
        ] {
            assert!(!is_libclang(name), "{name}");
        }
    }

    #[test]
    fn the_tests_look_for_the_browser_by_the_names_that_are_checked() {
        let driver =
            fs::read_to_string(root().join("tests/e2e/browser.mjs")).expect("the driver of the browser");
        let names: Vec<String> = BROWSERS.iter().map(|name| format!("{name:?}")).collect();
        assert!(driver.contains(&format!("[{}]", names.join(", "))));
    }

    #[test]
    fn one_package_is_named_once() {
        assert_eq!(
            distinct(["llvm", "protobuf", "llvm"].into_iter()),
            ["llvm", "protobuf"]
        );
        assert_eq!(first_of("fortunes-zh|fortune-zh"), "fortunes-zh");
    }
}
