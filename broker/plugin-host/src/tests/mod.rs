//! Guests good and hostile, through the whole host.

mod admission;
mod bombs;
mod captures;
mod connect;
mod golden;
mod guests;
mod hostile;
mod kinds;
mod outside;
mod route;
mod running;
mod webhook;

use crate::component::digest;
use crate::component::inspect;
use crate::host::{Host, HostConfig, LoadRequest, Services};
use crate::refused::Refused;
use bytes::Bytes;
use penstock_core::hooks::call::{Call, Returned, Version, Work};
use penstock_core::message::{Draft, Message, MessageFlags};
use penstock_core::types::{ChannelKey, ChannelKind, Incarnation, MessageId, Seq, Uid};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Long enough for any machine that runs these tests; nothing here waits for it to pass.
const WITHIN: Duration = Duration::from_secs(20);

struct Bench {
    host: Host,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        Bench::with(Services::default())
    }

    fn with(services: Services) -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let config = HostConfig {
            cache: folder.path().to_path_buf(),
            compiler: None,
            threads: 2,
        };
        let host = Host::with_services(config, services);
        Bench {
            host: host.expect("a host"),
            folder,
        }
    }

    fn load(&self, binding: &str, module: &[u8]) -> Result<Version, Refused> {
        self.load_with(binding, module, serde_json::Map::new())
    }

    fn load_with(
        &self,
        binding: &str,
        module: &[u8],
        config: serde_json::Map<String, serde_json::Value>,
    ) -> Result<Version, Refused> {
        self.load_all(binding, module, config, &[])
    }

    fn load_granted(&self, binding: &str, module: &[u8], grants: &[&str]) -> Result<Version, Refused> {
        self.load_all(binding, module, serde_json::Map::new(), grants)
    }

    fn load_all(
        &self,
        binding: &str,
        module: &[u8],
        config: serde_json::Map<String, serde_json::Value>,
        grants: &[&str],
    ) -> Result<Version, Refused> {
        let inspected = inspect(module)?;
        let version = Version {
            binding: Arc::from(binding),
            digest: digest(&inspected.component),
            generation: 1,
        };
        let hook = inspected.hooks.iter().next().expect("a hook").name().to_owned();
        self.host.load(LoadRequest {
            version: version.clone(),
            component: inspected.component,
            config,
            grants: grants.iter().map(|&grant| grant.to_owned()).collect(),
            hook,
        })?;
        Ok(version)
    }

    fn ask(&self, version: &Version, within: Duration, work: Work) -> Returned {
        let call = Call {
            version: version.clone(),
            channel: (!matches!(work, Work::Connect { .. } | Work::Route { .. }))
                .then(|| ChannelKey::new("room", ChannelKind::GROUP)),
            within,
            work,
        };
        let (reply, returned) = mpsc::channel();
        self.host.call(call, move |result| {
            let _ = reply.send(result);
        });
        returned.recv_timeout(WITHIN).expect("every call is answered")
    }

    fn judge(&self, version: &Version, payloads: &[&str]) -> Returned {
        self.ask(version, WITHIN, before_send(payloads))
    }
}

fn before_send(payloads: &[&str]) -> Work {
    Work::BeforeSend {
        drafts: payloads.iter().map(|payload| draft(payload)).collect(),
        wall_ms: 1_700_000_000_000,
    }
}

fn persist_after(payloads: &[&str]) -> Work {
    let message = |(at, payload): (usize, &&str)| Message {
        id: MessageId(1_000 + i64::try_from(at).expect("small")),
        seq: Seq(1 + u64::try_from(at).expect("small")),
        stamp_ms: 1_700_000_000_000,
        draft: draft(payload),
    };
    Work::PersistAfter {
        binding_incarnation: 1,
        incarnation: Incarnation(7),
        messages: payloads.iter().enumerate().map(message).collect(),
    }
}

fn draft(payload: &str) -> Draft {
    Draft {
        from_uid: Uid::new("ann"),
        client_msg_no: Arc::from("n1"),
        flags: MessageFlags::default(),
        setting: 0,
        expire_s: 60,
        topic: Arc::from("t"),
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        origin: None,
        subscribers: Arc::from([]),
        attributes: None,
        hops: 0,
    }
}
