//! Makes components of core modules that carry the metadata of one, as a Rust compiler for `wasm32-unknown-unknown` leaves
//! them: `penstock-plugin-encode MODULE COMPONENT [MODULE COMPONENT...]`. Each is held to the contract before it is written,
//! and a file that has these bytes already is left alone.

mod contract;

use contract::Contract;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use wit_component::ComponentEncoder;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let (pairs, []) = arguments.as_chunks() else {
        eprintln!("usage: penstock-plugin-encode MODULE COMPONENT [MODULE COMPONENT...]");
        return ExitCode::FAILURE;
    };
    let contract = Contract::read();
    for [module, component] in pairs {
        if let Err(message) = write(&contract, Path::new(module), Path::new(component)) {
            eprintln!("{}: {message}", Path::new(module).display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn write(contract: &Contract, module: &Path, component: &Path) -> Result<(), String> {
    let bytes = fs::read(module).map_err(|error| error.to_string())?;
    let encoded = encode(&bytes)?;
    contract.check(&encoded)?;
    if fs::read(component).is_ok_and(|before| before == encoded) {
        return Ok(());
    }
    fs::write(component, encoded).map_err(|error| format!("{}: {error}", component.display()))
}

/// The component of this module.
fn encode(module: &[u8]) -> Result<Vec<u8>, String> {
    ComponentEncoder::default()
        .validate(true)
        .module(module)
        .and_then(|encoder| encoder.encode())
        .map_err(|error| format!("{error:#}"))
}
