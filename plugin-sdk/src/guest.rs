//! The traits that a plugin implements, and the macros that make a component of it.

use crate::frame::{Batch, Message};
use crate::host;
use crate::verdict::{Verdict, Verdicts};
use std::time::Duration;

pub use crate::bindings::consumer::exports::penstock::plugin::persist_after::Done;
pub use crate::bindings::gate::exports::penstock::plugin::session::{Acceptance, ConnectRequest, Denial};
pub use crate::bindings::offers::penstock::plugin::types::{
    Failure, FailureKind, Header, HttpRequest, HttpResponse, KvChange, KvOperation, KvValue,
};
pub use crate::bindings::webhook::exports::penstock::plugin::webhook::Event;

/// Judges messages before they are stored. Give the type to [`filter!`](crate::filter).
pub trait Filter: Sized + 'static {
    /// Made once for each instance, of the configuration of the binding: JSON text.
    ///
    /// # Errors
    /// When the configuration is wrong; the text is shown to the operator.
    fn new(config: &str) -> Result<Self, String>;

    /// The verdict on a message that somebody wants to send.
    fn before_send(&mut self, message: Message<'_>) -> Verdict;
}

/// Works on committed messages. Give the type to [`consumer!`](crate::consumer).
pub trait Consumer: Sized + 'static {
    /// Made once for each instance, of the configuration of the binding: JSON text.
    ///
    /// # Errors
    /// When the configuration is wrong; the text is shown to the operator.
    fn new(config: &str) -> Result<Self, String>;

    /// Works on a batch of one channel, which comes in order and at least once.
    ///
    /// # Errors
    /// When nothing of the batch was done, and what the broker does about it.
    fn persist_after(&mut self, batch: &Batch<'_>) -> Result<Done, Failure>;
}

/// Says who may connect, and as whom. Give the type to [`gate!`](crate::gate).
///
/// ```
/// use penstock_plugin_sdk::{Acceptance, ConnectRequest, Denial, Gate};
///
/// /// Lets nobody in who is on a list, and tells the filters what everybody else pays.
/// struct Club {
///     banned: Vec<String>,
/// }
///
/// impl Gate for Club {
///     fn new(config: &str) -> Result<Self, String> {
///         let banned = config.split_whitespace().map(str::to_owned).collect();
///         Ok(Self { banned })
///     }
///
///     fn connect(&mut self, request: ConnectRequest) -> Result<Acceptance, Denial> {
///         if self.banned.contains(&request.uid) {
///             return Err(Denial { code: 19, text: "you are banned".to_owned() });
///         }
///         let plan = if request.token.starts_with("paid-") { "paid" } else { "free" };
///         Ok(Acceptance {
///             uid: request.uid,
///             level: 0,
///             attributes: vec![("plan".to_owned(), plan.to_owned())],
///         })
///     }
/// }
///
/// let mut club = Club::new("eve")?;
/// let request = |uid: &str| ConnectRequest {
///     uid: uid.to_owned(),
///     token: "paid-7".to_owned(),
///     device_id: String::new(),
///     device_flag: 1,
///     address: "192.0.2.7".to_owned(),
/// };
/// let accepted = club.connect(request("ann")).map_err(|denial| denial.text)?;
/// assert_eq!(accepted.attributes, [("plan".to_owned(), "paid".to_owned())]);
/// assert_eq!(club.connect(request("eve")).map(|_| ()).unwrap_err().code, 19);
/// # Ok::<(), String>(())
/// ```
pub trait Gate: Sized + 'static {
    /// Made once for each instance, of the configuration of the binding: JSON text.
    ///
    /// # Errors
    /// When the configuration is wrong; the text is shown to the operator.
    fn new(config: &str) -> Result<Self, String>;

    /// The decision on somebody whose token the broker has checked. The client waits for it.
    ///
    /// # Errors
    /// When the session is refused: with which code, and words for clients that have room for them.
    fn connect(&mut self, request: ConnectRequest) -> Result<Acceptance, Denial>;
}

