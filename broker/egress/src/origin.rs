//! Where a request goes.

use hyper::Uri;
use std::net::IpAddr;

/// Longest URL, bytes.
const URL_BYTES_MAX: usize = 4_096;

/// Where a request goes: the parts of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Whether it is https.
    pub(crate) secure: bool,
    /// A name or an address, an IPv6 address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Path and query, as they stand in a request.
    pub(crate) path: String,
}

/// Why a text is no URL of an endpoint.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum InvalidUrl {
    /// Not one at all.
    #[error("not a URL of the form https://host/path, at most {URL_BYTES_MAX} bytes")]
    Form,
    /// Neither http nor https.
    #[error("begins neither with https:// nor with http://")]
    Scheme,
    /// A user or a password.
    #[error("carries a user or a password: endpoints verify the signature instead")]
    User,
}

impl Target {
    /// The parts of this URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(url: &str) -> Result<Target, InvalidUrl> {
        if url.len() > URL_BYTES_MAX || url.contains('#') {
            return Err(InvalidUrl::Form);
        }
        let uri: Uri = url.parse().map_err(|_| InvalidUrl::Form)?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(InvalidUrl::Scheme),
        };
        let authority = uri.authority().ok_or(InvalidUrl::Form)?;
        if authority.as_str().contains('@') {
            return Err(InvalidUrl::User);
        }
        let host = authority.host();
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = match inner {
            Some(inner) => inner
                .parse::<std::net::Ipv6Addr>()
                .map_err(|_| InvalidUrl::Form)?
                .to_string(),
            None => host.trim_end_matches('.').to_ascii_lowercase(),
        };
        let port = authority.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let has_port = authority
            .as_str()
            .rsplit_once(']')
            .map_or(authority.as_str(), |(_, rest)| rest);
        if host.is_empty() || port == 0 || (has_port.contains(':') && authority.port_u16().is_none()) {
            return Err(InvalidUrl::Form);
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Target {
            secure,
            host,
            port,
            path: path.to_owned(),
        })
    }

    /// Whether another URL is at the same place: scheme, host and port.
    #[must_use]
    pub fn is_same_place(&self, other: &Target) -> bool {
        (self.secure, &self.host, self.port) == (other.secure, &other.host, other.port)
    }

    /// Path and query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Whether the host is an address or consists of what names in DNS do.
    pub(crate) fn has_plain_host(&self) -> bool {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
        let labels = self.host.split('.').all(|label| !label.is_empty());
        self.host.parse::<IpAddr>().is_ok() || (labels && self.host.bytes().all(plain))
    }

    /// Host and port, as they stand in a request.
    pub(crate) fn authority(&self) -> String {
        let default = if self.secure { 443 } else { 80 };
        if self.port == default {
            self.bracketed()
        } else {
            self.host_and_port()
        }
    }

    /// Host and port, as they stand in a grant.
    pub(crate) fn host_and_port(&self) -> String {
        format!("{}:{}", self.bracketed(), self.port)
    }

    fn bracketed(&self) -> String {
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(address)) => format!("[{address}]"),
            _ => self.host.clone(),
        }
    }
}

/// The place, without path and query: those may hold what is not for a log.
impl std::fmt::Display for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.secure { "https" } else { "http" };
        write!(formatter, "{scheme}://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts() {
        let target = Target::parse("https://Hooks.Example.org./a/b?c=d").expect("a URL");
        assert_eq!(
            (target.secure, &*target.host, target.port, &*target.path),
            (true, "hooks.example.org", 443, "/a/b?c=d")
        );
        assert_eq!(target.to_string(), "https://hooks.example.org");
        let target = Target::parse("http://[::1]:8080").expect("a URL");
        assert_eq!((&*target.host, target.port, &*target.path), ("::1", 8_080, "/"));
        assert_eq!(target.to_string(), "http://[::1]:8080");
        assert!(target.is_same_place(&Target::parse("http://[0:0::1]:8080/x").expect("a URL")));
        assert!(!target.is_same_place(&Target::parse("https://[::1]:8080").expect("a URL")));
    }

    #[test]
    fn what_is_no_endpoint() {
        for (wrong, why) in [
            ("", InvalidUrl::Form),
            ("/a", InvalidUrl::Scheme),
            ("ftp://a/", InvalidUrl::Scheme),
            ("https://me:x@a/", InvalidUrl::User),
            ("https://a:99999/", InvalidUrl::Form),
            ("https://a:0/", InvalidUrl::Form),
            ("https://a/#b", InvalidUrl::Form),
            ("https:///a", InvalidUrl::Form),
        ] {
            assert_eq!(Target::parse(wrong), Err(why), "{wrong}");
        }
    }
}
