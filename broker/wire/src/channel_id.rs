//! How channel ids and uids are spelt (client contract, section 5.4).
//!
//! A person channel has one canonical id, whoever names it; an agent channel keeps its order; a command channel is its
//! source with a suffix. Nothing here decides whether somebody may use a channel.

use std::borrow::Cow;

/// Ends the id of a command channel, the companion log of SyncOnce messages.
pub const COMMAND_SUFFIX: &str = "____cmd";
/// The uid of the built-in system user.
pub const SYSTEM_UID: &str = "____system";
/// The device id that marks the system device. A client may never choose it.
pub const SYSTEM_DEVICE_ID: &str = "____device";
/// Starts every id that the broker keeps for itself.
pub const INTERNAL_PREFIX: &str = "__wk_internal_";
/// Starts the uid of a plugin that sends messages. Nobody else has such a uid.
pub const PLUGIN_PREFIX: &str = "plugin:";
/// The internal channel that lists the system uids.
pub const SYSTEM_UIDS_CHANNEL: &str = "__wk_internal_system_uids__";
/// Longest uid, and longest id of a channel as its users name it, bytes. A person's or agent's channel id, which is two uids, is
/// held to it too. Stored names may be a little longer, for what the broker itself puts behind an id.
pub const ID_BYTES_MAX: usize = 1_000;
/// Stands between the two uids of a person or agent channel id.
const SEPARATOR: char = '@';

/// Why an id was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum IdError {
    /// The uid or channel id is empty.
    #[error("the id is empty")]
    Empty,
    /// The id holds a character that has a meaning in ids.
    #[error("the id must not contain {0:?}")]
    Character(char),
    /// A person or agent id is not two non-empty parts around one `@`.
    #[error("the id must be two uids joined by one @")]
    Parts,
    /// The sender is neither part of the person channel that it names.
    #[error("the sender is not part of the person channel")]
    NotAPart,
    /// The name belongs to the broker itself.
    #[error("the name is reserved")]
    Reserved,
    /// Longer than [`ID_BYTES_MAX`].
    #[error("the id is longer than {ID_BYTES_MAX} bytes")]
    TooLong,
}

/// The one id of the person channel between two uids, the same for either order.
///
/// The uid with the larger CRC-32 (IEEE) comes first; on equal sums the larger bytes do.
#[must_use]
pub fn canonical_person(left: &str, right: &str) -> String {
    let left_sum = crc32fast::hash(left.as_bytes());
    let right_sum = crc32fast::hash(right.as_bytes());
    if (left_sum, left.as_bytes()) > (right_sum, right.as_bytes()) {
        join(left, right)
    } else {
        join(right, left)
    }
}

/// The canonical person channel id for what `sender` calls `id`: a peer's uid, or both uids in either order.
///
/// # Errors
/// [`IdError::Empty`] for an empty side, [`IdError::Parts`] for anything but two parts, [`IdError::NotAPart`] when
/// neither part is the sender, so that nobody can name a conversation of two others, [`IdError::TooLong`] when both uids
/// together are.
pub fn normalise_person(sender: &str, id: &str) -> Result<String, IdError> {
    if sender.is_empty() || id.is_empty() {
        return Err(IdError::Empty);
    }
    if !id.contains(SEPARATOR) {
        return bounded(canonical_person(sender, id));
    }
    let (left, right) = split(id)?;
    if left != sender && right != sender {
        return Err(IdError::NotAPart);
    }
    bounded(canonical_person(left, right))
}

/// The other uid of a person channel, as `viewer` must see it; `None` if the viewer is not part of it.
#[must_use]
pub fn person_peer<'a>(canonical: &'a str, viewer: &str) -> Option<&'a str> {
    let (left, right) = split(canonical).ok()?;
    if left == viewer {
        Some(right)
    } else if right == viewer {
        Some(left)
    } else {
        None
    }
}

/// The two uids of a person channel id.
///
/// # Errors
/// [`IdError::Parts`] for anything but two non-empty parts.
pub fn person_members(canonical: &str) -> Result<(&str, &str), IdError> {
    split(canonical)
}

/// The agent channel id for what `sender` calls `id`: an agent's uid, or `uid@agent` as it stands.
///
/// # Errors
/// [`IdError::Empty`] for an empty side, [`IdError::Parts`] for anything but two parts, [`IdError::TooLong`].
pub fn normalise_agent<'a>(sender: &str, id: &'a str) -> Result<Cow<'a, str>, IdError> {
    if sender.is_empty() || id.is_empty() {
        return Err(IdError::Empty);
    }
    if !id.contains(SEPARATOR) {
        return bounded(Cow::Owned(join(sender, id)));
    }
    split(id)?;
    bounded(Cow::Borrowed(id))
}

