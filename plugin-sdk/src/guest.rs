//! The traits that a plugin implements, and the macros that make a component of it.

use crate::frame::{Batch, Message};
use crate::host;
use crate::verdict::{Verdict, Verdicts};
use std::time::Duration;

pub use crate::bindings::consumer::exports::penstock::plugin::persist_after::Done;
pub use crate::bindings::gate::exports::penstock::plugin::session::{Acceptance, ConnectRequest, Denial};
pub use crate::bindings::offers::penstock::plugin::types::{
    Failure, FailureKind, Header, HttpRequest, KvChange, KvOperation, KvValue,
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

/// Answers a call of `connect`.
///
/// # Errors
/// The plugin's refusal.
pub fn admitted(gate: &mut impl Gate, request: ConnectRequest) -> Result<Acceptance, Denial> {
    gate.connect(request)
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

/// Embeds the `plugin.toml` beside the `Cargo.toml` of the plugin.
#[doc(hidden)]
#[macro_export]
macro_rules! manifest {
    () => {
        #[cfg(target_family = "wasm")]
        #[unsafe(link_section = "penstock:manifest")]
        #[used]
        static PENSTOCK_MANIFEST: [u8; include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/plugin.toml"))
            .len()] = *include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/plugin.toml"));
    };
}

/// Makes a component of a [`Filter`], with the `plugin.toml` beside the plugin's `Cargo.toml`. Outside of WebAssembly it only
/// checks that the type is a filter.
#[macro_export]
macro_rules! filter {
    ($plugin:ty) => {
        $crate::manifest!();

        const _: fn(&str) -> Result<$plugin, String> = <$plugin as $crate::Filter>::new;

        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            std::thread_local! {
                static PLUGIN: std::cell::RefCell<Option<$plugin>> = const { std::cell::RefCell::new(None) };
            }

            impl $crate::bindings::lifecycle::exports::penstock::plugin::lifecycle::Guest for Component {
                fn init(config: String) -> Result<(), String> {
                    let plugin = $crate::bindings::started(<$plugin as $crate::Filter>::new, &config)?;
                    PLUGIN.set(Some(plugin));
                    Ok(())
                }
            }

            impl $crate::bindings::filter::exports::penstock::plugin::before_send::Guest for Component {
                fn handle(arena: Vec<u8>, index: Vec<u32>) -> (Vec<u8>, Vec<u32>) {
                    PLUGIN.with_borrow_mut(|plugin| {
                        let plugin = plugin.as_mut().expect("init comes before every call");
                        $crate::bindings::judged(plugin, &arena, &index)
                    })
                }
            }

            $crate::bindings::lifecycle::export_lifecycle!(Component with_types_in $crate::bindings::lifecycle);
            $crate::bindings::filter::export_filter!(Component with_types_in $crate::bindings::filter);
        };
    };
}

/// Makes a component of a [`Consumer`], with the `plugin.toml` beside the plugin's `Cargo.toml`. Outside of WebAssembly it
/// only checks that the type is a consumer.
#[macro_export]
macro_rules! consumer {
    ($plugin:ty) => {
        $crate::manifest!();

        const _: fn(&str) -> Result<$plugin, String> = <$plugin as $crate::Consumer>::new;

        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            std::thread_local! {
                static PLUGIN: std::cell::RefCell<Option<$plugin>> = const { std::cell::RefCell::new(None) };
            }

            impl $crate::bindings::lifecycle::exports::penstock::plugin::lifecycle::Guest for Component {
                fn init(config: String) -> Result<(), String> {
                    let plugin = $crate::bindings::started(<$plugin as $crate::Consumer>::new, &config)?;
                    PLUGIN.set(Some(plugin));
                    Ok(())
                }
            }

            impl $crate::bindings::consumer::exports::penstock::plugin::persist_after::Guest for Component {
                fn handle(arena: Vec<u8>, index: Vec<u32>) -> Result<$crate::Done, $crate::Failure> {
                    PLUGIN.with_borrow_mut(|plugin| {
                        let plugin = plugin.as_mut().expect("init comes before every call");
                        $crate::bindings::consumed(plugin, &arena, &index)
                    })
                }
            }

            $crate::bindings::lifecycle::export_lifecycle!(Component with_types_in $crate::bindings::lifecycle);
            $crate::bindings::consumer::export_consumer!(Component with_types_in $crate::bindings::consumer);
        };
    };
}

