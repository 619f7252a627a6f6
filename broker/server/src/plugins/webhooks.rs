//! Webhooks: has a plugin render the requests of a window, and an endpoint take them.
//!
//! # Owns
//! An endpoint for each binding and configuration, with what its configuration says: where it is, and which secret signs.
//!
//! # Invariants
//! - Every attempt of a window has the same ids: they are made of the binding's creation, the channel, the window's bounds and the
//!   place of the request; those of users that came or went, of the slot and the number of their batch.
//! - Requests go to no other place than that of the binding's `url`, whatever the plugin renders.
//! - A delivery ends within the time of its call, and takes no thread while it waits.

mod about;

use crate::driver::Clock;
use crate::metrics::help;
use about::About;
use penstock_core::hooks::call::{Answer, Call, Failed, HttpRequest, Returned, Version};
use penstock_core::hooks::pipeline::Failure;
use penstock_core::hooks::registry::{Binding, Bound, Hook, Registry};
use penstock_egress::{
    Config, Counts, Endpoint, Grants, Leave, Reason, Request, Resolve, Secret, State, Target, Tls,
};
use penstock_plugin_host::{Host, Judge};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// Longest time for a plugin to render.
const RENDER_WITHIN: Duration = Duration::from_secs(5);
/// How long a window waits when its endpoint cannot be used at all, or when there was no connection free in time.
const UNUSABLE_PAUSE: Duration = Duration::from_secs(10);
const BUSY_PAUSE: Duration = Duration::from_secs(1);

/// Which configuration of which creation of a binding.
type Key = (Arc<str>, u64, u64);
type Reply = Box<dyn FnOnce(Returned) + Send>;

/// The part of a binding's configuration that is about delivery.
#[derive(Deserialize)]
struct Wanted {
    url: Option<String>,
    secret: Option<String>,
}

/// An endpoint of a binding.
struct Place {
    endpoint: Arc<Endpoint>,
    /// How old the first message of the last delivery that was taken was by then, ms.
    lag_ms: AtomicU64,
}

/// All endpoints of a node.
pub(super) struct Desk {
    secrets: BTreeMap<String, Vec<Secret>>,
    tls: Tls,
    resolver: Arc<dyn Resolve>,
    runtime: Handle,
    /// What cannot be used says why.
    places: Mutex<BTreeMap<Key, Result<Arc<Place>, String>>>,
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Desk").finish_non_exhaustive()
    }
}

impl Desk {
    /// No endpoints yet. Within a tokio runtime, which delivers.
    pub(super) fn start(
        secrets: BTreeMap<String, Vec<Secret>>,
        tls: Tls,
        resolver: Arc<dyn Resolve>,
    ) -> Desk {
        Desk {
            secrets,
            tls,
            resolver,
            runtime: Handle::current(),
            places: Mutex::default(),
        }
    }

    fn places(&self) -> MutexGuard<'_, BTreeMap<Key, Result<Arc<Place>, String>>> {
        // The map is whole between two statements, whatever a holder died of.
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes what the registry names, and lets go of the rest.
    pub(super) fn learn(&self, registry: &Registry) {
        let wanted: BTreeMap<Key, &Arc<Bound>> = registry
            .of(Hook::Webhook)
            .map(|bound| (key(bound), bound))
            .collect();
        let mut places = self.places();
        places.retain(|key, _| wanted.contains_key(key));
        for (key, bound) in wanted {
            if places.contains_key(&key) {
                continue;
            }
            let made = self.endpoint(&bound.binding);
            if let Err(why) = &made {
                tracing::error!(binding = &*bound.binding.id, why, "a webhook cannot be delivered");
            }
            let place = made.map(|endpoint| {
                Arc::new(Place {
                    endpoint: Arc::new(endpoint),
                    lag_ms: AtomicU64::new(0),
                })
            });
            places.insert(key, place);
        }
    }

    /// Whether a binding's endpoint could be used here.
    pub(super) fn check(&self, binding: &Binding) -> Result<(), String> {
        self.endpoint(binding).map(|_| ())
    }

