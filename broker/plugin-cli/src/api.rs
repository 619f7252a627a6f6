//! The client of the HTTP API: one request for one connection.

use crate::arguments::{Options, SERVER};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer may take: an upload is validated before it is answered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest answer that is read, bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Where HTTP is when no port is named.
const PORT: u16 = 80;
/// Longest name that stands in a path, bytes.
const NAME_BYTES_MAX: usize = 64;

/// What the API answered instead of doing it.
#[derive(Debug, thiserror::Error)]
#[error("{server} refused it ({status}): {message}")]
pub(crate) struct Refusal {
    /// Who.
    pub(crate) server: String,
    /// The status of HTTP.
    pub(crate) status: u16,
    /// In words.
    pub(crate) message: String,
}

/// An HTTP API.
#[derive(Clone, Debug)]
pub(crate) struct Api {
    url: String,
    address: String,
    /// What stands before every path.
    base: String,
    key: Option<String>,
}

impl Api {
    /// The broker that the options name.
    pub(crate) fn of(options: &Options) -> Result<Api> {
        Api::new(
            options.server.as_deref().unwrap_or(SERVER),
            options.api_key.as_deref(),
        )
    }

    /// The API at `http://host:port`, perhaps below a path.
    pub(crate) fn new(url: &str, key: Option<&str>) -> Result<Api> {
        ensure!(
            !url.starts_with("https://"),
            "{url}: this command speaks no TLS. Run it on the broker's machine, or through a tunnel (ssh -L), with an http:// address"
        );
        let rest = url
            .strip_prefix("http://")
            .with_context(|| format!("{url}: an address like {SERVER}"))?;
        let (host, base) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
        let plain = |text: &str| !text.bytes().any(|byte| byte.is_ascii_control() || byte == b' ');
        ensure!(!host.is_empty() && plain(rest), "{url}: an address like {SERVER}");
        ensure!(key.is_none_or(plain), "--api-key: a key has no spaces in it");
        let has_port = host
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(Api {
            url: url.to_owned(),
            address: if has_port {
                host.to_owned()
            } else {
                format!("{host}:{PORT}")
            },
            base: base.trim_end_matches('/').to_owned(),
            key: key.map(str::to_owned),
        })
    }

    /// Where it is.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        self.ask("GET", path, "application/json", b"")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.ask("POST", path, "application/json", body.to_string().as_bytes())
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Result<Value> {
        self.ask("PUT", path, "application/json", body.to_string().as_bytes())
    }

    pub(crate) fn delete(&self, path: &str) -> Result<Value> {
        self.ask("DELETE", path, "application/json", b"")
    }

    /// POSTs a component.
    pub(crate) fn upload(&self, path: &str, component: &[u8]) -> Result<Value> {
        self.ask("POST", path, "application/wasm", component)
    }

    fn ask(&self, method: &str, path: &str, kind: &str, body: &[u8]) -> Result<Value> {
        let head = self.head(method, path, kind, body.len());
        let answer = self.exchange(head.as_bytes(), body)?;
        let (status, text) =
            parts(&answer).with_context(|| format!("{}: what answers is not HTTP", self.url))?;
        if status == 200 {
            return serde_json::from_str(text)
                .with_context(|| format!("{}: the answer to {method} {path} is not JSON", self.url));
        }
        let said: Value = serde_json::from_str(text).unwrap_or_default();
        let said = said["msg"].as_str().unwrap_or_else(|| text.trim()).to_owned();
        let message = match status {
            401 => format!("{said}. Give the key with --api-key"),
            404 if said.contains("no such route") => {
                format!("{said}: it is no broker that runs plugins, or an older one than this command")
            }
            _ => said,
        };
        Err(Refusal {
            server: self.url.clone(),
            status,
            message,
        }
        .into())
    }

    /// HTTP/1.0, so that the answer comes whole and ends with its connection.
    fn head(&self, method: &str, path: &str, kind: &str, length: usize) -> String {
        let key = match &self.key {
            Some(key) => format!("Authorization: Bearer {key}\r\n"),
            None => String::new(),
        };
        format!(
            "{method} {}{path} HTTP/1.0\r\nHost: {}\r\nContent-Type: {kind}\r\n{key}Content-Length: {length}\r\n\r\n",
            self.base, self.address
        )
    }

