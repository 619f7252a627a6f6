//! Requests whose answers are read: what plugins ask of places outside.

use crate::connection::{self, Connection, Tls};
use crate::grants::Grants;
use crate::origin::Target;
use crate::outcome::{Reason, Trouble};
use crate::pool::Pool;
use crate::resolve::Resolve;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::CONTENT_LENGTH;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Largest body of an answer, bytes.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Requests to one place at a time, each over a connection of its own.
const CONNECTIONS_MAX: usize = 8;
/// So long a connection may take to have room for another request once an answer is read.
const READY_WITHIN: Duration = Duration::from_millis(100);
/// Places whose idle connections are kept.
const PLACES_MAX: usize = 64;
/// Methods that change nothing, so that a request may be sent twice.
const SAFE: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// A request whose answer is read.
#[derive(Clone)]
pub struct Question {
    /// The method, in capitals.
    pub method: String,
    /// Where it goes.
    pub target: Target,
    /// Headers besides those of the transport.
    pub headers: Vec<(String, String)>,
    /// The body; may be empty.
    pub body: Bytes,
}

/// Without headers and body, which may hold secrets.
impl std::fmt::Debug for Question {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}", self.method, self.target)
    }
}

/// What came back, whatever its status. Redirects are not followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers, names in small letters. What is not UTF-8 in a value is replaced.
    pub headers: Vec<(String, String)>,
    /// The body, [`ANSWER_BYTES_MAX`] at most.
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// The request was not sent, or nothing whole came back.
    #[error("{}", .0.text)]
    Trouble(Trouble),
    /// The body of the answer is larger than anybody reads.
    #[error("{0} answered more than {ANSWER_BYTES_MAX} bytes")]
    TooLarge(Target),
}

impl From<Trouble> for Unanswered {
    fn from(trouble: Trouble) -> Unanswered {
        Unanswered::Trouble(trouble)
    }
}

/// Why a connection brought no answer, and whether the request may be sent again over another one.
struct Broken {
    why: Unanswered,
    again: bool,
}

/// A place: scheme, host and port.
type Place = (bool, String, u16);

/// What all requests to one place share.
struct Lane {
    permits: Semaphore,
    pool: Pool,
}

/// Makes requests for all plugins of a node.
pub struct Client {
    tls: Tls,
    resolver: Arc<dyn Resolve>,
    lanes: Mutex<BTreeMap<Place, Arc<Lane>>>,
}

impl Client {
    /// One that trusts these, and asks this one for the addresses of names.
    #[must_use]
    pub fn new(tls: Tls, resolver: Arc<dyn Resolve>) -> Client {
        Client {
            tls,
            resolver,
            lanes: Mutex::default(),
        }
    }

    /// Sends a request to where the rules and these grants let it go, and reads the answer, all within this time.
    ///
    /// # Errors
    /// Why there is none. The request may have been taken all the same, unless its reason is [`Reason::Forbidden`].
    pub async fn ask(
        &self,
        question: &Question,
        grants: &Grants,
        within: Duration,
    ) -> Result<Answer, Unanswered> {
        let asked = tokio::time::timeout(within, self.asked(question, grants)).await;
        asked.unwrap_or_else(|_| {
            let text = format!("{} gave no answer in time", question.target);
            Err(Trouble::new(Reason::Timeout, text).into())
        })
    }

    async fn asked(&self, question: &Question, grants: &Grants) -> Result<Answer, Unanswered> {
        let target = &question.target;
        connection::check(target, grants)?;
        let lane = self.lane(target);
        let Ok(_permit) = lane.permits.acquire().await else {
            // Nobody closes it.
            return Err(Trouble::new(Reason::Connect, "no connection is left").into());
        };
        // Grants of others do not count: what one may reach over a connection that is kept is judged again.
        if let Some(idle) = lane.pool.take(|idle| idle.may_reach(target, grants)) {
            match lane.ask_over(idle, question).await {
                Ok(answer) => return Ok(answer),
                Err(broken) if !broken.again => return Err(broken.why),
                // The other side may have closed it just now.
                Err(_) => {}
            }
        }
        let addresses = connection::judged(&*self.resolver, target, grants).await?;
        let fresh = connection::connect(&self.tls, target, &addresses, grants).await?;
        lane.ask_over(fresh, question).await.map_err(|broken| broken.why)
    }

    fn lane(&self, target: &Target) -> Arc<Lane> {
        // The map is whole between two statements, whatever a holder died of.
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let place = (target.secure, target.host.clone(), target.port);
        if lanes.len() >= PLACES_MAX && !lanes.contains_key(&place) {
            // Those that are in use stay: there are no more of them than threads that ask.
            lanes.retain(|_, lane| Arc::strong_count(lane) > 1);
        }
        let lane = lanes.entry(place).or_insert_with(|| {
            Arc::new(Lane {
                permits: Semaphore::new(CONNECTIONS_MAX),
                pool: Pool::default(),
            })
        });
        Arc::clone(lane)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Lane {
    async fn ask_over(&self, mut connection: Connection, question: &Question) -> Result<Answer, Broken> {
        let answer = exchange(&mut connection, question).await?;
        // What is read is answered, whatever becomes of the connection.
        let ready = tokio::time::timeout(READY_WITHIN, connection.sender.ready()).await;
        if ready.is_ok_and(|ready| ready.is_ok()) {
            self.pool.keep(connection, CONNECTIONS_MAX);
        }
        Ok(answer)
    }
}

async fn exchange(connection: &mut Connection, question: &Question) -> Result<Answer, Broken> {
    let last = |why: Unanswered| Broken { why, again: false };
    let request = request(question).map_err(|trouble| last(trouble.into()))?;
    let response = match connection.sender.try_send_request(request).await {
        Ok(response) => response,
        Err(mut failed) => {
            let unsent = failed.take_message().is_some();
            return Err(Broken {
                why: connection::protocol(&failed.into_error()).into(),
                again: unsent || SAFE.contains(&question.method.as_str()),
            });
        }
    };
    let (head, body) = response.into_parts();
    let headers = head.headers.iter().map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    });
    Ok(Answer {
        status: head.status.as_u16(),
        headers: headers.collect(),
        body: whole(body, &question.target).await.map_err(last)?,
    })
}

fn request(question: &Question) -> Result<hyper::Request<Full<Bytes>>, Trouble> {
    let mut builder = connection::begin(&question.target, &question.method, question.target.path());
    if !question.body.is_empty() || !SAFE.contains(&question.method.as_str()) {
        builder = builder.header(CONTENT_LENGTH, question.body.len());
    }
    connection::complete(builder, &question.headers, &question.body)
}

/// The whole of a body, within the bound.
async fn whole(mut body: Incoming, target: &Target) -> Result<Bytes, Unanswered> {
    let mut read = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| connection::protocol(&error))?;
        let Some(bytes) = frame.data_ref() else { continue };
        if read.len() + bytes.len() > ANSWER_BYTES_MAX {
            return Err(Unanswered::TooLarge(target.clone()));
        }
        read.extend_from_slice(bytes);
    }
    Ok(read.freeze())
}
