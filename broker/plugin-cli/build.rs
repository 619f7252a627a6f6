//! Puts what `penstock plugin new` writes into the binary: the templates, the contract, and the SDK for Rust, which no registry has.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The table's name, its folder from the root of the repository, and the folders below it that hold what was built.
const TABLES: [(&str, &str); 3] = [
    ("TEMPLATES", "plugins/templates"),
    ("CONTRACT", "wit/v1"),
    ("SDK", "plugin-sdk"),
];

/// Folders that hold what was built or fetched.
const BUILT: [&str; 5] = ["target", "node_modules", "build", "__pycache__", ".venv"];

fn main() -> std::io::Result<()> {
    let root = Path::new("../..").canonicalize()?;
    let mut code = String::new();
    for (name, folder) in TABLES {
        let folder = root.join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        let mut files = Vec::new();
        if folder.is_dir() {
            list(&folder, &mut files)?;
        }
        files.sort();
        let _ = writeln!(
            code,
            "/// From `{}`.\npub(crate) const {name}: &[File] = &[",
            name.to_lowercase()
        );
        for file in files {
            let inside = file.strip_prefix(&folder).unwrap_or(&file);
            let path = inside.to_string_lossy().replace('\\', "/");
            let _ = writeln!(
                code,
                "    File {{ path: {path:?}, text: include_str!({:?}) }},",
                file.display().to_string()
            );
        }
        code.push_str("];\n");
    }
    let sdk_workspace = root.join("plugins/Cargo.toml");
    println!("cargo::rerun-if-changed={}", sdk_workspace.display());
    let _ = writeln!(
        code,
        "/// The workspace that the manifest of the SDK refers to.\npub(crate) const SDK_WORKSPACE: &str = include_str!({:?});",
        sdk_workspace.display().to_string()
    );
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("embedded.rs"), code)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_dir() {
            if !BUILT.contains(&&*name) {
                list(&path, files)?;
            }
        } else {
            println!("cargo::rerun-if-changed={}", path.display());
            files.push(path);
        }
    }
    Ok(())
}
