//! What is asked: ids made canonical, and the facts that the answer needs.

use super::facts::{Fact, person_record};
use super::rules::Rule;
use crate::admin::List;
use crate::message::MessageFlags;
use crate::types::{ChannelKey, ChannelKind, Reason, Uid};
use penstock_wire::channel_id;

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Send a message.
    Send,
    /// Send a message to a list of users that the request names (HTTP only).
    SendScoped,
    /// Publish a message as a plugin, which its binding grants.
    Publish,
    /// Read history.
    Read,
    /// Receive while online (PC-6).
    Subscribe,
}

/// A request for permission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    pub(super) purpose: Purpose,
    pub(super) uid: Uid,
    /// The channel whose rules hold; of a command channel its source.
    pub(super) source: ChannelKey,
    /// The channel whose log is meant.
    log: ChannelKey,
    pub(super) rule: Rule,
    pub(super) person_allowlist_required: bool,
}

impl Question {
    /// May `uid` send to what it calls `channel_id`? With `subscribers`, which only the HTTP API can give, the message goes to
    /// exactly these users. A command message goes to the command channel (SF-1).
    ///
    /// # Errors
    /// The id is not one (16), the kind has no rule (23), or the sender is a plugin's uid, which nobody else may use (11).
    pub fn send(
        uid: &Uid,
        channel_id: &str,
        kind: ChannelKind,
        flags: &MessageFlags,
        subscribers: &[Uid],
        person_allowlist_required: bool,
    ) -> Result<Question, Reason> {
        if channel_id::is_plugin(uid.as_str()) {
            return Err(Reason::NOT_ALLOWED);
        }
        if !subscribers.is_empty() {
            return Question::scoped(uid, channel_id, flags, subscribers);
        }
        let mut question = Question::about(Purpose::Send, uid, channel_id, kind)?;
        question.person_allowlist_required = person_allowlist_required;
        if flags.sync_once {
            question.log = command(&question.source);
        }
        Ok(question)
    }

    /// May a plugin, which sends as `uid`, publish to this channel? A person channel is named by its canonical id, or by the uid
    /// of somebody whom the plugin writes to.
    ///
    /// # Errors
    /// The id is not one (16), or the kind has no rule (23).
    pub fn publish(uid: &Uid, channel_id: &str, kind: ChannelKind) -> Result<Question, Reason> {
        if channel_id::is_command(channel_id) {
            return Err(Reason::CHANNEL_ID);
        }
        // A canonical id stands for itself, also when the plugin is none of the two.
        let named_by = match channel_id::person_members(channel_id) {
            Ok((left, _)) if kind == ChannelKind::PERSON => Uid::new(left),
            _ => uid.clone(),
        };
        let mut question = Question::about(Purpose::Publish, &named_by, channel_id, kind)?;
        question.uid = uid.clone();
        Ok(question)
    }

    fn scoped(
        uid: &Uid,
        channel_id: &str,
        flags: &MessageFlags,
        subscribers: &[Uid],
    ) -> Result<Question, Reason> {
        if !channel_id.is_empty() || !flags.sync_once || uid.as_str().is_empty() {
            return Err(Reason::CHANNEL_ID);
        }
        let id =
            channel_id::request_channel(subscribers.iter().map(Uid::as_str)).ok_or(Reason::CHANNEL_ID)?;
        let source = ChannelKey::new(&id, ChannelKind::TEMPORARY);
        Ok(Question {
            purpose: Purpose::SendScoped,
            uid: uid.clone(),
            log: command(&source),
            source,
            rule: Rule::Open,
            person_allowlist_required: false,
        })
    }

    /// May `uid` read the history of what it calls `channel_id`?
    ///
    /// # Errors
    /// The id is not one (16), or the kind has no rule (23).
    pub fn read(uid: &Uid, channel_id: &str, kind: ChannelKind) -> Result<Question, Reason> {
        Question::about(Purpose::Read, uid, channel_id, kind)
    }

    /// May a session of `uid` receive what is sent to `channel_id` while it is online (PC-6)?
    ///
    /// # Errors
    /// The id is not one (16), or the kind has no rule for it (23).
    pub fn subscribe(uid: &Uid, channel_id: &str, kind: ChannelKind) -> Result<Question, Reason> {
        if kind == ChannelKind::PERSON || kind == ChannelKind::AGENT {
            // Its two members receive it anyway, and nobody else may.
            return Err(Reason::KIND_NOT_SUPPORTED);
        }
        Question::about(Purpose::Subscribe, uid, channel_id, kind)
    }

