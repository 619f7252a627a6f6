//! What plugins reach outside: requests over HTTP within the grants of their binding, and values that the operator keeps for them.
//!
//! # Invariants
//! - A request is judged twice: by the allow-list of the binding, which is about its URL, and by the address that it would go to.
//! - A value leaves this part in a header of such a request, or to a guest that was granted to see it, and in no other way.

use bytes::Bytes;
use penstock_core::hooks::call::HttpRequest;
use penstock_egress::{
    AllowList, Client, Credential, Grants, Question, Reason, Resolve, Target, Tls, fill, is_credential_name,
};
use penstock_plugin_host::{HttpError, HttpResponse, Reach, Unanswered};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// What stands before the name of a value that headers may carry, and of one that the plugin may see.
const USE: &str = "secret:";
const REVEAL: &str = "reveal:";

/// The way of a node's plugins to the outside.
pub(super) struct Outside {
    client: Arc<Client>,
    secrets: BTreeMap<String, Credential>,
    runtime: Handle,
}

impl Outside {
    /// With these values. Within a tokio runtime, which makes the requests.
    pub(super) fn start(
        secrets: BTreeMap<String, Credential>,
        tls: Tls,
        resolver: Arc<dyn Resolve>,
    ) -> Outside {
        Outside {
            client: Arc::new(Client::new(tls, resolver)),
            secrets,
            runtime: Handle::current(),
        }
    }

    /// Whether grants are ones, and this node has what they name.
    pub(super) fn check(&self, grants: &BTreeSet<String>) -> Result<(), String> {
        if grants.contains("http") {
            return Err(
                "`http` says not where to: write http:METHODS URL, as in `http:GET https://api.example.org/v1`".to_owned(),
            );
        }
        self.of(grants).map(|_| ())
    }

    fn of(&self, grants: &BTreeSet<String>) -> Result<Granted, String> {
        let texts = || grants.iter().map(String::as_str);
        let allowed = AllowList::parse(texts()).map_err(|error| error.to_string())?;
        let egress = Grants::parse(texts()).map_err(|error| error.to_string())?;
        allowed.check(&egress).map_err(|trouble| trouble.text)?;
        let used = self.named(grants, USE)?;
        if let Some((name, _)) = used.iter().find(|(_, value)| !value.fits_header()) {
            return Err(format!(
                "the value of `{name}` in [plugins.secrets] fits into no header: printable ASCII on one line; a plugin that is granted \
                 `{REVEAL}{name}` sees it all the same"
            ));
        }
        Ok(Granted {
            client: Arc::clone(&self.client),
            runtime: self.runtime.clone(),
            allowed,
            egress,
            used,
            revealed: self.named(grants, REVEAL)?,
        })
    }

    /// The values that grants with this prefix name.
    fn named(&self, grants: &BTreeSet<String>, prefix: &str) -> Result<BTreeMap<String, Credential>, String> {
        let names = grants.iter().filter_map(|grant| grant.strip_prefix(prefix));
        let value = |name: &str| {
            if !is_credential_name(name) {
                return Err(format!(
                    "`{prefix}{name}`: a name of 1 to 64 letters, digits, `-`, `_` and `.`"
                ));
            }
            let value = self.secrets.get(name).cloned().ok_or_else(|| {
                format!(
                    "`{prefix}{name}`: there is no `{name}` in [plugins.secrets] of this node's configuration: add it on every node"
                )
            })?;
            Ok((name.to_owned(), value))
        };
        names.map(value).collect()
    }
}

impl std::fmt::Debug for Outside {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Outside").finish_non_exhaustive()
    }
}

impl penstock_plugin_host::Outside for Outside {
    fn granted(&self, grants: &BTreeSet<String>) -> Result<Arc<dyn Reach>, String> {
        Ok(Arc::new(self.of(grants)?))
    }
}

/// What one binding may reach.
struct Granted {
    client: Arc<Client>,
    runtime: Handle,
    allowed: AllowList,
    egress: Grants,
    used: BTreeMap<String, Credential>,
    revealed: BTreeMap<String, Credential>,
}

impl Granted {
    /// The request as it leaves, if the grants allow it.
    fn question(&self, request: HttpRequest) -> Result<Question, Unanswered> {
        let target = Target::parse(&request.url)
            .map_err(|error| Unanswered::new(HttpError::Failed, format!("the URL is none: {error}")))?;
        let not_granted = |text: String| Unanswered::new(HttpError::NotGranted, text);
        if !self.allowed.allows(&request.method, &target) {
            let method = &request.method;
            let text = format!("grant `http:{method} {target}/`, or a longer prefix of the path");
            return Err(not_granted(text));
        }
        let headers =
            fill(request.headers, &self.used).map_err(|refused| not_granted(refused.to_string()))?;
        Ok(Question {
            method: request.method,
            target,
            headers,
            body: request.body,
        })
    }
}

