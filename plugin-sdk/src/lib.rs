#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod frame;
mod guest;
pub mod host;
#[cfg(test)]
mod tests;
mod verdict;

pub use frame::{Attributes, Batch, FrameError, Message};
pub use guest::{Consumer, Done, Failure, FailureKind, Filter, KvChange, KvOperation, KvValue};
pub use verdict::{Rewrite, Verdict, Verdicts};

/// What the macros of this crate need; not for plugins.
#[doc(hidden)]
#[allow(missing_docs, reason = "generated from the contract, which has the docs")]
pub mod bindings {
    pub use crate::guest::{consumed, judged, started};

    pub mod filter {
        wit_bindgen::generate!({
            path: "../wit/v1",
            world: "filter",
            pub_export_macro: true,
            export_macro_name: "export_filter",
            default_bindings_module: "penstock_plugin_sdk::bindings::filter",
        });
    }

    pub mod consumer {
        wit_bindgen::generate!({
            path: "../wit/v1",
            world: "consumer",
            pub_export_macro: true,
            export_macro_name: "export_consumer",
            default_bindings_module: "penstock_plugin_sdk::bindings::consumer",
            with: {
                "penstock:plugin/clock@1.0.0": crate::bindings::filter::penstock::plugin::clock,
                "penstock:plugin/config@1.0.0": crate::bindings::filter::penstock::plugin::config,
                "penstock:plugin/log@1.0.0": crate::bindings::filter::penstock::plugin::log,
                "penstock:plugin/metrics@1.0.0": crate::bindings::filter::penstock::plugin::metrics,
                "penstock:plugin/random@1.0.0": crate::bindings::filter::penstock::plugin::random,
            },
        });
    }
}
