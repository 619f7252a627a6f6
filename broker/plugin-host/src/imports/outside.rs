//! `http` and `secrets`. The thread of the guest waits for the answers, so that their time counts as the guest's.

use super::{State, interface};
use crate::contract::{GuestHeader, GuestRequest, GuestResponse};
use crate::outside::{HttpError, HttpResponse, Unanswered};
use crate::requests;
use std::time::{Duration, Instant};
use wasmtime::StoreContextMut;
use wasmtime::component::{ComponentType, Linker, Lower};

/// Longest wait for one answer.
const WITHIN: Duration = Duration::from_secs(5);

/// Why a request has no answer, as guests see it.
#[derive(Clone, Copy, ComponentType, Lower)]
#[component(enum)]
#[repr(u8)]
enum Error {
    #[component(name = "not-granted")]
    NotGranted,
    #[component(name = "address")]
    Address,
    #[component(name = "timeout")]
    Timeout,
    #[component(name = "too-large")]
    TooLarge,
    #[component(name = "failed")]
    Failed,
}

impl From<HttpError> for Error {
    fn from(error: HttpError) -> Error {
        match error {
            HttpError::NotGranted => Error::NotGranted,
            HttpError::Address => Error::Address,
            HttpError::Timeout => Error::Timeout,
            HttpError::TooLarge => Error::TooLarge,
            HttpError::Failed => Error::Failed,
        }
    }
}

impl State {
    fn ask(&self, request: GuestRequest) -> Result<HttpResponse, Unanswered> {
        let request = requests::question(request)?;
        let left = self.until.saturating_duration_since(Instant::now()).min(WITHIN);
        self.reach.send(request, left)
    }

    fn send(&self, request: GuestRequest) -> Result<GuestResponse, Error> {
        let began = Instant::now();
        let answered = self.ask(request);
        let outcome = match &answered {
            Ok(response) => status_class(response.status),
            Err(unanswered) => unanswered.error.name(),
        };
        self.board.count(|status| {
            let took = began.elapsed().as_secs_f64();
            status.http_s += took;
            status.host_s += took;
            *status.http_requests.entry(outcome).or_default() += 1;
        });
        answered.map(response).map_err(|unanswered| {
            self.board.log("warn", self.now_ms, format!("http: {unanswered}"));
            Error::from(unanswered.error)
        })
    }

    fn reveal(&self, name: &str) -> Option<Vec<u8>> {
        let found = self.reach.reveal(name);
        let (level, text) = match found {
            Some(_) => ("info", format!("secrets: {name} was revealed")),
            // A name that is none may hold anything.
            None => (
                "warn",
                "secrets: a name was asked for that is not granted: grant reveal:NAME".to_owned(),
            ),
        };
        self.board.log(level, self.now_ms, text);
        if found.is_some() {
            self.board.count(|status| status.secrets_revealed += 1);
        }
        found.map(|value| value.to_vec())
    }
}

/// What an answer counts as.
const fn status_class(status: u16) -> &'static str {
    match status {
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        500..=599 => "5xx",
        _ => "other",
    }
}

fn response(response: HttpResponse) -> GuestResponse {
    let headers = response.headers.into_iter();
    GuestResponse {
        status: response.status,
        headers: headers.map(|(name, value)| GuestHeader { name, value }).collect(),
        body: response.body.to_vec(),
    }
}

/// Requests.
pub(super) fn link_http(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.instance(&interface("http"))?.func_wrap(
        "send",
        |store: StoreContextMut<'_, State>, (request,): (GuestRequest,)| Ok((store.data().send(request),)),
    )
}

/// Values.
pub(super) fn link_secrets(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    linker.instance(&interface("secrets"))?.func_wrap(
        "reveal",
        |store: StoreContextMut<'_, State>, (name,): (String,)| Ok((store.data().reveal(&name),)),
    )
}
