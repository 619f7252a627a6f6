//! The engine that all guests run on, and the clock that ends their calls.

use crate::limits::{INSTANCES_MAX, MEMORIES_MAX, TABLES_MAX};
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
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

/// Moves the engine's epoch on while calls are under way, and sleeps otherwise (M-19).
#[derive(Debug)]
pub(crate) struct Ticker {
    running: Arc<AtomicUsize>,
    thread: Thread,
}

impl Ticker {
    /// Starts its thread, which ends when the engine is gone.
    pub(crate) fn start(engine: &Engine) -> std::io::Result<Ticker> {
        let running = Arc::new(AtomicUsize::new(0));
        let engine = engine.weak();
        let counted = Arc::clone(&running);
        let thread = std::thread::Builder::new().name("plugin-clock".to_owned());
        let handle = thread.spawn(move || {
            loop {
                if counted.load(Ordering::SeqCst) == 0 {
                    std::thread::park_timeout(Duration::from_secs(1));
                } else {
                    std::thread::sleep(TICK);
                }
                let Some(engine) = engine.upgrade() else {
                    return;
                };
                engine.increment_epoch();
            }
        })?;
        Ok(Ticker {
            running,
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

/// One call under way; it is counted down even when the call unwinds.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(ticker: &'a Ticker) -> Counted<'a> {
        if ticker.running.fetch_add(1, Ordering::SeqCst) == 0 {
            ticker.thread.unpark();
        }
        Counted(&ticker.running)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
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
