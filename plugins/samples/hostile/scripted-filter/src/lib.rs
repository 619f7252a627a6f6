//! A filter that does what a message tells it to, for tests of the broker. A word anywhere in the payload says what; the first
//! message of a batch that has one decides about what becomes of the whole call.
//!
//! | word | what it does |
//! |---|---|
//! | `trap` | ends with the instruction `unreachable` |
//! | `panic` | panics, which writes a line to the log first |
//! | `recurse` | calls itself until the stack is full |
//! | `loop` | never returns |
//! | `grow` | allocates without end |
//! | `flood` | writes 100,000 lines to the log, then allows |
//! | `huge` | answers with more bytes than the broker takes |
//! | `badframe` | answers with one entry too few; see [`broken`] for `badframe-...` |
//! | `reject`, `reject:text` | rejects, with this text or `scripted` |
//! | `rewrite`, `rewrite:text` | puts a text message with this text, or `scripted`, in its place |
//! | `calls` | rejects with the number of calls that the instance has had |
//! | `attributes` | rejects with the attributes of the sender's session: `name=value`, with commas between them |
//!
//! The configuration `{"init": "fail"}` makes the instance fail to start, `"trap"` and `"loop"` do what the words do.

use penstock_harm::{harm, has};
use penstock_plugin_sdk::bindings::{filter, lifecycle};
use penstock_plugin_sdk::{Batch, Message, Rewrite, Verdict, Verdicts};
use std::cell::Cell;

penstock_plugin_sdk::manifest!();

/// An answer that is too large, bytes.
const HUGE: usize = 8 << 20;

thread_local! {
    static CALLS: Cell<u32> = const { Cell::new(0) };
}

/// The component: written against the bindings, because the traits of the SDK answer no broken frames.
pub struct Scripted;

impl lifecycle::exports::penstock::plugin::lifecycle::Guest for Scripted {
    fn init(config: String) -> Result<(), String> {
        let wanted = |what: &str| config.contains(&format!("\"{what}\""));
        if wanted("fail") {
            return Err("scripted to fail".to_owned());
        }
        for word in ["trap", "loop"] {
            if wanted(word) {
                harm(word.as_bytes());
            }
        }
        Ok(())
    }
}

impl filter::exports::penstock::plugin::before_send::Guest for Scripted {
    fn handle(arena: Vec<u8>, index: Vec<u32>) -> (Vec<u8>, Vec<u32>) {
        CALLS.set(CALLS.get() + 1);
        let batch = Batch::parse(&arena, &index).unwrap_or_else(|error| panic!("{error}"));
        for message in batch.messages() {
            harm(message.payload());
            if has(message.payload(), "huge") && !has(message.payload(), "badframe") {
                return (vec![0; HUGE], Vec::new());
            }
            if has(message.payload(), "badframe") {
                return broken(message.payload(), batch.len());
            }
        }
        let mut verdicts = Verdicts::new();
        for message in batch.messages() {
            verdicts.push(&verdict(message));
        }
        verdicts.finish()
    }
}

#[cfg(target_family = "wasm")]
const _: () = {
    lifecycle::export_lifecycle!(Scripted with_types_in lifecycle);
    filter::export_filter!(Scripted with_types_in filter);
};

/// What follows a word and a colon, up to a quotation mark.
fn argument(payload: &[u8], word: &str) -> Option<String> {
    let text = String::from_utf8_lossy(payload);
    let (_, rest) = text.split_once(&format!("{word}:"))?;
    Some(rest.split('"').next().unwrap_or(rest).to_owned())
}