/// Makes a component of a [`Gate`], with the `plugin.toml` beside the plugin's `Cargo.toml`. Outside of WebAssembly it
/// only checks that the type is a gate.
#[macro_export]
macro_rules! gate {
    ($plugin:ty) => {
        $crate::manifest!();

        const _: fn(&str) -> Result<$plugin, String> = <$plugin as $crate::Gate>::new;

        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            std::thread_local! {
                static PLUGIN: std::cell::RefCell<Option<$plugin>> = const { std::cell::RefCell::new(None) };
            }

            impl $crate::bindings::lifecycle::exports::penstock::plugin::lifecycle::Guest for Component {
                fn init(config: String) -> Result<(), String> {
                    let plugin = $crate::bindings::started(<$plugin as $crate::Gate>::new, &config)?;
                    PLUGIN.set(Some(plugin));
                    Ok(())
                }
            }

            impl $crate::bindings::gate::exports::penstock::plugin::session::Guest for Component {
                fn connect(request: $crate::ConnectRequest) -> Result<$crate::Acceptance, $crate::Denial> {
                    PLUGIN.with_borrow_mut(|plugin| {
                        let plugin = plugin.as_mut().expect("init comes before every call");
                        $crate::bindings::admitted(plugin, request)
                    })
                }
            }

            $crate::bindings::lifecycle::export_lifecycle!(Component with_types_in $crate::bindings::lifecycle);
            $crate::bindings::gate::export_gate!(Component with_types_in $crate::bindings::gate);
        };
    };
}

/// Makes a component of a [`Webhook`], with the `plugin.toml` beside the plugin's `Cargo.toml`. Outside of WebAssembly it only
/// checks that the type is a webhook.
#[macro_export]
macro_rules! webhook {
    ($plugin:ty) => {
        $crate::manifest!();

        const _: fn(&str) -> Result<$plugin, String> = <$plugin as $crate::Webhook>::new;

        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            std::thread_local! {
                static PLUGIN: std::cell::RefCell<Option<$plugin>> = const { std::cell::RefCell::new(None) };
            }

            impl $crate::bindings::lifecycle::exports::penstock::plugin::lifecycle::Guest for Component {
                fn init(config: String) -> Result<(), String> {
                    let plugin = $crate::bindings::started(<$plugin as $crate::Webhook>::new, &config)?;
                    PLUGIN.set(Some(plugin));
                    Ok(())
                }
            }

            impl $crate::bindings::webhook::exports::penstock::plugin::webhook::Guest for Component {
                fn render(
                    event: $crate::Event,
                    arena: Vec<u8>,
                    index: Vec<u32>,
                    uids: Vec<String>,
                ) -> Result<Vec<$crate::HttpRequest>, $crate::Failure> {
                    PLUGIN.with_borrow_mut(|plugin| {
                        let plugin = plugin.as_mut().expect("init comes before every call");
                        $crate::bindings::rendered(plugin, event, (&arena, &index), &uids)
                    })
                }
            }

            $crate::bindings::lifecycle::export_lifecycle!(Component with_types_in $crate::bindings::lifecycle);
            $crate::bindings::webhook::export_webhook!(Component with_types_in $crate::bindings::webhook);
        };
    };
}

/// Makes a component of a type that is a [`Filter`] and a [`Consumer`], which two bindings run: each has instances of its own, and what
/// one of them learns reaches the other through the keys of the plugin.
#[macro_export]
macro_rules! filter_and_consumer {
    ($plugin:ty) => {
        $crate::manifest!();

        const _: fn(&str) -> Result<$plugin, String> = <$plugin as $crate::Filter>::new;
        const _: fn(&str) -> Result<$plugin, String> = <$plugin as $crate::Consumer>::new;

        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            std::thread_local! {
                static PLUGIN: std::cell::RefCell<Option<$plugin>> = const { std::cell::RefCell::new(None) };
            }

            impl $crate::bindings::lifecycle::exports::penstock::plugin::lifecycle::Guest for Component {
                fn init(config: String) -> Result<(), String> {
                    let plugin = $crate::bindings::started(<$plugin as $crate::Filter>::new, &config)?;
                    PLUGIN.set(Some(plugin));
                    Ok(())
                }
            }

            impl $crate::bindings::filter::exports::penstock::plugin::before_send::Guest for Component {
                fn handle(arena: Vec<u8>, index: Vec<u32>) -> (Vec<u8>, Vec<u32>) {
                    PLUGIN.with_borrow_mut(|plugin| {
                        let plugin = plugin.as_mut().expect("init comes before every call");
                        $crate::bindings::judged(plugin, &arena, &index)
                    })
                }
            }

            impl $crate::bindings::consumer::exports::penstock::plugin::persist_after::Guest for Component {
                fn handle(arena: Vec<u8>, index: Vec<u32>) -> Result<$crate::Done, $crate::Failure> {
                    PLUGIN.with_borrow_mut(|plugin| {
                        let plugin = plugin.as_mut().expect("init comes before every call");
                        $crate::bindings::consumed(plugin, &arena, &index)
                    })
                }
            }

            $crate::bindings::lifecycle::export_lifecycle!(Component with_types_in $crate::bindings::lifecycle);
            $crate::bindings::filter::export_filter!(Component with_types_in $crate::bindings::filter);
            $crate::bindings::consumer::export_consumer!(Component with_types_in $crate::bindings::consumer);
        };
    };
}
