//! Links in texts.

/// Longest link, bytes.
const BYTES_MAX: usize = 2_000;
const SCHEMES: [&str; 2] = ["https://", "http://"];

/// The first link of a text, as a request has it: without a fragment, in ASCII.
pub(crate) fn first(text: &str) -> Option<String> {
    let mut rest = text;
    while let Some(at) = rest.find("http") {
        let (before, from) = rest.split_at(at);
        let begins = !before.ends_with(|letter: char| letter.is_ascii_alphanumeric());
        if begins && let Some(link) = link(from) {
            return Some(link);
        }
        rest = &from["http".len()..];
    }
    None
}

/// The link that a text begins with.
fn link(text: &str) -> Option<String> {
    let scheme = SCHEMES.into_iter().find(|scheme| text.starts_with(scheme))?;
    let ends =
        |letter: char| letter.is_whitespace() || letter.is_control() || "<>\"'`{}|\\^".contains(letter);
    let whole = text.split(ends).next().unwrap_or_default();
    let whole = whole.split('#').next().unwrap_or_default();
    // What follows a link in a sentence is not a part of it; a bracket is one if it was opened there.
    let mut link = whole;
    while let Some(last) = link.chars().next_back() {
        let closes = match last {
            ')' => link.matches(')').count() > link.matches('(').count(),
            ']' => link.matches(']').count() > link.matches('[').count(),
            _ => ".,;:!?*_~…。，、！？）】」".contains(last),
        };
        if !closes {
            break;
        }
        link = &link[..link.len() - last.len_utf8()];
    }
    let host = link[scheme.len()..].split(['/', '?']).next().unwrap_or_default();
    if host.is_empty() || !host.is_ascii() {
        return None;
    }
    Some(ascii(link)).filter(|link| link.len() <= BYTES_MAX)
}

/// With what is not ASCII encoded.
fn ascii(link: &str) -> String {
    let encoded = link.bytes().map(|byte| {
        if byte.is_ascii() {
            char::from(byte).to_string()
        } else {
            format!("%{byte:02X}")
        }
    });
    encoded.collect()
}

/// Where a redirect of a link leads.
pub(crate) fn follow(from: &str, location: &str) -> Option<String> {
    let location = location.split('#').next().unwrap_or_default();
    let (scheme, rest) = from.split_once("://")?;
    let host = rest.split(['/', '?']).next()?;
    let to = if SCHEMES.into_iter().any(|known| location.starts_with(known)) {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{host}{location}")
    } else {
        // A path from here, or nothing that is followed.
        return None;
    };
    Some(ascii(&to)).filter(|to| to.len() <= BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_link_is_found_without_what_follows_it() {
        for (text, found) in [
            (
                "see https://a.example/b?c=d&e, and http://f/",
                "https://a.example/b?c=d&e",
            ),
            ("(https://a.example/b_(c))", "https://a.example/b_(c)"),
            ("<https://a.example>", "https://a.example"),
            ("https://a.example/#top", "https://a.example/"),
            ("xhttps://a/ http://b.example!", "http://b.example"),
            ("http and https:// and https://c/…", "https://c/"),
            ("看https://a.example/路。", "https://a.example/%E8%B7%AF"),
        ] {
            assert_eq!(first(text).as_deref(), Some(found), "{text}");
        }
        let long = format!("https://a.example/{}", "x".repeat(BYTES_MAX));
        for none in [
            "",
            "no link",
            "ftp://a/",
            "https://",
            "https://münchen.example/",
            &long,
        ] {
            assert_eq!(first(none), None, "{none}");
        }
    }

    #[test]
    fn redirects_lead_to_whole_links() {
        let follow = |to: &str| follow("https://a.example/b?c", to);
        for (to, found) in [
            ("https://d/", Some("https://d/")),
            ("//d/e#f", Some("https://d/e")),
            ("/e", Some("https://a.example/e")),
            ("e", None),
            ("javascript:x", None),
        ] {
            assert_eq!(follow(to).as_deref(), found, "{to}");
        }
    }
}
