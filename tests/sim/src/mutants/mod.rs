//! Bugs that are planted so that the harness proves it would find them.

use penstock_core::shard::Config;

/// How the simulated driver misbehaves, and which faults the machines have.
#[derive(Clone, Debug, Default)]
pub struct Driver {
    /// Stores are reported durable when they are only written.
    pub stored_before_durable: bool,
    /// A damaged log is opened as if it were whole (M-8).
    pub trusts_damaged_log: bool,
}

impl Driver {
    /// Plants the machines' faults.
    #[must_use]
    pub fn configure(&self, config: Config) -> Config {
        config
    }
}

/// A planted bug.
#[derive(Debug)]
pub struct Mutant {
    /// Its name on the command line.
    pub name: &'static str,
    /// Nodes of the cluster that shows it.
    pub nodes: usize,
    /// Seeds within which it must be found.
    pub seed_budget: u64,
    /// What is wrong.
    pub sentence: &'static str,
}

impl Mutant {
    /// How the driver misbehaves with it.
    #[must_use]
    pub fn driver(&self) -> Driver {
        Driver::default()
    }
}

/// All planted bugs.
pub static ALL: &[Mutant] = &[];
