//! The host of a node's plugins.

use crate::cache::Cache;
use crate::captures::Captures;
use crate::channels::{Channels, NoChannels, Post};
use crate::component::{HTTP, Hook, Inspected, MESSAGES, PUBLISH, SECRETS, inspect};
use crate::engine::{self, Ticker};
use crate::grants::{self, ChannelGrants};
use crate::imports::Granted;
use crate::instance::{Guest, Prepared, Ways};
use crate::keys::{COPY_AGE_MAX, Desk, Keys, NoKeys};
use crate::outside::{Nowhere, Outside, Reach};
use crate::refused::Refused;
use crate::status::{Logs, PoolStatus, Status};
use crate::worker::{Crew, Workshop};
use penstock_core::hooks::call::{Call, Returned, Version};
use penstock_core::hooks::pipeline::Failure;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use wasmtime::Engine;

/// How a host runs.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// The folder of compiled components, made when there is one. It must belong to the broker alone: what is in it is run.
    pub cache: PathBuf,
    /// The command that compiles, given a source and a target path; without one this process compiles, which only tools that
    /// handle their own plugins should do.
    pub compiler: Option<Vec<OsString>>,
    /// Threads that guests run on; those that may ask places outside have twice as many of their own.
    pub threads: usize,
}

/// What a host does for its guests beside running them.
#[derive(Clone)]
pub struct Services {
    /// Where the keys of plugins are.
    pub keys: Arc<dyn Keys>,
    /// How old a copy of a key may be that a filter reads.
    pub copy_age_max: Duration,
    /// Channels.
    pub channels: Arc<dyn Channels>,
    /// The way to the outside.
    pub outside: Arc<dyn Outside>,
}

/// None.
impl Default for Services {
    fn default() -> Services {
        Services {
            keys: Arc::new(NoKeys),
            copy_age_max: COPY_AGE_MAX,
            channels: Arc::new(NoChannels),
            outside: Arc::new(Nowhere),
        }
    }
}

/// What is to be loaded.
#[derive(Clone, Debug)]
pub struct LoadRequest {
    /// Under which name it is called.
    pub version: Version,
    /// The component, as [`inspect`] returned it.
    pub component: Vec<u8>,
    /// Configuration of the binding, a JSON object; what it lacks comes from the manifest.
    pub config: serde_json::Map<String, serde_json::Value>,
    /// What the operator grants.
    pub grants: BTreeSet<String>,
    /// The hook that is called.
    pub hook: String,
}

/// The host of a node's plugins.
pub struct Host {
    engine: Engine,
    cache: Cache,
    workshop: Arc<Workshop>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    ways: Ways,
    outside: Arc<dyn Outside>,
}

impl Host {
    /// Starts the engine and its threads. No plugin has keys or channels, or reaches anything.
    ///
    /// # Errors
    /// When the system has no room for the engine or a thread.
    pub fn start(config: HostConfig) -> Result<Host, Refused> {
        Host::with_services(config, Services::default())
    }

    /// The same with these services.
    ///
    /// # Errors
    /// When the system has no room for the engine or a thread.
    pub fn with_services(config: HostConfig, services: Services) -> Result<Host, Refused> {
        let io = |error: std::io::Error| Refused::Io(format!("plugins: {error}"));
        let engine = engine::start().map_err(|error| Refused::Io(format!("plugins: {error:#}")))?;
        let cache = Cache::new(config.cache, config.compiler);
        let ticker = Ticker::start(&engine).map_err(io)?;
        let workshop = Arc::new(Workshop::new(ticker, config.threads));
        let mut threads = Vec::new();
        let crews = Crew::ALL.into_iter();
        let crews = crews.flat_map(|crew| std::iter::repeat_n(crew, workshop.threads(crew)));
        for (number, crew) in crews.enumerate() {
            let workshop = Arc::clone(&workshop);
            let thread = std::thread::Builder::new().name(format!("plugin-{number}"));
            threads.push(thread.spawn(move || workshop.run(crew)).map_err(io)?);
        }
        Ok(Host {
            engine,
            cache,
            workshop,
            threads: Mutex::new(threads),
            ways: Ways {
                desk: Arc::new(Desk::new(services.keys, services.copy_age_max)),
                post: Arc::new(Post::new(services.channels)),
            },
            outside: services.outside,
        })
    }

