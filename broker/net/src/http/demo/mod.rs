//! The demo page: a chat in the browser over JSON-RPC and this API, without a build step and without a framework.
//!
//! The files are part of the binary. The page calls routes that only a back end should call, so it is served in development
//! mode and where `http.demo_page` says so; there its user has to type in the API key.

use super::State;
use super::json::refusal;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// The files of the page: name, content type, text.
const FILES: &[(&str, &str, &str)] = &[
    ("page.html", "text/html; charset=utf-8", include_str!("page.html")),
    ("page.css", "text/css; charset=utf-8", include_str!("page.css")),
    ("chat.css", "text/css; charset=utf-8", include_str!("chat.css")),
    ("icon.svg", "image/svg+xml", include_str!("icon.svg")),
    ("api.js", SCRIPT, include_str!("api.js")),
    ("app.js", SCRIPT, include_str!("app.js")),
    ("chats.js", SCRIPT, include_str!("chats.js")),
    ("dialogs.js", SCRIPT, include_str!("dialogs.js")),
    ("metrics.js", SCRIPT, include_str!("metrics.js")),
    ("panel.js", SCRIPT, include_str!("panel.js")),
    ("reasons.js", SCRIPT, include_str!("reasons.js")),
    ("session.js", SCRIPT, include_str!("session.js")),
    ("view.js", SCRIPT, include_str!("view.js")),
];

/// The page, ready to be served.
#[derive(Debug)]
pub(super) struct Page {
    files: Vec<File>,
    policy: HeaderValue,
}

#[derive(Debug)]
struct File {
    name: &'static str,
    content_type: &'static str,
    text: &'static str,
    /// Changes with the text, so that a browser keeps a file until the next release and not longer.
    tag: String,
}

impl Page {
    /// The page for a node that tells clients to connect to this WebSocket address.
    pub(super) fn new(ws_addr: &str) -> Page {
        let file = |&(name, content_type, text): &(&'static str, &'static str, &'static str)| File {
            name,
            content_type,
            text,
            tag: tag(text),
        };
        Page {
            files: FILES.iter().map(file).collect(),
            policy: policy(ws_addr),
        }
    }