    fn endpoint(&self, binding: &Binding) -> Result<Endpoint, String> {
        let wanted: Wanted = serde_json::from_slice(&binding.config)
            .map_err(|_| "config: `url` and `secret` are texts".to_owned())?;
        let url = wanted.url.filter(|url| !url.is_empty());
        let url = url.ok_or("config: `url` says where webhooks are delivered to")?;
        let target = Target::parse(&url).map_err(|error| format!("config: `url`: {error}"))?;
        let name = wanted.secret.filter(|name| !name.is_empty());
        let name = name.ok_or("config: `secret` names the entry of [webhooks.secrets] that signs")?;
        let secrets = self.secrets.get(&name).cloned().ok_or_else(|| {
            format!(
                "config: `secret`: there is no `{name}` in [webhooks.secrets] of this node's configuration"
            )
        })?;
        let grants: BTreeSet<String> = serde_json::from_slice(&binding.grants).unwrap_or_default();
        let grants =
            Grants::parse(grants.iter().map(String::as_str)).map_err(|error| format!("grants: {error}"))?;
        let endpoint = Endpoint::new(Config {
            target,
            grants,
            secrets,
            tls: self.tls.clone(),
            resolver: Arc::clone(&self.resolver),
        });
        endpoint.check().map_err(|trouble| trouble.text)?;
        Ok(endpoint)
    }

    /// Renders a window and delivers it.
    pub(super) fn call(&self, host: &Host, call: Call, reply: Reply) {
        let Some(about) = About::of(&call) else {
            return reply(Err(Failed::Call(Failure::Host)));
        };
        let key = (
            Arc::clone(&call.version.binding),
            about.binding_incarnation,
            call.version.generation,
        );
        let place = match self.places().get(&key) {
            None => return reply(Err(Failed::Call(Failure::NotReady))),
            Some(Err(_)) => {
                return reply(Err(Failed::Later {
                    after: UNUSABLE_PAUSE,
                }));
            }
            Some(Ok(place)) => Arc::clone(place),
        };
        // Before it is rendered: an endpoint that is left alone costs next to nothing.
        let leave = match place.endpoint.admit() {
            Ok(leave) => leave,
            Err(after) => return reply(Err(Failed::Later { after })),
        };
        let delivery = Delivery {
            place,
            leave,
            version: call.version.clone(),
            judge: host.judge(),
            about,
            deadline: Instant::now() + call.within,
        };
        let runtime = self.runtime.clone();
        let rendering = Call {
            within: call.within.min(RENDER_WITHIN),
            ..call
        };
        host.call(rendering, move |returned| {
            delivery.rendered(&runtime, returned, reply)
        });
    }

    /// What is to be said of a version's endpoint; null when it has none.
    pub(super) fn status(&self, version: &Version) -> Value {
        let places = self.places();
        let of_it = |(id, _, generation): &&Key| *id == version.binding && *generation == version.generation;
        let found = places.keys().find(of_it).and_then(|key| places.get(key));
        match found {
            None => Value::Null,
            Some(Err(why)) => json!({ "unusable": why }),
            Some(Ok(place)) => {
                let counts = place.endpoint.counts();
                json!({
                    "place": place.endpoint.target().to_string(),
                    "breaker": place.endpoint.state().name(),
                    "taken": counts.taken,
                    "not_taken": counts.failures.values().sum::<u64>(),
                    "waiting": counts.waiting,
                    "last_failure": counts.last_failure,
                })
            }
        }
    }

    /// Appends the series of all endpoints.
    pub(super) fn render(&self, out: &mut String) {
        let places: Vec<(Arc<str>, Arc<Place>)> = self
            .places()
            .iter()
            .filter_map(|((id, ..), place)| Some((Arc::clone(id), Arc::clone(place.as_ref().ok()?))))
            .collect();
        for (name, kind, text, value) in SERIES {
            help(out, name, kind, text);
            for (binding, place) in &places {
                // Writing to a string cannot fail, here and below.
                let _ = writeln!(
                    out,
                    "{name}{{binding=\"{binding}\"}} {}",
                    value(place, &place.endpoint.counts())
                );
            }
        }
        let name = "penstock_webhook_failures_total";
        help(
            out,
            name,
            "counter",
            "Requests that endpoints did not take, by reason.",
        );
        for (binding, place) in &places {
            let failures = place.endpoint.counts().failures;
            for reason in Reason::ALL {
                let count = failures.get(&reason).copied().unwrap_or(0);
                let reason = reason.name();
                let _ = writeln!(out, "{name}{{binding=\"{binding}\",reason=\"{reason}\"}} {count}");
            }
        }
    }
}

fn key(bound: &Bound) -> Key {
    (Arc::clone(&bound.binding.id), bound.incarnation, bound.generation)
}

/// Name, kind, help and value of a series.
type Series = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Place, &Counts) -> f64,
);