/// The two sides `(uid, agent)` of an agent channel id.
///
/// # Errors
/// [`IdError::Parts`] for anything but two non-empty parts.
pub fn agent_sides(id: &str) -> Result<(&str, &str), IdError> {
    split(id)
}

/// The command channel of a channel. The suffix is applied once, however often this is called.
#[must_use]
pub fn command_channel(id: &str) -> Cow<'_, str> {
    if is_command(id) {
        Cow::Borrowed(id)
    } else {
        Cow::Owned(format!("{id}{COMMAND_SUFFIX}"))
    }
}

/// Whether the id is that of a command channel.
#[must_use]
pub fn is_command(id: &str) -> bool {
    id.ends_with(COMMAND_SUFFIX)
}

/// The channel that a command channel belongs to; any other id is its own source.
#[must_use]
pub fn command_source(id: &str) -> &str {
    id.strip_suffix(COMMAND_SUFFIX).unwrap_or(id)
}

/// The id of the temporary channel for an explicit list of receivers: FNV-1a of the trimmed, distinct, non-empty uids in
/// their order, joined by commas, in decimal. `None` when no uid is left. The command suffix is not applied.
#[must_use]
pub fn request_channel<'a>(uids: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let mut distinct: Vec<&str> = Vec::new();
    for uid in uids.into_iter().map(str::trim).filter(|uid| !uid.is_empty()) {
        if !distinct.contains(&uid) {
            distinct.push(uid);
        }
    }
    if distinct.is_empty() {
        return None;
    }
    Some(fnv1a_64(distinct.join(",").as_bytes()).to_string())
}

/// Whether the name belongs to the broker: internal channels, the system uid and device.
#[must_use]
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(INTERNAL_PREFIX) || name == SYSTEM_UID || name == SYSTEM_DEVICE_ID
}

/// Whether the uid is that of a plugin.
#[must_use]
pub fn is_plugin(uid: &str) -> bool {
    uid.starts_with(PLUGIN_PREFIX)
}

/// The uid that a plugin of this name sends as.
#[must_use]
pub fn plugin_uid(name: &str) -> String {
    format!("{PLUGIN_PREFIX}{name}")
}

/// Checks a uid that somebody wants to create: not empty, not too long, no `@`, `#` or `&`, not reserved and no plugin's.
///
/// # Errors
/// The first rule that it breaks.
pub fn check_uid(uid: &str) -> Result<(), IdError> {
    if is_plugin(uid) {
        return Err(IdError::Reserved);
    }
    check(uid, &['@', '#', '&'])
}

/// Checks the id of a channel that somebody wants to manage: not empty, not too long, no `#` or `@`, not reserved, and not a
/// command channel, which exists only beside its source.
///
/// # Errors
/// The first rule that it breaks.
pub fn check_channel(id: &str) -> Result<(), IdError> {
    if is_command(id) {
        return Err(IdError::Reserved);
    }
    check(id, &['#', '@'])
}

fn check(id: &str, forbidden: &[char]) -> Result<(), IdError> {
    if id.is_empty() {
        return Err(IdError::Empty);
    }
    bounded(id)?;
    if let Some(found) = id.chars().find(|character| forbidden.contains(character)) {
        return Err(IdError::Character(found));
    }
    if is_reserved(id) {
        Err(IdError::Reserved)
    } else {
        Ok(())
    }
}

fn bounded<T: AsRef<str>>(id: T) -> Result<T, IdError> {
    if id.as_ref().len() > ID_BYTES_MAX {
        Err(IdError::TooLong)
    } else {
        Ok(id)
    }
}

fn split(id: &str) -> Result<(&str, &str), IdError> {
    match id.split_once(SEPARATOR) {
        Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(SEPARATOR) => {
            Ok((left, right))
        }
        Some(_) | None => Err(IdError::Parts),
    }
}

fn join(first: &str, second: &str) -> String {
    let mut id = String::with_capacity(first.len() + 1 + second.len());
    id.push_str(first);
    id.push(SEPARATOR);
    id.push_str(second);
    id
}

fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Contract, section 15: the CRC-32 row.
    #[test]
    fn crc_vectors() {
        for (uid, sum) in [
            ("u1", 1_112_514_422),
            ("u2", 3_678_850_764),
            ("alice", 663_665_735),
            ("bob", 4_123_767_104u32),
        ] {
            assert_eq!(crc32fast::hash(uid.as_bytes()), sum);
        }
    }

    #[test]
    fn person_ids_are_symmetric_and_as_documented() {
        for (left, right, id) in [
            ("u1", "u2", "u2@u1"),
            ("alice", "bob", "bob@alice"),
            ("10001", "10002", "10002@10001"),
        ] {
            assert_eq!(canonical_person(left, right), id);
            assert_eq!(canonical_person(right, left), id);
            assert_eq!(person_peer(id, left), Some(right));
            assert_eq!(person_peer(id, right), Some(left));
        }
        assert_eq!(person_peer("u2@u1", "u3"), None);
        assert_eq!(person_peer("me@me", "me"), Some("me"));
    }

    #[test]
    fn person_ids_are_normalised_only_for_a_part() {
        assert_eq!(normalise_person("u1", "u2").as_deref(), Ok("u2@u1"));
        assert_eq!(normalise_person("u1", "u1@u2").as_deref(), Ok("u2@u1"));
        assert_eq!(normalise_person("u1", "u2@u1").as_deref(), Ok("u2@u1"));
        assert_eq!(normalise_person("u3", "u2@u1"), Err(IdError::NotAPart));
        for id in ["@u1", "u1@", "@", "u1@u2@u3", "u1@@u2"] {
            assert_eq!(normalise_person("u1", id), Err(IdError::Parts), "{id}");
        }
        assert_eq!(normalise_person("", "u2"), Err(IdError::Empty));
        assert_eq!(normalise_person("u1", ""), Err(IdError::Empty));
    }

    #[test]
    fn agent_ids_keep_their_order() {
        assert_eq!(normalise_agent("u1", "bot").as_deref(), Ok("u1@bot"));
        assert_eq!(normalise_agent("bot", "u1@bot").as_deref(), Ok("u1@bot"));
        assert_eq!(normalise_agent("u1", "a@b@c"), Err(IdError::Parts));
        assert_eq!(agent_sides("u1@bot"), Ok(("u1", "bot")));
    }

    #[test]
    fn the_uids_of_plugins_are_reserved() {
        assert_eq!(check_uid(&plugin_uid("auto-reply")), Err(IdError::Reserved));
        assert_eq!(check_uid("plugin"), Ok(()));
        assert!(is_plugin("plugin:") && !is_plugin("plugins:x"));
        assert_eq!(
            check_channel("plugin:x"),
            Ok(()),
            "the denylist of somebody's conversation with it"
        );
    }

    #[test]
    fn command_suffix_is_applied_once() {
        assert_eq!(command_channel("g1"), "g1____cmd");
        assert_eq!(command_channel("g1____cmd"), "g1____cmd");
        assert_eq!(command_source("g1____cmd"), "g1");
        assert_eq!(command_source("g1"), "g1");
    }

    #[test]
    fn request_channel_is_as_documented() {
        assert_eq!(
            request_channel(["u1", "u2"]).as_deref(),
            Some("17922244540036557902")
        );
        assert_eq!(
            request_channel([" u1", "", "u2 ", "u1"]).as_deref(),
            Some("17922244540036557902")
        );
        assert_eq!(request_channel(["", " "]), None);
    }

    #[test]
    fn character_rules() {
        assert_eq!(check_uid("a.b-c_1"), Ok(()));
        for (uid, found) in [("a@b", '@'), ("a#b", '#'), ("a&b", '&')] {
            assert_eq!(check_uid(uid), Err(IdError::Character(found)));
        }
        assert_eq!(check_uid(""), Err(IdError::Empty));
        assert_eq!(check_uid(SYSTEM_UID), Err(IdError::Reserved));
        assert_eq!(check_channel("match.swipe&x"), Ok(()));
        assert_eq!(check_channel("a@b"), Err(IdError::Character('@')));
        assert_eq!(check_channel("a#b"), Err(IdError::Character('#')));
        assert_eq!(check_channel("g1____cmd"), Err(IdError::Reserved));
        assert_eq!(check_channel(SYSTEM_UIDS_CHANNEL), Err(IdError::Reserved));
    }

    #[test]
    fn an_id_is_bounded_alone_and_as_two_uids() {
        let (longest, longer) = ("a".repeat(ID_BYTES_MAX), "a".repeat(ID_BYTES_MAX + 1));
        assert_eq!(check_uid(&longest), Ok(()));
        assert_eq!(check_channel(&longest), Ok(()));
        assert_eq!(check_uid(&longer), Err(IdError::TooLong));
        assert_eq!(check_channel(&longer), Err(IdError::TooLong));
        let rest = ID_BYTES_MAX - "u1@".len();
        assert!(normalise_person("u1", &longest[..rest]).is_ok_and(|id| id.len() == ID_BYTES_MAX));
        assert_eq!(normalise_person("u1", &longest[..=rest]), Err(IdError::TooLong));
        assert_eq!(normalise_agent("u1", &longest[..=rest]), Err(IdError::TooLong));
        assert_eq!(
            normalise_agent("u1", &format!("u1@{longest}")),
            Err(IdError::TooLong)
        );
    }
}
