//! The harm that a guest can do whatever its hook, for the scripted plugins beside this crate. A word says which.
//!
//! | word | what it does |
//! |---|---|
//! | `panic` | panics, which writes a line to the log first |
//! | `trap` | ends with the instruction `unreachable` |
//! | `loop` | never returns |
//! | `grow` | allocates without end |
//! | `recurse` | calls itself until the stack is full |
//! | `flood` | writes 100,000 lines to the log |

use penstock_plugin_sdk::host;
use std::hint::black_box;

/// What one step of endless growth takes, bytes.
const STEP: usize = 1 << 20;
/// Lines of a flood.
const FLOOD_LINES: u32 = 100_000;
/// What is done for several words, in this order.
const WORDS: [&str; 6] = ["panic", "trap", "loop", "grow", "recurse", "flood"];

/// Whether a word stands anywhere in a script.
#[must_use]
pub fn has(script: &[u8], word: &str) -> bool {
    script.windows(word.len()).any(|window| window == word.as_bytes())
}

/// Does the harm of every word that stands anywhere in a script.
pub fn harm(script: &[u8]) {
    for word in WORDS.into_iter().filter(|word| has(script, word)) {
        obey(word);
    }
}

/// Does the harm of this word; none of another one.
pub fn obey(word: &str) {
    assert_ne!(word, "panic", "scripted to panic");
    match word {
        "trap" => std::process::abort(),
        "loop" => loop {
            black_box(word);
        },
        "grow" => {
            let mut kept = Vec::new();
            loop {
                kept.push(black_box(vec![1_u8; STEP]));
            }
        }
        "recurse" => host::info(&recurse(1).to_string()),
        "flood" => {
            for line in 0..FLOOD_LINES {
                host::info(&format!("line {line}"));
            }
        }
        _ => {}
    }
}

#[expect(unconditional_recursion, reason = "that is what it is for")]
fn recurse(depth: u64) -> u64 {
    // What is done after the call keeps it from becoming a jump.
    recurse(black_box(depth + 1)) + black_box(depth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stands_anywhere() {
        assert!(has(b"{\"content\":\"a trap\"}", "trap") && !has(b"a tra", "trap"));
        harm(b"nothing of the kind");
        obey("a trap");
    }

    #[test]
    #[should_panic(expected = "scripted to panic")]
    fn a_panic_is_one() {
        harm(b"please panic");
    }
}
