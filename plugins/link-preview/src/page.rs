//! What a page says of itself: its title and description, read from its head. A page is read as it comes, whatever is wrong with it.

/// Bytes of a page that are looked at: the head stands in front.
const HEAD_BYTES_MAX: usize = 256 << 10;
/// Longest title and description, bytes.
const TITLE_BYTES_MAX: usize = 300;
const DESCRIPTION_BYTES_MAX: usize = 1_000;
/// So many times as long a text may be before its entities are decoded and its spaces made one.
const ROOM: usize = 8;
/// Longest name of an entity, bytes.
const ENTITY_BYTES_MAX: usize = 10;
/// Elements whose content is no markup.
const RAW: [&str; 3] = ["script", "style", "noscript"];

/// What a page says of itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// Never empty.
    pub(crate) title: String,
    /// May be empty.
    pub(crate) description: String,
}

/// Whether this content type is one of pages.
pub(crate) fn is_html(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    ["text/html", "application/xhtml+xml"]
        .iter()
        .any(|known| kind.eq_ignore_ascii_case(known))
}

/// The page in these bytes, if it has a title.
pub(crate) fn read(body: &[u8]) -> Option<Page> {
    let text = String::from_utf8_lossy(&body[..body.len().min(HEAD_BYTES_MAX)]);
    let mut found = Found::default();
    let mut rest = &*text;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = after(comment, "-->");
            continue;
        }
        let name: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
        let name = name.to_ascii_lowercase();
        let (tag, behind) = tag(&rest[name.len()..]);
        rest = behind;
        match name.as_str() {
            "body" => break,
            "title" if found.title.is_none() => {
                let end = rest.find('<').unwrap_or(rest.len());
                found.title = Some(rest[..end].to_owned());
            }
            "meta" => found.meta(&attributes(tag)),
            raw if RAW.contains(&raw) => rest = after_element(rest, raw),
            _ => {}
        }
    }
    found.page()
}

#[derive(Default)]
struct Found {
    title: Option<String>,
    shared_title: Option<String>,
    description: Option<String>,
    shared_description: Option<String>,
}

impl Found {
    fn meta(&mut self, attributes: &[(String, String)]) {
        let value = |wanted: &str| {
            let found = attributes.iter().find(|(name, _)| name == wanted);
            found.map(|(_, value)| value.clone())
        };
        let Some(content) = value("content") else { return };
        let name = value("property").or_else(|| value("name")).unwrap_or_default();
        let kept = match name.to_ascii_lowercase().as_str() {
            "og:title" => &mut self.shared_title,
            "og:description" => &mut self.shared_description,
            "description" => &mut self.description,
            _ => return,
        };
        kept.get_or_insert(content);
    }

    /// What a page says for sharing goes first.
    fn page(self) -> Option<Page> {
        let plain =
            |one: Option<String>, most| one.map(|text| tidy(&text, most)).filter(|text| !text.is_empty());
        let title =
            plain(self.shared_title, TITLE_BYTES_MAX).or_else(|| plain(self.title, TITLE_BYTES_MAX))?;
        let description = plain(self.shared_description, DESCRIPTION_BYTES_MAX)
            .or_else(|| plain(self.description, DESCRIPTION_BYTES_MAX))
            .unwrap_or_default();
        Some(Page { title, description })
    }
}

/// What follows a word; nothing when it does not come.
fn after<'a>(text: &'a str, word: &str) -> &'a str {
    text.split_once(word).map_or("", |(_, rest)| rest)
}

/// What follows an element of this name whose content is skipped.
fn after_element<'a>(text: &'a str, name: &str) -> &'a str {
    let mut rest = text;
    while let Some((_, behind)) = rest.split_once("</") {
        if behind
            .get(..name.len())
            .is_some_and(|end| end.eq_ignore_ascii_case(name))
        {
            return behind;
        }
        rest = behind;
    }
    ""
}

/// The rest of a tag up to its end, and what follows it. A `>` in quotes does not end it.
fn tag(text: &str) -> (&str, &str) {
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (None, '>') => return (&text[..at], &text[at + 1..]),
            (None, '"' | '\'') => quote = Some(letter),
            (Some(open), letter) if letter == open => quote = None,
            _ => {}
        }
    }
    (text, "")
}

