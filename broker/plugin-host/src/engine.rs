//! The engine that all guests run on, and the clock that ends their calls.

use crate::limits::{INSTANCES_MAX, MEMORIES_MAX, TABLES_MAX};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, OptLevel, PoolingAllocationConfig};

/// How long one epoch is, and so how finely calls are ended.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// Settings that decide what compiled code looks like: compiler and runtime must agree on them.
pub(crate) fn compiler_config() -> Config {
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .epoch_interruption(true)
        .consume_fuel(false)
        .memory_init_cow(true)
        .cranelift_opt_level(OptLevel::Speed)
        .max_wasm_stack(256 << 10)
        .async_stack_size(512 << 10)
        .wasm_backtrace_max_frames(NonZero::new(20));
    config
}

/// The engine: instances from a pool where the address space has room for one, else made on demand.
pub(crate) fn start() -> wasmtime::Result<Engine> {
    let mut config = compiler_config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool()));
    Engine::new(&config).or_else(|error| {
        tracing::warn!(%error, "no room for a pool of plugin instances: they are made on demand, which is slower");
        Engine::new(&compiler_config())
    })
}

fn pool() -> PoolingAllocationConfig {
    let scans = PoolingAllocationConfig::is_pagemap_scan_available();
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(256)
        .total_core_instances(1024)
        .total_memories(256)
        .total_tables(1024)
        .max_core_instances_per_component(bound(INSTANCES_MAX))
        .max_memories_per_component(bound(MEMORIES_MAX))
        .max_tables_per_component(bound(TABLES_MAX))
        .total_stacks(256)
        .max_memory_size(128 << 20)
        .table_elements(100_000)
        .max_core_instance_size(10 << 20)
        .max_component_instance_size(10 << 20)
        .pagemap_scan(Enabled::Auto)
        .linear_memory_keep_resident(if scans { 1 << 20 } else { 128 << 10 })
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10)
        .decommit_batch_size(32)
        .max_unused_warm_slots(64);
    pool
}

fn bound(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Ticks without a call after which the clock sleeps. Waking it costs a caller more than many ticks cost the clock.
const LINGER_TICKS: u32 = 50;
/// A call that begins: one more in the low half, which counts the calls under way, and one more in the high half, which counts
/// all that ever began.
const BEGINS: u64 = (1 << 32) + 1;
/// A call that ends.
const ENDS: u64 = 1;

/// Moves the engine's epoch on while calls are under way, and sleeps otherwise (M-19).
#[derive(Debug)]
pub(crate) struct Ticker {
    clockwork: Arc<Clockwork>,
    thread: Thread,
}

/// Shared by those who call and the thread of the clock.
#[derive(Debug, Default)]
struct Clockwork {
    calls: AtomicU64,
    /// The clock sleeps, or is about to.
    asleep: AtomicBool,
}

impl Ticker {
    /// Starts its thread, which ends when the engine is gone.
    pub(crate) fn start(engine: &Engine) -> std::io::Result<Ticker> {
        let clockwork = Arc::new(Clockwork::default());
        let engine = engine.weak();
        let shared = Arc::clone(&clockwork);
        let thread = std::thread::Builder::new().name("plugin-clock".to_owned());
        let handle = thread.spawn(move || {
            let (mut seen, mut idle) = (0, 0);
            loop {
                let calls = shared.calls.load(Ordering::SeqCst);
                idle = if calls == seen && under_way(calls) == 0 {
                    idle + 1
                } else {
                    0
                };
                seen = calls;
                if idle < LINGER_TICKS {
                    std::thread::sleep(TICK);
                } else {
                    idle = LINGER_TICKS;
                    shared.sleep(seen);
                }
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                engine.increment_epoch();
            }
        })?;
        Ok(Ticker {
            clockwork,
            thread: handle.thread().clone(),
        })
    }

    /// Runs `work` while the clock ticks.
    pub(crate) fn during<T>(&self, work: impl FnOnce() -> T) -> T {
        let counted = Counted::new(self);
        let done = work();
        drop(counted);
        done
    }
}

impl Clockwork {
    /// Sleeps until a call begins, at once if one has begun since `seen`. A caller that sees no sleeper has begun before the
    /// sleeper looks: one of the two sees the other.
    fn sleep(&self, seen: u64) {
        self.asleep.store(true, Ordering::SeqCst);
        if self.calls.load(Ordering::SeqCst) == seen {
            // Not for ever, because the engine may have gone.
            std::thread::park_timeout(Duration::from_secs(1));
        }
        self.asleep.store(false, Ordering::SeqCst);
    }
}

fn under_way(calls: u64) -> u64 {
    calls & u64::from(u32::MAX)
}

/// One call under way; it is counted down even when the call unwinds.
struct Counted<'a>(&'a AtomicU64);

impl<'a> Counted<'a> {
    fn new(ticker: &'a Ticker) -> Counted<'a> {
        let clockwork = &ticker.clockwork;
        clockwork.calls.fetch_add(BEGINS, Ordering::SeqCst);
        if clockwork.asleep.load(Ordering::SeqCst) {
            ticker.thread.unpark();
        }
        Counted(&clockwork.calls)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(ENDS, Ordering::SeqCst);
    }
}

/// Ticks that cover a duration: at least two, because the first may come at once.
pub(crate) fn ticks(within: Duration) -> u64 {
    let ticks = within.as_micros().div_ceil(TICK.as_micros());
    u64::try_from(ticks)
        .unwrap_or(u64::MAX / 4)
        .clamp(1, u64::MAX / 4)
        + 1
}
