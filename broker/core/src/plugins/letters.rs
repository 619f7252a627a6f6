//! Messages that were given up for a post-commit binding.

use super::consumers::Told;
use super::keys::KeyRefused;
use super::policy::{FAILURES, Failure};
use crate::types::{ChannelKey, Incarnation, Seq, SlotId, slot_of};
use std::sync::Arc;

/// Dead letters of one binding that are kept. Beyond, nothing is given up for it: its consumers wait.
pub const LETTERS_MAX: u64 = 10_000;

/// Why an attempt came to nothing, as it is kept with what is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The consumer called the record poison.
    Poison,
    /// The consumer asked for another attempt.
    Asked,
    /// Its endpoint did not take it, or could not be reached.
    Undelivered,
    /// The call failed.
    Call(Failure),
    /// The changes of keys that it caused could not be made.
    Keys(KeyRefused),
}

impl Cause {
    /// Its number on disk.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Cause::Poison => 1,
            Cause::Asked => 2,
            Cause::Undelivered => 3,
            Cause::Call(failure) => 16 + failure as u32,
            Cause::Keys(refused) => 48 + refused as u32,
        }
    }

    /// Its name, as people read it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Cause::Poison => "poison",
            Cause::Asked => "retry",
            Cause::Undelivered => "undelivered",
            Cause::Call(failure) => failure.name(),
            Cause::Keys(KeyRefused::Quota) => "key-quota",
            Cause::Keys(KeyRefused::NotANumber) => "key-not-a-number",
            Cause::Keys(KeyRefused::TooLarge) => "key-too-large",
        }
    }

    /// The cause with this number.
    #[must_use]
    pub fn of(number: u32) -> Option<Cause> {
        let calls = FAILURES.into_iter().map(Cause::Call);
        let keys = KeyRefused::ALL.into_iter().map(Cause::Keys);
        let mut all = [Cause::Poison, Cause::Asked, Cause::Undelivered]
            .into_iter()
            .chain(calls)
            .chain(keys);
        all.find(|cause| cause.number() == number)
    }
}

/// Set in the names of the letters that a webhook has for `msg.offline`: its two cursors give messages up independently. No registry
/// gets as many revisions.
pub const OFFLINE_LETTER: u64 = 1 << 63;

impl LetterName {
    /// Revision of the registry at the binding's creation, and what the binding was told of.
    #[must_use]
    pub fn of(&self) -> (u64, Told) {
        let told = if self.binding_incarnation & OFFLINE_LETTER == 0 {
            Told::Messages
        } else {
            Told::Offline
        };
        (self.binding_incarnation & !OFFLINE_LETTER, told)
    }
}

/// Names one dead letter of a binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LetterName {
    /// Revision of the registry at the binding's creation; with [`OFFLINE_LETTER`] when a webhook was told of offline recipients.
    pub binding_incarnation: u64,
    /// Creation of the channel.
    pub incarnation: Incarnation,
    /// Position of the message.
    pub seq: Seq,
}

/// A message that was given up for a post-commit binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The binding.
    pub binding: Arc<str>,
    /// Which of its letters.
    pub name: LetterName,
    /// The channel of the message.
    pub channel: ChannelKey,
    /// Attempts that were made.
    pub attempts: u32,
    /// How the last one failed.
    pub cause: Cause,
    /// When it was given up, ms since 1970.
    pub wall_ms: u64,
}

/// The slot that keeps all dead letters of a binding.
#[must_use]
pub fn letters_slot(binding: &str) -> SlotId {
    slot_of(binding)
}
