//! The client's side of a session without its socket: what CONNECT says, and what the CONNACK makes of it.

use crate::encryption::{KeyError, SessionCipher, public_key_text};
use crate::reason::Reason;
use crate::wkproto::{Connack, Connect, Recv, RecvAck};

/// The client's key pair. One may serve many sessions: the server's half and the salt are new for each.
#[derive(Clone)]
pub struct ClientKey {
    secret: [u8; 32],
    text: String,
}

impl std::fmt::Debug for ClientKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("ClientKey { .. }")
    }
}

/// Why there is no session.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotAdmitted {
    /// The server refused, with the code of a [`Reason`].
    #[error("the server refused with reason {0}")]
    Refused(u8),
    /// The server's key or salt is not usable.
    #[error("the server's key or salt is not usable")]
    Key,
}

impl From<KeyError> for NotAdmitted {
    fn from(_: KeyError) -> Self {
        Self::Key
    }
}

impl ClientKey {
    /// The key pair of 32 random bytes, which the caller draws.
    #[must_use]
    pub fn new(secret: [u8; 32]) -> Self {
        Self {
            secret,
            text: public_key_text(secret),
        }
    }

    /// A CONNECT that carries this key; the caller fills in the rest.
    #[must_use]
    pub fn connect(&self, version: u8, uid: &str, token: &str, device_id: &str) -> Connect {
        Connect {
            version,
            device_id: device_id.to_owned(),
            uid: uid.to_owned(),
            token: token.to_owned(),
            client_key: self.text.clone(),
            ..Connect::default()
        }
    }

    /// The cipher of the session that this CONNACK opens.
    ///
    /// # Errors
    /// [`NotAdmitted`] when it opens none.
    pub fn admitted(&self, connack: &Connack) -> Result<SessionCipher, NotAdmitted> {
        if connack.reason_code != Reason::Success.code() {
            return Err(NotAdmitted::Refused(connack.reason_code));
        }
        Ok(SessionCipher::agree(
            self.secret,
            &connack.server_key,
            &connack.salt,
        )?)
    }
}

/// The RECVACK that a client answers a RECV with.
#[must_use]
pub fn acknowledgement(recv: &Recv) -> RecvAck {
    RecvAck {
        flags: recv.flags,
        message_id: recv.message_id,
        message_seq: recv.message_seq,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encryption::{Entropy, accept};
    use crate::wkproto::Send;
    use bytes::Bytes;

    #[test]
    fn both_sides_get_the_same_cipher() {
        let key = ClientKey::new([3; 32]);
        let connect = key.connect(6, "u1", "t", "d");
        let entropy = Entropy {
            secret: [4; 32],
            salt: [5; 16],
        };
        let server = accept(&connect.client_key, &entropy).unwrap();
        let connack = Connack {
            reason_code: 1,
            server_key: server.server_key,
            salt: server.salt,
            ..Connack::default()
        };
        let cipher = key.admitted(&connack).unwrap();
        let mut send = Send {
            payload: Bytes::from_static(b"plain"),
            ..Send::default()
        };
        cipher.seal_send(&mut send);
        assert_eq!(server.cipher.open_send(&send).unwrap(), "plain");
    }

    #[test]
    fn a_refusal_keeps_its_reason() {
        let key = ClientKey::new([3; 32]);
        let refused = Connack {
            reason_code: 2,
            ..Connack::default()
        };
        assert_eq!(key.admitted(&refused).unwrap_err(), NotAdmitted::Refused(2));
        let keyless = Connack {
            reason_code: 1,
            ..Connack::default()
        };
        assert_eq!(key.admitted(&keyless).unwrap_err(), NotAdmitted::Key);
    }
}
