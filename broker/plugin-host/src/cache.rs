//! Compiled components: made by a child process, kept by digest and compatibility, mapped into memory.

use crate::component::digest;
use crate::engine;
use crate::refused::Refused;
use penstock_core::hooks::call::Digest;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use wasmtime::Engine;
use wasmtime::component::Component;

/// Longest time for compiling one component. JavaScript and Python take up to 10 s.
const COMPILE_WITHIN: Duration = Duration::from_secs(120);
/// Processor time and address space of the compiler.
const COMPILE_CPU_S: u64 = 120;
const COMPILE_BYTES: u64 = 8 << 30;
/// What is kept of the compiler's words, bytes.
const SAID_BYTES_MAX: u64 = 4_096;

/// Compiled components of one folder.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    compiler: Option<Vec<OsString>>,
    /// One compilation at a time: two of the same component would write the same files, and a compiler takes a processor.
    turn: Mutex<()>,
}

impl Cache {
    /// In this folder, which is made when there is something to keep.
    pub(crate) fn new(folder: PathBuf, compiler: Option<Vec<OsString>>) -> Cache {
        Cache {
            folder,
            compiler,
            turn: Mutex::new(()),
        }
    }

    /// The compiled component of this name: mapped when it is there and whole, else compiled first.
    pub(crate) fn load(
        &self,
        engine: &Engine,
        wanted: Digest,
        component: &[u8],
    ) -> Result<Component, Refused> {
        let found = digest(component);
        if found != wanted {
            return Err(Refused::Digest { found, wanted });
        }
        let mut compatible = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut compatible);
        let code = self
            .folder
            .join(format!("{wanted}-{:016x}.cwasm", compatible.finish()));
        // The lock guards files, which a compilation that died left as they may be found after a crash too.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_whole(&code) {
            self.compile(engine, component, &code)?;
        }
        map(engine, &code)
    }

    fn compile(&self, engine: &Engine, component: &[u8], code: &Path) -> Result<(), Refused> {
        fs::create_dir_all(&self.folder).map_err(|error| failed(&self.folder, &error))?;
        let partial = code.with_extension("partial");
        match &self.compiler {
            Some(command) => {
                let source = code.with_extension("wasm");
                fs::write(&source, component).map_err(|error| failed(&source, &error))?;
                let compiled = run(command, &source, &partial);
                // Left behind it does no harm: the next compilation replaces it.
                let _ = fs::remove_file(&source);
                compiled?;
            }
            None => {
                let bytes = engine
                    .precompile_component(component)
                    .map_err(|error| Refused::Compile(format!("{error:#}")))?;
                fs::write(&partial, bytes).map_err(|error| failed(&partial, &error))?;
            }
        }
        let bytes = fs::read(&partial).map_err(|error| failed(&partial, &error))?;
        let sum = sum_of(code);
        fs::write(&sum, digest(&bytes).to_string()).map_err(|error| failed(&sum, &error))?;
        fs::rename(&partial, code).map_err(|error| failed(code, &error))
    }
}

fn failed(path: &Path, error: &io::Error) -> Refused {
    Refused::Io(format!("{}: {error}", path.display()))
}

fn sum_of(code: &Path) -> PathBuf {
    code.with_extension("sum")
}

/// Whether the file is what was written: a torn or changed one is compiled anew.
fn is_whole(code: &Path) -> bool {
    let (Ok(bytes), Ok(sum)) = (fs::read(code), fs::read_to_string(sum_of(code))) else {
        return false;
    };
    let whole = digest(&bytes).to_string() == sum;
    if !whole {
        tracing::warn!(file = %code.display(), "a compiled plugin is damaged: it is compiled anew");
    }
    whole
}

#[expect(
    unsafe_code,
    reason = "mapping code is the point of the cache; only what our compiler wrote comes here"
)]
fn map(engine: &Engine, code: &Path) -> Result<Component, Refused> {
    // SAFETY: the file was written by our own compiler, its checksum was compared a moment ago, and the folder belongs to the broker.
    let component = unsafe { Component::deserialize_file(engine, code) };
    component.map_err(|error| Refused::Io(format!("{}: {error:#}", code.display())))
}

/// Runs the compiler, and ends it when it takes too long.
fn run(command: &[OsString], source: &Path, code: &Path) -> Result<(), Refused> {
    let [program, arguments @ ..] = command else {
        return Err(Refused::Compile("no compiler is set".to_owned()));
    };
    let refused = |error: &dyn std::fmt::Display| Refused::Compile(error.to_string());
    let mut child = Command::new(program)
        .args(arguments)
        .arg(source)
        .arg(code)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // What the operator keeps in the environment is no business of a process that reads hostile bytes.
        .env_clear()
        .spawn()
        .map_err(|error| refused(&error))?;
    let said = said(&mut child);
    let status = wait(&mut child)?;
    if status.success() {
        return Ok(());
    }
    let said = said.and_then(|thread| thread.join().ok()).unwrap_or_default();
    Err(Refused::Compile(format!("{status}: {}", said.trim())))
}

/// Waits for the compiler, and ends it when it takes too long.
fn wait(child: &mut Child) -> Result<ExitStatus, Refused> {
    let deadline = Instant::now() + COMPILE_WITHIN;
    loop {
        let ended = child
            .try_wait()
            .map_err(|error| Refused::Compile(error.to_string()))?;
        if let Some(status) = ended {
            return Ok(status);
        }
        if Instant::now() > deadline {
            // It may have ended by itself in this moment.
            let _ = child.kill();
            let _ = child.wait();
            return Err(Refused::Compile(format!(
                "it took longer than {} s",
                COMPILE_WITHIN.as_secs()
            )));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Reads what a child says of its failure, all the time: a pipe that nobody reads would hold the child up.
fn said(child: &mut Child) -> Option<JoinHandle<String>> {
    let mut stderr = child.stderr.take()?;
    let thread = std::thread::Builder::new().name("plugin-compile".to_owned());
    let reading = thread.spawn(move || {
        let mut said = Vec::new();
        // What cannot be read is missing from an error's text, and nothing else.
        let _ = io::Read::read_to_end(&mut io::Read::take(&mut stderr, SAID_BYTES_MAX), &mut said);
        let _ = io::copy(&mut stderr, &mut io::sink());
        String::from_utf8_lossy(&said).into_owned()
    });
    reading.ok()
}

/// What the child process does: reads a component, writes its code. It bounds itself first, because compilers meet hostile input.
///
/// # Errors
/// When the component cannot be read or compiled, or the code not be written.
pub fn compile_child(source: &Path, code: &Path) -> Result<(), String> {
    bound_this_process();
    let component = fs::read(source).map_err(|error| format!("{}: {error}", source.display()))?;
    let engine = Engine::new(&engine::compiler_config()).map_err(|error| format!("{error:#}"))?;
    let bytes = engine
        .precompile_component(&component)
        .map_err(|error| format!("{error:#}"))?;
    fs::write(code, bytes).map_err(|error| format!("{}: {error}", code.display()))
}

/// Less of the processor, and no more of it and of memory than a component needs. Where the system refuses, the parent's clock is left.
fn bound_this_process() {
    use rustix::process::{Resource, Rlimit, nice, setrlimit};
    let bounded = |most: u64| Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    let _ = nice(10);
    let _ = setrlimit(Resource::Cpu, bounded(COMPILE_CPU_S));
    let _ = setrlimit(Resource::As, bounded(COMPILE_BYTES));
}
