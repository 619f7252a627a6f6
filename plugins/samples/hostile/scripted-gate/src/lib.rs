//! A gate that does what a token tells it to, for tests of the broker. Words of the token, with spaces between them, say what; a
//! token without one is accepted as it comes.
//!
//! | word | what it does |
//! |---|---|
//! | `trap`, `panic`, `loop`, `grow`, `recurse` | as it says |
//! | `flood` | writes 100,000 lines to the log first |
//! | `huge` | accepts with more bytes of attributes than the broker takes |
//! | `as:uid` | accepts as this user |
//! | `level:n` | accepts with this device level |
//! | `name=value` | accepts with this attribute |
//! | `address` | accepts with the attribute `address`: where the client comes from |
//! | `deny`, `deny:code`, `deny:code:text` | refuses, with this code and these words; `_` stands for a space |
//!
//! The configuration `{"init": "fail"}` makes the instance fail to start, `{"tag": "x"}` gives everybody the attribute `tag`.

use penstock_plugin_sdk::{Acceptance, ConnectRequest, Denial, Gate};

/// An attribute that is too large, bytes.
const HUGE: usize = 64 << 10;

/// The gate.
pub struct Scripted {
    /// What everybody gets as the attribute `tag`.
    tag: Option<String>,
}

impl Gate for Scripted {
    fn new(config: &str) -> Result<Self, String> {
        if config.contains("\"fail\"") {
            return Err("scripted to fail".to_owned());
        }
        let tag = config.split_once("\"tag\":\"").map(|(_, rest)| rest);
        let tag = tag.and_then(|rest| rest.split_once('"'));
        Ok(Self {
            tag: tag.map(|(tag, _)| tag.to_owned()),
        })
    }

    fn connect(&mut self, request: ConnectRequest) -> Result<Acceptance, Denial> {
        let mut accepted = Acceptance {
            uid: request.uid.clone(),
            level: 0,
            attributes: Vec::new(),
        };
        if let Some(tag) = &self.tag {
            accepted.attributes.push(("tag".to_owned(), tag.clone()));
        }
        for word in request.token.split(' ') {
            penstock_harm::obey(word);
            obey(word, &request, &mut accepted)?;
        }
        Ok(accepted)
    }
}

penstock_plugin_sdk::gate!(Scripted);

/// Changes the answer as a word says.
fn obey(word: &str, request: &ConnectRequest, accepted: &mut Acceptance) -> Result<(), Denial> {
    let (name, argument) = word.split_once(':').unwrap_or((word, ""));
    match name {
        "as" => accepted.uid = argument.to_owned(),
        "level" => accepted.level = argument.parse().unwrap_or(0),
        "address" => {
            let address = request.address.clone();
            accepted.attributes.push(("address".to_owned(), address));
        }
        "huge" => {
            let huge = "x".repeat(HUGE);
            accepted.attributes.push(("huge".to_owned(), huge));
        }
        "deny" => {
            let (code, text) = argument.split_once(':').unwrap_or((argument, ""));
            return Err(Denial {
                code: code.parse().unwrap_or(0),
                text: text.replace('_', " "),
            });
        }
        _ => {
            if let Some((name, value)) = word.split_once('=') {
                accepted.attributes.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(token: &str) -> Result<Acceptance, Denial> {
        let mut gate = Scripted::new("{\"tag\":\"red\"}").expect("a gate");
        gate.connect(ConnectRequest {
            uid: "ann".to_owned(),
            token: token.to_owned(),
            device_id: String::new(),
            device_flag: 0,
            address: "192.0.2.7".to_owned(),
        })
    }

    #[test]
    fn a_token_says_what_to_answer() {
        let accepted = asked("as:bob level:1 plan=paid address").expect("accepted");
        assert_eq!((accepted.uid.as_str(), accepted.level), ("bob", 1));
        let names: Vec<&str> = accepted
            .attributes
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        assert_eq!(names, ["tag", "plan", "address"]);
        let denied = asked("deny:19:not_today").expect_err("denied");
        assert_eq!((denied.code, denied.text.as_str()), (19, "not today"));
        assert_eq!(asked("any").expect("accepted").uid, "ann");
    }
}
