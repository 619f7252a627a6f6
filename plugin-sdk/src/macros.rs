//! What makes a component of a type, one macro for each hook.

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

/// What every component has: its manifest, one plugin of the type, which `init` makes by the first of these traits, and its hooks.
#[doc(hidden)]
#[macro_export]
macro_rules! component {
    ($plugin:ty, $first:ident $hook:ident $(, $more:ident $other:ident)*) => {
        $crate::manifest!();

        const _: fn(&str) -> Result<$plugin, String> = <$plugin as $crate::$first>::new;
        $(const _: fn(&str) -> Result<$plugin, String> = <$plugin as $crate::$more>::new;)*

        #[cfg(target_family = "wasm")]
        const _: () = {
            struct Component;

            std::thread_local! {
                static PLUGIN: std::cell::RefCell<Option<$plugin>> = const { std::cell::RefCell::new(None) };
            }

            /// The plugin of this instance at work.
            fn with<Answer>(work: impl FnOnce(&mut $plugin) -> Answer) -> Answer {
                PLUGIN.with_borrow_mut(|plugin| work(plugin.as_mut().expect("init comes before every call")))
            }

            impl $crate::bindings::lifecycle::exports::penstock::plugin::lifecycle::Guest for Component {
                fn init(config: String) -> Result<(), String> {
                    let plugin = $crate::bindings::started(<$plugin as $crate::$first>::new, &config)?;
                    PLUGIN.set(Some(plugin));
                    Ok(())
                }
            }

            $crate::bindings::lifecycle::export_lifecycle!(Component with_types_in $crate::bindings::lifecycle);
            $crate::hook!($hook);
            $($crate::hook!($other);)*
        };
    };
}

/// How a component answers a hook, within [`component!`](crate::component).
#[doc(hidden)]
#[macro_export]
macro_rules! hook {
    (filter) => {
        impl $crate::bindings::filter::exports::penstock::plugin::before_send::Guest for Component {
            fn handle(arena: Vec<u8>, index: Vec<u32>) -> (Vec<u8>, Vec<u32>) {
                with(|plugin| $crate::bindings::judged(plugin, &arena, &index))
            }
        }

        $crate::bindings::filter::export_filter!(Component with_types_in $crate::bindings::filter);
    };
    (consumer) => {
        impl $crate::bindings::consumer::exports::penstock::plugin::persist_after::Guest for Component {
            fn handle(arena: Vec<u8>, index: Vec<u32>) -> Result<$crate::Done, $crate::Failure> {
                with(|plugin| $crate::bindings::consumed(plugin, &arena, &index))
            }
        }

        $crate::bindings::consumer::export_consumer!(Component with_types_in $crate::bindings::consumer);
    };
    (notifier) => {
        impl $crate::bindings::notifier::exports::penstock::plugin::offline::Guest for Component {
            fn handle(arena: Vec<u8>, index: Vec<u32>, uids: Vec<String>) -> Result<u32, $crate::Failure> {
                with(|plugin| $crate::bindings::notified(plugin, (&arena, &index), &uids))
            }
        }

        $crate::bindings::notifier::export_notifier!(Component with_types_in $crate::bindings::notifier);
    };
    (gate) => {
        impl $crate::bindings::gate::exports::penstock::plugin::session::Guest for Component {
            fn connect(request: $crate::ConnectRequest) -> Result<$crate::Acceptance, $crate::Denial> {
                with(|plugin| $crate::bindings::admitted(plugin, request))
            }
        }

        $crate::bindings::gate::export_gate!(Component with_types_in $crate::bindings::gate);
    };
    (router) => {
        impl $crate::bindings::router::exports::penstock::plugin::route::Guest for Component {
            fn handle(request: $crate::HttpRequest) -> $crate::HttpResponse {
                with(|plugin| $crate::bindings::answered(plugin, request))
            }
        }

        $crate::bindings::router::export_router!(Component with_types_in $crate::bindings::router);
    };
    (webhook) => {
        impl $crate::bindings::webhook::exports::penstock::plugin::webhook::Guest for Component {
            fn render(
                event: $crate::Event,
                arena: Vec<u8>,
                index: Vec<u32>,
                uids: Vec<String>,
            ) -> Result<Vec<$crate::HttpRequest>, $crate::Failure> {
                with(|plugin| $crate::bindings::rendered(plugin, event, (&arena, &index), &uids))
            }
        }

        $crate::bindings::webhook::export_webhook!(Component with_types_in $crate::bindings::webhook);
    };
}

/// Makes a component of a [`Filter`], with the `plugin.toml` beside the plugin's `Cargo.toml`. Outside of WebAssembly it only
/// checks that the type is a filter.
#[macro_export]
macro_rules! filter {
    ($plugin:ty) => {
        $crate::component!($plugin, Filter filter);
    };
}

/// Makes a component of a [`Consumer`], with the `plugin.toml` beside the plugin's `Cargo.toml`. Outside of WebAssembly it
/// only checks that the type is a consumer.
#[macro_export]
macro_rules! consumer {
    ($plugin:ty) => {
        $crate::component!($plugin, Consumer consumer);
    };
}

/// Makes a component of a [`Notifier`], with the `plugin.toml` beside the plugin's `Cargo.toml`. Outside of WebAssembly it only
/// checks that the type is a notifier.
#[macro_export]
macro_rules! notifier {
    ($plugin:ty) => {
        $crate::component!($plugin, Notifier notifier);
    };
}

/// Makes a component of a [`Gate`], with the `plugin.toml` beside the plugin's `Cargo.toml`. Outside of WebAssembly it
/// only checks that the type is a gate.
#[macro_export]
macro_rules! gate {
    ($plugin:ty) => {
        $crate::component!($plugin, Gate gate);
    };
}

/// Makes a component of a [`Webhook`], with the `plugin.toml` beside the plugin's `Cargo.toml`. Outside of WebAssembly it only
/// checks that the type is a webhook.
#[macro_export]
macro_rules! webhook {
    ($plugin:ty) => {
        $crate::component!($plugin, Webhook webhook);
    };
}

/// Makes a component of a [`Router`], with the `plugin.toml` beside the plugin's `Cargo.toml`. Outside of WebAssembly it only
/// checks that the type is a router.
#[macro_export]
macro_rules! router {
    ($plugin:ty) => {
        $crate::component!($plugin, Router router);
    };
}

/// Makes a component of a type that is a [`Consumer`] and a [`Router`], which two bindings run: each has instances of its own, and what
/// one of them learns reaches the other through the keys of the plugin.
#[macro_export]
macro_rules! consumer_and_router {
    ($plugin:ty) => {
        $crate::component!($plugin, Consumer consumer, Router router);
    };
}

/// Makes a component of a type that is a [`Filter`] and a [`Consumer`], which two bindings run: each has instances of its own, and what
/// one of them learns reaches the other through the keys of the plugin.
#[macro_export]
macro_rules! filter_and_consumer {
    ($plugin:ty) => {
        $crate::component!($plugin, Filter filter, Consumer consumer);
    };
}