#[expect(
    clippy::cast_precision_loss,
    reason = "the format has floating point numbers only"
)]
const SERIES: [Series; 5] = [
    (
        "penstock_webhook_requests_total",
        "counter",
        "Requests that endpoints took.",
        |_, counts| counts.taken as f64,
    ),
    (
        "penstock_webhook_request_seconds_total",
        "counter",
        "Time that requests took, taken or not.",
        |_, counts| counts.seconds,
    ),
    (
        "penstock_webhook_deliveries_waiting",
        "gauge",
        "Deliveries that are under way or wait for a connection.",
        |_, counts| counts.waiting as f64,
    ),
    (
        "penstock_webhook_breaker_open",
        "gauge",
        "Whether the endpoint is left alone for a while.",
        |place, _| f64::from(u8::from(place.endpoint.state() != State::Closed)),
    ),
    (
        "penstock_webhook_lag_seconds",
        "gauge",
        "How old the first message of the last delivery was when the endpoint took it.",
        |place, _| place.lag_ms.load(Ordering::Relaxed) as f64 / 1_000.0,
    ),
];

/// A window or batch on its way.
struct Delivery {
    place: Arc<Place>,
    leave: Leave,
    version: Version,
    judge: Judge,
    about: About,
    deadline: Instant,
}

impl Delivery {
    fn done(messages: u32) -> Returned {
        Ok(Answer::Done {
            messages,
            changes: Vec::new(),
        })
    }

    /// The plugin has rendered the requests, or not.
    fn rendered(self, runtime: &Handle, returned: Returned, reply: Reply) {
        let rendered = match returned {
            Ok(Answer::Requests(rendered)) => rendered,
            Ok(_) => return reply(Err(Failed::Call(Failure::BadOutput))),
            Err(failed) => return reply(Err(failed)),
        };
        if rendered.is_empty() {
            return reply(Delivery::done(self.about.count));
        }
        match self.requests(rendered) {
            Ok(requests) => {
                let _ends_by_itself = runtime.spawn(async move { reply(self.deliver(&requests).await) });
            }
            Err(why) => {
                tracing::warn!(
                    binding = &*self.version.binding,
                    why,
                    "a plugin rendered a request that is not made"
                );
                self.judge.bad_output(&self.version, self.about.oldest_ms, &why);
                reply(Err(Failed::Call(Failure::BadOutput)));
            }
        }
    }

    fn requests(&self, rendered: Vec<HttpRequest>) -> Result<Vec<Request>, String> {
        let own = self.place.endpoint.target();
        rendered
            .into_iter()
            .enumerate()
            .map(|(ordinal, request)| {
                let place = ordinal + 1;
                let target = Target::parse(&request.url)
                    .map_err(|error| format!("request {place}: its URL is none: {error}"))?;
                if !target.is_same_place(own) {
                    return Err(format!(
                        "request {place}: it goes to {target}, and the `url` of the binding is at {own}: bind a webhook of its own to the \
                         other place"
                    ));
                }
                Ok(Request {
                    id: self.id(ordinal),
                    method: request.method,
                    path: target.path().to_owned(),
                    headers: request.headers,
                    body: request.body,
                })
            })
            .collect()
    }

    /// The same for every attempt, on whichever node; no two requests of a cluster have the same. A page of offline recipients that is
    /// looked up anew and has changed is another one.
    fn id(&self, ordinal: usize) -> String {
        let mut hash = Sha256::new();
        let mut part = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        part(self.version.binding.as_bytes());
        for bytes in self.about.parts() {
            part(&bytes);
        }
        part(&(ordinal as u64).to_be_bytes());
        let digest = hash.finalize();
        let mut id = String::from("msg_");
        for byte in &digest[..16] {
            // Writing to a string cannot fail.
            let _ = write!(id, "{byte:02x}");
        }
        id
    }

    async fn deliver(self, requests: &[Request]) -> Returned {
        let endpoint = self.place.endpoint.target().to_string();
        match self.leave.deliver(requests, self.deadline).await {
            None => Err(Failed::Later { after: BUSY_PAUSE }),
            Some(Ok(())) => {
                let lag_ms = Clock::wall_ms().saturating_sub(self.about.oldest_ms);
                self.place.lag_ms.store(lag_ms, Ordering::Relaxed);
                Delivery::done(self.about.count)
            }
            Some(Err(trouble)) => {
                let (reason, why) = (trouble.reason.name(), &trouble.text);
                let binding = &*self.version.binding;
                if trouble.reason == Reason::Gone {
                    tracing::warn!(
                        binding,
                        endpoint,
                        why,
                        "the endpoint of a webhook is gone: its binding is disabled"
                    );
                    return Err(Failed::Gone);
                }
                tracing::debug!(binding, endpoint, reason, why, "a webhook was not taken");
                Err(Failed::Undelivered { after: trouble.after })
            }
        }
    }
}
