//! One guest: a store, its instance, the functions that are called.

mod functions;
mod hooks;

use crate::chance::jittered;
use crate::channels::Post;
use crate::component::{HTTP, Inspected, KV, never_waits};
use crate::contract::SharedFrame;
use crate::engine::{Ticker, ticks};
use crate::frame::Frame;
use crate::imports::{Granted, ReadFailed, State, linker};
use crate::keys::Desk;
use crate::limits::{Limits, Watch};
use crate::manifest::InstancePolicy;
use crate::outside::Reach;
use crate::patience::{Hold, Patience};
use crate::refused::Refused;
use crate::status::{Board, Usage};
use functions::{Exports, Functions};
use penstock_core::hooks::call::{Call, Failed, Returned, Work};
use penstock_core::hooks::pipeline::Failure;
use penstock_core::hooks::registry::Source;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wasmtime::component::{Component, ComponentNamedList, InstancePre, Lift, Lower, TypedFunc};
use wasmtime::{Engine, Store, Trap};

/// Longest payload that a guest may give a message, bytes; the broker's own limit is checked after all hooks.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Handles of resources that a guest may hold; it gets none.
const HANDLES_MAX: usize = 1_024;
/// An instance whose memory grew by more than this share of the room that its limit left it at its start is replaced.
const MEMORY_SHARE: usize = 2;
/// So is one that grew beyond twice what it had after `init`, and by more than this, bytes: runtimes leak.
const GROWTH_BYTES: usize = 4 << 20;
/// What the engine says when a call carries more than it may: it has no type for that.
const CROSSING_EXHAUSTED: &str = "fuel allocated for hostcalls has been exhausted";
/// Room for frames that an instance keeps for its next call, bytes.
const FRAME_KEPT_BYTES: usize = 128 << 10;

/// A component with all that its instances share.
pub(crate) struct Prepared {
    engine: Engine,
    before: InstancePre<State>,
    exports: Exports,
    pub(crate) limits: Limits,
    pub(crate) per_call: bool,
    /// It may ask places outside, which may be slow or gone.
    pub(crate) asks_outside: bool,
    /// It imports nothing that could make its caller wait.
    never_waits: bool,
    pub(crate) config: Arc<serde_json::Map<String, serde_json::Value>>,
    config_text: String,
    pub(crate) plugin: Arc<str>,
    /// Whether its answers may change keys.
    changes_keys: bool,
    desk: Arc<Desk>,
    reach: Arc<dyn Reach>,
    post: Arc<Post>,
    granted: Arc<Granted>,
    pub(crate) board: Arc<Board>,
}

/// What the host has for its guests.
#[derive(Clone)]
pub(crate) struct Ways {
    /// To keys.
    pub(crate) desk: Arc<Desk>,
    /// To channels.
    pub(crate) post: Arc<Post>,
}

impl Prepared {
    /// Links a component.
    ///
    /// # Errors
    /// When an import or an export is not as the contract has it.
    pub(crate) fn new(
        engine: &Engine,
        component: &Component,
        inspected: &Inspected,
        config: serde_json::Map<String, serde_json::Value>,
        (ways, reach, granted_channels): (&Ways, Arc<dyn Reach>, Granted),
    ) -> Result<Prepared, Refused> {
        // What the manifest asks for is granted by now.
        let granted = &inspected.manifest.capabilities;
        let linker = linker(engine, granted).map_err(|error| Refused::Io(format!("{error:#}")))?;
        let before = linker
            .instantiate_pre(component)
            .map_err(|error| Refused::Start(format!("{error:#}")))?;
        let config_text = serde_json::Value::Object(config.clone()).to_string();
        Ok(Prepared {
            engine: engine.clone(),
            before,
            exports: Exports::of(component),
            limits: inspected.manifest.limits(),
            per_call: inspected.manifest.instance.policy == InstancePolicy::PerCall,
            asks_outside: granted.contains(HTTP),
            never_waits: never_waits(&inspected.imports),
            config: Arc::new(config),
            config_text,
            plugin: Arc::from(inspected.manifest.name.as_str()),
            changes_keys: granted.contains(KV),
            desk: Arc::clone(&ways.desk),
            reach,
            post: Arc::clone(&ways.post),
            granted: Arc::new(granted_channels),
            board: Arc::new(Board::new()),
        })
    }

