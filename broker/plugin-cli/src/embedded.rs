//! The files that `penstock plugin new` writes, as the build script put them into the binary.

/// A text file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File {
    /// Within its folder, with `/` between the parts.
    pub(crate) path: &'static str,
    /// All of it.
    pub(crate) text: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/embedded.rs"));
