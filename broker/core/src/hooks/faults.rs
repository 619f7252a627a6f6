//! Faults that can be planted in the post-commit side, to show that the checkers find them.

/// Which faults are planted. All off unless the crate is built with the feature `mutants`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Stores a cursor when its run is handed out instead of when the effect is done (against M-6).
    #[cfg(feature = "mutants")]
    pub cursor_ahead_of_effect: bool,
    /// Hands out records above the high watermark (against CH-3).
    #[cfg(feature = "mutants")]
    pub before_commit_effects: bool,
    /// Lets a window grow when it is delivered again (against M-18).
    #[cfg(feature = "mutants")]
    pub window_grows_on_redelivery: bool,
}

#[cfg(feature = "mutants")]
impl Faults {
    pub(super) fn cursor_ahead_of_effect(self) -> bool {
        self.cursor_ahead_of_effect
    }

    pub(super) fn before_commit_effects(self) -> bool {
        self.before_commit_effects
    }

    pub(super) fn window_grows_on_redelivery(self) -> bool {
        self.window_grows_on_redelivery
    }
}

#[cfg(not(feature = "mutants"))]
impl Faults {
    pub(super) fn cursor_ahead_of_effect(self) -> bool {
        false
    }

    pub(super) fn before_commit_effects(self) -> bool {
        false
    }

    pub(super) fn window_grows_on_redelivery(self) -> bool {
        false
    }
}
