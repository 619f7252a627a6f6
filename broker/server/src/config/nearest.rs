//! The known word that somebody may have meant, for messages about unknown ones.

use super::keys::KEYS;

/// The known key that is nearest to `name` by edits.
pub(super) fn nearest_key(name: &str) -> &'static str {
    nearest(name, KEYS.iter().map(|info| info.name)).unwrap_or("node.id")
}

/// The section of a known key that is nearest to `name`.
pub(super) fn nearest_section(name: &str) -> &'static str {
    let sections = KEYS.iter().filter_map(|info| info.name.split_once('.'));
    nearest(name, sections.map(|(section, _)| section)).unwrap_or("node")
}

/// The word that is nearest to `name` by edits; the first of equals. Absent only when there are no words.
pub(super) fn nearest<'a>(name: &str, words: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    words.min_by_key(|known| distance(name, known))
}

/// Levenshtein distance of two short texts.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, one) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (index, other) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(one != *other);
            diagonal = row[index + 1];
            row[index + 1] = substituted.min(row[index] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_key_is_found_by_edits() {
        assert_eq!(nearest_key("node.idd"), "node.id");
        assert_eq!(nearest_key("gateway.tcp_listn"), "gateway.tcp_listen");
        assert_eq!(nearest_key("http.body_max_bytes"), "http.body_bytes_max");
    }
}
