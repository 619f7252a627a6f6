//! What a guest may import. An interface that it does not get is not linked.

mod channels;
mod keys;
mod outside;

pub(crate) use keys::ReadFailed;

use crate::channels::Post;
use crate::component::{HTTP, KV, KV_READ, MESSAGES, PUBLISH, SECRETS};
use crate::grants::ChannelGrants;
use crate::keys::Desk;
use crate::limits::Watch;
use crate::outside::Reach;
use crate::patience::Hold;
use crate::status::Board;
use penstock_core::hooks::registry::Publishing;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wasmtime::component::{ComponentType, Lift, Linker};
use wasmtime::{Engine, StoreContextMut};

/// What the host keeps for one guest.
pub(crate) struct State {
    pub(crate) watch: Watch,
    pub(crate) hold: Hold,
    pub(crate) board: Arc<Board>,
    pub(crate) config: Arc<serde_json::Map<String, serde_json::Value>>,
    /// The time of the event at hand, ms since 1970.
    pub(crate) now_ms: u64,
    /// Where the guest's random numbers continue.
    pub(crate) random: u64,
    /// The plugin whose keys it may reach, and the way to them.
    pub(crate) plugin: Arc<str>,
    pub(crate) desk: Arc<Desk>,
    /// What it may reach outside.
    pub(crate) reach: Arc<dyn Reach>,
    /// The way to channels, and which of them the binding grants.
    pub(crate) post: Arc<Post>,
    pub(crate) granted: Arc<Granted>,
    /// What the call at hand is about, where guests may publish and read.
    pub(crate) publishing: Option<Publishing>,
    /// When the call at hand is over, and how long it may take.
    pub(crate) until: Instant,
    pub(crate) within: Duration,
}

/// The channels that a binding grants.
#[derive(Debug, Default)]
pub(crate) struct Granted {
    pub(crate) publish: ChannelGrants,
    pub(crate) messages: ChannelGrants,
}

/// Severity of a line.
#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "guests make the values")]
enum Level {
    #[component(name = "trace")]
    Trace,
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

/// The interface of the contract with this name.
pub(crate) fn interface(name: &str) -> String {
    format!("penstock:plugin/{name}@1.0.0")
}

/// A linker with what every plugin gets, and what this one was granted.
pub(crate) fn linker(engine: &Engine, granted: &BTreeSet<String>) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    if granted.contains(KV) {
        keys::link_kv(&mut linker)?;
    }
    if granted.contains(KV_READ) {
        keys::link_kv_read(&mut linker)?;
    }
    if granted.contains(HTTP) {
        outside::link_http(&mut linker)?;
    }
    if granted.contains(SECRETS) {
        outside::link_secrets(&mut linker)?;
    }
    if granted.contains(PUBLISH) {
        channels::link_publish(&mut linker)?;
    }
    if granted.contains(MESSAGES) {
        channels::link_messages(&mut linker)?;
    }
    // Only types, which link to nothing.
    linker.instance(&interface("types"))?;
    linker.instance(&interface("log"))?.func_wrap(
        "write",
        |store: StoreContextMut<'_, State>, (level, text, fields): (Level, String, Vec<(String, String)>)| {
            write_line(store.data(), level, text, &fields);
            Ok(())
        },
    )?;
    linker.instance(&interface("config"))?.func_wrap(
        "get",
        |store: StoreContextMut<'_, State>, (key,): (String,)| {
            let value = store.data().config.get(&key).map(ToString::to_string);
            Ok((value,))
        },
    )?;
    linker
        .instance(&interface("clock"))?
        .func_wrap("now", |store: StoreContextMut<'_, State>, (): ()| {
            Ok((store.data().now_ms,))
        })?;
    linker
        .instance(&interface("random"))?
        .func_wrap("get", |mut store: StoreContextMut<'_, State>, (): ()| {
            Ok((next_random(&mut store.data_mut().random),))
        })?;
    linker.instance(&interface("metrics"))?.func_wrap(
        "add",
        |store: StoreContextMut<'_, State>, (name, value): (String, u64)| {
            store.data().board.add(&name, value);
            Ok(())
        },
    )?;
    Ok(linker)
}

fn write_line(state: &State, level: Level, mut text: String, fields: &[(String, String)]) {
    for (name, value) in fields {
        // Writing to a string cannot fail.
        let _ = write!(text, " {name}={value}");
    }
    state.board.log(level.name(), state.now_ms, text);
}

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
