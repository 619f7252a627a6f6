//! The rows of client contract 5.5 as a table, and what stands above them.

use super::{Fact, Facts, Membership, Question, Value, decide, normalise};
use crate::admin::{ChannelFlags, List};
use crate::message::MessageFlags;
use crate::types::{ChannelKey, ChannelKind, Reason, Seq, Uid};

const OK: u8 = 1;

/// What the world holds, in words: `system:u`, `row:kind/id`, `flag:kind/id:name`, `deny:kind/id:u`, `allow:…`, `member:…`.
/// Everything else is known to be absent; `lost:` before an entry makes the fact unknown.
fn facts(question: &Question, world: &[&str]) -> Facts {
    let mut facts = Facts::default();
    for fact in question.needs() {
        let name = name_of(&fact);
        if world.contains(&format!("lost:{name}").as_str()) {
            continue;
        }
        let value = value_of(&fact, &name, world);
        facts.add(fact, value);
    }
    facts
}

fn name_of(fact: &Fact) -> String {
    match fact {
        Fact::System(uid) => format!("system:{uid}"),
        Fact::Definition(channel) => format!("row:{channel}"),
        Fact::Listed(channel, List::Subscribers, uid) => format!("member:{channel}:{uid}"),
        Fact::Listed(channel, List::Deny, uid) => format!("deny:{channel}:{uid}"),
        Fact::Listed(channel, List::Allow, uid) => format!("allow:{channel}:{uid}"),
        Fact::HasAllowlist(channel) => format!("allow:{channel}:"),
        Fact::Membership(uid, channel) => format!("own:{channel}:{uid}"),
    }
}

fn value_of(fact: &Fact, name: &str, world: &[&str]) -> Value {
    let has = |wanted: &str| world.contains(&wanted);
    match fact {
        Fact::System(_) | Fact::Listed(_, List::Deny | List::Allow, _) => Value::Present(has(name)),
        Fact::Listed(_, List::Subscribers, _) => Value::Member(has(name).then_some(Seq(4))),
        Fact::HasAllowlist(_) => Value::Present(world.iter().any(|entry| entry.starts_with(name))),
        Fact::Membership(..) => Value::Membership(has(name).then_some(Membership {
            join_seq: Seq(4),
            deleted_to_seq: Seq(9),
            tombstone: false,
        })),
        Fact::Definition(channel) => {
            let flag = |flag: &str| has(&format!("flag:{channel}:{flag}"));
            let flags = ChannelFlags {
                large: false,
                ban: flag("ban"),
                disband: flag("disband"),
                send_ban: flag("send_ban"),
                allow_stranger: flag("allow_stranger"),
            };
            let exists = has(name) || flags != ChannelFlags::default();
            Value::Definition(exists.then_some(flags))
        }
    }
}

fn code(verdict: Result<(), Reason>) -> u8 {
    verdict.map_or_else(|reason| reason.0, |()| OK)
}

fn send_with(allowlist: bool, sync_once: bool, kind: u8, id: &str, world: &[&str]) -> u8 {
    let flags = MessageFlags {
        sync_once,
        ..MessageFlags::default()
    };
    match Question::send(&Uid::new("u1"), id, ChannelKind(kind), &flags, &[], allowlist) {
        Ok(question) => {
            assert!(question.needs().len() <= 8, "{question:?}");
            code(decide(&question, &facts(&question, world)))
        }
        Err(reason) => reason.0,
    }
}

/// What is tried: kind and id, the world, and the code.
type SendRow = (&'static str, u8, &'static str, &'static [&'static str], u8);

fn publish_with(kind: u8, id: &str, world: &[&str]) -> u8 {
    match Question::publish(&Uid::new("plugin:p"), id, ChannelKind(kind)) {
        Ok(question) => code(decide(&question, &facts(&question, world))),
        Err(reason) => reason.0,
    }
}

/// A plugin is no member and on no list; what nobody may write to, it may not either.
#[test]
fn a_plugin_publishes_where_the_channel_takes_messages() {
    let group: &[&str] = &["row:2/g"];
    for (kind, id, world, wanted) in [
        (2, "g", group, OK),
        (2, "g", &["row:2/g", "deny:2/g:plugin:p", "allow:2/g:u1"], OK),
        (2, "g", &[], 5),
        (2, "g", &["flag:2/g:ban"], 19),
        (2, "g", &["flag:2/g:disband"], 24),
        (2, "g", &["lost:row:2/g"], 18),
        (2, "g____cmd", group, 16),
        (2, "", group, 16),
        (1, "u2@u1", &[], OK),
        (1, "u2@u1", &["flag:1/u2@u1:disband"], 24),
        (1, "u1", &["deny:1/u1:plugin:p"], OK),
        (1, "a@b@c", &[], 16),
        (10, "v", &["row:3/v"], OK),
        (10, "v", &["flag:3/v:ban"], 19),
        (8, "t", &[], 23),
    ] {
        assert_eq!(publish_with(kind, id, world), wanted, "{kind}/{id} {world:?}");
    }
    let question = |id: &str| Question::publish(&Uid::new("plugin:p"), id, ChannelKind::PERSON);
    let channel = |id: &str| question(id).map(|question| question.log_channel().id.to_string());
    assert_eq!(channel("u1@u2"), Ok("u2@u1".to_owned()));
    assert_eq!(
        channel("u1"),
        Ok(penstock_wire::channel_id::canonical_person("plugin:p", "u1"))
    );
}

