//! A host with plugins as `cargo xtask plugins` builds them, for the programs that measure.

use bytes::Bytes;
use penstock_core::hooks::call::{Call, Version, Work};
use penstock_core::message::{Draft, MessageFlags};
use penstock_core::types::{ChannelKey, ChannelKind, Uid};
use penstock_plugin_host::{Host, HostConfig, LoadRequest, inspect};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Calls after which a quick version may run on the thread of its caller, and some more.
const EARNED: usize = 1_100;

/// A component of this repository, from beside the folder that this program was built into.
pub(crate) fn component(name: &str) -> Vec<u8> {
    let this = std::env::current_exe().expect("the path of this program");
    let target: PathBuf = this.ancestors().nth(3).expect("the target folder").into();
    std::fs::read(target.join("plugins").join(format!("{name}.wasm"))).expect("cargo xtask plugins builds it")
}

/// A host, and the folder that it compiles into, which is removed when the host is gone.
pub(crate) struct Bench {
    pub(crate) host: Host,
    _cache: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let cache = tempfile::tempdir().expect("a folder");
        let host = Host::start(HostConfig {
            cache: cache.path().to_path_buf(),
            compiler: None,
            threads: 4,
        })
        .expect("a host");
        Bench { host, _cache: cache }
    }

    /// Loads a filter under the name of a binding.
    pub(crate) fn load(&self, binding: &str, component: Vec<u8>, config: &serde_json::Value) -> Version {
        let version = Version {
            binding: Arc::from(binding),
            digest: inspect(&component).expect("a plugin").digest,
            generation: 1,
        };
        let request = LoadRequest {
            version: version.clone(),
            component,
            config: config.as_object().cloned().unwrap_or_default(),
            grants: BTreeSet::new(),
            hook: "before-send".to_owned(),
        };
        self.host.load(request).expect("it loads");
        version
    }

    /// Has a version earn the thread of its caller.
    pub(crate) fn earn(&self, version: &Version) {
        self.host.allow_inline(version, true);
        let call = call(version, 1, &[b'x'; 64]);
        let patience = || Duration::from_secs(1);
        // A machine that is busy with something else makes calls slow: they are tried again.
        while self
            .host
            .call_inline(Box::new(call.clone()), &mut patience())
            .is_err()
        {
            for _ in 0..EARNED {
                let (sender, receiver) = std::sync::mpsc::channel();
                self.host.call(call.clone(), move |returned| {
                    // The receiver waits.
                    let _ = sender.send(returned);
                });
                receiver.recv().expect("an answer").expect("verdicts");
            }
        }
    }
}

/// A call for so many messages with this payload.
pub(crate) fn call(version: &Version, messages: usize, payload: &[u8]) -> Call {
    let draft = Draft {
        from_uid: Uid::new("alice"),
        client_msg_no: Arc::from("one"),
        flags: MessageFlags::default(),
        setting: 0,
        expire_s: 0,
        topic: Arc::from(""),
        payload: Bytes::copy_from_slice(payload),
        origin: None,
        subscribers: Arc::from([]),
        attributes: None,
        hops: 0,
    };
    Call {
        version: version.clone(),
        channel: Some(ChannelKey::new("room", ChannelKind::GROUP)),
        within: Duration::from_secs(1),
        work: Work::BeforeSend {
            drafts: vec![draft; messages],
            wall_ms: 1,
        },
    }
}