    fn exchange(&self, head: &[u8], body: &[u8]) -> Result<String> {
        let mut stream = self.connect()?;
        let talk = |stream: &mut TcpStream| -> std::io::Result<Vec<u8>> {
            stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
            stream.set_write_timeout(Some(ANSWER_TIMEOUT))?;
            let written = stream.write_all(head).and_then(|()| stream.write_all(body));
            let mut answer = Vec::new();
            let read = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer);
            // Who refuses a long body answers and closes before all of it is written: the answer counts.
            if answer.is_empty() {
                written?;
                read?;
            }
            Ok(answer)
        };
        let answer = talk(&mut stream).with_context(|| format!("{}: the connection broke", self.url))?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    fn connect(&self) -> Result<TcpStream> {
        let addresses = self.address.to_socket_addrs();
        let addresses = addresses.with_context(|| format!("{}: there is no such host", self.url))?;
        let mut last = None;
        for address in addresses {
            match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        let why = last.map_or_else(|| "no address".to_owned(), |error| error.to_string());
        bail!(
            "{} cannot be reached: {why}. Start a broker with `penstock serve --dev`, or name one with --server URL",
            self.url
        )
    }
}

/// Status and body of an answer.
fn parts(answer: &str) -> Option<(u16, &str)> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    Some((status, body))
}

/// A name that may stand in a path as it is.
pub(crate) fn check_name(name: &str) -> Result<&str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    ensure!(
        (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(plain),
        "`{}`: a name has letters, digits, `-`, `_` and `.`, at most {NAME_BYTES_MAX}",
        name.escape_default()
    );
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn addresses_are_taken_apart() -> Result<()> {
        let api = Api::new("http://h:1/below/", Some("k"))?;
        let head = api.head("PUT", "/v1/x", "application/json", 2);
        assert!(
            head.starts_with("PUT /below/v1/x HTTP/1.0\r\nHost: h:1\r\n"),
            "{head}"
        );
        assert!(
            head.contains("\r\nAuthorization: Bearer k\r\n") && head.ends_with("Content-Length: 2\r\n\r\n")
        );
        assert_eq!(Api::new("http://h", None)?.address, "h:80");
        assert_eq!(Api::new("http://[::1]:5001", None)?.address, "[::1]:5001");
        assert_eq!(Api::new("http://[::1]", None)?.address, "[::1]:80");
        for wrong in ["https://h:1", "h:1", "http://", "http://h\r\nX: y"] {
            assert!(Api::new(wrong, None).is_err(), "{wrong}");
        }
        assert!(Api::new("http://h", Some("a\r\nb")).is_err());
        assert!(check_name("a-b_c.1").is_ok() && check_name("a/b").is_err() && check_name("").is_err());
        Ok(())
    }

    /// Answers one request with these words.
    fn answering(answer: &'static str) -> Result<(Api, std::thread::JoinHandle<String>)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let api = Api::new(&format!("http://{}", listener.local_addr()?), None)?;
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 512];
            let read = stream.read(&mut request).expect("a request");
            stream.write_all(answer.as_bytes()).expect("answered");
            String::from_utf8_lossy(&request[..read]).into_owned()
        });
        Ok((api, server))
    }

    #[test]
    fn answers_and_refusals_are_told_apart() -> Result<()> {
        let (api, server) = answering("HTTP/1.1 200 OK\r\nA: b\r\n\r\n{\"revision\":7}")?;
        assert_eq!(api.post("/v1/plugins/a/promote", &Value::Null)?["revision"], 7);
        assert!(
            server
                .join()
                .expect("no panic")
                .starts_with("POST /v1/plugins/a/promote HTTP/1.0\r\n")
        );
        let (api, server) =
            answering("HTTP/1.1 409 Conflict\r\n\r\n{\"msg\":\"a rollout is open\",\"status\":409}")?;
        let refused = api.get("/v1/plugins").expect_err("refused");
        let refusal = refused.downcast_ref::<Refusal>().expect("a refusal");
        assert_eq!(
            (refusal.status, refusal.message.as_str()),
            (409, "a rollout is open")
        );
        server.join().expect("no panic");
        let (api, server) = answering("HTTP/1.1 401 Unauthorized\r\n\r\n{\"msg\":\"no key\"}")?;
        let refused = api.get("/v1/plugins").expect_err("refused").to_string();
        assert!(
            refused.ends_with("no key. Give the key with --api-key"),
            "{refused}"
        );
        server.join().expect("no panic");
        let (api, server) = answering("SSH-2.0-x\r\n")?;
        assert!(
            api.get("/")
                .expect_err("not HTTP")
                .to_string()
                .contains("not HTTP")
        );
        server.join().expect("no panic");
        Ok(())
    }

    #[test]
    fn a_server_that_is_not_there_is_named_with_what_to_do() -> Result<()> {
        let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let refused = Api::new(&format!("http://{free}"), None)?
            .get("/")
            .expect_err("nobody is there");
        assert!(refused.to_string().contains("penstock serve --dev"), "{refused}");
        Ok(())
    }
}