/// Nobody sends as a plugin, not even a system sender.
#[test]
fn the_uid_of_a_plugin_is_nobody_elses() {
    let flags = MessageFlags::default();
    let question = Question::send(&Uid::new("plugin:p"), "g", ChannelKind::GROUP, &flags, &[], false);
    assert_eq!(question, Err(Reason::NOT_ALLOWED));
}

/// Steps 1 and 2: system senders meet the disband check only; a send ban comes before everything of the channel.
const SENDERS: &[SendRow] = &[
    ("system sender", 2, "g", &["system:u1"], OK),
    (
        "system sender, banned",
        2,
        "g",
        &["system:u1", "flag:2/g:ban"],
        OK,
    ),
    (
        "system sender, send ban",
        2,
        "g",
        &["system:u1", "flag:1/u1:send_ban"],
        OK,
    ),
    (
        "system sender, disbanded",
        2,
        "g",
        &["system:u1", "flag:2/g:disband"],
        24,
    ),
    (
        "send ban",
        2,
        "g",
        &["member:2/g:u1", "flag:1/u1:send_ban", "flag:2/g:disband"],
        25,
    ),
    ("send ban to a person", 1, "u2", &["flag:1/u1:send_ban"], 25),
];

const PERSONS: &[SendRow] = &[
    ("person", 1, "u2", &[], OK),
    ("person by canonical id", 1, "u2@u1", &[], OK),
    ("person, disbanded", 1, "u2", &["flag:1/u2@u1:disband"], 24),
    ("person, denied", 1, "u2", &["deny:1/u2:u1"], 4),
    ("person, own denylist", 1, "u2", &["deny:1/u1:u2"], OK),
    (
        "person, denied but system",
        1,
        "u2",
        &["deny:1/u2:u1", "system:u2"],
        OK,
    ),
    (
        "built-in system user",
        1,
        "____system",
        &["deny:1/____system:u1"],
        OK,
    ),
    (
        "person, disbanded system",
        1,
        "u2",
        &["flag:1/u2@u1:disband", "system:u2"],
        24,
    ),
];

const GROUPS: &[SendRow] = &[
    ("group", 2, "g", &["row:2/g", "member:2/g:u1"], OK),
    ("no row", 2, "g", &["member:2/g:u1"], 5),
    (
        "ban before disband",
        2,
        "g",
        &["flag:2/g:ban", "flag:2/g:disband", "member:2/g:u1"],
        19,
    ),
    (
        "disband before deny",
        2,
        "g",
        &["flag:2/g:disband", "deny:2/g:u1", "member:2/g:u1"],
        24,
    ),
    ("deny before member", 2, "g", &["row:2/g", "deny:2/g:u1"], 4),
    ("member before allowlist", 2, "g", &["row:2/g", "allow:2/g:u2"], 3),
    (
        "not in allowlist",
        2,
        "g",
        &["row:2/g", "member:2/g:u1", "allow:2/g:u2"],
        13,
    ),
    (
        "in allowlist",
        2,
        "g",
        &["row:2/g", "member:2/g:u1", "allow:2/g:u1", "allow:2/g:u2"],
        OK,
    ),
    ("community", 4, "g", &["row:4/g", "member:4/g:u1"], OK),
    ("community, stranger", 4, "g", &["row:4/g"], 3),
    ("community topic, no row", 5, "g", &[], 5),
];

const SIDES_AND_VISITORS: &[SendRow] = &[
    ("agent", 11, "bot", &[], OK),
    ("agent, of others", 11, "u2@bot", &[], 11),
    ("agent, disbanded", 11, "bot", &["flag:11/u1@bot:disband"], 24),
    ("visitor", 10, "u1", &[], OK),
    ("visitor, disbanded", 10, "u1", &["flag:10/u1:disband"], 24),
    ("visitors, staff", 10, "v", &["row:3/v", "member:3/v:u1"], OK),
    ("visitors, stranger", 10, "v", &["row:3/v"], 3),
    (
        "visitors, denied staff",
        10,
        "v",
        &["row:3/v", "member:3/v:u1", "deny:3/v:u1"],
        4,
    ),
    ("visitors, no list", 10, "v", &["row:10/v", "member:10/v:u1"], 5),
];