    fn about(purpose: Purpose, uid: &Uid, channel_id: &str, kind: ChannelKind) -> Result<Question, Reason> {
        let log = normalise(uid, channel_id, kind)?;
        let source = ChannelKey::new(channel_id::command_source(&log.id), kind);
        Ok(Question {
            purpose,
            uid: uid.clone(),
            rule: Rule::of(kind).ok_or(Reason::KIND_NOT_SUPPORTED)?,
            source,
            log,
            person_allowlist_required: false,
        })
    }

    /// The channel whose log is meant: where the message goes, or what is read.
    #[must_use]
    pub fn log_channel(&self) -> &ChannelKey {
        &self.log
    }

    /// The channel whose rules hold.
    #[must_use]
    pub fn source_channel(&self) -> &ChannelKey {
        &self.source
    }

    /// Every fact that the decision can need, at most eight.
    #[must_use]
    pub fn needs(&self) -> Vec<Fact> {
        let mut facts = match self.purpose {
            Purpose::SendScoped => return Vec::new(),
            Purpose::Send => vec![
                Fact::System(self.uid.clone()),
                Fact::Definition(person_record(&self.uid)),
                Fact::Definition(self.source.clone()),
            ],
            Purpose::Read => vec![
                Fact::Definition(self.source.clone()),
                Fact::Membership(self.uid.clone(), self.source.clone()),
            ],
            Purpose::Subscribe => vec![Fact::Definition(self.source.clone())],
            Purpose::Publish => {
                let mut facts = vec![Fact::Definition(self.source.clone())];
                if self.lists() != self.source {
                    facts.push(Fact::Definition(self.lists()));
                }
                return facts;
            }
        };
        match (self.rule, self.lists()) {
            (Rule::Person, _) if self.purpose == Purpose::Send => facts.extend(self.of_receiver()),
            (Rule::Person | Rule::Agent | Rule::Open, _) => {}
            (Rule::Members | Rule::Visitors | Rule::Lists, lists) => {
                let listed = |list| Fact::Listed(lists.clone(), list, self.uid.clone());
                facts.extend([listed(List::Subscribers), listed(List::Deny), listed(List::Allow)]);
                facts.push(Fact::HasAllowlist(lists.clone()));
                if lists != self.source {
                    facts.push(Fact::Definition(lists));
                }
            }
        }
        facts
    }

    /// The channel that keeps the member lists: visitors are members of the customer-service channel of the same id.
    pub(super) fn lists(&self) -> ChannelKey {
        match self.rule {
            Rule::Visitors => ChannelKey::new(&self.source.id, ChannelKind::CUSTOMER_SERVICE),
            Rule::Person | Rule::Agent | Rule::Members | Rule::Lists | Rule::Open => self.source.clone(),
        }
    }

    /// The other side of a person channel; oneself in a channel with oneself.
    pub(super) fn receiver(&self) -> Option<Uid> {
        channel_id::person_peer(&self.source.id, self.uid.as_str()).map(Uid::new)
    }

    fn of_receiver(&self) -> Vec<Fact> {
        let Some(receiver) = self.receiver() else {
            return Vec::new();
        };
        let record = person_record(&receiver);
        let mut facts = vec![
            Fact::System(receiver),
            Fact::Listed(record.clone(), List::Deny, self.uid.clone()),
        ];
        if self.person_allowlist_required {
            facts.push(Fact::Listed(record.clone(), List::Allow, self.uid.clone()));
            facts.push(Fact::Definition(record));
        }
        facts
    }
}

/// The channel that `uid` means by an id: a person channel's by its peer, an agent's by its uid; a command channel's id keeps
/// its suffix (client contract 5.4).
///
/// # Errors
/// The id is empty, too long, malformed, of a conversation of others, or the broker's own (16).
pub fn normalise(uid: &Uid, id: &str, kind: ChannelKind) -> Result<ChannelKey, Reason> {
    if uid.as_str().is_empty() || id.starts_with(channel_id::INTERNAL_PREFIX) {
        return Err(Reason::CHANNEL_ID);
    }
    let source = channel_id::command_source(id);
    let canonical = match kind {
        ChannelKind::PERSON => channel_id::normalise_person(uid.as_str(), source).ok(),
        ChannelKind::AGENT => channel_id::normalise_agent(uid.as_str(), source)
            .ok()
            .map(std::borrow::Cow::into_owned),
        _ if source.is_empty() || source.len() > channel_id::ID_BYTES_MAX => None,
        _ => Some(source.to_owned()),
    };
    let key = ChannelKey::new(&canonical.ok_or(Reason::CHANNEL_ID)?, kind);
    Ok(if channel_id::is_command(id) {
        command(&key)
    } else {
        key
    })
}

fn command(source: &ChannelKey) -> ChannelKey {
    ChannelKey::new(&channel_id::command_channel(&source.id), source.kind)
}