    /// Whether its calls may run on the thread of the caller at all: a filter that waits for nothing, and needs no new instance for
    /// each.
    pub(crate) fn may_run_inline(&self) -> bool {
        self.exports.filters() && self.never_waits && !self.per_call
    }
}

/// How a call ended.
pub(crate) struct Ended {
    pub(crate) returned: Returned,
    /// Why the instance must not be used again.
    pub(crate) retired: Option<&'static str>,
    /// What went wrong, in words.
    pub(crate) error: Option<String>,
    pub(crate) usage: Usage,
}

/// A running guest.
pub(crate) struct Guest {
    prepared: Arc<Prepared>,
    store: Store<State>,
    functions: Functions,
    /// Room of the last frame.
    room: SharedFrame,
    /// Bytes that crossed in the last call: to the guest, and back.
    crossed: (usize, usize),
    calls_left: u32,
    born: Instant,
    memory_first: usize,
    /// What went wrong in the call at hand, in words.
    error: Option<String>,
}

impl Guest {
    /// Makes an instance and calls its `init`.
    ///
    /// # Errors
    /// When it cannot be started, or refuses its configuration.
    pub(crate) fn start(prepared: &Arc<Prepared>, ticker: &Ticker) -> Result<Guest, Refused> {
        ticker.during(|| Guest::begin(prepared))
    }

    fn begin(prepared: &Arc<Prepared>) -> Result<Guest, Refused> {
        let mut store = store(prepared);
        let state = store.data_mut();
        state.within = prepared.limits.init_within;
        state.until = Instant::now() + state.within;
        store.set_epoch_deadline(ticks(prepared.limits.init_within));
        store.set_hostcall_fuel(prepared.limits.crossing_bytes);
        let instance = prepared
            .before
            .instantiate(&mut store)
            .map_err(|error| start_failed(&store, &error))?;
        let (functions, init) = prepared.exports.functions(&mut store, &instance)?;
        if let Some(init) = init {
            let config = (prepared.config_text.clone(),);
            let (result,) = init
                .call(&mut store, config)
                .map_err(|error| start_failed(&store, &error))?;
            result.map_err(Refused::Init)?;
        }
        prepared.board.count(|status| status.created += 1);
        let memory_first = store.data().watch.memory;
        Ok(Guest {
            prepared: Arc::clone(prepared),
            store,
            functions,
            room: SharedFrame::default(),
            crossed: (0, 0),
            calls_left: jittered(prepared.limits.calls_max),
            born: Instant::now(),
            memory_first,
            error: None,
        })
    }

    /// Whether it is an instance of this.
    pub(crate) fn is_of(&self, prepared: &Arc<Prepared>) -> bool {
        Arc::ptr_eq(&self.prepared, prepared)
    }

