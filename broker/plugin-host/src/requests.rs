//! Requests that a guest wants made, within bounds.

use crate::contract::GuestRequest;
use bytes::Bytes;
use penstock_core::hooks::call::HttpRequest;

/// Requests of one answer.
const REQUESTS_MAX: usize = 16;
/// Headers of one request, and bytes of all of them together.
const HEADERS_MAX: usize = 32;
const HEADERS_BYTES_MAX: usize = 8 << 10;
/// Longest URL, bytes.
const URL_BYTES_MAX: usize = 4 << 10;
/// Methods that carry a body.
const METHODS: [&str; 3] = ["POST", "PUT", "PATCH"];
/// Headers that the transport sets, or the signature.
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
const OWN_PREFIX: &str = "webhook-";

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
    let headers: Vec<(String, String)> = request
        .headers
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
        if OWN.contains(&name.as_str()) || name.starts_with(OWN_PREFIX) {
            return Err(format!("header `{name}`: the broker sets it"));
        }
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let text = |byte: u8| matches!(byte, b'\t' | b' '..=b'~');
        if name.is_empty() || !name.bytes().all(token) || !value.bytes().all(text) {
            return Err(format!("header `{}`: not one", name.escape_default()));
        }
    }
    Ok(HttpRequest {
        method: request.method,
        url: request.url,
        headers,
        body: Bytes::from(request.body),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::GuestHeader;

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
}