/// Takes note of the recipients of a committed message who are offline. Give the type to [`notifier!`](crate::notifier).
///
/// ```
/// use penstock_plugin_sdk::{Failure, Message, Notifier, host};
///
/// /// Says in the log whose phone should ring, a few at a time.
/// struct Bell {
///     at_once: usize,
/// }
///
/// impl Notifier for Bell {
///     fn new(config: &str) -> Result<Self, String> {
///         let at_once = config.trim().parse().map_err(|_| "config: how many at once".to_owned())?;
///         Ok(Self { at_once })
///     }
///
///     fn offline(&mut self, message: Message<'_>, uids: &[String]) -> Result<usize, Failure> {
///         // What is left of the page comes again, before the next page.
///         let now = uids.len().min(self.at_once);
///         for uid in &uids[..now] {
///             host::info(&format!("{} for {uid}", message.event_id()));
///         }
///         Ok(now)
///     }
/// }
///
/// penstock_plugin_sdk::notifier!(Bell);
/// # fn main() {
/// assert_eq!(Bell::new("2").map(|bell| bell.at_once), Ok(2));
/// # }
/// ```
pub trait Notifier: Sized + 'static {
    /// Made once for each instance, of the configuration of the binding: JSON text.
    ///
    /// # Errors
    /// When the configuration is wrong; the text is shown to the operator.
    fn new(config: &str) -> Result<Self, String>;

    /// Takes note of a page of the offline recipients of a message, ascending by uid; a large group has several pages. Messages of a
    /// channel come in order, and each page at least once. The answer is how many of the leading uids are done.
    ///
    /// # Errors
    /// When nothing of the page was done, and what the broker does about it.
    fn offline(&mut self, message: Message<'_>, uids: &[String]) -> Result<usize, Failure>;
}

/// Turns events into requests, which the broker signs and delivers. Give the type to [`webhook!`](crate::webhook).
///
/// ```
/// use penstock_plugin_sdk::{Batch, Event, Failure, FailureKind, Header, HttpRequest, Webhook};
///
/// /// Sends one line of text for each message.
/// struct Lines {
///     url: String,
/// }
///
/// impl Webhook for Lines {
///     fn new(config: &str) -> Result<Self, String> {
///         // A real plugin reads JSON with serde_json.
///         let url = config.split('"').find(|part| part.starts_with("https://"));
///         Ok(Self { url: url.unwrap_or_default().to_owned() })
///     }
///
///     fn render(&mut self, event: Event, batch: &Batch<'_>, _uids: &[String]) -> Result<Vec<HttpRequest>, Failure> {
///         if event != Event::MessageNotify {
///             // Nothing to deliver: the event is done.
///             return Ok(Vec::new());
///         }
///         if self.url.is_empty() {
///             let message = "config: give a url".to_owned();
///             return Err(Failure { kind: FailureKind::Retry, after_ms: 60_000, message });
///         }
///         let lines = batch.messages().map(|message| format!("{} writes\n", message.sender()));
///         Ok(vec![HttpRequest {
///             method: "POST".to_owned(),
///             url: self.url.clone(),
///             headers: vec![Header { name: "content-type".to_owned(), value: "text/plain".to_owned() }],
///             body: lines.collect::<String>().into_bytes(),
///         }])
///     }
/// }
///
/// penstock_plugin_sdk::webhook!(Lines);
/// # fn main() {
/// let lines = Lines::new(r#"{"url":"https://hooks.example/lines"}"#).unwrap();
/// assert_eq!(lines.url, "https://hooks.example/lines");
/// # }
/// ```
pub trait Webhook: Sized + 'static {
    /// Made once for each instance, of the configuration of the binding: JSON text.
    ///
    /// # Errors
    /// When the configuration is wrong; the text is shown to the operator.
    fn new(config: &str) -> Result<Self, String>;

    /// The requests for a batch of one event, in the order in which they are delivered. The same batch comes again when a delivery
    /// failed, and must give the same requests: a receiver knows them by their ids, which are the same then.
    ///
    /// # Errors
    /// When there are none, and what the broker does about it.
    fn render(
        &mut self,
        event: Event,
        batch: &Batch<'_>,
        uids: &[String],
    ) -> Result<Vec<HttpRequest>, Failure>;
}

