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
