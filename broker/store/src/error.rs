//! What can go wrong with a store, and what to do about it.

use std::path::PathBuf;

/// Every message says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Synced data is missing or corrupt, and this node holds the only copy (M-8).
    #[error(
        "the data directory {directory} lost data that was acknowledged: {what}. This node is the single copy, so that \
         nothing can restore it: the newest messages and metadata changes may be lost. Restore a backup, or start once \
         with store.accept_lost_data = true"
    )]
    Damaged {
        /// The data directory.
        directory: PathBuf,
        /// What was found.
        what: String,
    },
    /// The directory belongs to another cluster.
    #[error(
        "the data directory {directory} belongs to cluster {found}, not {expected}: point node.data_dir to this \
         cluster's directory, or to an empty one, or correct cluster.name"
    )]
    ForeignCluster {
        /// The data directory.
        directory: PathBuf,
        /// The configured cluster.
        expected: String,
        /// The cluster in the identity file.
        found: String,
    },
    /// The directory belongs to another node of the cluster.
    #[error(
        "the data directory {directory} belongs to node {found}, not {expected}: two nodes must never share or swap \
         directories; point node.data_dir to this node's directory, or to an empty one, or correct node.id"
    )]
    ForeignNode {
        /// The data directory.
        directory: PathBuf,
        /// The configured node.
        expected: u16,
        /// The node in the identity file.
        found: u16,
    },
    /// The identity file cannot be understood.
    #[error(
        "the file {path} is damaged ({what}), so that it is unknown whose data this is: restore it from a backup, or \
         move the whole data directory away and let the node start as a new one"
    )]
    Identity {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Another process has the directory open.
    #[error("another process holds {path}: stop it first; two processes never share a data directory")]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// Files without an identity.
    #[error(
        "the directory {directory} is not empty and holds no identity file: it is not a data directory. Point \
         node.data_dir to an empty directory"
    )]
    NotADataDirectory {
        /// The directory.
        directory: PathBuf,
    },
    /// A newer version of the program wrote the directory.
    #[error(
        "the data directory {directory} has format {found}, this program knows up to {known}: start the newer version of \
         the program, a way back does not exist"
    )]
    NewerFormat {
        /// The data directory.
        directory: PathBuf,
        /// The format in the identity file.
        found: u32,
        /// The newest format that this program knows.
        known: u32,
    },
    /// A file of the directory could not be read or written.
    #[error("{action} {path}: {what}. Check the disk, its free space and the permissions")]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's answer.
        what: String,
    },
    /// RocksDB could not be opened, for another reason than corruption.
    #[error("opening {path}: {what}. Check the disk, its free space and the permissions")]
    Open {
        /// The instance's directory.
        path: PathBuf,
        /// RocksDB's answer.
        what: String,
    },
    /// A write, read or sync failed. The store takes nothing any more: restart the process, so that it recovers (R14).
    #[error("the store stopped: {0}. Free or replace the disk if it says so, then restart the process")]
    Poisoned(String),
}

impl Error {
    /// A failed operation on a file.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
        error: &impl std::fmt::Display,
    ) -> Error {
        Error::File {
            action,
            path: path.into(),
            what: error.to_string(),
        }
    }
}
