//! Generated from the contract, in parts: everything that the broker offers, and each exported interface. A plugin links the
//! parts that it calls or exports, and its world is what they are together. Whole worlds would not do: two of them export the
//! same interface, and the macros that export it would have the same name.

pub use crate::guest::{admitted, answered, consumed, judged, notified, rendered, started};

pub mod offers {
    wit_bindgen::generate!({
        path: "../wit/v1",
        inline: "
            package penstock:offers;
            world offers {
                import penstock:plugin/clock@1.0.0;
                import penstock:plugin/config@1.0.0;
                import penstock:plugin/http@1.0.0;
                import penstock:plugin/kv@1.0.0;
                import penstock:plugin/kv-read@1.0.0;
                import penstock:plugin/log@1.0.0;
                import penstock:plugin/messages@1.0.0;
                import penstock:plugin/metrics@1.0.0;
                import penstock:plugin/publish@1.0.0;
                import penstock:plugin/random@1.0.0;
                import penstock:plugin/secrets@1.0.0;
            }
        ",
        generate_all,
    });
}

pub mod lifecycle {
    wit_bindgen::generate!({
        path: "../wit/v1",
        inline: "
            package penstock:life;
            world life {
                export penstock:plugin/lifecycle@1.0.0;
            }
        ",
        pub_export_macro: true,
        export_macro_name: "export_lifecycle",
        default_bindings_module: "penstock_plugin_sdk::bindings::lifecycle",
    });
}

pub mod filter {
    wit_bindgen::generate!({
        path: "../wit/v1",
        inline: "
            package penstock:judge;
            world judge {
                export penstock:plugin/before-send@1.0.0;
            }
        ",
        pub_export_macro: true,
        export_macro_name: "export_filter",
        default_bindings_module: "penstock_plugin_sdk::bindings::filter",
        with: {
            "penstock:plugin/types@1.0.0": crate::bindings::offers::penstock::plugin::types,
        },
    });
}

pub mod consumer {
    wit_bindgen::generate!({
        path: "../wit/v1",
        inline: "
            package penstock:consume;
            world consume {
                export penstock:plugin/persist-after@1.0.0;
            }
        ",
        pub_export_macro: true,
        export_macro_name: "export_consumer",
        default_bindings_module: "penstock_plugin_sdk::bindings::consumer",
        with: {
            "penstock:plugin/types@1.0.0": crate::bindings::offers::penstock::plugin::types,
        },
    });
}

pub mod webhook {
    wit_bindgen::generate!({
        path: "../wit/v1",
        inline: "
            package penstock:deliver;
            world deliver {
                export penstock:plugin/webhook@1.0.0;
            }
        ",
        pub_export_macro: true,
        export_macro_name: "export_webhook",
        default_bindings_module: "penstock_plugin_sdk::bindings::webhook",
        with: {
            "penstock:plugin/types@1.0.0": crate::bindings::offers::penstock::plugin::types,
        },
    });
}

pub mod router {
    wit_bindgen::generate!({
        path: "../wit/v1",
        inline: "
            package penstock:answer;
            world answer {
                export penstock:plugin/route@1.0.0;
            }
        ",
        pub_export_macro: true,
        export_macro_name: "export_router",
        default_bindings_module: "penstock_plugin_sdk::bindings::router",
        with: {
            "penstock:plugin/types@1.0.0": crate::bindings::offers::penstock::plugin::types,
        },
    });
}

pub mod gate {
    wit_bindgen::generate!({
        path: "../wit/v1",
        inline: "
            package penstock:admit;
            world admit {
                export penstock:plugin/session@1.0.0;
            }
        ",
        pub_export_macro: true,
        export_macro_name: "export_gate",
        default_bindings_module: "penstock_plugin_sdk::bindings::gate",
    });
}

pub mod notifier {
    wit_bindgen::generate!({
        path: "../wit/v1",
        inline: "
            package penstock:notify;
            world notify {
                export penstock:plugin/offline@1.0.0;
            }
        ",
        pub_export_macro: true,
        export_macro_name: "export_notifier",
        default_bindings_module: "penstock_plugin_sdk::bindings::notifier",
        with: {
            "penstock:plugin/types@1.0.0": crate::bindings::offers::penstock::plugin::types,
        },
    });
}
