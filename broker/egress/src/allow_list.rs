//! Which requests a plugin may make: methods, a place and a path prefix, as an operator grants them.

use crate::connection;
use crate::grants::Grants;
use crate::origin::Target;
use crate::outcome::Trouble;

/// What stands before a grant of requests.
const PREFIX: &str = "http:";
/// Methods that a grant may name.
const METHODS: [&str; 7] = ["DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"];
/// What stands for every method, and for every host.
const ANY: &str = "*";

/// The requests that grants of the form `http:METHOD[,METHOD] https://host[:port]/prefix` allow. `*` stands for every method; as a host
/// for every host, and before a name, as in `*.example.org`, for every name below it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList {
    rules: Vec<Rule>,
}

/// One grant.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// None for all.
    methods: Option<Vec<&'static str>>,
    secure: bool,
    host: Host,
    port: u16,
    /// The first segments of the path, decoded; empty for every path.
    prefix: Vec<Vec<u8>>,
}

/// Which hosts a grant is about.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Host {
    Any,
    /// Names that end so, the leading dot included.
    Below(String),
    One(String),
}

/// Why a text is no grant of requests.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{grant}`: {why}. Write http:METHODS URL, as in `http:GET,POST https://api.example.org/v1` or `http:* https://*.example.org/`"
)]
pub struct InvalidRule {
    grant: String,
    why: String,
}

impl AllowList {
    /// The grants among these texts that are about requests.
    ///
    /// # Errors
    /// The first one that begins like one and is none.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<AllowList, InvalidRule> {
        let mut rules = Vec::new();
        for text in texts {
            let Some(what) = text.strip_prefix(PREFIX) else {
                continue;
            };
            let rule = Rule::parse(what).map_err(|why| InvalidRule {
                grant: text.to_owned(),
                why,
            })?;
            rules.push(rule);
        }
        Ok(AllowList { rules })
    }

    /// Whether anything is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Whether a request with this method to this target is allowed.
    #[must_use]
    pub fn allows(&self, method: &str, target: &Target) -> bool {
        self.rules.iter().any(|rule| rule.allows(method, target))
    }

    /// Whether each rule could ever let a request through, as far as that can be said without asking anybody: https or a grant for plain
    /// HTTP, and an address that stands in the grant itself.
    ///
    /// # Errors
    /// What else to grant.
    pub fn check(&self, grants: &Grants) -> Result<(), Trouble> {
        for rule in &self.rules {
            if let Host::One(host) = &rule.host {
                let target = Target {
                    secure: rule.secure,
                    host: host.clone(),
                    port: rule.port,
                    path: "/".to_owned(),
                };
                connection::check(&target, grants)?;
            }
        }
        Ok(())
    }
}

impl Rule {
    fn parse(text: &str) -> Result<Rule, String> {
        let (methods, url) = text.split_once(' ').ok_or("no URL after the methods")?;
        let (secure, rest) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err("the URL begins neither with https:// nor with http://".to_owned()),
        };
        if url.contains(['?', '#']) {
            return Err("a prefix has no query and no fragment".to_owned());
        }
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let prefix =
            segments(path).ok_or("the path has `..`, `//`, `\\`, or an encoded one of `/`, `\\`, `%`")?;
        let (host, port) = host(secure, authority)?;
        Ok(Rule {
            methods: named(methods)?,
            secure,
            host,
            port,
            prefix,
        })
    }

    fn allows(&self, method: &str, target: &Target) -> bool {
        let methods = self.methods.as_ref();
        let named = methods.is_none_or(|methods| methods.contains(&method)) && METHODS.contains(&method);
        let host = match &self.host {
            Host::Any => true,
            Host::Below(end) => target.host.len() > end.len() && target.host.ends_with(end.as_str()),
            Host::One(host) => *host == target.host,
        };
        let place =
            host && target.has_plain_host() && (self.secure, self.port) == (target.secure, target.port);
        named && place && self.has_path(target.path())
    }

    /// Whether a path begins with the prefix, however a server may read it.
    fn has_path(&self, path: &str) -> bool {
        if self.prefix.is_empty() {
            return true;
        }
        let path = path.split_once('?').map_or(path, |(path, _)| path);
        segments(path).is_some_and(|segments| segments.starts_with(&self.prefix))
    }
}

/// The methods of a grant; none for all.
fn named(text: &str) -> Result<Option<Vec<&'static str>>, String> {
    if text == ANY {
        return Ok(None);
    }
    let known = |word: &str| {
        METHODS
            .into_iter()
            .find(|method| *method == word)
            .ok_or_else(|| format!("method `{word}`: {ANY}, or some of {}", METHODS.join(",")))
    };
    text.split(',').map(known).collect::<Result<_, _>>().map(Some)
}

