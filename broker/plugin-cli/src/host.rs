//! A plugin host of this process, for one component that its author tries.

use crate::cache;
use crate::trial::{Mail, Places, Table};
use anyhow::Result;
use penstock_plugin_host::{Channels, Host, HostConfig, Keys, Outside, Services};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Compiled components that are kept, with their checksums: one of JavaScript takes seconds to compile and 37 MB.
const KEPT: usize = 16;

/// The host, and its folder when that goes with it.
pub(crate) struct Local {
    pub(crate) host: Host,
    /// The keys that the component has.
    pub(crate) keys: Arc<Table>,
    /// The places that it may ask.
    pub(crate) places: Arc<Places>,
    /// The channels that it reaches.
    pub(crate) mail: Arc<Mail>,
    _folder: Option<TempDir>,
}

impl Local {
    /// Starts one. What it compiles is kept on this machine.
    pub(crate) fn start() -> Result<Local> {
        let (cache, folder) = match cache::folder("plugins") {
            Some(cache) => {
                tidy(&cache);
                (cache, None)
            }
            None => {
                let folder = tempfile::tempdir()?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let keys = Arc::new(Table::default());
        let mail = Arc::new(Mail::default());
        let config = HostConfig {
            cache,
            compiler: None,
            threads: 2,
        };
        let places = Arc::new(Places::default());
        let services = Services {
            keys: Arc::clone(&keys) as Arc<dyn Keys>,
            // Filters read what is there at the moment, so that a case is like the one before.
            copy_age_max: Duration::ZERO,
            channels: Arc::clone(&mail) as Arc<dyn Channels>,
            outside: Arc::clone(&places) as Arc<dyn Outside>,
        };
        let host = Host::with_services(config, services)?;
        Ok(Local {
            host,
            keys,
            places,
            mail,
            _folder: folder,
        })
    }
}

/// Removes all but the newest files. What cannot be removed stays: it costs room and nothing else.
fn tidy(cache: &Path) {
    let Ok(listing) = fs::read_dir(cache) else { return };
    let mut files: Vec<_> = listing
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.metadata().ok()?.modified().ok()?, entry.path()))
        })
        .collect();
    files.sort();
    let surplus = files.len().saturating_sub(2 * KEPT);
    for (_, path) in &files[..surplus] {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn the_newest_compiled_components_are_kept() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        for number in 0..40 {
            let file = fs::File::create(folder.path().join(number.to_string()))?;
            file.set_modified(old + Duration::from_secs(number))?;
        }
        tidy(folder.path());
        let exists = |number: u64| folder.path().join(number.to_string()).exists();
        assert_eq!(fs::read_dir(folder.path())?.count(), 2 * KEPT);
        assert!(!exists(7) && exists(8) && exists(39));
        Ok(())
    }
}
