//! Creating groups through the HTTP API: POST /channel, and /channel/subscriber_add for what is too long for one request.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::plan::{GROUP, Group};

/// Members in one request.
const MEMBERS_PER_REQUEST: usize = 500;
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// An HTTP API.
pub(crate) struct Api {
    address: String,
    key: Option<String>,
}

impl Api {
    /// The API at `http://host:port`.
    #[must_use]
    pub(crate) fn new(url: &str, key: Option<&str>) -> Self {
        let address = url.trim_start_matches("http://").trim_end_matches('/');
        Self {
            address: address.to_owned(),
            key: key.map(str::to_owned),
        }
    }

    /// Creates a group with all its members.
    ///
    /// # Errors
    /// When the API refuses or cannot be reached.
    pub(crate) async fn create(&self, group: &Group) -> Result<()> {
        for (number, members) in group.members.chunks(MEMBERS_PER_REQUEST).enumerate() {
            let body = json!({ "channel_id": group.id, "channel_type": GROUP, "subscribers": members });
            let path = if number == 0 {
                "/channel"
            } else {
                "/channel/subscriber_add"
            };
            self.post(path, &body).await?;
        }
        Ok(())
    }

    async fn post(&self, path: &str, body: &Value) -> Result<()> {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, self.exchange(path, &body.to_string()))
            .await
            .with_context(|| format!("POST {path}: no answer in {} s", ANSWER_TIMEOUT.as_secs()))?
            .with_context(|| format!("POST {path} to {}", self.address))?;
        match status(&answer) {
            Some(200) => Ok(()),
            Some(401) => bail!("POST {path}: the API wants a key: give it with --api-key"),
            Some(status) => bail!("POST {path} was refused with {status}: {}", body_of(&answer)),
            None => bail!("POST {path}: {} does not speak HTTP", self.address),
        }
    }

    async fn exchange(&self, path: &str, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(&self.address).await?;
        let request = self.request(path, body);
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// One request for one connection. The key goes in both places where servers look for it.
    fn request(&self, path: &str, body: &str) -> String {
        let key = match &self.key {
            Some(key) => format!("Authorization: Bearer {key}\r\nToken: {key}\r\n"),
            None => String::new(),
        };
        format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{key}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        )
    }
}

fn status(answer: &str) -> Option<u16> {
    answer.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()
}

fn body_of(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_are_http() {
        let api = Api::new("http://h:1/", Some("k"));
        let request = api.request("/channel", "{}");
        assert!(request.starts_with("POST /channel HTTP/1.1\r\nHost: h:1\r\n"));
        assert!(
            request.contains("\r\nToken: k\r\n")
                && request.ends_with("Content-Length: 2\r\nConnection: close\r\n\r\n{}")
        );
        let answer = "HTTP/1.1 400 Bad Request\r\nA: b\r\n\r\n{\"msg\":\"no\"}\n";
        assert_eq!(status(answer), Some(400));
        assert_eq!(body_of(answer), "{\"msg\":\"no\"}");
        assert_eq!(status("SSH-2.0"), None);
    }
}