    fn answer(&self, name: &str, request: &HeaderMap) -> Response {
        let Some(file) = self.files.iter().find(|file| file.name == name) else {
            return refusal(StatusCode::NOT_FOUND, "there is no such file");
        };
        let known = request
            .get(header::IF_NONE_MATCH)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|tags| tags.contains(&file.tag));
        let mut response = if known {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            ([(header::CONTENT_TYPE, file.content_type)], file.text).into_response()
        };
        let headers = response.headers_mut();
        if let Ok(tag) = HeaderValue::from_str(&file.tag) {
            headers.insert(header::ETAG, tag);
        }
        headers.insert(header::CONTENT_SECURITY_POLICY, self.policy.clone());
        for (name, value) in [
            // Kept, but asked about each time: a page of the old release must not talk to the new one.
            (header::CACHE_CONTROL, "no-cache"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::X_FRAME_OPTIONS, "DENY"),
            (header::REFERRER_POLICY, "no-referrer"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        for (name, value) in [
            ("cross-origin-opener-policy", "same-origin"),
            ("cross-origin-resource-policy", "same-origin"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Serves the page itself.
pub(super) async fn page(
    axum::extract::State(state): axum::extract::State<State>,
    request: HeaderMap,
) -> Response {
    state.page.answer("page.html", &request)
}

/// Serves what the page consists of.
pub(super) async fn file(
    axum::extract::State(state): axum::extract::State<State>,
    Path(name): Path<String>,
    request: HeaderMap,
) -> Response {
    state.page.answer(&name, &request)
}

/// A strong validator: the first 16 bytes of the SHA-256 of the text, in quotes.
fn tag(text: &str) -> String {
    let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let hex: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

/// What the page may do: run its own files, talk to this API and to the gateway, and nothing else. Text that becomes
/// markup is refused by the browser as well (trusted types), because messages and uids are foreign text.
fn policy(ws_addr: &str) -> HeaderValue {
    let gateway = gateway_source(ws_addr).unwrap_or("ws: wss:");
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self' {gateway}; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'"
    );
    // The address was checked to be plain, so the fallback is for the compiler only.
    HeaderValue::from_str(&policy).unwrap_or(HeaderValue::from_static("default-src 'none'"))
}

/// Scheme, host and port of a WebSocket address, when a policy can name it. Policies know no IPv6 addresses.
fn gateway_source(ws_addr: &str) -> Option<&str> {
    let (scheme, rest) = ws_addr.split_once("://")?;
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let plain = |character: char| character.is_ascii_alphanumeric() || ".-:".contains(character);
    let good = matches!(scheme, "ws" | "wss") && !host.is_empty() && host.chars().all(plain);
    good.then(|| &ws_addr[..scheme.len() + "://".len() + host.len()])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(name: &str) -> &'static str {
        let file = FILES.iter().find(|(found, ..)| *found == name);
        file.unwrap_or_else(|| panic!("no file {name}")).2
    }

    #[test]
    fn the_policy_names_the_gateway_and_takes_no_words_from_it() {
        for (address, source) in [
            ("ws://127.0.0.1:5200", Some("ws://127.0.0.1:5200")),
            ("wss://chat.example.org/ws?a=1", Some("wss://chat.example.org")),
            ("ws://[::1]:5200", None),
            ("ws://a; script-src *", None),
            ("http://127.0.0.1:5200", None),
            ("ws://", None),
            ("", None),
        ] {
            assert_eq!(gateway_source(address), source, "{address}");
            let policy = policy(address);
            let policy = policy.to_str().expect("plain text");
            let connect = format!("connect-src 'self' {};", source.unwrap_or("ws: wss:"));
            assert!(policy.contains(&connect) && !policy.contains('*'), "{policy}");
        }
    }

    #[test]
    fn a_browser_that_has_the_file_is_told_so() {
        let page = Page::new("ws://127.0.0.1:5200");
        let first = page.answer("app.js", &HeaderMap::new());
        assert_eq!(first.status(), StatusCode::OK);
        let tag = first.headers()[header::ETAG].clone();
        let mut request = HeaderMap::new();
        request.insert(header::IF_NONE_MATCH, tag);
        assert_eq!(page.answer("app.js", &request).status(), StatusCode::NOT_MODIFIED);
        // The same tag means another file elsewhere.
        assert_eq!(page.answer("api.js", &request).status(), StatusCode::OK);
        assert_eq!(page.answer("../mod.rs", &request).status(), StatusCode::NOT_FOUND);
    }

    #[test]
    fn the_page_asks_only_for_files_that_are_there() {
        let mut asked = 0;
        for (name, _, content) in FILES {
            for reference in content
                .split("\"/demo/")
                .skip(1)
                .chain(content.split("from \"./").skip(1))
            {
                let file = reference.split('"').next().unwrap_or_default();
                assert!(FILES.iter().any(|(found, ..)| *found == file), "{name}: {file}");
                asked += 1;
            }
            assert!(
                *name == "icon.svg" || !content.contains("http://") && !content.contains("https://"),
                "{name} names something outside"
            );
        }
        assert!(asked >= FILES.len() - 1, "only {asked} references were found");
    }

    #[test]
    fn foreign_text_never_becomes_markup() {
        for (name, _, content) in FILES.iter().filter(|(name, ..)| name.ends_with(".js")) {
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "DOMParser",
                "eval(",
                "new Function",
            ] {
                assert!(!content.contains(word), "{name} uses {word}");
            }
        }
        // The policy forbids inline scripts and styles.
        let page = text("page.html");
        let handler = |word: &str| word.starts_with("on") && word.contains('=');
        assert!(
            !page.contains("<style") && !page.contains(" style=") && !page.split_whitespace().any(handler)
        );
    }

    #[test]
    fn every_reason_code_has_its_words() {
        let reasons = text("reasons.js");
        for reason in penstock_wire::reason::Reason::ALL {
            let line = format!("\n  {}: \"", reason.code());
            assert!(reasons.contains(&line), "no words for {reason}");
        }
    }
}