    /// Does a call, which is ended when the patience is.
    pub(crate) fn call(&mut self, call: &Call, patience: Patience, ticker: &Ticker) -> Ended {
        self.store.set_epoch_deadline(match patience {
            Patience::Until(within) => ticks(within),
            Patience::Shard => 1,
        });
        self.store.set_hostcall_fuel(self.prepared.limits.crossing_bytes);
        self.calls_left = self.calls_left.saturating_sub(1);
        let state = self.store.data_mut();
        state.watch.refused = false;
        state.hold = Hold::of(patience);
        state.within = match patience {
            Patience::Until(within) => within,
            Patience::Shard => Duration::ZERO,
        };
        state.until = Instant::now() + state.within;
        let before = state.watch.memory;
        self.crossed = (0, 0);
        let returned = ticker.during(|| match &call.work {
            Work::Connect { request, wall_ms } => self.connect(request, *wall_ms),
            Work::Route { request, wall_ms } => self.route(request, *wall_ms),
            Work::BeforeSend { drafts, wall_ms } => {
                let channel = call.of_channel()?;
                self.before_send(channel, drafts, *wall_ms)
            }
            Work::PersistAfter {
                binding_incarnation,
                incarnation,
                messages,
            } => {
                let source = Source {
                    binding: Arc::clone(&call.version.binding),
                    binding_incarnation: *binding_incarnation,
                    channel: call.of_channel()?.clone(),
                    incarnation: *incarnation,
                };
                self.persist_after(source, messages)
            }
            Work::Offline {
                incarnation,
                message,
                uids,
            } => self.take_note(call.of_channel()?, *incarnation, (message, uids)),
            Work::Webhook {
                window,
                messages,
                uids,
            } => self.render(call.of_channel()?, window.incarnation, (messages, uids)),
            Work::OnlineStatus(batch) => self.render_statuses(batch),
        });
        self.store.data_mut().publishing = None;
        let memory = self.store.data().watch.memory;
        let (bytes_in, bytes_out) = self.crossed;
        Ended {
            retired: self.retired(&returned, memory),
            returned,
            error: self.error.take(),
            usage: Usage {
                memory: counted(memory),
                grown: counted(memory.saturating_sub(before)),
                bytes_in: counted(bytes_in),
                bytes_out: counted(bytes_out),
            },
        }
    }

    fn retired(&self, returned: &Returned, memory: usize) -> Option<&'static str> {
        let limits = &self.prepared.limits;
        if let Err(Failed::Call(failure)) = returned {
            return Some(match failure {
                Failure::Timeout => "timeout",
                Failure::Memory => "memory-limit",
                Failure::BadOutput => "bad-output",
                Failure::Host => "host-error",
                _ => "trap",
            });
        }
        if self.prepared.per_call {
            return Some("per-call");
        }
        if self.calls_left == 0 {
            return Some("calls");
        }
        if has_grown(self.memory_first, memory, limits.memory_bytes) {
            return Some("memory");
        }
        (self.born.elapsed() > limits.age_max).then_some("age")
    }

    /// A frame in the room of the last one, unless that was a large one.
    fn frame(&mut self, fill: impl FnOnce(&mut Frame)) -> SharedFrame {
        // Nobody else holds them between two calls.
        let (arena, index) = (Arc::make_mut(&mut self.room.0), Arc::make_mut(&mut self.room.1));
        let mut frame = Frame::default();
        if arena.capacity() + index.capacity() * size_of::<u32>() <= FRAME_KEPT_BYTES {
            frame.arena = std::mem::take(arena);
            frame.index = std::mem::take(index);
        }
        fill(&mut frame);
        *arena = frame.arena;
        *index = frame.index;
        self.crossed.0 += frame_bytes(arena, index);
        self.room.clone()
    }

    /// What the guest reads as the time, and where its random numbers begin: the same for the same message.
    fn moment(&mut self, now_ms: u64, seed: u64) {
        let state = self.store.data_mut();
        state.now_ms = now_ms;
        state.random = seed;
    }

    fn run<Parameters, Results>(
        &mut self,
        function: &TypedFunc<Parameters, Results>,
        parameters: Parameters,
    ) -> Result<Results, Failed>
    where
        Parameters: ComponentNamedList + Lower,
        Results: ComponentNamedList + Lift,
    {
        function.call(&mut self.store, parameters).map_err(|error| {
            let failure = class(&self.store, &error);
            if failure != Failure::Timeout || !self.store.data().hold.is_shard() {
                let text = self.explained(failure, &error);
                self.went_wrong("error", text);
            }
            Failed::Call(failure)
        })
    }

    /// A failed call in words, with what to do about it.
    fn explained(&self, failure: Failure, error: &wasmtime::Error) -> String {
        let limits = &self.prepared.limits;
        let said = format!("{error:#}");
        let what = match failure {
            Failure::Timeout => format!(
                "it took longer than {} ms: make it quicker, or raise `deadline_ms` of the binding",
                self.store.data().within.as_millis()
            ),
            Failure::Memory => format!(
                "it needs more memory than its limit of {} MiB: raise `limits.memory_mib` in plugin.toml",
                limits.memory_bytes >> 20
            ),
            Failure::BadOutput if said.contains(CROSSING_EXHAUSTED) => format!(
                "more than {} MiB would cross from it to the broker in one call: answer less, or in parts",
                limits.crossing_bytes >> 20
            ),
            Failure::BadOutput => "its answer, or what it gave the broker, is not one".to_owned(),
            _ => return said,
        };
        format!("{what}: {said}")
    }

    fn bad(&mut self, why: &str) -> Failed {
        self.went_wrong("error", format!("its answer is not one: {why}"));
        Failed::Call(Failure::BadOutput)
    }

    /// Says so in the log, and remembers it until the call ends.
    fn went_wrong(&mut self, level: &'static str, text: String) {
        self.log(level, text.clone());
        self.error = Some(text);
    }

    fn log(&self, level: &'static str, text: String) {
        let state = self.store.data();
        state.board.log(level, state.now_ms, text);
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.prepared.board.count(|status| status.ended += 1);
    }
}

