//! {{name}}: counts votes over HTTP. `POST /votes/CHOICE` votes, `GET /votes/CHOICE` shows how many have, `GET /` what there is to choose.

use penstock_plugin_sdk::host::kv;
use penstock_plugin_sdk::{HttpRequest, HttpResponse, Router, host};
use serde::Deserialize;
use serde_json::json;

/// The configuration: the defaults of plugin.toml with what the binding says on top.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// What there is to choose.
    choices: Vec<String>,
}

/// One instance of the plugin. There are several, and they are replaced now and then: what is to last stands in keys.
struct Plugin {
    config: Config,
}

impl Router for Plugin {
    /// Called once for each instance. The error is shown to the operator, and the plugin does not run.
    fn new(config: &str) -> Result<Self, String> {
        let config = serde_json::from_str(config).map_err(|error| error.to_string())?;
        Ok(Self { config })
    }

    /// Called for each request below `/plugins/{{name}}`; the url is what follows. Whoever asked waits for the answer.
    fn handle(&mut self, request: HttpRequest) -> HttpResponse {
        if request.path() == "/" {
            return HttpResponse::json(200, json!({ "choices": self.config.choices }).to_string());
        }
        let choice = request.path().strip_prefix("/votes/");
        let Some(choice) = choice.filter(|choice| self.config.choices.iter().any(|known| known == choice)) else {
            return HttpResponse::text(404, "vote for one of the choices: GET / shows them");
        };
        let key = format!("votes/{choice}");
        let votes = match request.method.as_str() {
            "GET" | "HEAD" => kv::get(&key).map(number),
            "POST" => kv::increment(&key, 1),
            _ => return HttpResponse::text(405, "GET or POST").with("allow", "GET, POST"),
        };
        match votes {
            Ok(votes) => HttpResponse::json(200, json!({ "choice": choice, "votes": votes }).to_string()),
            Err(error) => {
                host::warn(&format!("the votes for {choice} cannot be counted: {error:?}"));
                HttpResponse::text(503, "the votes cannot be counted now: try again").with("retry-after", "1")
            }
        }
    }
}

penstock_plugin_sdk::router!(Plugin);

/// The number of a key, which is text in decimal.
fn number(value: Option<Vec<u8>>) -> i64 {
    let text = value.and_then(|value| String::from_utf8(value).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// `cargo test` runs these on your machine; `penstock plugin test` runs the component on the fixtures.
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_there_is_to_choose_is_voted_for() {
        let mut plugin = Plugin::new(r#"{"choices":["tea"]}"#).expect("a configuration");
        let mut asked = |method: &str, url: &str| {
            plugin.handle(HttpRequest {
                method: method.to_owned(),
                url: url.to_owned(),
                headers: Vec::new(),
                body: Vec::new(),
            })
        };
        assert_eq!(asked("GET", "/").body, br#"{"choices":["tea"]}"#);
        assert_eq!(asked("POST", "/votes/coffee").status, 404);
        assert_eq!(asked("PUT", "/votes/tea").status, 405);
        assert_eq!(number(Some(b"12".to_vec())), 12);
        assert!(Plugin::new("{}").is_err());
    }
}
