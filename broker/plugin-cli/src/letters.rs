//! `penstock plugin dlq`: messages that a binding could not do.

use crate::api::Api;
use crate::arguments::Options;
use crate::binding;
use crate::status::moment;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write;

/// Longest id of a letter, bytes: three numbers.
const ID_BYTES_MAX: usize = 64;
/// Letters that one request forgets at most.
const DROPPED_MAX: usize = 1_000;

/// Lists, replays or drops.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let api = Api::of(options)?;
    let binding = binding::named(options)?;
    let wanted = options.more.as_slice();
    match (options.word.as_deref(), wanted) {
        (None | Some("list"), []) => list(&api, &binding, options.json, out),
        (Some("replay"), wanted) => replay(&api, &binding, &chosen("replay", wanted, options.all)?, out),
        (Some("drop"), wanted) => forget(&api, &binding, &chosen("drop", wanted, options.all)?, out),
        (Some("list"), [word, ..]) => {
            bail!("nothing may follow `plugin dlq list`, but there is `{word}`; --bind ID names the binding")
        }
        (word, _) => bail!("`plugin dlq {}`: list, replay or drop", word.unwrap_or_default()),
    }
}

/// Which letters are meant.
#[derive(Debug, PartialEq, Eq)]
enum Chosen<'a> {
    All,
    These(&'a [String]),
}

fn chosen<'a>(action: &str, ids: &'a [String], all: bool) -> Result<Chosen<'a>> {
    match (ids, all) {
        ([], true) => Ok(Chosen::All),
        ([], false) => {
            bail!(
                "`plugin dlq {action}`: name letters by their ids, as `plugin dlq list` shows them, or --all"
            )
        }
        (_, true) => bail!("`plugin dlq {action}`: some ids, or --all, not both"),
        (ids, false) => {
            let plain = |id: &String| {
                id.len() <= ID_BYTES_MAX && id.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')
            };
            match ids.iter().find(|id| !plain(id)) {
                Some(wrong) => bail!("`{}` is no id of a letter", wrong.escape_default()),
                None => Ok(Chosen::These(ids)),
            }
        }
    }
}

/// Every letter of a binding, oldest first, page by page.
fn all(api: &Api, binding: &str) -> Result<Vec<Value>> {
    let mut letters: Vec<Value> = Vec::new();
    loop {
        let after = match letters.last().and_then(|letter| letter["id"].as_str()) {
            Some(id) => format!("&after={id}"),
            None => String::new(),
        };
        let page = api.get(&format!("/v1/bindings/{binding}/dead-letters?limit=1000{after}"))?;
        let found = page["dead_letters"].as_array().cloned().unwrap_or_default();
        let ends = found.is_empty() || page["more"] != true;
        letters.extend(found);
        if ends {
            return Ok(letters);
        }
    }
}

fn list(api: &Api, binding: &str, is_json: bool, out: &mut dyn Write) -> Result<()> {
    let letters = all(api, binding)?;
    if is_json {
        writeln!(out, "{}", serde_json::to_string_pretty(&letters)?)?;
        return Ok(());
    }
    for letter in &letters {
        writeln!(out, "{}", line(letter))?;
    }
    writeln!(out, "{} of {binding}", count(letters.len()))?;
    Ok(())
}

fn line(letter: &Value) -> String {
    let text = |name: &str| letter[name].as_str().unwrap_or_default().to_owned();
    let mut line = format!(
        "{}  message {} of channel {} (type {}), {} after {} attempts",
        text("id"),
        letter["message_seq"],
        text("channel_id"),
        letter["channel_type"],
        text("cause"),
        letter["attempts"],
    );
    if let Some(at_ms) = letter["given_up_ms"].as_u64() {
        // Writing to a string cannot fail.
        let _ = write!(line, ", {}", moment(at_ms));
    }
    line
}

fn count(letters: usize) -> String {
    match letters {
        1 => "1 dead letter".to_owned(),
        more => format!("{more} dead letters"),
    }
}

/// Hands letters out once more, one after the other. What fails again stays, and does not hold up the rest.
fn replay(api: &Api, binding: &str, chosen: &Chosen<'_>, out: &mut dyn Write) -> Result<()> {
    let mut left = 0;
    let letters = all(api, binding)?;
    for letter in picked(&letters, chosen)? {
        let which = json!({
            "id": letter["id"], "channel_id": letter["channel_id"], "channel_type": letter["channel_type"],
        });
        let id = letter["id"].as_str().unwrap_or_default();
        match api.post(&format!("/v1/bindings/{binding}/dead-letters/replay"), &which) {
            Ok(_) => writeln!(out, "done       {id}")?,
            Err(why) => {
                left += 1;
                writeln!(out, "stays      {id}: {why:#}")?;
            }
        }
    }
    if left > 0 {
        bail!("{} of {binding} could not be done again", count(left));
    }
    Ok(())
}

fn forget(api: &Api, binding: &str, chosen: &Chosen<'_>, out: &mut dyn Write) -> Result<()> {
    let letters = all(api, binding)?;
    let picked = picked(&letters, chosen)?;
    for some in picked.chunks(DROPPED_MAX) {
        let ids: Vec<&Value> = some.iter().map(|letter| &letter["id"]).collect();
        api.post(
            &format!("/v1/bindings/{binding}/dead-letters/drop"),
            &json!({ "ids": ids }),
        )?;
    }
    writeln!(out, "dropped    {} of {binding}", count(picked.len()))?;
    Ok(())
}

/// The letters that were meant, each of which is there.
fn picked<'a>(letters: &'a [Value], chosen: &Chosen<'_>) -> Result<Vec<&'a Value>> {
    match chosen {
        Chosen::All => Ok(letters.iter().collect()),
        Chosen::These(ids) => ids
            .iter()
            .map(|id| {
                let found = letters.iter().find(|letter| letter["id"] == id.as_str());
                found.with_context(|| {
                    format!("there is no letter {id}: `penstock plugin dlq list` shows them")
                })
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_named_or_all_and_nothing_else_goes_into_a_path() -> Result<()> {
        let ids = ["1-2-3".to_owned()];
        assert_eq!(chosen("drop", &ids, false)?, Chosen::These(&ids));
        assert_eq!(chosen("drop", &[], true)?, Chosen::All);
        assert!(chosen("drop", &[], false).is_err() && chosen("drop", &ids, true).is_err());
        assert!(chosen("drop", &["1&x=2".to_owned()], false).is_err());
        let letters = [json!({ "id": "1-2-3" }), json!({ "id": "1-2-4" })];
        assert_eq!(picked(&letters, &Chosen::All)?.len(), 2);
        assert_eq!(picked(&letters, &Chosen::These(&ids))?, [&letters[0]]);
        let unknown = ["7".to_owned()];
        let refused = picked(&letters, &Chosen::These(&unknown)).expect_err("it is not there");
        assert!(refused.to_string().contains("no letter 7"), "{refused}");
        Ok(())
    }

    #[test]
    fn a_line_says_which_message_and_why() {
        let letter = json!({
            "id": "1-2-3", "channel_id": "room", "channel_type": 2, "message_seq": 3, "attempts": 2, "cause": "trap",
        });
        assert_eq!(
            line(&letter),
            "1-2-3  message 3 of channel room (type 2), trap after 2 attempts"
        );
    }
}
