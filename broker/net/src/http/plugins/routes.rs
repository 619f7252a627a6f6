//! Requests below the name of a plugin, which the plugin answers.
//!
//! A guest is a stranger on this origin. It sees no credentials, and what it answers has no part in the origin: it sets no cookies,
//! runs no scripts and tells browsers nothing about other paths.

use super::super::auth::{NO_KEY, has_key};
use super::super::json::{describe, refusal, unexpected};
use super::Shared;
use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use penstock_core::admin::{Answer, Ask, Failure, RouteAsk};
use penstock_core::hooks::call::{HttpRequest, HttpResponse};
use penstock_core::hooks::pipeline::Failure as Class;
use std::sync::Arc;
use tokio::time::timeout;

/// Largest body of a request that a plugin answers, bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// When to try again what may pass, s.
const RETRY_AFTER_S: u64 = 1;
/// Before the name of the plugin.
const PREFIX: &str = "/plugins/";

/// Headers of a request that guests do not see: the credentials of the broker and of other servers of its name, and what concerns the
/// connection (RFC 9110, section 7.6.1).
const HIDDEN: [&str; 15] = [
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "expect",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "token",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Headers of an answer that speak for the whole origin, of which the guest is a part only.
const OF_THE_ORIGIN: [&str; 9] = [
    "alt-svc",
    "clear-site-data",
    "nel",
    "report-to",
    "reporting-endpoints",
    "service-worker-allowed",
    "set-cookie",
    "strict-transport-security",
    "www-authenticate",
];

pub(in crate::http) async fn answer(axum::extract::State(state): Shared, request: Request) -> Response {
    let (plugin, url) = split(request.uri());
    let with_key = has_key(&state, request.headers());
    // Nobody has the node keep a body before it is known that somebody wants it.
    if !with_key {
        let ask = RouteAsk::Public {
            plugin: Arc::clone(&plugin),
        };
        match state.node.ask(Ask::Route(ask)).await {
            Answer::Done => {}
            other => return refused(&other),
        }
    }
    let method = request.method().to_string();
    let headers = match shown(request.headers()) {
        Ok(headers) => headers,
        Err(why) => return refusal(StatusCode::BAD_REQUEST, &why),
    };
    let reading = timeout(state.config.request_timeout, body(request.into_body()));
    let body = match reading.await {
        Ok(Ok(body)) => body,
        Ok(Err(refusal)) => return refusal,
        Err(_) => {
            return refusal(
                StatusCode::REQUEST_TIMEOUT,
                "the body did not come in time: see http.request_timeout_ms",
            );
        }
    };
    let ask = RouteAsk::Answer {
        plugin,
        request: Box::new(HttpRequest {
            method,
            url,
            headers,
            body,
        }),
        with_key,
    };
    match state.node.ask(Ask::Route(ask)).await {
        Answer::Response(response) => answered(response),
        other => refused(&other),
    }
}

/// The plugin's name, and the path below it with the query.
fn split(uri: &Uri) -> (Arc<str>, String) {
    let path = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let (name, below) = path.split_once('/').unwrap_or((path, ""));
    let mut url = format!("/{below}");
    if let Some(query) = uri.query() {
        url.push('?');
        url.push_str(query);
    }
    (Arc::from(name), url)
}

/// The headers that a guest sees.
fn shown(headers: &HeaderMap) -> Result<Vec<(String, String)>, String> {
    // What `Connection` names concerns the connection too.
    let named: Vec<String> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let is_hidden = |name: &str| HIDDEN.contains(&name) || named.iter().any(|hidden| hidden == name);
    headers
        .iter()
        .filter(|(name, _)| !is_hidden(name.as_str()))
        .map(|(name, value)| {
            let text = std::str::from_utf8(value.as_bytes()).map_err(|_| {
                format!("the header `{name}` is no text, and plugins are given texts: leave it out")
            })?;
            Ok((name.as_str().to_owned(), text.to_owned()))
        })
        .collect()
}

async fn body(body: Body) -> Result<bytes::Bytes, Response> {
    let too_large = || {
        let why =
            format!("the body is too large or was cut: plugins are given at most {BODY_BYTES_MAX} bytes");
        refusal(StatusCode::PAYLOAD_TOO_LARGE, &why)
    };
    // By its announcement, before any of it is waited for.
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    to_bytes(body, BODY_BYTES_MAX).await.map_err(|_| too_large())
}

/// What a guest answered, as it leaves.
fn answered(response: HttpResponse) -> Response {
    // The plugin host has checked all of it.
    let Ok(status) = StatusCode::from_u16(response.status) else {
        return unexpected();
    };
    let mut answer = (status, response.body).into_response();
    let headers = answer.headers_mut();
    headers.clear();
    for (name, value) in response.headers {
        let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) else {
            return unexpected();
        };
        if !OF_THE_ORIGIN.contains(&name.as_str()) {
            headers.append(name, value);
        }
    }
    guarded(answer)
}

