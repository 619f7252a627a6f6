//! Web pages of elsewhere (rule S9): without an API key every request is obeyed, so that in development mode none may
//! come from a page that the developer only happens to look at. Programs name no page and are not concerned.

use super::State;
use super::json::refusal_of;
use crate::origin::Origins;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;

/// Refuses what a foreign page asks, and what is asked under a host name that is not of this machine.
pub(super) async fn refuse_foreign(
    axum::extract::State(state): axum::extract::State<State>,
    request: Request,
    next: Next,
) -> Response {
    if state.config.loopback_only && !is_from_here(request.method(), request.uri(), request.headers()) {
        return refusal_of(request.uri())(
            StatusCode::FORBIDDEN,
            "with --dev only programs and pages of this machine are served, by the names localhost, 127.0.0.1 and [::1]: \
             use one of them, or leave --dev out and set an API key (`penstock key`)",
        );
    }
    next.run(request).await
}

fn is_from_here(method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
    // What is no text is no name of this machine either.
    let value = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    // A link from elsewhere to the page is followed by a person, changes nothing, and shows the other page nothing.
    let is_link = method == Method::GET
        && value("sec-fetch-mode") == Some("navigate")
        && value("sec-fetch-dest") == Some("document");
    if value("sec-fetch-site") == Some("cross-site") && !is_link {
        return false;
    }
    let pages = Origins {
        listed: Vec::new(),
        loopback_only: true,
    };
    let host = uri
        .authority()
        .map(|authority| authority.as_str())
        .or_else(|| value(header::HOST.as_str()));
    pages.admit(value(header::ORIGIN.as_str()), host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(method: &Method, uri: &'static str, headers: &[(&'static str, &'static str)]) -> bool {
        let headers = headers
            .iter()
            .map(|&(name, value)| {
                let name = name.parse::<axum::http::HeaderName>().expect("a header name");
                (name, value.parse().expect("a header value"))
            })
            .collect();
        is_from_here(method, &Uri::from_static(uri), &headers)
    }

    const HERE: (&str, &str) = ("host", "127.0.0.1:5001");

    #[test]
    fn programs_and_local_pages_pass() {
        assert!(judge(&Method::POST, "/channel", &[HERE]));
        assert!(judge(&Method::POST, "/channel", &[]));
        let page = ("origin", "http://127.0.0.1:5001");
        let site = ("sec-fetch-site", "same-origin");
        assert!(judge(&Method::POST, "/channel", &[HERE, page, site]));
    }

    #[test]
    fn a_foreign_page_is_refused_whichever_header_names_it() {
        let cross = ("sec-fetch-site", "cross-site");
        assert!(!judge(&Method::POST, "/channel", &[HERE, cross]));
        let origin = ("origin", "https://example.org");
        assert!(!judge(&Method::POST, "/channel", &[HERE, origin]));
        assert!(!judge(&Method::POST, "/channel", &[HERE, ("origin", "null")]));
        assert!(!judge(&Method::POST, "/channel", &[("host", "example.org:5001")]));
        assert!(!judge(&Method::POST, "http://example.org/channel", &[HERE]));
    }

    #[test]
    fn a_link_to_the_page_may_be_followed_but_not_a_form() {
        let cross = ("sec-fetch-site", "cross-site");
        let link = [
            HERE,
            cross,
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        assert!(judge(&Method::GET, "/", &link));
        assert!(!judge(&Method::POST, "/channel", &link));
        let framed = [
            HERE,
            cross,
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "iframe"),
        ];
        assert!(!judge(&Method::GET, "/", &framed));
    }
}
