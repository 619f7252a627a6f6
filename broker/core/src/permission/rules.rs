//! The rules, in the order of client contract 5.5.

use super::facts::{Fact, Facts, person_record};
use super::question::{Purpose, Question};
use crate::admin::{ChannelFlags, List};
use crate::types::{ChannelKind, Reason};
use penstock_wire::channel_id;

/// Which rule a kind of channel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The two users of its id.
    Person,
    /// The two sides of its id.
    Agent,
    /// It exists, and its subscribers may use it.
    Members,
    /// The visitor whose id it has, and the members of the customer-service channel of the same id.
    Visitors,
    /// It exists, and whoever its lists do not shut out may use it: its members are not stored.
    Lists,
    /// Whoever names it (request-scoped sends).
    Open,
}

impl Rule {
    /// The rule of a kind; none means that it refuses.
    pub(super) fn of(kind: ChannelKind) -> Option<Rule> {
        match kind {
            ChannelKind::PERSON => Some(Rule::Person),
            ChannelKind::AGENT => Some(Rule::Agent),
            ChannelKind::GROUP | ChannelKind::COMMUNITY | ChannelKind::COMMUNITY_TOPIC => Some(Rule::Members),
            ChannelKind::VISITORS => Some(Rule::Visitors),
            ChannelKind::CUSTOMER_SERVICE | ChannelKind::INFO | ChannelKind::DATA | ChannelKind::LIVE => {
                Some(Rule::Lists)
            }
            _ => None,
        }
    }
}

/// Decides a question. The facts are looked at in the order of the rules: one that is reached and not known refuses, worth a
/// retry.
///
/// # Errors
/// Why it is refused.
pub fn decide(question: &Question, facts: &Facts) -> Result<(), Reason> {
    match question.purpose {
        Purpose::SendScoped => Ok(()),
        Purpose::Send => decide_send(question, facts),
        Purpose::Publish => decide_publish(question, facts),
        Purpose::Read | Purpose::Subscribe => decide_receive(question, facts),
    }
}

fn decide_send(question: &Question, facts: &Facts) -> Result<(), Reason> {
    let sender = &question.uid;
    if sender.as_str() == channel_id::SYSTEM_UID || facts.is_present(&Fact::System(sender.clone()))? {
        return not_disbanded(facts.definition(&question.source)?);
    }
    refuse_if(facts.person(sender)?.send_ban, Reason::SEND_BANNED)?;
    match question.rule {
        Rule::Person => {
            not_disbanded(facts.definition(&question.source)?)?;
            send_to_person(question, facts)
        }
        Rule::Agent => {
            not_disbanded(facts.definition(&question.source)?)?;
            refuse_if(!is_side(question), Reason::NOT_ALLOWED)
        }
        Rule::Visitors => {
            not_disbanded(facts.definition(&question.source)?)?;
            if *question.source.id == *sender.as_str() {
                return Ok(());
            }
            may_write(question, facts)?;
            membership(question, facts)
        }
        Rule::Members => {
            may_write(question, facts)?;
            membership(question, facts)
        }
        Rule::Lists => {
            may_write(question, facts)?;
            lists(question, facts)
        }
        Rule::Open => Err(Reason::KIND_NOT_SUPPORTED),
    }
}

/// A plugin needs no membership and stands on no list: its binding says where it may publish. What nobody may write to, it may
/// not either.
fn decide_publish(question: &Question, facts: &Facts) -> Result<(), Reason> {
    not_disbanded(facts.definition(&question.source)?)?;
    match question.rule {
        Rule::Person | Rule::Agent => Ok(()),
        Rule::Visitors | Rule::Members | Rule::Lists => may_write(question, facts),
        Rule::Open => Err(Reason::KIND_NOT_SUPPORTED),
    }
}

