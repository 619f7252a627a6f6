//! Requests that a guest wants made, within bounds.

use crate::contract::{GuestHeader, GuestRequest};
use crate::outside::{HttpError, Unanswered};
use bytes::Bytes;
use penstock_core::hooks::call::HttpRequest;

/// Requests of one answer.
const REQUESTS_MAX: usize = 16;
/// Headers of one request or answer, and bytes of all of them together.
const HEADERS_MAX: usize = 32;
const HEADERS_BYTES_MAX: usize = 8 << 10;
/// Longest URL, bytes.
const URL_BYTES_MAX: usize = 4 << 10;
/// Largest body of a request whose answer the guest waits for, bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Longest method, bytes.
const METHOD_BYTES_MAX: usize = 16;
/// Methods that carry a body.
const METHODS: [&str; 3] = ["POST", "PUT", "PATCH"];
/// Headers that the transport sets.
const OWN: [&str; 12] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "keep-alive",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
];
/// And those of the signature.
const SIGNED_PREFIX: &str = "webhook-";

/// The requests, if they are within bounds.
pub(crate) fn checked(requests: Vec<GuestRequest>) -> Result<Vec<HttpRequest>, String> {
    if requests.len() > REQUESTS_MAX {
        return Err(format!("{} requests; at most {REQUESTS_MAX}", requests.len()));
    }
    requests.into_iter().map(one).collect()
}

fn one(request: GuestRequest) -> Result<HttpRequest, String> {
    if !METHODS.contains(&request.method.as_str()) {
        let method = request.method.escape_default();
        return Err(format!("method `{method}`: {}", METHODS.join(", ")));
    }
    if request.url.len() > URL_BYTES_MAX {
        return Err(format!(
            "a URL of {} bytes; at most {URL_BYTES_MAX}",
            request.url.len()
        ));
    }
    let headers = headers(request.headers, |name| {
        OWN.contains(&name) || name.starts_with(SIGNED_PREFIX)
    })?;
    Ok(HttpRequest {
        method: request.method,
        url: request.url,
        headers,
        body: Bytes::from(request.body),
    })
}

/// A request whose answer the guest waits for, if it is within bounds.
pub(crate) fn question(request: GuestRequest) -> Result<HttpRequest, Unanswered> {
    let too_large = |what: &str, bytes: usize, most: usize| {
        let text = format!("{what} of {bytes} bytes; at most {most}");
        Err(Unanswered::new(HttpError::TooLarge, text))
    };
    if request.url.len() > URL_BYTES_MAX {
        return too_large("a URL", request.url.len(), URL_BYTES_MAX);
    }
    if request.body.len() > BODY_BYTES_MAX {
        return too_large("a body", request.body.len(), BODY_BYTES_MAX);
    }
    let capitals = request.method.bytes().all(|byte| byte.is_ascii_uppercase());
    if !capitals || !(1..=METHOD_BYTES_MAX).contains(&request.method.len()) {
        return Err(Unanswered::new(
            HttpError::Failed,
            "the method is none: it is in capitals",
        ));
    }
    let headers = headers(request.headers, |name| OWN.contains(&name))
        .map_err(|why| Unanswered::new(HttpError::Failed, why))?;
    Ok(HttpRequest {
        method: request.method,
        url: request.url,
        headers,
        body: Bytes::from(request.body),
    })
}

/// The headers of a guest with names in small letters, if they are whole, within bounds, and none of those that the broker sets.
pub(crate) fn headers(
    found: Vec<GuestHeader>,
    is_own: impl Fn(&str) -> bool,
) -> Result<Vec<(String, String)>, String> {
    let headers: Vec<(String, String)> = found
        .into_iter()
        .map(|header| (header.name.to_ascii_lowercase(), header.value))
        .collect();
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if headers.len() > HEADERS_MAX || bytes > HEADERS_BYTES_MAX {
        return Err(format!(
            "{} headers of {bytes} bytes; at most {HEADERS_MAX} of {HEADERS_BYTES_MAX}",
            headers.len()
        ));
    }
    for (name, value) in &headers {
        if is_own(name) {
            return Err(format!("header `{name}`: the broker sets it"));
        }
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let text = |byte: u8| matches!(byte, b'\t' | b' '..=b'~');
        if name.is_empty() || !name.bytes().all(token) || !value.bytes().all(text) {
            return Err(format!("header `{}`: not one", name.escape_default()));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> GuestRequest {
        let header = |(name, value): &(&str, &str)| GuestHeader {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        };
        GuestRequest {
            method: method.to_owned(),
            url: "https://a/".to_owned(),
            headers: headers.iter().map(header).collect(),
            body: vec![1],
        }
    }

    #[test]
    fn only_whole_requests_pass() {
        let passed = checked(vec![request("POST", &[("Content-Type", "application/json")])]).expect("whole");
        assert_eq!(
            passed[0].headers,
            [("content-type".to_owned(), "application/json".to_owned())]
        );
        for wrong in [
            request("GET", &[]),
            request("POST", &[("Host", "b")]),
            request("POST", &[("Webhook-Signature", "v1,x")]),
            request("POST", &[("a b", "x")]),
            request("POST", &[("", "x")]),
            request("POST", &[("x", "a\r\nhost: b")]),
            request("POST", &[("x", &"y".repeat(HEADERS_BYTES_MAX))]),
            request("POST", &[("x", "y"); HEADERS_MAX + 1]),
        ] {
            assert!(checked(vec![wrong]).is_err());
        }
        let many = (0..=REQUESTS_MAX).map(|_| request("POST", &[])).collect();
        assert!(checked(many).is_err());
    }

    #[test]
    fn what_is_asked_has_bounds() {
        let asked = question(request("GET", &[("Webhook-Id", "1")])).expect("whole");
        assert_eq!(asked.headers, [("webhook-id".to_owned(), "1".to_owned())]);
        let url = GuestRequest {
            url: "x".repeat(URL_BYTES_MAX + 1),
            ..request("GET", &[])
        };
        let body = GuestRequest {
            body: vec![0; BODY_BYTES_MAX + 1],
            ..request("POST", &[])
        };
        for (wrong, error) in [
            (url, HttpError::TooLarge),
            (body, HttpError::TooLarge),
            (request("get", &[]), HttpError::Failed),
            (request("", &[]), HttpError::Failed),
            (request("G T", &[]), HttpError::Failed),
            (request("GET", &[("Host", "b")]), HttpError::Failed),
            (request("GET", &[("content-length", "0")]), HttpError::Failed),
            (
                request("GET", &[("Transfer-Encoding", "chunked")]),
                HttpError::Failed,
            ),
            (request("GET", &[("x", "a\r\nhost: b")]), HttpError::Failed),
            (
                request("GET", &[("x", &"y".repeat(HEADERS_BYTES_MAX))]),
                HttpError::Failed,
            ),
        ] {
            assert_eq!(question(wrong).expect_err("refused").error, error);
        }
    }
}
