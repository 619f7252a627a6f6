//! Makes a component of a core module that carries the metadata of one, as a Rust compiler for
//! `wasm32-unknown-unknown` leaves it: `penstock-plugin-encode MODULE COMPONENT`.

use std::path::Path;
use std::process::ExitCode;
use wit_component::ComponentEncoder;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [module, component] = arguments.as_slice() else {
        eprintln!("usage: penstock-plugin-encode MODULE COMPONENT");
        return ExitCode::FAILURE;
    };
    match encode(Path::new(module), Path::new(component)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{}: {message}", module.display());
            ExitCode::FAILURE
        }
    }
}

fn encode(module: &Path, component: &Path) -> Result<(), String> {
    let bytes = std::fs::read(module).map_err(|error| error.to_string())?;
    let encoded = ComponentEncoder::default()
        .validate(true)
        .module(&bytes)
        .and_then(|mut encoder| encoder.encode())
        .map_err(|error| format!("{error:#}"))?;
    std::fs::write(component, encoded).map_err(|error| format!("{}: {error}", component.display()))
}