/// Answers requests over HTTP below `/plugins/NAME`. Give the type to [`router!`](crate::router).
///
/// ```
/// use penstock_plugin_sdk::{HttpRequest, HttpResponse, Router};
///
/// /// Greets whoever asks.
/// struct Greeter {
///     greeting: String,
/// }
///
/// impl Router for Greeter {
///     fn new(config: &str) -> Result<Self, String> {
///         // A real plugin reads JSON with serde_json.
///         Ok(Self { greeting: config.to_owned() })
///     }
///
///     fn handle(&mut self, request: HttpRequest) -> HttpResponse {
///         match (request.method.as_str(), request.path()) {
///             ("GET", "/") => HttpResponse::text(200, self.greeting.clone()),
///             ("POST", "/echo") => HttpResponse::new(200, request.body).with("content-type", "text/plain"),
///             _ => HttpResponse::text(404, "GET / or POST /echo"),
///         }
///     }
/// }
///
/// penstock_plugin_sdk::router!(Greeter);
/// # fn main() {
/// let mut greeter = Greeter::new("hello").unwrap();
/// let request = |method: &str, url: &str| HttpRequest {
///     method: method.to_owned(),
///     url: url.to_owned(),
///     headers: Vec::new(),
///     body: b"again".to_vec(),
/// };
/// assert_eq!(greeter.handle(request("GET", "/?from=doc")).body, b"hello");
/// assert_eq!(greeter.handle(request("POST", "/echo")).body, b"again");
/// assert_eq!(greeter.handle(request("GET", "/other")).status, 404);
/// # }
/// ```
pub trait Router: Sized + 'static {
    /// Made once for each instance, of the configuration of the binding: JSON text.
    ///
    /// # Errors
    /// When the configuration is wrong; the text is shown to the operator.
    fn new(config: &str) -> Result<Self, String>;

    /// The answer to a request, whose url is the path below the plugin's own with its query. Whoever asked waits for it.
    fn handle(&mut self, request: HttpRequest) -> HttpResponse;
}

impl HttpRequest {
    /// The path, without the query.
    #[must_use]
    pub fn path(&self) -> &str {
        self.url.split_once('?').map_or(&self.url, |(path, _)| path)
    }

    /// The query, without its `?`; empty when there is none.
    #[must_use]
    pub fn query(&self) -> &str {
        self.url.split_once('?').map_or("", |(_, query)| query)
    }

    /// The first value of a header, whose name is in any letters.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut named = self
            .headers
            .iter()
            .filter(|header| header.name.eq_ignore_ascii_case(name));
        named.next().map(|header| header.value.as_str())
    }
}

impl HttpResponse {
    /// An answer of this status and body.
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> HttpResponse {
        HttpResponse {
            status,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// An answer of plain text.
    pub fn text(status: u16, text: impl Into<String>) -> HttpResponse {
        HttpResponse::new(status, text.into()).with("content-type", "text/plain; charset=utf-8")
    }

    /// An answer of JSON, given as its text.
    pub fn json(status: u16, json: impl Into<String>) -> HttpResponse {
        HttpResponse::new(status, json.into()).with("content-type", "application/json")
    }

    /// The same with a header more.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> HttpResponse {
        self.headers.push(Header {
            name: name.to_owned(),
            value: value.to_owned(),
        });
        self
    }
}

impl Done {
    /// The first so many messages of a batch are done, and change no keys.
    #[must_use]
    pub fn messages(count: usize) -> Done {
        Done {
            messages: place(count),
            changes: Vec::new(),
        }
    }

    /// All messages of the batch are done, and change no keys.
    #[must_use]
    pub fn all(batch: &Batch<'_>) -> Done {
        Done::messages(batch.len())
    }

    /// The same with changes of keys, which the messages cause that are done. They are made once for each message, however often it is
    /// handed out. The binding grants `kv`.
    #[must_use]
    pub fn with(self, changes: Vec<KvChange>) -> Done {
        Done { changes, ..self }
    }
}

impl KvChange {
    /// Gives a key a value because of the message at this place of the batch, counted from 0.
    pub fn set(message: usize, key: impl Into<String>, value: impl Into<Vec<u8>>) -> KvChange {
        KvChange::set_for(message, key, value, Duration::ZERO)
    }

    /// The same for a time; zero keeps it.
    pub fn set_for(
        message: usize,
        key: impl Into<String>,
        value: impl Into<Vec<u8>>,
        life: Duration,
    ) -> KvChange {
        KvChange {
            message: place(message),
            key: key.into(),
            change: KvOperation::Set(KvValue {
                value: value.into(),
                ttl_ms: u64::try_from(life.as_millis()).unwrap_or(u64::MAX),
            }),
        }
    }