/// Names in small letters, and values.
fn attributes(tag: &str) -> Vec<(String, String)> {
    let mut attributes = Vec::new();
    let mut rest = tag.trim_start_matches(|letter: char| letter.is_whitespace() || letter == '/');
    while !rest.is_empty() {
        let ends = |letter: char| letter.is_whitespace() || letter == '=';
        let end = rest.find(ends).unwrap_or(rest.len());
        let name = rest[..end].to_ascii_lowercase();
        let behind = rest[end..].trim_start();
        let (value, behind) = match behind.strip_prefix('=') {
            Some(value) => value_of(value.trim_start()),
            None => ("", behind),
        };
        attributes.push((name, value.to_owned()));
        // An equals sign without a name would come again for ever.
        rest = behind.trim_start().trim_start_matches(['/', '=']).trim_start();
    }
    attributes
}

fn value_of(text: &str) -> (&str, &str) {
    for quote in ['"', '\''] {
        if let Some(inner) = text.strip_prefix(quote) {
            return inner.split_once(quote).unwrap_or((inner, ""));
        }
    }
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    text.split_at(end)
}

/// Entities decoded, spaces made one, cut to so many bytes.
fn tidy(text: &str, most: usize) -> String {
    // A text of entities takes several times the room of what it says.
    let decoded = decode(&text[..text.floor_char_boundary(ROOM * most)]);
    let words: Vec<&str> = decoded
        .split(|letter: char| letter.is_whitespace() || letter.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    let mut text = words.join(" ");
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}

/// With entities decoded. What is none stays.
fn decode(text: &str) -> String {
    let mut decoded = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        decoded.push_str(before);
        let near = &behind[..behind.floor_char_boundary(ENTITY_BYTES_MAX)];
        let known = near
            .find(';')
            .and_then(|end| Some((entity(&behind[..end])?, &behind[end + 1..])));
        match known {
            Some((letter, behind)) => {
                decoded.push(letter);
                rest = behind;
            }
            None => {
                decoded.push('&');
                rest = behind;
            }
        }
    }
    decoded.push_str(rest);
    decoded
}

fn entity(name: &str) -> Option<char> {
    let number = name.strip_prefix('#');
    if let Some(number) = number {
        let hexadecimal = number.strip_prefix(['x', 'X']);
        let code = match hexadecimal {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        return char::from_u32(code.ok()?);
    }
    Some(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "hellip" => '…',
        "ndash" => '–',
        "mdash" => '—',
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(title: &str, description: &str) -> Option<Page> {
        Some(Page {
            title: title.to_owned(),
            description: description.to_owned(),
        })
    }

    #[test]
    fn what_a_page_says_of_itself() {
        for (html, wanted) in [
            ("<title>A &amp; B</title>", page("A & B", "")),
            (
                "<!doctype html><HEAD><TITLE lang=en>\n a\tb </TITLE><META NAME='Description' CONTENT='c > d'>",
                page("a b", "c > d"),
            ),
            (
                r#"<title>t</title><meta property="og:title" content="o"/><meta content=p name=description />"#,
                page("o", "p"),
            ),
            (
                r#"<meta property=og:title content=""><title>t</title><meta name="description" content="&#65;&#x42;&bogus;&">"#,
                page("t", "AB&bogus;&"),
            ),
            (
                "<!-- <title>no</title> --><script>'<title>no'</script><title>yes",
                page("yes", ""),
            ),
            ("<body><title>late</title>", None),
            ("<title> </title>", None),
            ("<meta =a = content", None),
            ("<", None),
            ("<!--", None),
            ("<script><title>x</title>", None),
            ("", None),
        ] {
            assert_eq!(read(html.as_bytes()), wanted, "{html}");
        }
    }

    #[test]
    fn hostile_pages_end() {
        for unit in [
            "<",
            "<meta ",
            "<meta a=",
            "<title>",
            "&",
            "<!--",
            "</",
            "<script>",
            "\"",
            "<meta content='",
            "=",
            "\u{fffd}\0",
        ] {
            let body = unit.repeat((1 << 20) / unit.len());
            let _ = read(body.as_bytes());
            let _ = read(format!("<title>{body}").as_bytes());
            let _ = read(format!("<meta name=description content=\"{body}").as_bytes());
        }
        let long = read(format!("<title>{}</title>", "ä".repeat(1_000)).as_bytes()).unwrap();
        assert!(long.title.len() <= TITLE_BYTES_MAX + 3 && long.title.ends_with('…'));
    }

    #[test]
    fn content_types() {
        assert!(
            is_html("text/html") && is_html("Text/HTML; charset=utf-8") && is_html("application/xhtml+xml")
        );
        assert!(!is_html("text/plain") && !is_html("image/png; text/html"));
    }
}
