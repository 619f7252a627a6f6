//! What the command keeps on this machine, whatever plugin it was made for.

use std::fs;
use std::path::PathBuf;

/// Below the home folder, where nobody but the author writes: what lies there is run, and a plugin's folder that came from
/// elsewhere must not bring any.
const FOLDER: &str = ".cache/penstock";

/// The folder for this part, made when it is not there; none where there is no home folder that can be written.
pub(crate) fn folder(part: &str) -> Option<PathBuf> {
    let folder = std::env::home_dir()?.join(FOLDER).join(part);
    fs::create_dir_all(&folder).is_ok().then_some(folder)
}
