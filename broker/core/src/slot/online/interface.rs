//! What the machine is told and wants done, and how sessions and events are written.

use crate::patience::Patience;
use crate::replicated::Reply;
use crate::rows::{Page, ReadRequest};
use crate::slot::ProposeError;
use crate::types::{Route, SlotId, Term, Token, Uid};
use bytes::Bytes;
use penstock_wire::storage::v1::{OnlineEvent, OnlineSession};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// A session of a user began or ended.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionChange {
    /// The user.
    pub uid: Uid,
    /// The session.
    pub session: OnlineSession,
    /// Whether it began.
    pub online: bool,
}

impl SessionChange {
    /// Of the session of this route.
    #[must_use]
    pub fn of(route: &Route, online: bool) -> SessionChange {
        SessionChange {
            uid: route.uid.clone(),
            session: session_of(route),
            online,
        }
    }
}

/// The session of a route, as it is stored.
#[must_use]
pub fn session_of(route: &Route) -> OnlineSession {
    OnlineSession {
        node: u32::from(route.node.0),
        process: route.boot.0,
        connection: route.connection.0,
        owner_seq: route.owner_seq,
        flag: u32::from(route.flag.0),
    }
}

/// The number by which receivers know a session: below 2^53, so that no language rounds it.
#[must_use]
pub fn number_of(session: &OnlineSession) -> u64 {
    let mut hash = Sha256::new();
    for part in [
        u64::from(session.node),
        session.process,
        session.connection,
        session.owner_seq,
    ] {
        hash.update(part.to_be_bytes());
    }
    let digest = hash.finalize();
    let first = digest
        .iter()
        .take(8)
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    first >> 11
}

/// An event as receivers get it: uid, device flag, 1 or 0, session, sessions of the flag, sessions of the user.
pub(super) fn text(event: &OnlineEvent) -> String {
    let online = u8::from(event.online);
    let (uid, flag, session) = (&event.uid, event.flag, event.session);
    format!(
        "{uid}-{flag}-{online}-{session}-{}-{}",
        event.of_flag, event.of_user
    )
}

/// A binding that is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Reader {
    /// Its id.
    pub binding: Arc<str>,
    /// Revision of the registry at its creation.
    pub incarnation: u64,
    /// The users that it is for; none means all.
    pub uids: BTreeSet<Uid>,
    /// While it is not enabled, the queue keeps what is for it, within its bound.
    pub enabled: bool,
    /// How long a batch is tried.
    pub patience: Patience,
    /// Attempts before a batch is given up; 0 is no bound.
    pub attempts_max: u32,
}

/// All bindings that are told, as of one revision of the registry.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Readers {
    /// The revision.
    pub revision: u64,
    /// The bindings.
    pub all: Vec<Reader>,
}

/// How a delivery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was taken.
    Done,
    /// It was not taken; a pause may be wished.
    Failed {
        /// The wished pause.
        after: Option<Duration>,
    },
    /// It can never be taken.
    Poison,
    /// It was not tried, because the endpoint is left alone for so long.
    Later {
        /// So long.
        after: Duration,
    },
    /// It was not tried.
    Untried,
}

/// What the machine is told.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// This node leads the group in this term, or does not lead it.
    Leads(Option<Term>),
    /// Who is to be told.
    Readers(Readers),
    /// The presence authority saw a session begin or end.
    Changed {
        /// The user's slot.
        slot: SlotId,
        /// What happened.
        change: SessionChange,
    },
    /// The answer to [`Output::Propose`].
    Proposed {
        /// Its token.
        token: Token,
        /// The state machine's answer, or why there is none.
        result: Result<Reply, ProposeError>,
    },
    /// The answer to [`Output::Read`].
    ReadDone {
        /// Its token.
        token: Token,
        /// Rows of users.
        page: Page,
    },
    /// The answer to [`Output::WhoIsOnline`]: the sessions of these users, or none while that is not known.
    Online {
        /// The slot.
        slot: SlotId,
        /// The sessions.
        sessions: Option<Vec<OnlineSession>>,
    },
    /// A delivery ended.
    Returned {
        /// The slot.
        slot: SlotId,
        /// From [`Output::Deliver`].
        token: Token,
        /// How.
        outcome: Outcome,
    },
    /// The answer to [`Output::Work`], or time passed.
    Work,
}

/// What the machine wants done.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Propose to the group; answered by [`Input::Proposed`].
    Propose {
        /// Named in the answer.
        token: Token,
        /// The command.
        command: Bytes,
    },
    /// Scan rows; answered by [`Input::ReadDone`].
    Read {
        /// Named in the answer.
        token: Token,
        /// What to read.
        request: ReadRequest,
    },
    /// Which sessions do these users have? Answered by [`Input::Online`].
    WhoIsOnline {
        /// Their slot.
        slot: SlotId,
        /// The users.
        uids: Vec<Uid>,
    },
    /// Deliver a batch; answered by [`Input::Returned`].
    Deliver(Delivery),
    /// So many events will never be told.
    Dropped(u64),
    /// Hand in [`Input::Work`] soon.
    Work,
}

/// A batch on its way to a reader. Its number, slot and the reader's creation name it for every attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// Named in the answer.
    pub token: Token,
    /// The slot.
    pub slot: SlotId,
    /// The binding.
    pub binding: Arc<str>,
    /// Its creation.
    pub incarnation: u64,
    /// Number of the batch.
    pub number: u64,
    /// When its first event came, ms since 1970.
    pub wall_ms: u64,
    /// The events that the reader is for, at least one, in order.
    pub statuses: Vec<String>,
}