impl Reach for Granted {
    fn send(&self, request: HttpRequest, within: Duration) -> Result<HttpResponse, Unanswered> {
        let question = self.question(request)?;
        let asked = self
            .runtime
            .block_on(self.client.ask(&question, &self.egress, within));
        let answer = asked.map_err(unanswered)?;
        Ok(HttpResponse {
            status: answer.status,
            headers: answer.headers,
            body: answer.body,
        })
    }

    fn reveal(&self, name: &str) -> Option<Bytes> {
        let value = self.revealed.get(name)?;
        Some(Bytes::copy_from_slice(value.reveal().as_bytes()))
    }
}

fn unanswered(why: penstock_egress::Unanswered) -> Unanswered {
    let error = match &why {
        penstock_egress::Unanswered::TooLarge(_) => HttpError::TooLarge,
        penstock_egress::Unanswered::Trouble(trouble) => match trouble.reason {
            Reason::Forbidden => HttpError::Address,
            Reason::Timeout => HttpError::Timeout,
            _ => HttpError::Failed,
        },
    };
    Unanswered::new(error, why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use penstock_egress::SystemResolver;

    fn of(grants: &[&str]) -> Result<Granted, String> {
        let value = |text: &str| Credential::new(text).expect("a value");
        let outside = Outside::start(
            BTreeMap::from([
                ("a".to_owned(), value("hush-a")),
                ("b".to_owned(), value("hush-b\n")),
            ]),
            Tls::new(None).expect("trust"),
            Arc::new(SystemResolver),
        );
        let grants: BTreeSet<String> = grants.iter().map(|&grant| grant.to_owned()).collect();
        outside.check(&grants)?;
        outside.of(&grants)
    }

    fn asked(granted: &Granted, method: &str, url: &str, header: &str) -> Result<String, HttpError> {
        let question = granted.question(HttpRequest {
            method: method.to_owned(),
            url: url.to_owned(),
            headers: vec![("authorization".to_owned(), header.to_owned())],
            body: Bytes::new(),
        });
        let question = question.map_err(|unanswered| {
            assert!(!unanswered.to_string().contains("hush"), "{unanswered}");
            unanswered.error
        })?;
        Ok(question.headers[0].1.clone())
    }

    #[tokio::test]
    async fn what_this_node_cannot_do_is_refused_with_what_to_do() {
        for (grants, said) in [
            (&["http"][..], "says not where"),
            (&["http:GET nowhere"], "neither with https"),
            (&["http:GET http://example.org/"], "egress:example.org:80"),
            (&["http:GET https://10.0.0.1/"], "a private address"),
            (&["egress:x/y"], "egress:HOST"),
            (&["secret:other"], "no `other` in [plugins.secrets]"),
            (&["reveal:other"], "no `other` in [plugins.secrets]"),
            (&["secret:"], "a name of"),
            (&["secret:b"], "fits into no header"),
        ] {
            let why = of(grants).err().expect("refused");
            assert!(why.contains(said) && !why.contains("hush"), "{grants:?}: {why}");
        }
        assert!(of(&["kv", "http:GET https://example.org/", "reveal:b", "secret:a"]).is_ok());
    }

    #[tokio::test]
    async fn headers_carry_what_is_granted_and_nothing_else() {
        let granted = of(&["http:GET https://example.org/v1", "secret:a", "reveal:b"]).expect("granted");
        let get = |header: &str| asked(&granted, "GET", "https://example.org/v1/x", header);
        assert_eq!(get("Bearer secret://a").as_deref(), Ok("Bearer hush-a"));
        assert_eq!(get("Bearer secret://b"), Err(HttpError::NotGranted));
        assert_eq!(get("x, secret://a, y"), Err(HttpError::NotGranted));
        let elsewhere = |method: &str, url: &str| asked(&granted, method, url, "secret://a");
        for (method, url, error) in [
            ("POST", "https://example.org/v1/x", HttpError::NotGranted),
            ("GET", "https://example.org/v2", HttpError::NotGranted),
            ("GET", "https://example.org@evil.example/v1", HttpError::Failed),
            ("GET", "example.org/v1", HttpError::Failed),
        ] {
            assert_eq!(elsewhere(method, url), Err(error), "{method} {url}");
        }
        assert_eq!(granted.reveal("a"), None);
        assert_eq!(granted.reveal("b"), Some(Bytes::from_static(b"hush-b\n")));
    }
}