    /// Says that this version is about to be loaded: calls of it wait until then.
    pub fn expect(&self, version: &Version) {
        self.workshop.expect(version);
    }

    /// Loads a version: compiles it if need be, makes a first instance and calls its `init` with the real configuration. Takes up
    /// to minutes for a large component: not for a thread that others wait for. When it fails, what waited is answered; if the
    /// version was loaded before, it runs on as it was.
    ///
    /// # Errors
    /// Why it cannot run here.
    pub fn load(&self, request: LoadRequest) -> Result<Inspected, Refused> {
        let version = request.version.clone();
        self.workshop.expect(&version);
        let loaded = self.load_expected(request);
        if loaded.is_err() {
            self.workshop.give_up(&version);
        }
        loaded
    }

    /// The same for a version that is expected already, which stays expected when it fails. If it was unloaded before this is done,
    /// nothing is kept.
    ///
    /// # Errors
    /// Why it cannot run here.
    pub fn load_expected(&self, request: LoadRequest) -> Result<Inspected, Refused> {
        let version = request.version.clone();
        let (prepared, first, inspected) = self.prepare(request)?;
        self.workshop.loaded(&version, prepared, first);
        Ok(inspected)
    }

    /// Does all that loading does, and keeps nothing but the compiled code.
    ///
    /// # Errors
    /// Why it cannot run here.
    pub fn try_out(&self, request: LoadRequest) -> Result<Inspected, Refused> {
        self.prepare(request).map(|(_, _, inspected)| inspected)
    }

    fn prepare(&self, request: LoadRequest) -> Result<(Arc<Prepared>, Guest, Inspected), Refused> {
        let inspected = inspect(&request.component)?;
        let mut wanted = inspected.manifest.capabilities.iter();
        if let Some(capability) = wanted.find(|name| !grants::cover(&request.grants, name)) {
            return Err(Refused::NotGranted {
                capability: capability.clone(),
            });
        }
        if !inspected.hooks.iter().any(|hook| hook.name() == request.hook) {
            return Err(Refused::Export {
                export: request.hook,
                reason: format!(
                    "the plugin does not answer it; it answers {}",
                    names(&inspected.hooks)
                ),
            });
        }
        let reach = self.reach(&inspected, &request)?;
        let component = self
            .cache
            .load(&self.engine, request.version.digest, &inspected.component)?;
        let mut config = defaults(&inspected)?;
        config.extend(request.config);
        let prepared = Arc::new(Prepared::new(
            &self.engine,
            &component,
            &inspected,
            config,
            (&self.ways, reach, granted(&request.grants)?),
        )?);
        let first = Guest::start(&prepared, self.workshop.ticker())?;
        Ok((prepared, first, inspected))
    }

    /// What the version may reach outside. A message that waits to be stored or delivered waits for nothing out there.
    fn reach(&self, inspected: &Inspected, request: &LoadRequest) -> Result<Arc<dyn Reach>, Refused> {
        let capabilities = &inspected.manifest.capabilities;
        let pure = [Hook::BeforeSend, Hook::Webhook].map(Hook::name);
        if pure.contains(&request.hook.as_str())
            || ![HTTP, SECRETS].iter().any(|name| capabilities.contains(*name))
        {
            return Ok(Arc::new(Nowhere));
        }
        self.outside.granted(&request.grants).map_err(Refused::Grants)
    }

    /// Says that a version that was expected will not come: what waits is answered that it is not here. One that is loaded runs on.
    /// Whether it was still waited for.
    pub fn give_up(&self, version: &Version) -> bool {
        self.workshop.give_up(version)
    }

    /// Takes a version away. Calls that run are answered; what waits is answered that it is not here.
    pub fn unload(&self, version: &Version) {
        self.workshop.unload(version);
    }

    /// Does a call on another thread. `reply` is called exactly once, perhaps at once, and must not block.
    pub fn call(&self, call: Call, reply: impl FnOnce(Returned) + Send + 'static) {
        self.workshop.submit(call, Box::new(reply));
    }

    /// Whether calls of a version that is expected or loaded may run on the thread of the caller once it has proved to be quick;
    /// not unless this was said.
    pub fn allow_inline(&self, version: &Version, allowed: bool) {
        self.workshop.allow_inline(version, allowed);
    }