fn send_to_person(question: &Question, facts: &Facts) -> Result<(), Reason> {
    let Some(receiver) = question.receiver() else {
        return Err(Reason::CHANNEL_ID);
    };
    if receiver.as_str() == channel_id::SYSTEM_UID || facts.is_present(&Fact::System(receiver.clone()))? {
        return Ok(());
    }
    let record = person_record(&receiver);
    refuse_if(
        facts.listed(&record, List::Deny, &question.uid)?,
        Reason::IN_DENYLIST,
    )?;
    if question.person_allowlist_required
        && !facts.listed(&record, List::Allow, &question.uid)?
        && !facts.person(&receiver)?.allow_stranger
    {
        return Err(Reason::NOT_IN_ALLOWLIST);
    }
    Ok(())
}

/// Existence, ban and disband of the channel that keeps the lists, in this order.
fn may_write(question: &Question, facts: &Facts) -> Result<(), Reason> {
    let flags = facts
        .definition(&question.lists())?
        .ok_or(Reason::CHANNEL_NOT_EXIST)?;
    refuse_if(flags.ban, Reason::BANNED)?;
    refuse_if(flags.disband, Reason::DISBANDED)
}

/// Denylist, subscription, allowlist, in this order.
fn membership(question: &Question, facts: &Facts) -> Result<(), Reason> {
    let lists = question.lists();
    refuse_if(
        facts.listed(&lists, List::Deny, &question.uid)?,
        Reason::IN_DENYLIST,
    )?;
    let member = facts.listed(&lists, List::Subscribers, &question.uid)?;
    refuse_if(!member, Reason::NOT_SUBSCRIBER)?;
    allowlist(question, facts)
}

/// Denylist and allowlist.
fn lists(question: &Question, facts: &Facts) -> Result<(), Reason> {
    let denied = facts.listed(&question.lists(), List::Deny, &question.uid)?;
    refuse_if(denied, Reason::IN_DENYLIST)?;
    allowlist(question, facts)
}

fn allowlist(question: &Question, facts: &Facts) -> Result<(), Reason> {
    let lists = question.lists();
    let shut_out = facts.is_present(&Fact::HasAllowlist(lists.clone()))?
        && !facts.listed(&lists, List::Allow, &question.uid)?;
    refuse_if(shut_out, Reason::NOT_IN_ALLOWLIST)
}

/// Reading and subscribing: bans and allowlists of members concern sending only.
fn decide_receive(question: &Question, facts: &Facts) -> Result<(), Reason> {
    let flags = facts.definition(&question.source)?;
    not_disbanded(flags)?;
    match question.rule {
        Rule::Person | Rule::Agent => refuse_if(!is_side(question), Reason::NOT_SUBSCRIBER),
        Rule::Visitors if *question.source.id == *question.uid.as_str() => Ok(()),
        Rule::Visitors | Rule::Members => {
            let flags = facts
                .definition(&question.lists())?
                .ok_or(Reason::CHANNEL_NOT_EXIST)?;
            refuse_if(flags.disband, Reason::DISBANDED)?;
            let member = facts.listed(&question.lists(), List::Subscribers, &question.uid)?;
            refuse_if(!member, Reason::NOT_SUBSCRIBER)
        }
        Rule::Lists => {
            refuse_if(flags.is_none(), Reason::CHANNEL_NOT_EXIST)?;
            lists(question, facts)
        }
        Rule::Open => Err(Reason::KIND_NOT_SUPPORTED),
    }
}

/// Whether the uid is one of the two sides that the id names.
fn is_side(question: &Question) -> bool {
    channel_id::person_peer(&question.source.id, question.uid.as_str()).is_some()
}

fn not_disbanded(flags: Option<ChannelFlags>) -> Result<(), Reason> {
    refuse_if(flags.is_some_and(|flags| flags.disband), Reason::DISBANDED)
}

fn refuse_if(condition: bool, reason: Reason) -> Result<(), Reason> {
    if condition { Err(reason) } else { Ok(()) }
}
