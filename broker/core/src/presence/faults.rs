//! Bugs that can be planted here, so that the checkers prove that they find them. Without the feature `mutants` none of
//! them can be planted.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Unregister leaves no tombstone, so that a late touch revives the route.
    PresenceRevivedAfterUnregister,
    /// Users are taken as offline before every node has announced itself.
    UnknownIsOffline,
}

impl Fault {
    /// All of them by name.
    pub const ALL: &[(Fault, &str)] = &[
        (
            Fault::PresenceRevivedAfterUnregister,
            "presence_revived_after_unregister",
        ),
        (Fault::UnknownIsOffline, "unknown_is_offline"),
    ];
}

/// The planted bugs of one machine: none, unless the feature `mutants` is on and one was planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    #[cfg(feature = "mutants")]
    planted: Option<Fault>,
}

impl Faults {
    /// One planted bug.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn planted(fault: Fault) -> Faults {
        Faults { planted: Some(fault) }
    }

    /// The bug of this name, if it is one of these.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn named(name: &str) -> Option<Faults> {
        let known = Fault::ALL.iter().find(|(_, known)| *known == name);
        known.map(|(fault, _)| Faults::planted(*fault))
    }

    #[cfg(feature = "mutants")]
    pub(super) fn has(self, fault: Fault) -> bool {
        self.planted == Some(fault)
    }

    #[cfg(not(feature = "mutants"))]
    pub(super) fn has(self, _fault: Fault) -> bool {
        false
    }
}
