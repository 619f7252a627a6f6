//! Compiled components: made by a child process, kept by digest and compatibility, mapped into memory.

use crate::child;
use crate::component::digest;
use crate::engine;
use crate::refused::Refused;
use penstock_core::hooks::call::Digest;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use wasmtime::Engine;
use wasmtime::component::Component;

/// Longest time for compiling one component. JavaScript and Python take up to 10 s.
const COMPILE_WITHIN: Duration = Duration::from_secs(120);

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
                let arguments = [source.as_path(), partial.as_path()];
                let compiled = child::run(command, &arguments, &[], COMPILE_WITHIN);
                // Left behind it does no harm: the next compilation replaces it.
                let _ = fs::remove_file(&source);
                compiled.map_err(Refused::Compile)?;
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

/// What the child process does: reads a component, writes its code. It bounds itself first, because compilers meet hostile input.
///
/// # Errors
/// When the component cannot be read or compiled, or the code not be written.
pub fn compile_child(source: &Path, code: &Path) -> Result<(), String> {
    child::bound_this_process();
    let component = fs::read(source).map_err(|error| format!("{}: {error}", source.display()))?;
    let engine = Engine::new(&engine::compiler_config()).map_err(|error| format!("{error:#}"))?;
    let bytes = engine
        .precompile_component(&component)
        .map_err(|error| format!("{error:#}"))?;
    fs::write(code, bytes).map_err(|error| format!("{}: {error}", code.display()))
}