fn verdict(message: Message<'_>) -> Verdict {
    let payload = message.payload();
    let scripted = |word| argument(payload, word).unwrap_or_else(|| "scripted".to_owned());
    if has(payload, "reject") {
        return Verdict::Reject {
            code: 0,
            text: scripted("reject"),
        };
    }
    if has(payload, "calls") {
        return Verdict::Reject {
            code: 0,
            text: CALLS.get().to_string(),
        };
    }
    if has(payload, "attributes") {
        let all = message.attributes();
        let shown: Vec<String> = all
            .map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value)))
            .collect();
        return Verdict::Reject {
            code: 0,
            text: shown.join(","),
        };
    }
    if has(payload, "rewrite") {
        let payload = format!(r#"{{"type":1,"content":"{}"}}"#, scripted("rewrite"));
        return Verdict::Rewrite(Rewrite {
            payload: Some(payload.into_bytes()),
            ..Rewrite::default()
        });
    }
    Verdict::Allow
}

/// A frame that breaks the layout for so many messages: each entry rejects, and then
///
/// - `badframe-range`: the text stands outside the arena,
/// - `badframe-wrap`: offset and length of the text add up to more than a word holds,
/// - `badframe-text`: the text is no UTF-8,
/// - `badframe-many`: there is one entry too many,
/// - `badframe-huge`: the header speaks of more entries than any index has,
/// - `badframe-cut`: the last entry is cut short,
/// - `badframe-narrow`: entries have fewer words than the layout,
/// - `badframe-kind`: a verdict that does not exist,
/// - `badframe-layout`: a layout that does not exist,
/// - otherwise: there is one entry too few.
fn broken(payload: &[u8], messages: usize) -> (Vec<u8>, Vec<u32>) {
    let wanted = |what| has(payload, &format!("badframe-{what}"));
    let whole = ["range", "wrap", "text", "huge", "cut", "narrow", "kind", "layout"];
    let entries = match () {
        () if wanted("many") => messages + 1,
        () if whole.into_iter().any(wanted) => messages,
        () => messages - 1,
    };
    let mut verdicts = Verdicts::new();
    for _ in 0..entries.max(1) {
        verdicts.push(&Verdict::Reject {
            code: 0,
            text: "no".to_owned(),
        });
    }
    let (mut arena, mut index) = verdicts.finish();
    // One message and one entry too few leave a header without entries; an empty index would allow everything.
    index[3] = u32::try_from(entries).expect("a batch is small");
    index.truncate(4 + entries * 10);
    match () {
        () if wanted("range") => index[6] = u32::try_from(arena.len()).expect("short"),
        () if wanted("wrap") => index[6] = u32::MAX,
        () if wanted("text") => arena.fill(0xff),
        () if wanted("huge") => index[3] = u32::MAX,
        () if wanted("cut") => drop(index.pop()),
        () if wanted("narrow") => index[2] = 9,
        () if wanted("kind") => index[4] = 3,
        () if wanted("layout") => index[0] = 2,
        () => {}
    }
    (arena, index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_word_is_its_argument() {
        let payload = br#"{"content":"reject:not here"}"#;
        assert_eq!(argument(payload, "reject"), Some("not here".to_owned()));
        assert_eq!(argument(payload, "rewrite"), None);
        assert_eq!(argument(b"reject", "reject"), None);
    }

    #[test]
    fn a_broken_frame_is_broken_in_one_place() {
        let frame = |what: &str| broken(format!("badframe{what}").as_bytes(), 2);
        let (arena, whole) = broken(b"badframe-kind", 2);
        assert_eq!((arena.len(), whole.len(), whole[4]), (4, 24, 3));
        assert_eq!(frame("").1.len(), 14);
        assert_eq!(frame("").1[3], 1);
        assert_eq!(frame("-many").1.len(), 34);
        assert_eq!(frame("-range").1[6], 4);
        assert_eq!(frame("-wrap").1[6], u32::MAX);
        assert!(String::from_utf8(frame("-text").0).is_err());
        assert_eq!(frame("-huge").1[3], u32::MAX);
        assert_eq!(frame("-cut").1.len(), 23);
        assert_eq!(frame("-narrow").1[2], 9);
        assert_eq!(frame("-layout").1[0], 2);
        assert_eq!(broken(b"badframe", 1).1, [1, 4, 10, 0]);
    }
}
