//! A guest for each way in which the broker asks. Its answer lies in its memory as words, so that every part of it may be wrong.

use super::guests::{COMMON, data, module};
use super::{before_send, persist_after};
use bytes::Bytes;
use penstock_core::client::Secret;
use penstock_core::hooks::call::{HttpRequest, Window, Work};
use penstock_core::hooks::gates::Request;
use penstock_core::types::{DeviceFlag, Incarnation, Seq, Uid};
use std::sync::Arc;

/// A way in which the broker asks.
pub(super) struct Kind {
    /// The interface that a guest exports, and its function.
    pub(super) interface: &'static str,
    function: &'static str,
    hook: &'static str,
    world: &'static str,
    /// Numbers that the function is given.
    parameters: usize,
    /// The words of an answer that is right.
    pub(super) right: &'static [u32],
    /// What it is asked.
    pub(super) work: fn() -> Work,
}

/// All of them.
pub(super) const KINDS: [Kind; 7] = [
    Kind {
        interface: "before-send",
        function: "handle",
        hook: "before-send",
        world: "filter",
        parameters: 4,
        right: &[1_024, 0, 1_024, 0],
        work: || before_send(&["a"]),
    },
    Kind {
        interface: "before-send-typed",
        function: "handle",
        hook: "before-send",
        world: "filter-typed",
        parameters: 2,
        right: &[2_560, 1],
        work: || before_send(&["a"]),
    },
    Kind {
        interface: "persist-after",
        function: "handle",
        hook: "persist-after",
        world: "consumer",
        parameters: 4,
        right: &[0, 1, 1_024, 0],
        work: || persist_after(&["a"]),
    },
    Kind {
        interface: "offline",
        function: "handle",
        hook: "offline",
        world: "notifier",
        parameters: 6,
        right: &[0, 1],
        work: offline,
    },
    Kind {
        interface: "session",
        function: "connect",
        hook: "connect",
        world: "gate",
        parameters: 9,
        right: &[0, 3_072, 4, 0, 1_024, 0],
        work: connect,
    },
    Kind {
        interface: "route",
        function: "handle",
        hook: "route",
        world: "router",
        parameters: 8,
        right: &[200, 1_024, 0, 1_024, 0],
        work: route,
    },
    Kind {
        interface: "webhook",
        function: "render",
        hook: "webhook",
        world: "hook-sender",
        parameters: 7,
        right: &[0, 1_024, 0],
        work: webhook,
    },
];

impl Kind {
    /// A guest that does this, and then answers with these words; others stand at 2048.
    ///
    /// At 3072 stands `spam!`, at 3080 what is no UTF-8, at 3088 `POST`, at 3096 `https://a/`. What is around is 0.
    pub(super) fn guest(&self, body: &str, answer: &[u32], words: &[u32]) -> Vec<u8> {
        let Kind {
            interface,
            function,
            hook,
            world,
            ..
        } = self;
        let parameters = " i32".repeat(self.parameters);
        let text = format!(
            r#"(module
  (import "penstock:plugin/log@1.0.0" "write" (func $log (param i32 i32 i32 i32 i32)))
  {COMMON}
  (data (i32.const 1024) "{}")
  (data (i32.const 2048) "{}")
  (data (i32.const 3080) "\ff\ff\ff\ff")
  (data (i32.const 3088) "POST")
  (data (i32.const 3096) "https://a/")
  (func (export "penstock:plugin/lifecycle@1.0.0#init") (param i32 i32) (result i32)
    (i32.store8 (i32.const 512) (i32.const 0)) (i32.const 512))
  (func $deep (call $deep))
  (func (export "penstock:plugin/{interface}@1.0.0#{function}") (param{parameters}) (result i32)
    (local $left i32) {body} (i32.const 1024))
  (func (export "cabi_post_penstock:plugin/{interface}@1.0.0#{function}") (param i32)
    (global.set $heap (i32.const 8192))))"#,
            data(answer),
            data(words)
        );
        let manifest =
            format!("name = \"{interface}\"\nversion = \"0.1.0\"\napi = \"1\"\nhooks = [\"{hook}\"]\n");
        module(world, &manifest, &text)
    }
}

fn message() -> penstock_core::message::Message {
    match persist_after(&["a"]) {
        Work::PersistAfter { mut messages, .. } => messages.remove(0),
        other => panic!("{other:?}"),
    }
}

fn offline() -> Work {
    Work::Offline {
        incarnation: Incarnation(7),
        message: Box::new(message()),
        uids: vec![Uid::new("bob"), Uid::new("carol")],
    }
}

fn connect() -> Work {
    Work::Connect {
        request: Box::new(Request {
            uid: Uid::new("ann"),
            token: Secret(Arc::from("t")),
            device_id: Arc::from("d"),
            flag: DeviceFlag(1),
            address: Arc::from("192.0.2.7"),
        }),
        wall_ms: 1_700_000_000_000,
    }
}

fn route() -> Work {
    Work::Route {
        request: Box::new(HttpRequest {
            method: "GET".to_owned(),
            url: "/".to_owned(),
            headers: Vec::new(),
            body: Bytes::new(),
        }),
        wall_ms: 1_700_000_000_000,
    }
}

fn webhook() -> Work {
    Work::Webhook {
        window: Window {
            binding_incarnation: 1,
            incarnation: Incarnation(7),
            first: Seq(1),
            last: Seq(1),
        },
        messages: vec![message()],
        uids: Vec::new(),
    }
}
