//! A gate that asks places before it lets somebody in, as a token tells it to, for tests of the broker. A token is a URL, or any other
//! text, which is accepted as it comes. Who answers with 200 lets the client in: its session gets the attribute `answer` with the
//! beginning of the body. Otherwise the client is refused with the code 19, and the status or the error as its words.

use penstock_plugin_sdk::{Acceptance, ConnectRequest, Denial, Gate, host};

/// The code of a refusal.
const BANNED: u8 = 19;
/// Longest answer that becomes an attribute, bytes.
const ANSWER_MAX: usize = 100;

/// The gate.
pub struct Porter;

impl Gate for Porter {
    fn new(_config: &str) -> Result<Self, String> {
        Ok(Self)
    }

    fn connect(&mut self, request: ConnectRequest) -> Result<Acceptance, Denial> {
        let mut attributes = Vec::new();
        if request.token.contains("://") {
            let answer = ask(&request.token).map_err(|text| Denial { code: BANNED, text })?;
            attributes.push(("answer".to_owned(), answer));
        }
        Ok(Acceptance {
            uid: request.uid,
            level: 0,
            attributes,
        })
    }
}

penstock_plugin_sdk::gate!(Porter);

/// The beginning of what a place says, or why it says nothing good.
fn ask(url: &str) -> Result<String, String> {
    let response = host::http::get(url, &[]).map_err(|error| error.name().to_owned())?;
    if response.status != 200 {
        return Err(format!("status {}", response.status));
    }
    let body = String::from_utf8_lossy(&response.body);
    Ok(body[..body.floor_char_boundary(ANSWER_MAX)].to_owned())
}