/// Host and port of a grant.
fn host(secure: bool, authority: &str) -> Result<(Host, u16), String> {
    // A name in place of what no URL may have.
    const STANDIN: &str = "any.example";
    let scheme = if secure { "https" } else { "http" };
    let (wild, rest) = match authority.strip_prefix(ANY) {
        Some(rest) if rest.is_empty() || rest.starts_with([':', '.']) => (true, rest),
        Some(_) => return Err("in a host, `*` stands alone or before a dot".to_owned()),
        None => (false, authority),
    };
    let named = if wild {
        format!("{STANDIN}{rest}")
    } else {
        rest.to_owned()
    };
    let target = Target::parse(&format!("{scheme}://{named}/")).map_err(|error| error.to_string())?;
    let end = target.host.strip_prefix(STANDIN).filter(|_| wild);
    let host = match end {
        Some("") if !rest.starts_with('.') => Host::Any,
        Some("") => return Err("no name below which".to_owned()),
        Some(end) => Host::Below(end.to_owned()),
        None => Host::One(target.host.clone()),
    };
    if !target.has_plain_host() {
        return Err("not a host".to_owned());
    }
    Ok((host, target.port))
}

/// The segments of a path, decoded. None when servers read it in different ways: segments that go up or are empty, an encoded or
/// backward slash, an encoded percent sign or control character, what is no encoding.
fn segments(path: &str) -> Option<Vec<Vec<u8>>> {
    let mut raw: Vec<&str> = path.strip_prefix('/')?.split('/').collect();
    if raw.last().is_some_and(|last| last.is_empty()) {
        raw.pop();
    }
    raw.into_iter().map(segment).collect()
}

