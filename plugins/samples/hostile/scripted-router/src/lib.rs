//! A router that does what a request tells it to, for tests of the broker. Words of the body, with spaces between them, say what; those of
//! a request without a body stand in its path, with slashes between them. A request without a word is answered with what the
//! plugin was given: one line for method and url, one for each header, then the body.
//!
//! | word | what it does |
//! |---|---|
//! | `trap`, `panic`, `loop`, `grow`, `recurse` | as it says |
//! | `flood` | writes 100,000 lines to the log first |
//! | `huge` | answers with more bytes than the broker takes |
//! | `status:n` | answers with this status |
//! | `name=value` | answers with this header; `_` stands for a space, `^` for the end of a line |
//! | `tag` | answers with the tag of the configuration |
//! | `visit` | counts up the key `visits` and answers with the sum |
//!
//! The configuration `{"init": "fail"}` makes the instance fail to start, `{"tag": "x"}` gives it a tag.

use penstock_plugin_sdk::host::kv;
use penstock_plugin_sdk::{HttpRequest, HttpResponse, Router};
use std::fmt::Write as _;

/// A body that is too large, bytes.
const HUGE: usize = (1 << 20) + 1;

/// The router.
pub struct Scripted {
    /// What `tag` answers.
    tag: String,
}

impl Router for Scripted {
    fn new(config: &str) -> Result<Self, String> {
        if config.contains("\"fail\"") {
            return Err("scripted to fail".to_owned());
        }
        let tag = config.split_once("\"tag\":\"").map(|(_, rest)| rest);
        let tag = tag.and_then(|rest| rest.split_once('"'));
        Ok(Self {
            tag: tag.map_or_else(String::new, |(tag, _)| tag.to_owned()),
        })
    }

    fn handle(&mut self, request: HttpRequest) -> HttpResponse {
        let text = if request.body.is_empty() {
            request.path().replace('/', " ")
        } else {
            String::from_utf8_lossy(&request.body).into_owned()
        };
        let mut answer = HttpResponse::text(200, given(&request));
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            penstock_harm::obey(word);
            self.obey(word, &mut answer);
        }
        answer
    }
}

penstock_plugin_sdk::router!(Scripted);

impl Scripted {
    /// Changes the answer as a word says.
    fn obey(&self, word: &str, answer: &mut HttpResponse) {
        let (name, argument) = word.split_once(':').unwrap_or((word, ""));
        match name {
            "status" => answer.status = argument.parse().unwrap_or(0),
            "huge" => answer.body = vec![b'x'; HUGE],
            "tag" => answer.body = self.tag.clone().into_bytes(),
            "visit" => {
                let sum = kv::increment("visits", 1).expect("the key");
                answer.body = sum.to_string().into_bytes();
            }
            _ => {
                if let Some((name, value)) = word.split_once('=') {
                    let value = value.replace('_', " ").replace('^', "\r\n");
                    *answer = answer.clone().with(name, &value);
                }
            }
        }
    }
}

/// What the plugin was given.
fn given(request: &HttpRequest) -> String {
    let mut text = format!("{} {}\n", request.method, request.url);
    for header in &request.headers {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}: {}", header.name, header.value);
    }
    text.push_str(&String::from_utf8_lossy(&request.body));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(url: &str, body: &str) -> HttpResponse {
        let mut router = Scripted::new("{\"tag\":\"red\"}").expect("a router");
        router.handle(HttpRequest {
            method: "POST".to_owned(),
            url: url.to_owned(),
            headers: Vec::new(),
            body: body.as_bytes().to_vec(),
        })
    }

    #[test]
    fn a_request_says_what_to_answer() {
        let answer = asked("/", "status:404 x=a_b tag");
        assert_eq!((answer.status, &answer.body[..]), (404, &b"red"[..]));
        let header = answer.headers.last().expect("a header");
        assert_eq!((header.name.as_str(), header.value.as_str()), ("x", "a b"));
        assert_eq!(asked("/status:500/tag?status:1", "").status, 500);
        assert_eq!(asked("/a", "b").body, b"POST /a\nb");
        assert_eq!(asked("/", "x=a^b").headers[1].value, "a\r\nb");
    }
}