    /// Does a call on the calling thread, which is held for two milliseconds of running at most. Only a call of a few messages to a
    /// version that has proved to be quick runs here, if an instance of it is free. What it takes is taken from `patience`.
    ///
    /// # Errors
    /// Gives the call back, with the time that is left for it, when it has to run elsewhere.
    pub fn call_inline(&self, call: Box<Call>, patience: &mut Duration) -> Result<Returned, Box<Call>> {
        self.workshop.call_inline(call, patience)
    }

    /// Does a call on the calling thread, which is held until the guest is done: for tools that measure or test a plugin.
    ///
    /// # Errors
    /// When the call fails, as for every other.
    pub fn call_here(&self, call: &Call) -> Returned {
        self.workshop.call_here(call)
    }

    /// Who notes what is wrong with answers that the host itself cannot judge.
    #[must_use]
    pub fn judge(&self) -> Judge {
        Judge {
            workshop: Arc::clone(&self.workshop),
        }
    }

    /// What is counted of each version that is loaded.
    #[must_use]
    pub fn status(&self) -> Status {
        let loaded = self.workshop.prepared().into_iter();
        loaded
            .map(|(version, prepared)| (version, prepared.board.status()))
            .collect()
    }

    /// What the pool of instances holds; none where instances are made on demand.
    #[must_use]
    pub fn pool(&self) -> Option<PoolStatus> {
        let metrics = self.engine.pooling_allocator_metrics()?;
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        Some(PoolStatus {
            instances: metrics.component_instances(),
            memories: count(metrics.memories()),
            tables: count(metrics.tables()),
            memories_warm: u64::from(metrics.unused_warm_memories()),
            resident_bytes: count(metrics.unused_memory_bytes_resident()),
        })
    }

    /// Lines that a version logged, from this number on.
    #[must_use]
    pub fn logs(&self, version: &Version, from: u64) -> Logs {
        let prepared = self.workshop.prepared_of(version);
        prepared.map_or_else(Logs::default, |prepared| prepared.board.logs(from))
    }

    /// The inputs of calls that failed.
    #[must_use]
    pub fn captures(&self) -> &Captures {
        &self.workshop.captures
    }

    /// Ends the threads. Calls that run are done first, within their deadlines.
    pub fn stop(&self) {
        self.workshop.stop();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // One that panicked has ended the process already.
            let _ = thread.join();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop();
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Host")
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}

/// Notes what is wrong with answers that are whole, and of no use to whoever asked.
#[derive(Clone)]
pub struct Judge {
    workshop: Arc<Workshop>,
}

impl Judge {
    /// An answer of this version is counted as bad output, and its log says why. `at_ms` is the time as the guest has seen it.
    pub fn bad_output(&self, version: &Version, at_ms: u64, why: &str) {
        let Some(prepared) = self.workshop.prepared_of(version) else {
            return;
        };
        let line = format!("its answer is not one: {why}");
        prepared.board.log("error", at_ms, line);
        prepared.board.count(|status| {
            *status.failures.entry(Failure::BadOutput).or_default() += 1;
        });
    }
}

impl std::fmt::Debug for Judge {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Judge").finish_non_exhaustive()
    }
}

/// The channels that a binding grants.
fn granted(grants: &BTreeSet<String>) -> Result<Granted, Refused> {
    let of = |capability| ChannelGrants::parse(capability, grants).map_err(Refused::Grants);
    Ok(Granted {
        publish: of(PUBLISH)?,
        messages: of(MESSAGES)?,
    })
}

fn names(hooks: &BTreeSet<Hook>) -> String {
    hooks
        .iter()
        .map(|hook| hook.name())
        .collect::<Vec<_>>()
        .join(", ")
}

/// The configuration that the manifest gives.
fn defaults(inspected: &Inspected) -> Result<serde_json::Map<String, serde_json::Value>, Refused> {
    let table = serde_json::to_value(&inspected.manifest.config);
    match table {
        Ok(serde_json::Value::Object(object)) => Ok(object),
        Ok(_) => Ok(serde_json::Map::new()),
        Err(error) => Err(Refused::Manifest(format!("config: {error}"))),
    }
}