fn segment(raw: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        let byte = if byte == b'%' {
            let (high, low) = (bytes.next()?, bytes.next()?);
            let digit = |byte: u8| {
                char::from(byte)
                    .to_digit(16)
                    .and_then(|digit| u8::try_from(digit).ok())
            };
            let byte = digit(high)? << 4 | digit(low)?;
            if matches!(byte, b'/' | b'%') {
                return None;
            }
            byte
        } else {
            byte
        };
        if byte == b'\\' || byte.is_ascii_control() {
            return None;
        }
        decoded.push(byte);
    }
    // Some servers cut what follows a semicolon before they go up.
    let name = decoded.split(|byte| *byte == b';').next().unwrap_or_default();
    (!matches!(name, b"" | b"." | b"..")).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(grants: &[&str]) -> AllowList {
        AllowList::parse(grants.iter().copied()).expect("grants")
    }

    fn allows(list: &AllowList, method: &str, url: &str) -> bool {
        Target::parse(url).is_ok_and(|target| list.allows(method, &target))
    }

    const API: &str = "http:GET,POST https://api.example.org/v1/rooms";

    #[test]
    fn what_a_prefix_covers() {
        let list = list(&["kv", API, "egress:10.0.0.0/8"]);
        for (method, url) in [
            ("GET", "https://api.example.org/v1/rooms"),
            ("POST", "https://api.example.org/v1/rooms/"),
            ("GET", "https://api.example.org/v1/rooms/7?a=/../b"),
            ("GET", "https://api.example.org:443/v1/rooms/a%20b/c;d"),
            ("GET", "https://API.Example.ORG./v1/r%6foms"),
        ] {
            assert!(allows(&list, method, url), "{method} {url}");
        }
    }

    #[test]
    fn what_looks_like_a_prefix_and_is_none() {
        let list = list(&[API]);
        for (method, url) in [
            ("PUT", "https://api.example.org/v1/rooms"),
            ("get", "https://api.example.org/v1/rooms"),
            ("GET", "http://api.example.org/v1/rooms"),
            ("GET", "https://api.example.org:444/v1/rooms"),
            ("GET", "https://api.example.org:0443x/v1/rooms"),
            ("GET", "https://api.example.org.evil.example/v1/rooms"),
            ("GET", "https://evil.example/https://api.example.org/v1/rooms"),
            ("GET", "https://api.example.org@evil.example/v1/rooms"),
            ("GET", "https://me:pw@api.example.org/v1/rooms"),
            ("GET", "https://evil.example#@api.example.org/v1/rooms"),
            ("GET", "https://evil.example\\@api.example.org/v1/rooms"),
            ("GET", "https://[::ffff:10.0.0.1]/v1/rooms"),
            ("GET", "https://api.example.org/v1/roomsx"),
            ("GET", "https://api.example.org/v1"),
            ("GET", "https://api.example.org/V1/rooms"),
            ("GET", "https://api.example.org//v1/rooms"),
            ("GET", "https://api.example.org/?/v1/rooms"),
            ("GET", "https://api.example.org/v1/rooms/../users"),
            ("GET", "https://api.example.org/v1/rooms/./../users"),
            ("GET", "https://api.example.org/v1/rooms/%2e%2e/users"),
            ("GET", "https://api.example.org/v1/rooms/%2E./users"),
            ("GET", "https://api.example.org/v1/rooms/.%2e/users"),
            ("GET", "https://api.example.org/v1/rooms/%252e%252e/users"),
            ("GET", "https://api.example.org/v1/rooms%2f..%2fusers"),
            ("GET", "https://api.example.org/v1/rooms/..;/users"),
            ("GET", "https://api.example.org/v1/rooms/..%3bx/users"),
            ("GET", "https://api.example.org/v1/rooms/..%5cusers"),
            ("GET", "https://api.example.org/v1/rooms/..\\users"),
            ("GET", "https://api.example.org/v1/rooms/%00"),
            ("GET", "https://api.example.org/v1/rooms/%0d%0a"),
            ("GET", "https://api.example.org/v1/rooms/%zz"),
            ("GET", "https://api.example.org/v1/rooms/%2"),
            ("GET", "https://api.example.org/v1//rooms"),
        ] {
            assert!(!allows(&list, method, url), "{method} {url}");
        }
    }

    #[test]
    fn wild_hosts_and_methods() {
        let list = list(&["http:* https://*.example.org", "http:GET https://*:8443/"]);
        for (method, url, allowed) in [
            ("DELETE", "https://a.b.example.org/x//../%2f", true),
            ("GET", "https://example.org/", false),
            ("GET", "https://badexample.org/", false),
            ("GET", "https://.example.org/", false),
            ("CONNECT", "https://a.example.org/", false),
            ("GET", "https://other.example:8443/", true),
            ("POST", "https://other.example:8443/", false),
            ("GET", "https://other.example/", false),
        ] {
            assert_eq!(allows(&list, method, url), allowed, "{method} {url}");
        }
        assert!(AllowList::default().is_empty() && !list.is_empty());
    }

    #[test]
    fn what_is_no_grant_says_what_is_wrong() {
        for (wrong, why) in [
            ("http:", "no URL"),
            ("http:GET", "no URL"),
            ("http:https://a/", "no URL"),
            ("http:get https://a/", "method `get`"),
            ("http:GET,,PUT https://a/", "method ``"),
            ("http:GET,* https://a/", "method `*`"),
            ("http:CONNECT https://a/", "method `CONNECT`"),
            ("http:GET  https://a/", "neither"),
            ("http:GET a", "neither"),
            ("http:GET ftp://a/", "neither"),
            ("http:GET https://", "not a URL"),
            ("http:GET https://a:0/", "not a URL"),
            ("http:GET https://a:x/", "not a URL"),
            ("http:GET https://me@a/", "a user"),
            ("http:GET https://a*.example.org/", "not a"),
            ("http:GET https://*example.org/", "`*` stands alone"),
            ("http:GET https://*./", "no name"),
            ("http:GET https://a/?b", "query"),
            ("http:GET https://a/../b", "`..`"),
            ("http:GET https://a/%2e%2e", "`..`"),
            ("http:GET https://a/b%2fc", "encoded"),
            ("http:GET https://a b/", "not a URL"),
        ] {
            let said = AllowList::parse([wrong]).expect_err(wrong).to_string();
            assert!(said.contains(why) && said.contains(wrong), "{wrong}: {said}");
        }
    }

    #[test]
    fn what_could_never_be_sent_is_said() {
        let check =
            |allowed: &str, egress: &str| list(&[allowed]).check(&Grants::parse([egress]).expect("grants"));
        for (allowed, egress) in [
            ("http:GET http://127.0.0.1:8080/", "egress:127.0.0.1:8080"),
            ("http:GET https://10.0.0.1/", "egress:10.0.0.0/8"),
            ("http:GET https://example.org/", "kv"),
            ("http:GET http://*/", "kv"),
        ] {
            assert_eq!(check(allowed, egress), Ok(()), "{allowed}");
        }
        for allowed in [
            "http:GET http://example.org/",
            "http:GET https://127.0.0.1/",
            "http:GET https://[::ffff:169.254.169.254]/",
        ] {
            let trouble = check(allowed, "egress:10.0.0.0/8").expect_err(allowed);
            assert!(trouble.text.contains("grant egress:"), "{}", trouble.text);
        }
    }
}
