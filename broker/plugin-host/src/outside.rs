//! What guests reach outside of the broker: places over HTTP, and values that the operator keeps.

use bytes::Bytes;
use penstock_core::hooks::call::HttpRequest;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Why a request has no answer, as guests see it. Bounded set: a metrics label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HttpError {
    /// No grant of the binding names the method and the place, or a secret of a header.
    NotGranted,
    /// The address is not one of the outside, or the place does not speak TLS.
    Address,
    /// No answer in time.
    Timeout,
    /// The request or its answer is larger than anybody takes.
    TooLarge,
    /// The request is none, or no whole answer came.
    Failed,
}

impl HttpError {
    /// Its name, as metrics label it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            HttpError::NotGranted => "not-granted",
            HttpError::Address => "address",
            HttpError::Timeout => "timeout",
            HttpError::TooLarge => "too-large",
            HttpError::Failed => "failed",
        }
    }
}

/// Why a request has no answer, and what to say of it in the lines of the binding: nothing secret, and no path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {text}", .error.name())]
pub struct Unanswered {
    /// What the guest sees.
    pub error: HttpError,
    /// In words, for the operator.
    pub text: String,
}

impl Unanswered {
    /// With these words.
    #[must_use]
    pub fn new(error: HttpError, text: impl Into<String>) -> Unanswered {
        Unanswered {
            error,
            text: text.into(),
        }
    }
}

/// An answer over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// Its status.
    pub status: u16,
    /// Headers, names in small letters.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// What one binding may reach. Called on a thread of a guest, which waits for the answer.
pub trait Reach: Send + Sync {
    /// Makes a request within this time. It is within bounds, and what its headers name is filled in here.
    ///
    /// # Errors
    /// Why there is no answer; unless it was not granted, the request may have been taken.
    fn send(&self, request: HttpRequest, within: Duration) -> Result<HttpResponse, Unanswered>;

    /// A value that the binding may see.
    fn reveal(&self, name: &str) -> Option<Bytes>;
}

/// The way to the outside.
pub trait Outside: Send + Sync {
    /// What a binding with these grants may reach.
    ///
    /// # Errors
    /// What is wrong with them, or missing on this node, and what to do.
    fn granted(&self, grants: &BTreeSet<String>) -> Result<Arc<dyn Reach>, String>;
}

/// A host that reaches nothing, and a binding that may not.
#[derive(Clone, Copy, Debug)]
pub struct Nowhere;

impl Outside for Nowhere {
    fn granted(&self, _: &BTreeSet<String>) -> Result<Arc<dyn Reach>, String> {
        Ok(Arc::new(Nowhere))
    }
}

impl Reach for Nowhere {
    fn send(&self, _: HttpRequest, _: Duration) -> Result<HttpResponse, Unanswered> {
        let text = "a plugin reaches nothing outside from here: not in before-send and webhook, and not without a broker";
        Err(Unanswered::new(HttpError::NotGranted, text))
    }

    fn reveal(&self, _: &str) -> Option<Bytes> {
        None
    }
}
