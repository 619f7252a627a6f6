//! How far a client connection is.

use crate::client::Secret;
use crate::entrance::Request;
use crate::message::Attributes;
use crate::types::{DeviceFlag, Route, Token, Uid};
use std::sync::Arc;
use std::time::Duration;

/// How far a connection is.
#[derive(Debug)]
pub(super) enum Phase {
    AwaitingConnect,
    Authenticating {
        token: Token,
        deadline: Duration,
        hello: Hello,
    },
    /// Its token is good, and the gates say whether and as whom it is let in.
    Entering {
        deadline: Duration,
        hello: Hello,
    },
    Activating {
        token: Token,
        deadline: Duration,
        route: Route,
        attributes: Option<Attributes>,
        time_difference_ms: i64,
    },
    Open {
        route: Route,
        attributes: Option<Attributes>,
    },
}

/// What the client said of itself.
#[derive(Debug)]
pub(super) struct Hello {
    pub(super) uid: Uid,
    pub(super) device_id: Arc<str>,
    pub(super) flag: DeviceFlag,
    pub(super) address: Arc<str>,
    pub(super) secret: Secret,
    pub(super) time_difference_ms: i64,
}

impl Hello {
    /// What the gates are asked.
    pub(super) fn request(&self) -> Box<Request> {
        Box::new(Request {
            uid: self.uid.clone(),
            token: self.secret.clone(),
            device_id: Arc::clone(&self.device_id),
            flag: self.flag,
            address: Arc::clone(&self.address),
        })
    }
}
