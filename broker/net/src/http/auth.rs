//! The API key: hashed at rest, compared in constant time (rule S28).

use super::State;
use super::json::refusal_of;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::ConstantTimeEq;

/// What is said to who shows no key, or a wrong one.
pub(super) const NO_KEY: &str = "the API key is missing or wrong: send `Authorization: Bearer KEY`";

/// SHA-256 of the API key. Never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey([u8; 32]);

impl ApiKey {
    /// The hash of a key, as configured.
    #[must_use]
    pub fn from_sha256(hash: [u8; 32]) -> ApiKey {
        ApiKey(hash)
    }

    fn matches(&self, shown: &str) -> bool {
        let hash: [u8; 32] = Sha256::digest(shown.as_bytes()).into();
        self.0.ct_eq(&hash).into()
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ApiKey(***)")
    }
}

/// The key of a request: `Authorization: Bearer KEY`, or `Token: KEY` as existing backends send it.
fn shown(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.strip_prefix("Bearer "));
    bearer.or_else(|| headers.get("token").and_then(|value| value.to_str().ok()))
}

/// Refuses requests without the key. Without a configured key (development mode) everyone on this machine may ask.
pub(super) async fn require_key(
    axum::extract::State(state): axum::extract::State<State>,
    request: Request,
    next: Next,
) -> Response {
    if !has_key(&state, request.headers()) {
        return refusal_of(request.uri())(StatusCode::UNAUTHORIZED, NO_KEY);
    }
    next.run(request).await
}

/// Whether a request may do what needs the key.
pub(super) fn has_key(state: &State, headers: &HeaderMap) -> bool {
    let key = state.config.api_key.as_ref();
    key.is_none_or(|key| shown(headers).is_some_and(|shown| key.matches(shown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_key_itself_matches_and_it_is_never_printed() {
        let key = ApiKey::from_sha256(Sha256::digest(b"secret").into());
        assert!(key.matches("secret"));
        assert!(!key.matches("secre") && !key.matches("secret ") && !key.matches(""));
        assert_eq!(format!("{key:?}"), "ApiKey(***)");
    }

    #[test]
    fn key_is_found_in_both_headers() {
        let mut headers = HeaderMap::new();
        assert_eq!(shown(&headers), None);
        headers.insert("token", "a".parse().expect("a header value"));
        assert_eq!(shown(&headers), Some("a"));
        headers.insert(header::AUTHORIZATION, "Bearer b".parse().expect("a header value"));
        assert_eq!(shown(&headers), Some("b"));
    }
}