/// Whether an instance has grown so much since its start that it is replaced. What it had then is no growth: one that begins close to its
/// limit would be replaced after every call.
fn has_grown(first: usize, now: usize, limit: usize) -> bool {
    let room = limit.saturating_sub(first) / MEMORY_SHARE;
    now > first.saturating_mul(2).max(first + GROWTH_BYTES) || now > first + room
}

fn counted(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

fn frame_bytes(arena: &[u8], index: &[u32]) -> usize {
    arena.len() + size_of_val(index)
}

fn store(prepared: &Prepared) -> Store<State> {
    let state = State {
        watch: Watch::new(&prepared.limits),
        hold: Hold::default(),
        board: Arc::clone(&prepared.board),
        config: Arc::clone(&prepared.config),
        now_ms: 0,
        random: 0,
        plugin: Arc::clone(&prepared.plugin),
        desk: Arc::clone(&prepared.desk),
        reach: Arc::clone(&prepared.reach),
        post: Arc::clone(&prepared.post),
        granted: Arc::clone(&prepared.granted),
        publishing: None,
        until: Instant::now(),
        within: Duration::ZERO,
    };
    let mut store = Store::new(&prepared.engine, state);
    store.limiter(|state| &mut state.watch);
    store.epoch_deadline_callback(|mut store| Ok(store.data_mut().hold.tick()));
    store.set_max_component_handles(HANDLES_MAX);
    store
}

/// Which class a failed call belongs to. Guests turn a refused growth into traps of every kind, so the watch is asked first.
fn class(store: &Store<State>, error: &wasmtime::Error) -> Failure {
    if store.data().watch.refused {
        return Failure::Memory;
    }
    if error.downcast_ref::<ReadFailed>().is_some() {
        return Failure::Host;
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::Interrupt) => Failure::Timeout,
        Some(_) => Failure::Trap,
        // What could not be lifted: out of range, too much, not UTF-8, not a value of its type.
        None => Failure::BadOutput,
    }
}

fn start_failed(store: &Store<State>, error: &wasmtime::Error) -> Refused {
    Refused::Start(match class(store, error) {
        Failure::Timeout => "it took longer than it may: `init` must not wait or loop".to_owned(),
        Failure::Memory => format!(
            "it needs more memory than its limit: raise `limits.memory_mib` in plugin.toml ({error:#})"
        ),
        _ => format!("{error:#}"),
    })
}

#[cfg(test)]
mod tests {
    use super::has_grown;

    const MIB: usize = 1 << 20;

    #[test]
    fn growth_counts_from_what_an_instance_had_at_its_start() {
        // A frame of 128 KiB on top of the stack of Rust, within a limit of 2 MiB.
        let (first, frame) = (MIB + MIB / 8, MIB / 8);
        assert!(!has_grown(first, first + frame, 2 * MIB));
        assert!(has_grown(first, first + 4 * frame, 2 * MIB));
        assert!(!has_grown(first, first + 4 * MIB, 128 * MIB));
        assert!(has_grown(first, first + 4 * MIB + 1, 128 * MIB));
        assert!(!has_grown(2 * MIB, 2 * MIB, 2 * MIB));
    }
}
