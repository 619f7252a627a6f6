//! HTTP/1.1 by hand: one request per connection.

use crate::PATIENCE;
use anyhow::{Context, Result};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The body, or null when it is not JSON.
    pub body: Value,
    /// The body as it came.
    pub text: String,
    /// The lines before the body.
    pub head: String,
}

impl Response {
    /// The value of a header; empty when it is absent.
    #[must_use]
    pub fn header(&self, name: &str) -> &str {
        self.head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value)
    }
}

/// POSTs JSON to a path.
///
/// # Errors
/// When the connection fails or the answer is not HTTP.
pub fn post(address: &str, path: &str, body: &Value) -> Result<Response> {
    let text = body.to_string();
    request(
        address,
        &format!("POST {path} HTTP/1.1\r\nContent-Length: {}\r\n", text.len()),
        &text,
    )
}

/// POSTs JSON to a path with an API key; an empty key is not sent.
///
/// # Errors
/// When the connection fails or the answer is not HTTP.
pub fn post_with_key(address: &str, path: &str, body: &Value, key: &str) -> Result<Response> {
    let text = body.to_string();
    let key = if key.is_empty() {
        String::new()
    } else {
        format!("Authorization: Bearer {key}\r\n")
    };
    request(
        address,
        &format!("POST {path} HTTP/1.1\r\n{key}Content-Length: {}\r\n", text.len()),
        &text,
    )
}

/// GETs a path.
///
/// # Errors
/// When the connection fails or the answer is not HTTP.
pub fn get(address: &str, path: &str) -> Result<Response> {
    request(address, &format!("GET {path} HTTP/1.1\r\n"), "")
}

/// GETs a path unless its content still has this tag.
///
/// # Errors
/// When the connection fails or the answer is not HTTP.
pub fn get_unless(address: &str, path: &str, tag: &str) -> Result<Response> {
    request(
        address,
        &format!("GET {path} HTTP/1.1\r\nIf-None-Match: {tag}\r\n"),
        "",
    )
}

fn request(address: &str, head: &str, body: &str) -> Result<Response> {
    let request = format!("{head}Host: {address}\r\nConnection: close\r\n\r\n{body}");
    exchange(address, request.as_bytes())
}

/// PUTs JSON to a path.
///
/// # Errors
/// When the connection fails or the answer is not HTTP.
pub fn put(address: &str, path: &str, body: &Value) -> Result<Response> {
    let text = body.to_string();
    request(
        address,
        &format!("PUT {path} HTTP/1.1\r\nContent-Length: {}\r\n", text.len()),
        &text,
    )
}

/// DELETEs a path.
///
/// # Errors
/// When the connection fails or the answer is not HTTP.
pub fn delete(address: &str, path: &str) -> Result<Response> {
    request(address, &format!("DELETE {path} HTTP/1.1\r\n"), "")
}

/// POSTs bytes to a path.
///
/// # Errors
/// When the connection fails or the answer is not HTTP.
pub fn upload(address: &str, path: &str, bytes: &[u8]) -> Result<Response> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/wasm\r\n\
         Content-Length: {}\r\n\r\n",
        bytes.len()
    );
    exchange(address, &[head.as_bytes(), bytes].concat())
}

/// Sends a request as it is and reads the answer until the node closes.
///
/// # Errors
/// When the connection fails or the answer is not HTTP.
pub fn exchange(address: &str, request: &[u8]) -> Result<Response> {
    let mut stream = TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .context("an answer without an end of its head")?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .context("an answer without a status")?;
    Ok(Response {
        status,
        body: serde_json::from_str(body).unwrap_or(Value::Null),
        text: body.to_owned(),
        head: head.to_owned(),
    })
}
