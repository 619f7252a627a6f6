//! Why a component is not taken.

use crate::manifest::MANIFEST_SECTION;
use penstock_core::hooks::call::Digest;

/// Why a component is not taken, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The bytes are no WebAssembly.
    #[error("not WebAssembly: {0}. Upload the component that `penstock plugin build` makes")]
    NotWasm(String),
    /// A core module that does not say what it imports and exports.
    #[error(
        "a core module without component metadata: {0}. Build it with the SDK, which embeds the metadata, or encode it with \
         `wasm-tools component new`"
    )]
    CoreModule(String),
    /// Larger than any component may be.
    #[error(
        "{found} bytes; a component has at most {max}. Build with optimisation and without debug information"
    )]
    TooLarge {
        /// Its size, bytes.
        found: usize,
        /// The limit, bytes.
        max: usize,
    },
    /// It imports what no plugin gets.
    #[error("imports `{import}`, {reason}")]
    Import {
        /// The import, with its version.
        import: String,
        /// Why it is not there, and what to do.
        reason: String,
    },
    /// It exports nothing that the broker calls, or with another type.
    #[error("export `{export}`: {reason}")]
    Export {
        /// The export.
        export: String,
        /// What is wrong.
        reason: String,
    },
    /// Its manifest is missing or wrong.
    #[error("manifest (custom section `{MANIFEST_SECTION}`): {0}")]
    Manifest(String),
    /// It asks for more than it was granted.
    #[error(
        "asks for `{capability}`, which the binding does not grant: add it to `grants`, or use a version that does without"
    )]
    NotGranted {
        /// The capability.
        capability: String,
    },
    /// Its grants are not what they should be, or this node lacks what they name.
    #[error("grants: {0}")]
    Grants(String),
    /// What was read is not what was asked for.
    #[error("the component's SHA-256 is {found}, but {wanted} was asked for: upload it again")]
    Digest {
        /// Of the bytes.
        found: Digest,
        /// Asked for.
        wanted: Digest,
    },
    /// The compiler refused it, or did not end in time.
    #[error("compiling failed: {0}")]
    Compile(String),
    /// It could not be started.
    #[error("starting it failed: {0}")]
    Start(String),
    /// Its `init` refused the configuration.
    #[error("`init` refused the configuration: {0}")]
    Init(String),
    /// The broker could not do its part.
    #[error("{0}")]
    Io(String),
}