/// Kinds whose members are not stored want an explicit channel and heed its lists; others have no rule and no entry.
const OTHERS: &[SendRow] = &[
    ("customer service", 3, "c", &["row:3/c"], OK),
    ("customer service, no row", 3, "c", &[], 5),
    ("info, disbanded", 6, "c", &["flag:6/c:disband"], 24),
    ("live, denied", 9, "c", &["row:9/c", "deny:9/c:u1"], 4),
    ("data, not in allowlist", 7, "c", &["row:7/c", "allow:7/c:u2"], 13),
    ("data, banned", 7, "c", &["flag:7/c:ban"], 19),
    ("temporary", 8, "c", &["row:8/c", "member:8/c:u1"], 23),
    ("agent group", 12, "c", &["row:12/c", "member:12/c:u1"], 23),
    ("internal", 99, "c", &["system:u1"], 23),
    ("unknown kind", 200, "c", &["system:u1"], 23),
    ("empty", 2, "", &["system:u1"], 16),
    ("person of others", 1, "u2@u3", &["system:u1"], 16),
    ("malformed person", 1, "u1@u2@u3", &[], 16),
    ("reserved", 2, "__wk_internal_system_uids__", &["system:u1"], 16),
];

#[test]
fn every_row_of_the_send_order() {
    for (what, kind, id, world, expected) in [SENDERS, PERSONS, GROUPS, SIDES_AND_VISITORS, OTHERS].concat() {
        assert_eq!(send_with(false, false, kind, id, world), expected, "{what}");
        // A command message is judged by its source, whether asked for by flag or by id.
        assert_eq!(
            send_with(false, true, kind, id, world),
            expected,
            "{what}, command"
        );
        if !id.is_empty() {
            let command = format!("{id}____cmd");
            assert_eq!(
                send_with(false, false, kind, &command, world),
                expected,
                "{what}, command id"
            );
        }
    }
}

#[test]
fn a_required_allowlist_of_persons() {
    assert_eq!(send_with(true, false, 1, "u2", &[]), 13);
    assert_eq!(send_with(true, false, 1, "u2", &["allow:1/u2:u1"]), OK);
    assert_eq!(send_with(true, false, 1, "u2", &["flag:1/u2:allow_stranger"]), OK);
    assert_eq!(
        send_with(
            true,
            false,
            1,
            "u2",
            &["flag:1/u2:allow_stranger", "deny:1/u2:u1"]
        ),
        4
    );
    assert_eq!(send_with(true, false, 1, "u2", &["system:u2"]), OK);
}

/// SF-4: whatever cannot be found out refuses, worth a retry, and never allows.
#[test]
fn an_unknown_fact_never_allows() {
    let world: &[&str] = &[
        "row:2/g",
        "member:2/g:u1",
        "row:3/c",
        "row:10/v",
        "row:3/v",
        "member:3/v:u1",
        "allow:2/g:u1",
    ];
    for (kind, id) in [(1, "u2"), (2, "g"), (3, "c"), (10, "v"), (11, "bot")] {
        let flags = MessageFlags::default();
        let uid = Uid::new("u1");
        let questions = [
            Question::send(&uid, id, ChannelKind(kind), &flags, &[], true),
            Question::read(&uid, id, ChannelKind(kind)),
            Question::subscribe(&uid, id, ChannelKind(kind)),
        ];
        for question in questions.into_iter().flatten() {
            for fact in question.needs() {
                let mut lost = world.to_vec();
                let name = format!("lost:{}", name_of(&fact));
                lost.push(&name);
                let before = decide(&question, &facts(&question, world));
                let after = decide(&question, &facts(&question, &lost));
                assert!(
                    after == before || after == Err(Reason::NODE_NOT_MATCH),
                    "{question:?} without {fact:?}: {before:?} became {after:?}"
                );
            }
            let nothing = decide(&question, &Facts::default());
            assert_eq!(nothing, Err(Reason::NODE_NOT_MATCH), "{question:?}");
        }
    }
}

#[test]
fn request_scoped_sends_go_to_a_command_channel_of_their_list() {
    let uid = Uid::new("u1");
    let list = [Uid::new("u1"), Uid::new("u2")];
    let command = MessageFlags {
        sync_once: true,
        ..MessageFlags::default()
    };
    let kind = ChannelKind::PERSON;
    let question = Question::send(&uid, "", kind, &command, &list, true).expect("a scoped send");
    assert_eq!(
        question.log_channel(),
        &ChannelKey::new("17922244540036557902____cmd", ChannelKind::TEMPORARY)
    );
    assert_eq!(decide(&question, &Facts::default()), Ok(()));
    let refused = Err(Reason::CHANNEL_ID);
    assert_eq!(Question::send(&uid, "g", kind, &command, &list, true), refused);
    assert_eq!(
        Question::send(&uid, "", kind, &MessageFlags::default(), &list, true),
        refused
    );
    assert_eq!(
        Question::send(&uid, "", kind, &command, &[Uid::new(" ")], true),
        refused
    );
}

