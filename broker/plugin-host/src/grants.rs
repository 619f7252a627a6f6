//! Grants that name channels: where a binding lets its plugin publish and read.

use crate::component::{HTTP, MESSAGES, PUBLISH, SECRETS};
use penstock_core::hooks::registry::Pattern;
use penstock_core::types::ChannelKey;
use std::collections::BTreeSet;

/// Longest pattern, bytes: as in selectors.
const PATTERN_BYTES_MAX: usize = 256;

/// The channels of a capability.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChannelGrants(Vec<(Option<u8>, Pattern)>);

impl ChannelGrants {
    /// Those of `<capability>:<channel type>/<pattern of ids>` among these texts. The type `*` stands for all.
    ///
    /// # Errors
    /// Which text is none, and how one looks.
    pub(crate) fn parse(capability: &str, texts: &BTreeSet<String>) -> Result<ChannelGrants, String> {
        let mut grants = ChannelGrants::default();
        for text in texts {
            let what = text
                .strip_prefix(capability)
                .and_then(|rest| rest.strip_prefix(':'));
            let Some(what) = what else { continue };
            let grant = one(what).ok_or_else(|| {
                format!(
                    "`{text}`: {capability}:TYPE/PATTERN, a channel type or `*` and a pattern of ids, such as {capability}:2/* or \
                     {capability}:*/team-*"
                )
            })?;
            grants.0.push(grant);
        }
        Ok(grants)
    }

    /// Whether this channel is one of them.
    pub(crate) fn has(&self, channel: &ChannelKey) -> bool {
        self.0.iter().any(|(kind, pattern)| {
            kind.is_none_or(|kind| kind == channel.kind.0) && pattern.matches(&channel.id)
        })
    }
}

fn one(text: &str) -> Option<(Option<u8>, Pattern)> {
    let (kind, pattern) = text.split_once('/')?;
    let kind = match kind {
        "*" => None,
        number => Some(number.parse().ok().filter(|&kind: &u8| kind > 0)?),
    };
    let fits = (1..=PATTERN_BYTES_MAX).contains(&pattern.len());
    fits.then(|| (kind, Pattern(pattern.to_owned())))
}

/// Whether these grants of a binding give a capability: by its name, or by saying where, as in `http:GET https://example.org/`.
pub(crate) fn cover(grants: &BTreeSet<String>, capability: &str) -> bool {
    let prefixes: &[&str] = match capability {
        HTTP => &["http:"],
        MESSAGES => &["messages:"],
        PUBLISH => &["publish:"],
        SECRETS => &["secret:", "reveal:"],
        _ => &[],
    };
    let says_where = |grant: &String| prefixes.iter().any(|prefix| grant.starts_with(prefix));
    grants.contains(capability) || grants.iter().any(says_where)
}

/// Whether the grants of a binding that are about channels are well-formed.
///
/// # Errors
/// What is wrong, in words for people.
pub fn check_grants(grants: &BTreeSet<String>) -> Result<(), String> {
    for capability in [PUBLISH, MESSAGES] {
        if grants.contains(capability) {
            return Err(format!(
                "grants: `{capability}`: say in which channels, such as {capability}:2/*"
            ));
        }
        ChannelGrants::parse(capability, grants).map_err(|why| format!("grants: {why}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_core::types::ChannelKind;

    fn texts(texts: &[&str]) -> BTreeSet<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn channels_are_granted_by_type_and_pattern() {
        let texts = texts(&["kv", "publish:2/team-*", "publish:*/news", "messages:2/*"]);
        let grants = ChannelGrants::parse(PUBLISH, &texts).expect("grants");
        let has = |kind: u8, id: &str| grants.has(&ChannelKey::new(id, ChannelKind(kind)));
        assert!(has(2, "team-a") && has(2, "news") && has(6, "news"));
        assert!(!has(1, "team-a") && !has(2, "other"));
        assert!(!ChannelGrants::default().has(&ChannelKey::new("a", ChannelKind::GROUP)));
        assert_eq!(check_grants(&texts), Ok(()));
        assert!(cover(&texts, PUBLISH) && cover(&texts, "kv") && !cover(&texts, "kv-read"));
    }

    #[test]
    fn what_is_malformed_is_refused_with_an_example() {
        for wrong in [
            "publish",
            "publish:",
            "publish:2",
            "publish:2/",
            "publish:0/*",
            "publish:256/*",
            "publish:group/*",
            "messages",
            "messages:*",
        ] {
            let why = check_grants(&texts(&[wrong])).expect_err(wrong);
            assert!(
                why.contains(&format!("`{wrong}`")) && why.contains(":2/*"),
                "{why}"
            );
        }
        let long = format!("publish:2/{}", "x".repeat(PATTERN_BYTES_MAX + 1));
        assert!(check_grants(&texts(&[&long])).is_err());
    }
}
