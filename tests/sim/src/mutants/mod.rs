//! Bugs that are planted so that the harness proves it would find them: in the machines, in the driver, in the disk.

mod list;

pub use list::ALL;

use penstock_core::shard::{Config, Faults};
use penstock_core::{append, channel, delivery, hooks, presence, session, slot};

/// How the simulated driver misbehaves, and which faults the machines have.
#[derive(Clone, Debug, Default)]
pub struct Driver {
    /// Stores are reported durable when they are only written.
    pub stored_before_durable: bool,
    /// A damaged log is opened as if it were whole (M-8).
    pub trusts_damaged_log: bool,
    /// A process starts under the boot of the one before it (M-4).
    pub keeps_process_boot: bool,
    /// An empty disk comes back under the boot of the lost one (M-4).
    pub keeps_disk_boot: bool,
    faults: Faults,
}

impl Driver {
    /// The faults of the hooks, for what a plugin host takes from them.
    #[must_use]
    pub fn hooks(&self) -> hooks::faults::Faults {
        self.faults.hooks
    }

    /// Plants the machines' faults.
    #[must_use]
    pub fn configure(&self, config: Config) -> Config {
        Config {
            faults: self.faults.clone(),
            ..config
        }
    }
}

/// Where a bug is planted.
#[derive(Clone, Copy, Debug)]
pub enum Plant {
    /// In channel replicas, by the name of the fault.
    Channel(&'static str),
    /// In slot groups, by the name of the fault.
    Slot(&'static str),
    /// In append authorities.
    Append(fn(&mut append::faults::Faults)),
    /// In post-commit cursors.
    Hooks(fn(&mut hooks::faults::Faults)),
    /// In delivery.
    Delivery(delivery::Fault),
    /// In presence authorities.
    Presence(presence::Fault),
    /// In sessions.
    Session(session::Fault),
    /// In several machines at once: what one of them does wrong the next one keeps from being seen.
    Machines(fn(&mut Faults)),
    /// In the driver or the disk.
    Driver(fn(&mut Driver)),
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
    /// Where it is.
    pub plant: Plant,
}

impl Mutant {
    /// The driver with this bug.
    ///
    /// # Panics
    /// When a machine does not know the fault by its name.
    #[must_use]
    pub fn driver(&self) -> Driver {
        let mut driver = Driver::default();
        let faults = &mut driver.faults;
        match self.plant {
            Channel(name) => faults.channel = channel::Faults::named(name).expect("a fault of channels"),
            Slot(name) => faults.slot = slot::faults::Faults::named(name).expect("a fault of groups"),
            Append(plant) => plant(&mut faults.append),
            Plant::Hooks(plant) => plant(&mut faults.hooks),
            Delivery(fault) => faults.delivery = delivery::Faults::planted(fault),
            Presence(fault) => faults.presence = presence::Faults::planted(fault),
            Session(fault) => faults.session = session::Faults::planted(fault),
            Plant::Machines(plant) => plant(faults),
            Plant::Driver(plant) => plant(&mut driver),
        }
        driver
    }
}

use Plant::{Append, Channel, Delivery, Presence, Session, Slot};

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_planted_bug_has_a_name_of_its_own_and_a_place() {
        let names: BTreeSet<&str> = ALL.iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.len() >= 20);
        for mutant in ALL {
            assert!(!mutant.name.contains(' ') && mutant.seed_budget > 0);
            assert!(
                format!("{:?}", mutant.driver()).contains("true")
                    || matches!(mutant.plant, Delivery(_) | Presence(_) | Session(_))
            );
        }
    }
}
