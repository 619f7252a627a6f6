//! Which web pages may talk to this node (rule S9). A browser names the page in `Origin`; whatever else names none.

/// The pages that a listener serves.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Origins {
    /// Exactly these, such as `https://chat.example.org`. Empty: all, unless `loopback_only`.
    pub listed: Vec<String>,
    /// Only pages of this machine and the listed ones, and only under a host name of this machine: the listener is open
    /// to whoever reaches it, so that foreign pages must not, and a name that leads here by DNS is a foreign page too.
    pub loopback_only: bool,
}

impl Origins {
    /// Whether a request with these values of `Origin` and `Host` may go on. `None` is a header that is absent.
    #[must_use]
    pub fn admit(&self, origin: Option<&str>, host: Option<&str>) -> bool {
        if self.loopback_only && host.is_some_and(|host| !is_loopback(host)) {
            return false;
        }
        let Some(origin) = origin else { return true };
        let is_listed = self.listed.iter().any(|one| one.eq_ignore_ascii_case(origin));
        let is_local = || {
            let authority = origin
                .split_once("://")
                .filter(|(scheme, _)| ["http", "https"].contains(scheme));
            authority.is_some_and(|(_, authority)| is_loopback(authority))
        };
        match (self.loopback_only, self.listed.is_empty()) {
            (true, _) => is_listed || is_local(),
            (false, true) => true,
            (false, false) => is_listed,
        }
    }
}

/// Whether a host with an optional port names this machine, whatever DNS says.
fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    };
    host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1" || host == "[::1]"
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: Option<&str> = Some("127.0.0.1:5200");

    #[test]
    fn hosts_of_this_machine_are_few_and_exact() {
        for host in [
            "localhost",
            "LocalHost:5001",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:5001",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            ":5001",
            "localhost.example.org",
            "localhost:80@example.org",
            "127.0.0.1.example.org:5001",
            "example.org#127.0.0.1",
            "0.0.0.0:5001",
            "127.0.0.1:x",
            "::1",
            "[::1",
            "[::2]:5001",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_development_node_takes_local_pages_and_listed_ones() {
        let origins = Origins {
            listed: vec!["https://app.example.org".to_owned()],
            loopback_only: true,
        };
        assert!(origins.admit(None, None) && origins.admit(None, LOCAL));
        assert!(origins.admit(Some("http://localhost:3000"), LOCAL));
        assert!(origins.admit(Some("https://app.example.org"), LOCAL));
        assert!(!origins.admit(Some("https://evil.example.org"), LOCAL));
        for origin in [
            "null",
            "",
            "file://",
            "ftp://localhost",
            "http://localhost.example.org",
        ] {
            assert!(!origins.admit(Some(origin), LOCAL), "{origin}");
        }
        // The name leads here by DNS, and the page came from it.
        assert!(!origins.admit(
            Some("http://rebound.example.org:5200"),
            Some("rebound.example.org:5200")
        ));
        assert!(!origins.admit(None, Some("rebound.example.org:5200")));
    }

    #[test]
    fn a_production_node_takes_every_page_or_the_listed_ones() {
        assert!(Origins::default().admit(Some("https://a.example.org"), Some("chat.example.org")));
        let origins = Origins {
            listed: vec!["https://a.example.org".to_owned()],
            loopback_only: false,
        };
        assert!(origins.admit(Some("https://A.example.org"), Some("chat.example.org")));
        assert!(origins.admit(None, Some("chat.example.org")));
        for origin in [
            "https://a.example.org:8443",
            "http://a.example.org",
            "null",
            "http://localhost",
        ] {
            assert!(!origins.admit(Some(origin), None), "{origin}");
        }
    }
}
