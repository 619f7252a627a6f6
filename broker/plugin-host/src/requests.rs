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
/// Largest body of a request of a webhook, bytes: the largest message in base64 fits, with a page of recipients.
const RENDERED_BYTES_MAX: usize = 3 << 19;
/// Largest body of a request whose answer the guest waits for, bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Longest method, bytes.
const METHOD_BYTES_MAX: usize = 16;
/// So much of the name of a header is shown when it is wrong, bytes.
const NAME_BYTES_SHOWN: usize = 64;
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
        return Err(format!(
            "{} requests for one batch; at most {REQUESTS_MAX}: put several messages into one body",
            requests.len()
        ));
    }
    let numbered = requests.into_iter().enumerate();
    numbered
        .map(|(place, request)| one(request).map_err(|why| format!("request {}: {why}", place + 1)))
        .collect()
}

fn one(request: GuestRequest) -> Result<HttpRequest, String> {
    if !METHODS.contains(&request.method.as_str()) {
        let bytes = request.method.floor_char_boundary(METHOD_BYTES_MAX);
        let method = request.method[..bytes].escape_default();
        return Err(format!("method `{method}`: use one of {}", METHODS.join(", ")));
    }
    if request.url.len() > URL_BYTES_MAX {
        return Err(format!(
            "a URL of {} bytes; at most {URL_BYTES_MAX}: put what is long into the body",
            request.url.len()
        ));
    }
    if request.body.len() > RENDERED_BYTES_MAX {
        return Err(format!(
            "a body of {} bytes; at most {RENDERED_BYTES_MAX}: cut the batch into several requests",
            request.body.len()
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
            "{} headers of {bytes} bytes; at most {HEADERS_MAX} of {HEADERS_BYTES_MAX}: put what is long into the body",
            headers.len()
        ));
    }
    for (name, value) in &headers {
        let shown = name[..name.floor_char_boundary(NAME_BYTES_SHOWN)].escape_default();
        if is_own(name) {
            return Err(format!("header `{shown}`: the broker sets it, leave it out"));
        }
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let text = |byte: u8| matches!(byte, b'\t' | b' '..=b'~');
        if name.is_empty() || !name.bytes().all(token) || !value.bytes().all(text) {
            return Err(format!(
                "header `{shown}`: not one: a name has letters, digits and hyphens, a value is printable ASCII on one line"
            ));
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
    fn the_page_about_webhooks_says_the_bounds() {
        let page: Vec<&str> = include_str!("../../docs/webhooks.md")
            .split_whitespace()
            .collect();
        let said = format!(
            "at most {REQUESTS_MAX} requests, each with {} KiB of URL, {HEADERS_MAX} headers of {} KiB and a body of {}.{} MiB",
            URL_BYTES_MAX >> 10,
            HEADERS_BYTES_MAX >> 10,
            RENDERED_BYTES_MAX >> 20,
            ((RENDERED_BYTES_MAX * 10) >> 20) % 10
        );
        assert!(page.join(" ").contains(&said), "webhooks.md does not say: {said}");
    }

    #[test]
    fn only_whole_requests_pass() {
        let passed = checked(vec![request("POST", &[("Content-Type", "application/json")])]).expect("whole");
        assert_eq!(
            passed[0].headers,
            [("content-type".to_owned(), "application/json".to_owned())]
        );
        let url = GuestRequest {
            url: format!("https://a/{}", "x".repeat(1 << 20)),
            ..request("POST", &[])
        };
        let body = GuestRequest {
            body: vec![0; RENDERED_BYTES_MAX + 1],
            ..request("POST", &[])
        };
        for (wrong, said) in [
            (request("GET", &[]), "method `GET`: use one of POST"),
            (
                request("POST / HTTP/1.1\r\nhost: b", &[]),
                "method `POST / HTTP/1.1\\r`",
            ),
            (url, "a URL of 1048586 bytes; at most 4096"),
            (body, "a body of 1572865 bytes; at most 1572864"),
            (
                request("POST", &[("Host", "b")]),
                "`host`: the broker sets it, leave it out",
            ),
            (
                request("POST", &[("Webhook-Signature", "v1,x")]),
                "`webhook-signature`: the broker sets it",
            ),
            (
                request("POST", &[("WEBHOOK-ID", "x")]),
                "`webhook-id`: the broker sets it",
            ),
            (
                request("POST", &[("Content-Length", "1")]),
                "`content-length`: the broker sets it",
            ),
            (request("POST", &[("a b", "x")]), "header `a b`: not one"),
            (request("POST", &[("", "x")]), "header ``: not one"),
            (
                request("POST", &[("x\r\nhost", "b")]),
                "header `x\\r\\nhost`: not one",
            ),
            (
                request("POST", &[("x", "a\r\nhost: b")]),
                "printable ASCII on one line",
            ),
            (
                request("POST", &[("x", &"y".repeat(HEADERS_BYTES_MAX))]),
                "1 headers of 8193 bytes",
            ),
            (request("POST", &[("x", "y"); HEADERS_MAX + 1]), "33 headers of"),
        ] {
            let why = checked(vec![request("POST", &[]), wrong]).expect_err("refused");
            assert!(why.starts_with("request 2: ") && why.contains(said), "{why}");
            assert!(why.len() < 300, "{} bytes", why.len());
        }
        let many = (0..=REQUESTS_MAX).map(|_| request("POST", &[])).collect();
        let why = checked(many).expect_err("refused");
        assert!(why.contains("17 requests for one batch; at most 16"), "{why}");
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
