//! Fuzz targets. Each is a plain function of bytes that asserts what must hold whatever they are, so that it runs under
//! LLVM's fuzzer (`cargo xtask fuzz`) and, over its corpus and some thousand mutations, as an ordinary test.
//!
//! Most targets read the bytes as choices ([`input::Input`]): a session that is well-formed up to the point where it is not
//! comes out of most inputs, so that the search starts behind the first check instead of before it.

pub mod fsm_apply;
pub mod http_body;
pub mod input;
pub mod json_rpc;
pub mod mutate;
pub mod node;
pub mod peer;
pub mod plugin_admission;
pub mod plugin_frame;
pub mod rpc;
pub mod store_recovery;
pub mod websocket;
pub mod wkproto;

/// The environment variable by which the fuzzer's binary is told its target.
pub const TARGET_VARIABLE: &str = "PENSTOCK_FUZZ_TARGET";

/// The environment variable that names a folder for the seeds.
pub const SEEDS_VARIABLE: &str = "PENSTOCK_FUZZ_SEEDS";

/// One target.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, which is its corpus' folder too.
    pub name: &'static str,
    /// Runs one input; panics when something does not hold.
    pub run: fn(&[u8]),
    /// Inputs to start from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Mutations that the test tries, so that it ends within some seconds.
    pub mutations: u64,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target {
        name: "fsm_apply",
        run: fsm_apply::run,
        seeds: fsm_apply::seeds,
        mutations: 4_000,
    },
    Target {
        name: "http_body",
        run: http_body::run,
        seeds: http_body::seeds,
        mutations: 800,
    },
    Target {
        name: "json_rpc",
        run: json_rpc::run,
        seeds: json_rpc::seeds,
        mutations: 1_000,
    },
    Target {
        name: "plugin_admission",
        run: plugin_admission::run,
        seeds: plugin_admission::seeds,
        mutations: 3_000,
    },
    Target {
        name: "plugin_frame",
        run: plugin_frame::run,
        seeds: plugin_frame::seeds,
        mutations: 20_000,
    },
    Target {
        name: "store_recovery",
        run: store_recovery::run,
        seeds: store_recovery::seeds,
        mutations: 30,
    },
    Target {
        name: "websocket",
        run: websocket::run,
        seeds: websocket::seeds,
        mutations: 1_000,
    },
    Target {
        name: "wkproto",
        run: wkproto::run,
        seeds: wkproto::seeds,
        mutations: 4_000,
    },
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// The byte cases that every part of the project shares: names and bytes.
fn cases() -> Vec<(&'static str, Vec<u8>)> {
    const CASES: &str = include_str!("../../conformance/cases/frames.tsv");
    let parsed = CASES.lines().skip(1).filter_map(|line| {
        let mut columns = line.split('\t');
        let (name, hex) = (columns.next()?, columns.next()?);
        let bytes = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16));
        Some((name, bytes.collect::<Result<Vec<u8>, _>>().ok()?))
    });
    parsed.collect()
}