/// What keeps an answer from acting as a part of the origin: browsers run nothing of it, and guess no types. A policy of the guest's
/// own holds beside this one, and cannot loosen it.
fn guarded(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    headers.append(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("sandbox"),
    );
    headers.insert(
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    answer
}

/// Why there is no answer of the plugin.
fn refused(answer: &Answer) -> Response {
    let failure = match answer {
        Answer::Failed(failure) => failure,
        _ => return unexpected(),
    };
    let (status, text) = match failure {
        Failure::KeyNeeded => (StatusCode::UNAUTHORIZED, NO_KEY.to_owned()),
        Failure::NotFound(text) => (StatusCode::NOT_FOUND, text.clone()),
        Failure::Plugin(class) => of_class(*class),
        other => describe(other),
    };
    let mut answer = refusal(status, &text);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        answer
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from(RETRY_AFTER_S));
    }
    answer
}

/// A failed call as a status. What exactly went wrong is for operators, who find it in the plugin's log.
fn of_class(class: Class) -> (StatusCode, String) {
    let status = match class {
        Class::BadOutput => StatusCode::BAD_GATEWAY,
        Class::Timeout
        | Class::Trap
        | Class::Memory
        | Class::Busy
        | Class::NotReady
        | Class::Host
        | Class::Suspended => StatusCode::SERVICE_UNAVAILABLE,
    };
    let text = format!(
        "the plugin gave no answer ({}): its log says more, see GET /v1/bindings/{{id}}/logs",
        class.name()
    );
    (status, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(all: &[(&'static str, &'static str)]) -> HeaderMap {
        all.iter()
            .map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_guest_is_given_the_path_below_its_name() {
        for (uri, plugin, url) in [
            ("/plugins/tally", "tally", "/"),
            ("/plugins/tally/", "tally", "/"),
            ("/plugins/tally?x=1", "tally", "/?x=1"),
            ("/plugins/tally/a%2Fb/c?x=%20&y", "tally", "/a%2Fb/c?x=%20&y"),
            ("/plugins/tally//a", "tally", "//a"),
        ] {
            let found = split(&uri.parse().expect(uri));
            assert_eq!((&*found.0, found.1.as_str()), (plugin, url), "{uri}");
        }
    }

    #[test]
    fn a_guest_sees_no_credentials_and_nothing_of_the_connection() {
        let all = headers(&[
            ("authorization", "Bearer secret"),
            ("token", "secret"),
            ("cookie", "a=b"),
            ("proxy-authorization", "x"),
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("content-type", "text/plain"),
            ("x-hub-signature", "2"),
            ("x-hub-signature", "3"),
        ]);
        let seen = shown(&all).expect("texts");
        let names: Vec<&str> = seen.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["content-type", "x-hub-signature", "x-hub-signature"]);
        let mut other = HeaderMap::new();
        let bytes = HeaderValue::from_bytes(b"\xff").expect("a header value");
        other.insert("x-raw", bytes);
        assert!(shown(&other).is_err());
    }

    #[test]
    fn an_answer_has_no_part_in_the_origin() {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let answer = answered(HttpResponse {
            status: 201,
            headers: vec![
                header("content-type", "text/html"),
                header("set-cookie", "session=x; path=/"),
                header("service-worker-allowed", "/"),
                header("content-security-policy", "default-src *"),
                header("x-content-type-options", "sniff"),
            ],
            body: bytes::Bytes::from_static(b"<p>"),
        });
        assert_eq!(answer.status(), StatusCode::CREATED);
        let all = answer.headers();
        assert_eq!(all["content-type"], "text/html");
        assert!(!all.contains_key("set-cookie") && !all.contains_key("service-worker-allowed"));
        let policies: Vec<&HeaderValue> = all.get_all("content-security-policy").iter().collect();
        assert_eq!(policies, ["default-src *", "sandbox"]);
        let guesses: Vec<&HeaderValue> = all.get_all("x-content-type-options").iter().collect();
        assert_eq!(guesses, ["nosniff"]);
    }

    #[test]
    fn a_failure_is_a_status_by_its_class() {
        let status = |class| {
            let answer = refused(&Answer::Failed(Failure::Plugin(class)));
            (
                answer.status().as_u16(),
                answer.headers().contains_key("retry-after"),
            )
        };
        assert_eq!(status(Class::BadOutput), (502, false));
        for class in [Class::Trap, Class::Timeout, Class::Busy, Class::Suspended] {
            assert_eq!(status(class), (503, true));
        }
        assert_eq!(refused(&Answer::Failed(Failure::KeyNeeded)).status(), 401);
        assert_eq!(
            refused(&Answer::Failed(Failure::NotFound(String::new()))).status(),
            404
        );
        assert_eq!(refused(&Answer::Done).status(), 500);
    }
}
