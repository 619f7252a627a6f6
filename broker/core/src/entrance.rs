//! Who wants to open a session, and what the gates make of it: values that sessions, gates and the plugin host share.

use crate::client::Secret;
use crate::message::{Attributes, Refusal};
use crate::types::{DeviceFlag, DeviceLevel, Uid};
use penstock_wire::channel_id::check_uid;
use std::sync::Arc;

/// Most bytes that the attributes of a session may have, names and values together.
pub const ATTRIBUTES_BYTES_MAX: usize = 4 << 10;

/// Who wants to connect, as a gate sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The user: as the client says and its token proves, or as the gate before said.
    pub uid: Uid,
    /// What the client showed.
    pub token: Secret,
    /// Device id.
    pub device_id: Arc<str>,
    /// Device flag.
    pub flag: DeviceFlag,
    /// Address of the client, without its port; empty when it is not known.
    pub address: Arc<str>,
}

/// What a gate accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acceptance {
    /// The user that the session belongs to.
    pub uid: Uid,
    /// Device level.
    pub level: DeviceLevel,
    /// Names and values, kept with the session.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
}

impl Acceptance {
    /// Why it is none, if so.
    #[must_use]
    pub fn flaw(&self) -> Option<String> {
        if let Err(error) = check_uid(self.uid.as_str()) {
            return Some(format!("its uid is none: {error}"));
        }
        let found = attributes_bytes(&self.attributes);
        (found > ATTRIBUTES_BYTES_MAX)
            .then(|| format!("its attributes have {found} bytes, at most {ATTRIBUTES_BYTES_MAX} are kept"))
    }
}

/// What a gate answers.
pub type Decision = Result<Acceptance, Refusal>;

/// Whether an answer is one.
#[must_use]
pub fn is_whole(decision: &Decision) -> bool {
    decision
        .as_ref()
        .map_or(true, |acceptance| acceptance.flaw().is_none())
}

/// A session that may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Whose it is.
    pub uid: Uid,
    /// Device level.
    pub level: DeviceLevel,
    /// What the gates know of it.
    pub attributes: Option<Attributes>,
}

/// Bytes of names and values together.
pub(crate) fn attributes_bytes(attributes: &[(Arc<str>, Arc<str>)]) -> usize {
    let lengths = attributes.iter().map(|(name, value)| name.len() + value.len());
    lengths.sum()
}
