//! What a node captures of the input of a call that failed.

/// What is kept of the input of a failed call. The number is on disk; 0 is what bindings have that know of no captures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Captured {
    /// All but payloads and bodies, of which the length is kept: nothing of what users wrote.
    #[default]
    Headers = 0,
    /// The whole input.
    Payload = 1,
    /// Nothing, and not that the call failed either.
    Off = 2,
}

impl Captured {
    /// All of them.
    pub const ALL: [Captured; 3] = [Captured::Headers, Captured::Payload, Captured::Off];

    /// The one with this number.
    #[must_use]
    pub fn of(number: u32) -> Option<Captured> {
        Captured::ALL
            .into_iter()
            .find(|captured| *captured as u32 == number)
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Captured> {
        Captured::ALL.into_iter().find(|captured| captured.name() == name)
    }

    /// Its name, as people write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Captured::Headers => "headers",
            Captured::Payload => "payload",
            Captured::Off => "off",
        }
    }

    /// Whether it keeps something that the other one does not.
    #[must_use]
    pub fn keeps_more_than(self, other: Captured) -> bool {
        let rank = |captured| match captured {
            Captured::Off => 0,
            Captured::Headers => 1,
            Captured::Payload => 2,
        };
        rank(self) > rank(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_come_back_and_nothing_else_does() {
        for captured in Captured::ALL {
            assert_eq!(Captured::of(captured as u32), Some(captured));
            assert_eq!(Captured::named(captured.name()), Some(captured));
        }
        assert_eq!(Captured::of(0), Some(Captured::default()));
        assert_eq!((Captured::of(3), Captured::named("all")), (None, None));
    }

    #[test]
    fn headers_keep_more_than_nothing_and_less_than_the_payload() {
        use Captured::{Headers, Off, Payload};
        assert!(Payload.keeps_more_than(Headers) && Headers.keeps_more_than(Off));
        assert!(!Headers.keeps_more_than(Headers) && !Off.keeps_more_than(Payload));
    }
}
