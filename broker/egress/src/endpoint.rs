//! One endpoint: its secrets, connections, breaker, queue and counts.

use crate::breaker::{Breaker, State};
use crate::connection::{self, Connection, Tls};
use crate::grants::Grants;
use crate::origin::Target;
use crate::outcome::{Reason, Trouble};
use crate::pool::Pool;
use crate::resolve::Resolve;
use crate::secret::Secret;
use crate::sign::signature;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::Semaphore;

/// Requests to one endpoint at a time, each over a connection of its own.
const CONNECTIONS_MAX: usize = 8;
/// Deliveries that are under way or wait.
const WAITING_MAX: usize = 64;
/// What is waited when there is no room.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// What an endpoint is made of.
pub struct Config {
    /// Where requests go; their path is their own.
    pub target: Target,
    /// What the operator allows beyond the rules.
    pub grants: Grants,
    /// What requests are signed with, each with all of them; at least one.
    pub secrets: Vec<Secret>,
    /// Whom to trust.
    pub tls: Tls,
    /// Who knows the addresses of names.
    pub resolver: Arc<dyn Resolve>,
}

/// One request. Every attempt of it has the same id.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its name, which receivers know repetitions by; without a dot.
    pub id: String,
    /// POST, PUT or PATCH.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers besides those of the transport and the signature.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Bytes,
}

/// What an endpoint has done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Requests that were taken.
    pub taken: u64,
    /// Those that were not, by reason.
    pub failures: BTreeMap<Reason, u64>,
    /// Time that requests took, taken or not, s.
    pub seconds: f64,
    /// The last failure, in words.
    pub last_failure: Option<String>,
    /// Deliveries under way or waiting.
    pub waiting: usize,
}

/// One endpoint.
pub struct Endpoint {
    config: Config,
    permits: Semaphore,
    waiting: AtomicUsize,
    breaker: Mutex<Breaker>,
    pool: Pool,
    counts: Mutex<Counts>,
}

/// Leave for one delivery. It ends as taken or failed, or as untried when it is dropped.
#[derive(Debug)]
pub struct Leave {
    endpoint: Arc<Endpoint>,
    told: bool,
}

impl Leave {
    /// Sends requests one after the other, until one is not taken or the time is up. None was sent when there was no connection for
    /// the first of them in time: then the answer is none.
    pub async fn deliver(mut self, requests: &[Request], deadline: Instant) -> Option<Result<(), Trouble>> {
        let endpoint = Arc::clone(&self.endpoint);
        let at = tokio::time::Instant::from_std(deadline);
        let Ok(Ok(_permit)) = tokio::time::timeout_at(at, endpoint.permits.acquire()).await else {
            return None;
        };
        for request in requests {
            let began = Instant::now();
            let sent = tokio::time::timeout_at(at, endpoint.send(request)).await;
            let sent = sent.unwrap_or_else(|_| {
                let text = format!("{} gave no answer in time", endpoint.config.target);
                Err(Trouble::new(Reason::Timeout, text))
            });
            endpoint.count(&sent, began.elapsed());
            if let Err(trouble) = sent {
                self.told = true;
                lock(&endpoint.breaker).failed(Instant::now(), trouble.after);
                return Some(Err(trouble));
            }
        }
        self.told = true;
        lock(&endpoint.breaker).taken();
        Some(Ok(()))
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        self.endpoint.waiting.fetch_sub(1, Ordering::AcqRel);
        if !self.told {
            lock(&self.endpoint.breaker).untried();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is inside is whole between two statements, whatever a holder died of.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Endpoint {
    /// An endpoint that nothing was sent to yet.
    #[must_use]
    pub fn new(config: Config) -> Endpoint {
        Endpoint {
            config,
            permits: Semaphore::new(CONNECTIONS_MAX),
            waiting: AtomicUsize::new(0),
            breaker: Mutex::default(),
            pool: Pool::default(),
            counts: Mutex::default(),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.config.target
    }

    /// Whether the rules allow it, as far as that can be said without asking anybody: https or a grant, and an address that stands
    /// in the URL itself.
    ///
    /// # Errors
    /// Why not, and what to grant.
    pub fn check(&self) -> Result<(), Trouble> {
        connection::check(&self.config.target, &self.config.grants)
    }

    /// Whether it gets requests.
    #[must_use]
    pub fn state(&self) -> State {
        lock(&self.breaker).state(Instant::now())
    }

    /// What it has done.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            waiting: self.waiting.load(Ordering::Acquire),
            ..lock(&self.counts).clone()
        }
    }

    /// Leave for one delivery, as long as there is room and the breaker allows it.
    ///
    /// # Errors
    /// How long to wait.
    pub fn admit(self: &Arc<Endpoint>) -> Result<Leave, Duration> {
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= WAITING_MAX {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return Err(FULL_PAUSE);
        }
        let admitted = lock(&self.breaker).admit(Instant::now());
        if let Err(pause) = admitted {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return Err(pause);
        }
        Ok(Leave {
            endpoint: Arc::clone(self),
            told: false,
        })
    }

    fn count(&self, sent: &Result<(), Trouble>, took: Duration) {
        let mut counts = lock(&self.counts);
        counts.seconds += took.as_secs_f64();
        match sent {
            Ok(()) => counts.taken += 1,
            Err(trouble) => {
                *counts.failures.entry(trouble.reason).or_default() += 1;
                counts.last_failure = Some(trouble.text.clone());
            }
        }
    }

    async fn send(&self, request: &Request) -> Result<(), Trouble> {
        // A connection that was kept may have been closed by the other side just now: then a fresh one is tried.
        if let Some(idle) = self.pool.take(|_| true)
            && let Ok(answer) = self.send_over(idle, request).await
        {
            return answer;
        }
        let config = &self.config;
        let addresses = connection::judged(&*config.resolver, &config.target, &config.grants).await?;
        let connection = connection::connect(&config.tls, &config.target, &addresses, &config.grants).await?;
        self.send_over(connection, request).await?
    }

    async fn send_over(
        &self,
        mut connection: Connection,
        request: &Request,
    ) -> Result<Result<(), Trouble>, Trouble> {
        let now_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now_s = now_s.map_or(0, |since| since.as_secs());
        let signed = signature(&self.config.secrets, &request.id, now_s, &request.body);
        let sender = &mut connection.sender;
        let answered = connection::send(sender, &self.config.target, request, &signed, now_s).await?;
        if answered.reusable {
            self.pool.keep(connection, CONNECTIONS_MAX);
        }
        Ok(answered.taken)
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Endpoint")
            .field("target", &self.config.target.to_string())
            .finish_non_exhaustive()
    }
}
