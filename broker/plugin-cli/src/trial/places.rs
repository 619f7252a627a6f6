//! Places that the plugin asks over HTTP, and values of the operator: as a fixture scripts them. Nothing leaves this machine.

use super::compare::is_request;
use super::fixtures::ExpectedRequest;
use bytes::Bytes;
use penstock_core::hooks::call::HttpRequest;
use penstock_plugin_host::{HttpError, HttpResponse, Outside, Reach, Unanswered};
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A request that is expected, and what answers it. Several that fit one request answer it in their order, the last one also what
/// follows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exchange {
    /// What is not named is not compared; headers are as the plugin writes them, before secrets are filled in.
    #[serde(default)]
    pub(super) expect: ExpectedRequest,
    pub(super) answer: Scripted,
}

/// An answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scripted {
    /// With this status.
    Status(u16),
    /// With this status, these headers, and a text, or JSON, as its body.
    Response(ScriptedResponse),
    /// None.
    Error(ScriptedError),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScriptedResponse {
    status: u16,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    body: Value,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ScriptedError {
    NotGranted,
    Address,
    Timeout,
    TooLarge,
    Failed,
}

impl Scripted {
    fn response(&self) -> Result<HttpResponse, HttpError> {
        match self {
            Scripted::Status(status) => Ok(HttpResponse {
                status: *status,
                headers: Vec::new(),
                body: Bytes::new(),
            }),
            Scripted::Response(response) => Ok(HttpResponse {
                status: response.status,
                headers: response.headers.clone().into_iter().collect(),
                body: match &response.body {
                    Value::Null => Bytes::new(),
                    Value::String(text) => Bytes::from(text.clone()),
                    json => Bytes::from(json.to_string()),
                },
            }),
            Scripted::Error(error) => Err(match error {
                ScriptedError::NotGranted => HttpError::NotGranted,
                ScriptedError::Address => HttpError::Address,
                ScriptedError::Timeout => HttpError::Timeout,
                ScriptedError::TooLarge => HttpError::TooLarge,
                ScriptedError::Failed => HttpError::Failed,
            }),
        }
    }
}

#[derive(Debug, Default)]
struct Script {
    /// With whether it came.
    exchanges: Vec<(Exchange, bool)>,
    secrets: BTreeMap<String, String>,
    /// Requests that nobody expects, in words.
    strange: BTreeSet<String>,
}

/// The places.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Arc<Mutex<Script>>);

impl Places {
    fn lock(&self) -> MutexGuard<'_, Script> {
        // The script is whole between two statements, whatever a holder died of.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows this script from now on.
    pub(crate) fn begin(&self, exchanges: &[Exchange], secrets: &BTreeMap<String, String>) {
        *self.lock() = Script {
            exchanges: exchanges
                .iter()
                .map(|exchange| (exchange.clone(), false))
                .collect(),
            secrets: secrets.clone(),
            strange: BTreeSet::new(),
        };
    }

    /// What came and should not have, and what should have and did not.
    pub(super) fn differences(&self) -> Vec<String> {
        let script = self.lock();
        let strange = script.strange.iter();
        let strange = strange.map(|request| format!("no `http` of the case expects {request}"));
        let missing = script.exchanges.iter().filter(|(_, came)| !came);
        let missing = missing.map(|(exchange, _)| format!("expected a request: {:?}", exchange.expect));
        strange.chain(missing).collect()
    }
}

impl Outside for Places {
    fn granted(&self, _: &BTreeSet<String>) -> Result<Arc<dyn Reach>, String> {
        Ok(Arc::new(self.clone()))
    }
}

impl Reach for Places {
    fn send(&self, request: HttpRequest, _: Duration) -> Result<HttpResponse, Unanswered> {
        let mut script = self.lock();
        let mut fitting: Vec<&mut (Exchange, bool)> = script
            .exchanges
            .iter_mut()
            .filter(|(exchange, _)| is_request(&exchange.expect, &request))
            .collect();
        let last = fitting.len().saturating_sub(1);
        let next = fitting.iter().position(|(_, came)| !came).unwrap_or(last);
        let Some((exchange, came)) = fitting.get_mut(next) else {
            let (method, url) = (&request.method, &request.url);
            let said = format!("{method} {url} {:?}", request.headers);
            script.strange.insert(said);
            return Err(Unanswered::new(
                HttpError::NotGranted,
                "the case does not expect it",
            ));
        };
        *came = true;
        exchange
            .answer
            .response()
            .map_err(|error| Unanswered::new(error, "as the case says"))
    }

    fn reveal(&self, name: &str) -> Option<Bytes> {
        self.lock().secrets.get(name).cloned().map(Bytes::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(text: &str) -> Vec<Exchange> {
        serde_json::from_str(text).expect(text)
    }

    fn get(places: &Places, url: &str) -> Result<(u16, String), HttpError> {
        let request = HttpRequest {
            method: "GET".to_owned(),
            url: url.to_owned(),
            headers: Vec::new(),
            body: Bytes::new(),
        };
        let answer = places.send(request, Duration::ZERO);
        let response = answer.map_err(|unanswered| unanswered.error)?;
        Ok((
            response.status,
            String::from_utf8_lossy(&response.body).into_owned(),
        ))
    }

    #[test]
    fn requests_are_answered_in_the_order_of_the_script() {
        let places = Places::default();
        let exchanges = script(
            r#"[
                { "expect": { "url": "https://a/" }, "answer": { "status": 503 } },
                { "expect": { "url": "https://a/" }, "answer": { "response": { "status": 200, "body": { "b": 1 } } } },
                { "expect": { "url": "https://c/" }, "answer": { "error": "too-large" } },
                { "expect": { "method": "PUT" }, "answer": { "status": 200 } }
            ]"#,
        );
        places.begin(&exchanges, &BTreeMap::from([("n".to_owned(), "v".to_owned())]));
        assert_eq!(get(&places, "https://a/"), Ok((503, String::new())));
        for _ in 0..2 {
            assert_eq!(get(&places, "https://a/"), Ok((200, "{\"b\":1}".to_owned())));
        }
        assert_eq!(get(&places, "https://c/"), Err(HttpError::TooLarge));
        assert_eq!(get(&places, "https://d/"), Err(HttpError::NotGranted));
        let said = places.differences().join("; ");
        assert!(
            said.contains("GET https://d/") && said.contains("PUT") && !said.contains("https://a/"),
            "{said}"
        );
        assert_eq!(
            (places.reveal("n"), places.reveal("m")),
            (Some(Bytes::from("v")), None)
        );
        places.begin(&[], &BTreeMap::new());
        assert!(places.differences().is_empty());
    }

    #[test]
    fn what_is_no_script_is_refused() {
        for wrong in [
            r#"{ "answer": { "error": "gone" } }"#,
            r#"{ "answer": { "stat": 200 } }"#,
            r#"{ "expect": { "uri": "x" }, "answer": { "status": 200 } }"#,
            r#"{ "expect": {} }"#,
        ] {
            assert!(serde_json::from_str::<Exchange>(wrong).is_err(), "{wrong}");
        }
    }
}
