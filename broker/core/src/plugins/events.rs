//! Which events a webhook delivers.

/// The events that a webhook's binding wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Events {
    /// Committed messages.
    pub message_notify: bool,
    /// A committed message with those of its recipients who are offline.
    pub message_offline: bool,
    /// Users that came or went.
    pub user_online_status: bool,
}

impl Default for Events {
    fn default() -> Events {
        Events {
            message_notify: true,
            ..Events::NONE
        }
    }
}

/// Stands on disk where no event is wanted: 0 is what bindings have that know no events.
const NOTHING: u32 = 8;

impl Events {
    /// None of them.
    pub const NONE: Events = Events {
        message_notify: false,
        message_offline: false,
        user_online_status: false,
    };

    /// Their names, as the configuration of a binding has them.
    pub const NAMES: [&'static str; 3] = ["msg.notify", "msg.offline", "user.onlinestatus"];

    /// The same with the event of this name; none when there is no such event.
    #[must_use]
    pub fn with(mut self, name: &str) -> Option<Events> {
        let [notify, offline, status] = Events::NAMES;
        match name {
            _ if name == notify => self.message_notify = true,
            _ if name == offline => self.message_offline = true,
            _ if name == status => self.user_online_status = true,
            _ => return None,
        }
        Some(self)
    }

    /// Their number on disk.
    #[must_use]
    pub fn number(self) -> u32 {
        let bits = u32::from(self.message_notify)
            | u32::from(self.message_offline) << 1
            | u32::from(self.user_online_status) << 2;
        if bits == 0 { NOTHING } else { bits }
    }

    /// The events with this number; bits that mean nothing here are passed over.
    #[must_use]
    pub fn of(number: u32) -> Events {
        match number {
            0 => Events::default(),
            bits => Events {
                message_notify: bits & 1 != 0,
                message_offline: bits & 2 != 0,
                user_online_status: bits & 4 != 0,
            },
        }
    }
}