    /// Adds to the number of a key. For several messages together, name the last of them.
    pub fn increment(message: usize, key: impl Into<String>, by: i64) -> KvChange {
        KvChange {
            message: place(message),
            key: key.into(),
            change: KvOperation::Increment(by),
        }
    }

    /// Removes a key.
    pub fn delete(message: usize, key: impl Into<String>) -> KvChange {
        KvChange {
            message: place(message),
            key: key.into(),
            change: KvOperation::Delete,
        }
    }
}

impl host::publish::Message {
    /// An answer in the channel of a message, which stands at this place of the batch, counted from 0. In a person channel both of
    /// its two see it.
    pub fn answer(
        place: usize,
        message: &Message<'_>,
        payload: impl Into<Vec<u8>>,
    ) -> host::publish::Message {
        let (id, kind) = (message.channel_id(), message.channel_kind());
        host::publish::Message::to(place, (id, u8::try_from(kind).unwrap_or(0)), payload)
    }

    /// A message to another channel, by its canonical id and type, because of the message at this place of the batch. To a uid in
    /// place of the id of a person channel the plugin writes in a conversation of its own.
    pub fn to(place: usize, (id, kind): (&str, u8), payload: impl Into<Vec<u8>>) -> host::publish::Message {
        host::publish::Message {
            cause: self::place(place),
            channel_id: id.to_owned(),
            channel_kind: kind,
            payload: payload.into(),
            topic: String::new(),
            expire_seconds: 0,
        }
    }
}

/// A place of a batch, of which a guest has less than 4 GiB.
fn place(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// Begins an instance: from now on a panic is a line of the log before it ends the instance.
///
/// # Errors
/// What the plugin says against its configuration.
pub fn started<T>(make: impl FnOnce(&str) -> Result<T, String>, config: &str) -> Result<T, String> {
    std::panic::set_hook(Box::new(|panic| host::error(&panic.to_string())));
    make(config)
}

/// Answers a call of `before-send`.
///
/// # Panics
/// When the frame is not whole.
pub fn judged(filter: &mut impl Filter, arena: &[u8], index: &[u32]) -> (Vec<u8>, Vec<u32>) {
    let batch = Batch::parse(arena, index).unwrap_or_else(|error| panic!("{error}"));
    let mut verdicts = Verdicts::new();
    for message in batch.messages() {
        verdicts.push(&filter.before_send(message));
    }
    verdicts.finish()
}

/// Answers a call of `persist-after`.
///
/// # Errors
/// What the plugin says.
///
/// # Panics
/// When the frame is not whole.
pub fn consumed(consumer: &mut impl Consumer, arena: &[u8], index: &[u32]) -> Result<Done, Failure> {
    let batch = Batch::parse(arena, index).unwrap_or_else(|error| panic!("{error}"));
    consumer.persist_after(&batch)
}

/// Answers a call of `offline`.
///
/// # Errors
/// What the plugin says.
///
/// # Panics
/// When the frame is not that of one message.
pub fn notified(
    notifier: &mut impl Notifier,
    (arena, index): (&[u8], &[u32]),
    uids: &[String],
) -> Result<u32, Failure> {
    let batch = Batch::parse(arena, index).unwrap_or_else(|error| panic!("{error}"));
    let message = batch.messages().next().expect("a page is of one message");
    notifier.offline(message, uids).map(place)
}

/// Answers a call of `connect`.
///
/// # Errors
/// The plugin's refusal.
pub fn admitted(gate: &mut impl Gate, request: ConnectRequest) -> Result<Acceptance, Denial> {
    gate.connect(request)
}

/// Answers a call of `route`.
pub fn answered(router: &mut impl Router, request: HttpRequest) -> HttpResponse {
    router.handle(request)
}

/// Answers a call of `webhook`.
///
/// # Errors
/// What the plugin says.
///
/// # Panics
/// When the frame is not whole.
pub fn rendered(
    webhook: &mut impl Webhook,
    event: Event,
    (arena, index): (&[u8], &[u32]),
    uids: &[String],
) -> Result<Vec<HttpRequest>, Failure> {
    let batch = Batch::parse(arena, index).unwrap_or_else(|error| panic!("{error}"));
    webhook.render(event, &batch, uids)
}