#[test]
fn ids_become_canonical() {
    let key =
        |kind: u8, id: &str| normalise(&Uid::new("u1"), id, ChannelKind(kind)).map(|key| key.id.to_string());
    for (kind, id, canonical) in [
        (1, "u2", "u2@u1"),
        (1, "u1@u2", "u2@u1"),
        (1, "u2____cmd", "u2@u1____cmd"),
        (1, "u2@u1____cmd", "u2@u1____cmd"),
        (11, "bot", "u1@bot"),
        (2, "g", "g"),
        (2, "g____cmd", "g____cmd"),
    ] {
        assert_eq!(key(kind, id).as_deref(), Ok(canonical), "{kind} {id}");
    }
    for (kind, id) in [
        (1, ""),
        (1, "____cmd"),
        (2, "____cmd"),
        (1, "u2@u3"),
        (11, "a@b@c"),
    ] {
        assert_eq!(key(kind, id), Err(Reason::CHANNEL_ID), "{kind} {id}");
    }
    assert!(normalise(&Uid::new(""), "g", ChannelKind::GROUP).is_err());
    let flags = MessageFlags {
        sync_once: true,
        ..MessageFlags::default()
    };
    let question =
        Question::send(&Uid::new("u1"), "u2", ChannelKind::PERSON, &flags, &[], false).expect("an id");
    assert_eq!(&*question.log_channel().id, "u2@u1____cmd");
    assert_eq!(&*question.source_channel().id, "u2@u1");
}

fn receive(subscribe: bool, kind: u8, id: &str, world: &[&str]) -> u8 {
    let uid = Uid::new("u1");
    let question = if subscribe {
        Question::subscribe(&uid, id, ChannelKind(kind))
    } else {
        Question::read(&uid, id, ChannelKind(kind))
    };
    match question {
        Ok(question) => code(decide(&question, &facts(&question, world))),
        Err(reason) => reason.0,
    }
}

#[test]
fn reading_and_subscribing() {
    let rows: &[(u8, &str, &[&str], u8, u8)] = &[
        // kind, id, world, code of a read, code of a subscription
        (1, "u2", &[], OK, 23),
        (1, "u2", &["flag:1/u2@u1:disband"], 24, 23),
        (1, "u2@u3", &[], 16, 23),
        (11, "bot", &[], OK, 23),
        (11, "u2@bot", &[], 3, 23),
        (2, "g", &["row:2/g", "member:2/g:u1"], OK, OK),
        (2, "g", &["row:2/g", "member:2/g:u1", "flag:2/g:ban"], OK, OK),
        (2, "g", &["row:2/g", "member:2/g:u1", "flag:2/g:disband"], 24, 24),
        (2, "g", &["row:2/g"], 3, 3),
        (2, "g", &[], 5, 5),
        (10, "u1", &[], OK, OK),
        (10, "v", &["row:3/v", "member:3/v:u1"], OK, OK),
        (10, "v", &["row:3/v"], 3, 3),
        (9, "live", &["row:9/live"], OK, OK),
        (9, "live", &[], 5, 5),
        (9, "live", &["row:9/live", "deny:9/live:u1"], 4, 4),
        (7, "data", &["row:7/data", "allow:7/data:u2"], 13, 13),
        (8, "c", &["row:8/c", "member:8/c:u1"], 23, 23),
        (99, "c", &["row:99/c"], 23, 23),
    ];
    for (kind, id, world, read, subscribe) in rows {
        assert_eq!(
            receive(false, *kind, id, world),
            *read,
            "read {kind}/{id} {world:?}"
        );
        assert_eq!(
            receive(true, *kind, id, world),
            *subscribe,
            "subscribe {kind}/{id} {world:?}"
        );
    }
}

#[test]
fn a_reader_sees_from_joining_and_after_deleting() {
    let question = Question::read(&Uid::new("u1"), "g", ChannelKind::GROUP).expect("an id");
    let member: &[&str] = &["row:2/g", "member:2/g:u1"];
    assert_eq!(facts(&question, member).visible_from(), Seq(4));
    let own = [member, &["own:2/g:u1"]].concat();
    assert_eq!(facts(&question, &own).visible_from(), Seq(10));
    assert_eq!(Facts::default().visible_from(), Seq(1));
}
