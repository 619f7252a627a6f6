//! Requests over HTTP that a guest answers, and its answers, within bounds.

use crate::contract::{GuestHeader, GuestRequest, GuestResponse};
use crate::requests;
use bytes::Bytes;
use penstock_core::hooks::call::{HttpRequest, HttpResponse};
use std::ops::RangeInclusive;

/// What a guest may say of a request: that it is answered.
const STATUSES: RangeInclusive<u16> = 200..=599;
/// Largest body of an answer, bytes.
const BODY_BYTES_MAX: usize = 1 << 20;
/// Headers that concern the connection (RFC 9110, section 7.6.1), or that the broker knows better.
const OWN: [&str; 10] = [
    "connection",
    "content-length",
    "date",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A request as a record.
pub(crate) fn request(request: &HttpRequest) -> GuestRequest {
    let header = |(name, value): &(String, String)| GuestHeader {
        name: name.clone(),
        value: value.clone(),
    };
    GuestRequest {
        method: request.method.clone(),
        url: request.url.clone(),
        headers: request.headers.iter().map(header).collect(),
        body: request.body.to_vec(),
    }
}

/// The answer, if it is one.
///
/// # Errors
/// Why it is none.
pub(crate) fn checked(found: GuestResponse) -> Result<HttpResponse, String> {
    let (least, most) = (STATUSES.start(), STATUSES.end());
    if !STATUSES.contains(&found.status) {
        return Err(format!("status {}: from {least} to {most}", found.status));
    }
    if found.body.len() > BODY_BYTES_MAX {
        return Err(format!(
            "a body of {} bytes; at most {BODY_BYTES_MAX}",
            found.body.len()
        ));
    }
    Ok(HttpResponse {
        status: found.status,
        headers: requests::headers(found.headers, |name| OWN.contains(&name))?,
        body: Bytes::from(found.body),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, headers: &[(&str, &str)], bytes: usize) -> GuestResponse {
        let header = |(name, value): &(&str, &str)| GuestHeader {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
        };
        GuestResponse {
            status,
            headers: headers.iter().map(header).collect(),
            body: vec![1; bytes],
        }
    }

    #[test]
    fn only_whole_answers_pass() {
        let passed =
            checked(response(404, &[("Content-Type", "text/plain")], BODY_BYTES_MAX)).expect("whole");
        assert_eq!(
            passed.headers,
            [("content-type".to_owned(), "text/plain".to_owned())]
        );
        for wrong in [
            response(0, &[], 0),
            response(101, &[], 0),
            response(600, &[], 0),
            response(200, &[], BODY_BYTES_MAX + 1),
            response(200, &[("Content-Length", "1")], 0),
            response(200, &[("transfer-encoding", "chunked")], 0),
            response(200, &[("Connection", "upgrade")], 0),
            response(200, &[("x", "a\r\nset-cookie: b")], 0),
            response(200, &[("a b", "x")], 0),
            response(200, &[("x", "\u{e9}")], 0),
            response(200, &[("x", "y"); 33], 0),
        ] {
            assert!(checked(wrong).is_err());
        }
    }
}
