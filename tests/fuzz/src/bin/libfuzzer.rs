//! The targets under LLVM's fuzzer. The environment names the target, because the fuzzer's own `main` reads the arguments.

#![no_main]

use libfuzzer_sys::fuzz_target;
use penstock_fuzz::{SEEDS_VARIABLE, TARGET_VARIABLE, Target, target};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Looked up once: a fuzzer that runs nothing would find nothing.
fn chosen() -> &'static Target {
    static CHOSEN: OnceLock<&'static Target> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var(TARGET_VARIABLE).unwrap_or_default();
        target(&name).unwrap_or_else(|| panic!("{TARGET_VARIABLE}={name:?} names no target"))
    })
}

/// Writes the seeds into the folder that the environment names, before the fuzzer reads it.
fn write_seeds() {
    let Some(folder) = std::env::var_os(SEEDS_VARIABLE).map(PathBuf::from) else {
        return;
    };
    for (number, seed) in (chosen().seeds)().iter().enumerate() {
        std::fs::write(folder.join(format!("{number:04}")), seed)
            .expect("the folder of seeds can be written");
    }
}

fuzz_target!(
    init: write_seeds(),
    |data: &[u8]| (chosen().run)(data)
);
