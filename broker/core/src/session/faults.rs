//! Bugs that can be planted here, so that the checkers prove that they find them. Without the feature `mutants` none of
//! them can be planted.

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A session never offers again what was not acknowledged.
    ReofferNever,
    /// First offers are not checked against what the session already got.
    FirstOfferRepeats,
    /// What a full window leaves out counts as bound.
    FullCountsAsBound,
}

impl Fault {
    /// All of them by name.
    pub const ALL: &[(Fault, &str)] = &[
        (Fault::ReofferNever, "reoffer_never"),
        (Fault::FirstOfferRepeats, "first_offer_repeats"),
        (Fault::FullCountsAsBound, "full_counts_as_bound"),
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
