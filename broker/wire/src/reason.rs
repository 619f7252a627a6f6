//! Reason codes: why a CONNECT, SEND or SUB was answered as it was (client contract, section 5.1).

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)+) => {
        /// A reason code as it travels in CONNACK, SENDACK, SUBACK, DISCONNECT and in HTTP answers.
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[repr(u8)]
        pub enum Reason {
            $($(#[$doc])* $name = $code,)+
        }

        impl Reason {
            /// Every reason in the order of its code.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The code on the wire.
            #[must_use]
            pub const fn code(self) -> u8 {
                self as u8
            }

            /// The reason with this code, if there is one.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)+
                    _ => None,
                }
            }

            /// A stable snake-case name, for metrics labels and messages to people.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

reasons! {
    /// Not said, or a code that this build does not know.
    #[default] Unknown = 0, "unknown";
    /// Done.
    Success = 1, "success";
    /// The uid, token or key was not accepted.
    AuthFail = 2, "auth_fail";
    /// The sender is not a subscriber of the channel.
    NotSubscriber = 3, "not_subscriber";
    /// The sender is on the denylist.
    InDenylist = 4, "in_denylist";
    /// There is no such channel.
    ChannelNotExist = 5, "channel_not_exist";
    /// The user is not on this node.
    UserNotOnNode = 6, "user_not_on_node";
    /// The sender is offline.
    SenderOffline = 7, "sender_offline";
    /// The message key does not match the frame.
    MessageKeyError = 8, "message_key_error";
    /// The payload could not be decoded or decrypted.
    PayloadDecodeError = 9, "payload_decode_error";
    /// Forwarding to another node failed.
    ForwardFailed = 10, "forward_failed";
    /// Sending is not allowed here.
    SendNotAllowed = 11, "send_not_allowed";
    /// The connection was kicked.
    Kicked = 12, "kicked";
    /// The channel has an allowlist and the sender is not on it.
    NotInAllowlist = 13, "not_in_allowlist";
    /// The token could not be looked up.
    TokenQueryError = 14, "token_query_error";
    /// The server failed.
    SystemError = 15, "system_error";
    /// The channel id is malformed.
    ChannelIdError = 16, "channel_id_error";
    /// The node could not be matched.
    NodeMatchError = 17, "node_match_error";
    /// This node is not the right one at the moment: retry.
    NodeNotMatch = 18, "node_not_match";
    /// The channel is banned.
    ChannelBanned = 19, "channel_banned";
    /// A header combination is not supported.
    HeaderNotSupported = 20, "header_not_supported";
    /// CONNECT carried no client key.
    ClientKeyEmpty = 21, "client_key_empty";
    /// Over a rate, or busy.
    RateLimited = 22, "rate_limited";
    /// The channel type has no rule.
    ChannelTypeNotSupported = 23, "channel_type_not_supported";
    /// The channel is disbanded for good.
    ChannelDisbanded = 24, "channel_disbanded";
    /// The sender is banned from sending.
    SendBanned = 25, "send_banned";
    /// The channel is being deleted.
    ChannelDeleting = 26, "channel_deleting";
    /// The client's protocol is too old.
    ProtocolUpgradeRequired = 27, "protocol_upgrade_required";
    /// The same idempotency key came with other content.
    IdempotencyConflict = 28, "idempotency_conflict";
    /// The channel has no sequence numbers left.
    MessageSeqExhausted = 29, "message_seq_exhausted";
}

impl From<Reason> for u8 {
    fn from(reason: Reason) -> Self {
        reason.code()
    }
}

impl std::fmt::Display for Reason {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_zero_to_twenty_nine_without_a_gap() {
        assert_eq!(Reason::ALL.len(), 30);
        for (code, reason) in (0u8..).zip(Reason::ALL) {
            assert_eq!(reason.code(), code);
            assert_eq!(Reason::from_code(code), Some(*reason));
        }
        for code in 30..=u8::MAX {
            assert_eq!(Reason::from_code(code), None);
        }
    }

    #[test]
    fn names_are_distinct() {
        let names: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
    }
}
