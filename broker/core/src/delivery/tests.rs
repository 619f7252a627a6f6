//! One channel's delivery; every test says what goes in and, line by line, what must come out.

use super::*;
use crate::message::{Draft, Message, MessageFlags};
use crate::types::{ConnectionId, DeviceFlag, DeviceLevel, MessageId, Now, ProcessBoot};
use bytes::Bytes;
use std::time::Duration;

struct World {
    channel: Channel,
    now: Now,
    /// What was asked last, by its kind.
    read: Token,
    members: Token,
    lookup: (Token, Vec<SlotId>),
    pushes: Vec<(Token, NodeId, usize)>,
}

fn limits() -> Limits {
    Limits {
        large_group_members: 3,
        delivery_page: 4,
        delivery_run: 3,
        channel_backlog: 2,
        route_lease: Duration::from_secs(90),
        ..Limits::default()
    }
}

fn message(from: &str, seq: u64, connection: u64) -> Arc<Committed> {
    let draft = Draft {
        from_uid: Uid::new(from),
        client_msg_no: Arc::from(""),
        flags: MessageFlags::default(),
        setting: 0,
        expire_s: 0,
        topic: Arc::from(""),
        payload: Bytes::from_static(b"hi"),
        origin: Some((NodeId(1), ConnectionId(connection))),
        subscribers: Arc::from([]),
        attributes: None,
        hops: 0,
    };
    Arc::new(Committed {
        channel: ChannelKey::new("x", ChannelKind::GROUP),
        incarnation: Incarnation(5),
        message: Message {
            id: MessageId(i64::try_from(seq).expect("small")),
            seq: Seq(seq),
            stamp_ms: 0,
            draft,
        },
    })
}

fn expiring(seq: u64, expire_s: u32) -> Arc<Committed> {
    let mut copy = Committed::clone(&message("s", seq, 0));
    copy.message.draft.expire_s = expire_s;
    Arc::new(copy)
}

fn route(uid: &str, node: u16, connection: u64) -> Route {
    Route {
        uid: Uid::new(uid),
        device_id: Arc::from("d"),
        flag: DeviceFlag(1),
        level: DeviceLevel::Slave,
        node: NodeId(node),
        boot: ProcessBoot(10),
        connection: ConnectionId(connection),
        owner_seq: connection,
    }
}

fn seqs(messages: &[Arc<Committed>]) -> String {
    let seqs: Vec<_> = messages
        .iter()
        .map(|known| known.message.seq.to_string())
        .collect();
    seqs.join("+")
}

impl World {
    fn new(id: &str, kind: ChannelKind) -> World {
        let settings = Settings {
            limits: limits(),
            faults: Faults::default(),
        };
        World::with(id, kind, settings)
    }

    fn with(id: &str, kind: ChannelKind, settings: Settings) -> World {
        World {
            channel: Channel::new(&ChannelKey::new(id, kind), settings),
            now: Now {
                monotonic: Duration::from_secs(100),
                wall_ms: 50_000,
            },
            read: Token(0),
            members: Token(0),
            lookup: (Token(0), Vec::new()),
            pushes: Vec::new(),
        }
    }

    /// A group that leads with this much committed and nothing delivered.
    fn group(committed: u64, expected: &[&str]) -> World {
        let mut world = World::new("g", ChannelKind::GROUP);
        world.lead(0, committed, expected);
        world
    }

    #[track_caller]
    fn lead(&mut self, cursor: u64, committed: u64, expected: &[&str]) {
        let leading = Input::Leading {
            incarnation: Incarnation(5),
            leader_epoch: LeaderEpoch(2),
            cursor: Seq(cursor),
            committed: Seq(committed),
            owed: OwedWord::default(),
        };
        self.check(leading, expected);
    }

    #[track_caller]
    fn check(&mut self, input: Input, expected: &[&str]) {
        let mut out = Vec::new();
        self.channel.handle(self.now, input, &mut out);
        let lines: Vec<_> = out.into_iter().map(|output| self.line(output)).collect();
        assert_eq!(lines, expected);
    }

    #[track_caller]
    fn wait_ms(&mut self, time_ms: u64, expected: &[&str]) {
        self.now.monotonic += Duration::from_millis(time_ms);
        let mut out = Vec::new();
        self.channel.expire(self.now, &mut out);
        let lines: Vec<_> = out.into_iter().map(|output| self.line(output)).collect();
        assert_eq!(lines, expected);
    }

    #[track_caller]
    fn records(&mut self, messages: &[Arc<Committed>], expected: &[&str]) {
        self.records_from(1, messages, expected);
    }

    #[track_caller]
    fn records_from(&mut self, log_start: u64, messages: &[Arc<Committed>], expected: &[&str]) {
        let input = Input::Records {
            token: self.read,
            messages: Some(messages.to_vec()),
            log_start: Seq(log_start),
        };
        self.check(input, expected);
    }

    #[track_caller]
    fn page(&mut self, revision: u64, members: &[(&str, u64)], more: bool, expected: &[&str]) {
        let members = members
            .iter()
            .map(|(uid, join_seq)| (Uid::new(uid), Seq(*join_seq)));
        let page = MembersPage::Page {
            revision,
            members: members.collect(),
            more,
        };
        let token = self.members;
        self.check(Input::Members { token, page }, expected);
    }

    /// Answers the last lookup: these routes, and nothing else.
    #[track_caller]
    fn found(&mut self, routes: &[Route], complete: bool, expected: &[&str]) {
        self.found_but(routes, complete, &[], expected);
    }

    /// Answers the last lookup: these routes, and perhaps these on silent nodes.
    #[track_caller]
    fn found_but(&mut self, routes: &[Route], complete: bool, doubtful: &[Route], expected: &[&str]) {
        let (token, slots) = self.lookup.clone();
        let slots = slots.into_iter().map(|slot| {
            let mut users: Vec<(Uid, Vec<Route>)> = Vec::new();
            for route in routes.iter().filter(|route| route.uid.slot() == slot) {
                match users.iter_mut().find(|(uid, _)| *uid == route.uid) {
                    Some((_, known)) => known.push(route.clone()),
                    None => users.push((route.uid.clone(), vec![route.clone()])),
                }
            }
            let in_doubt = doubtful.iter().filter(|route| route.uid.slot() == slot);
            let doubtful = in_doubt.cloned().collect();
            let known = Presence::Known {
                users,
                complete,
                doubtful,
            };
            (slot, known)
        });
        let slots = slots.collect();
        self.check(Input::Found { token, slots }, expected);
    }

    #[track_caller]
    fn unknown(&mut self, expected: &[&str]) {
        let (token, slots) = self.lookup.clone();
        let slots = slots.into_iter().map(|slot| (slot, Presence::Unknown)).collect();
        self.check(Input::Found { token, slots }, expected);
    }

    /// Answers the last push to this node, all targets alike.
    #[track_caller]
    fn pushed(&mut self, node: u16, outcome: Pushed, expected: &[&str]) {
        let push = self.pushes.iter().rev().find(|(_, to, _)| *to == NodeId(node));
        let (token, _, count) = *push.expect("a push to this node");
        let outcomes = (0_u16..)
            .take(count)
            .map(|position| (position, outcome))
            .collect();
        self.check(Input::Pushed { token, outcomes }, expected);
    }

    #[track_caller]
    fn typing(&mut self, expected: &[&str]) {
        let input = Input::Ephemeral {
            token: Token(77),
            message: message("s", 0, 9),
        };
        self.check(input, expected);
    }

    fn line(&mut self, output: Output) -> String {
        match output {
            Output::ReadRecords {
                token, from, through, ..
            } => {
                self.read = token;
                format!("read {from}..{through}")
            }
            Output::Members {
                token,
                channel,
                known_revision,
                after,
                ..
            } => {
                self.members = token;
                let after = after.map_or_else(String::new, |uid| format!(" after {uid}"));
                format!("members {channel} {known_revision:?}{after}")
            }
            Output::Lookup { token, slots } => {
                self.lookup = (token, slots.iter().map(|(slot, _)| *slot).collect());
                let mut uids: Vec<String> = slots
                    .into_iter()
                    .flat_map(|(_, uids)| uids)
                    .map(|uid| uid.to_string())
                    .collect();
                uids.sort();
                format!("lookup {}", uids.join(","))
            }
            Output::Push { token, node, push } => {
                self.pushes.push((token, node, push.targets.len()));
                let targets = push.targets.iter().map(|target| {
                    let messages = seqs(&push.messages_of(target));
                    let missed = if target.missed { "!" } else { "" };
                    format!(
                        "{}/{}{missed} {} {messages}",
                        target.route.uid, target.route.connection, target.channel_id
                    )
                });
                let mut targets: Vec<_> = targets.collect();
                targets.sort();
                format!("push {node}: {}", targets.join(", "))
            }
            Output::Cursor { through, .. } => format!("cursor {through}"),
            Output::Owed { word } => {
                let uids: Vec<&str> = word.users.iter().map(Uid::as_str).collect();
                format!("owed #{} {}", word.number, uids.join(","))
            }
            Output::Accepted { result, .. } => match result {
                Ok(()) => "accepted".to_owned(),
                Err(reason) => format!("refused {}", reason.0),
            },
        }
    }
}

#[test]
fn a_person_channel_reaches_both_sides_but_not_the_origin() {
    let mut world = World::new("u2@u1", ChannelKind::PERSON);
    world.lead(0, 2, &["read 1..2"]);
    world.records(&[message("u1", 1, 11), message("u2", 2, 21)], &["lookup u1,u2"]);
    let routes = [route("u1", 1, 11), route("u1", 2, 12), route("u2", 1, 21)];
    let pushes = ["push 1: u1/11 u2 2, u2/21 u1 1", "push 2: u1/12 u2 1+2"];
    world.found(&routes, true, &pushes);
    world.pushed(2, Pushed::Bound, &[]);
    assert_eq!(world.channel.lag(), 2);
    world.pushed(1, Pushed::Bound, &["cursor 2"]);
    assert_eq!((world.channel.lag(), world.channel.is_idle()), (0, true));
    assert_eq!(world.channel.counters().bound, 4);
    assert_eq!(world.channel.next_deadline(), None);
}

#[test]
fn a_number_of_a_connection_that_came_again_is_no_origin() {
    let mut world = World::new("u2@u1", ChannelKind::PERSON);
    world.lead(0, 1, &["read 1..1"]);
    world.records(&[message("u1", 1, 11)], &["lookup u1,u2"]);
    world.found(&[route("u2", 1, 11)], true, &["push 1: u2/11 u1 1"]);
}

#[test]
fn nobody_online_moves_the_cursor() {
    let mut world = World::new("u2@u1", ChannelKind::PERSON);
    world.lead(0, 1, &["read 1..1"]);
    world.records(&[message("u1", 1, 11)], &["lookup u1,u2"]);
    world.found(&[], true, &["cursor 1"]);
}

#[test]
fn the_cursor_waits_for_every_target() {
    let mut world = World::group(4, &["read 1..4"]);
    let three: Vec<_> = (1..=3).map(|seq| message("s", seq, 9)).collect();
    world.records(&three, &["members 2/g None"]);
    world.page(1, &[("a", 0), ("b", 0)], false, &["lookup a,b"]);
    let pushes = ["push 1: a/1 g 1+2+3", "push 2: b/2 g 1+2+3"];
    world.found(&[route("a", 1, 1), route("b", 2, 2)], true, &pushes);
    world.pushed(1, Pushed::Gone, &[]);
    // A session that is gone pulls when it comes back; the next run follows.
    world.pushed(2, Pushed::Bound, &["cursor 3", "read 4..4"]);
}

#[test]
fn a_member_receives_only_from_its_join_on() {
    let mut world = World::group(2, &["read 1..2"]);
    world.records(&[message("s", 1, 9), message("s", 2, 9)], &["members 2/g None"]);
    world.page(
        1,
        &[("early", 1), ("late", 2), ("later", 3)],
        false,
        &["lookup early,late"],
    );
    let routes = [route("early", 1, 1), route("late", 1, 2)];
    world.found(&routes, true, &["push 1: early/1 g 1+2, late/2 g 2"]);
}

#[test]
fn a_small_list_is_kept_while_its_revision_is_current() {
    let mut world = World::group(1, &["read 1..1"]);
    world.records(&[message("s", 1, 9)], &["members 2/g None"]);
    world.page(7, &[("a", 0), ("b", 0)], false, &["lookup a,b"]);
    world.found(&[], true, &["cursor 1"]);
    let next = |world: &mut World, seq| {
        let through = Seq(seq);
        world.check(Input::Committed { through }, &[&format!("read {seq}..{seq}")]);
        world.records(&[message("s", seq, 9)], &["members 2/g Some(7)"]);
    };
    next(&mut world, 2);
    let token = world.members;
    let page = MembersPage::Unchanged;
    world.check(Input::Members { token, page }, &["lookup a,b"]);
    world.found(&[], true, &["cursor 2"]);
    next(&mut world, 3);
    world.page(8, &[("a", 0)], false, &["lookup a"]);
    world.found(&[], true, &["cursor 3"]);
}

#[test]
fn a_large_list_is_paged_and_not_kept() {
    let mut world = World::group(2, &["read 1..2"]);
    world.records(&[message("s", 1, 9)], &["members 2/g None"]);
    world.page(
        7,
        &[("a", 0), ("b", 0), ("c", 0), ("d", 0)],
        true,
        &["lookup a,b,c,d"],
    );
    // The next page is not asked for before at most half a page is left.
    let routes = ["a", "b", "c", "d"].map(|uid| route(uid, 1, 1));
    world.found(&routes, true, &["push 1: a/1 g 1, b/1 g 1, c/1 g 1, d/1 g 1"]);
    let token = world.pushes[0].0;
    let outcomes = vec![(0, Pushed::Bound)];
    world.check(Input::Pushed { token, outcomes }, &[]);
    let outcomes = vec![(1, Pushed::Bound)];
    world.check(Input::Pushed { token, outcomes }, &["members 2/g None after d"]);
    world.page(7, &[("e", 0)], false, &["lookup e"]);
    world.found(&[], true, &[]);
    let outcomes = vec![(2, Pushed::Bound), (3, Pushed::Bound)];
    world.check(Input::Pushed { token, outcomes }, &["cursor 1", "read 2..2"]);
    world.records(&[message("s", 2, 9)], &["members 2/g None"]);
}

#[test]
fn a_failed_page_is_asked_for_again() {
    let mut world = World::group(1, &["read 1..1"]);
    world.records(&[message("s", 1, 9)], &["members 2/g None"]);
    let (token, page) = (world.members, MembersPage::Failed);
    world.check(Input::Members { token, page }, &[]);
    world.wait_ms(249, &[]);
    world.wait_ms(1, &["members 2/g None"]);
    world.wait_ms(3_000, &["members 2/g None"]);
    world.page(1, &[], false, &["cursor 1"]);
}

#[test]
fn unknown_presence_is_asked_again_and_given_up_in_the_end() {
    let mut world = World::new("u2@u2", ChannelKind::PERSON);
    world.lead(0, 1, &["read 1..1"]);
    world.records(&[message("u1", 1, 11)], &["lookup u2"]);
    world.unknown(&[]);
    world.wait_ms(250, &["lookup u2"]);
    world.unknown(&[]);
    world.wait_ms(500, &["lookup u2"]);
    // A silence is wait enough.
    world.wait_ms(1_000, &["lookup u2"]);
    world.wait_ms(1_250, &["owed #1 u2", "cursor 1"]);
    assert_eq!(world.channel.counters().given_up, 1);
    // The next run is held up less, and its sessions are told that they have a hole.
    world.check(Input::Committed { through: Seq(2) }, &["read 2..2"]);
    world.records(&[message("u1", 2, 11)], &["lookup u2"]);
    world.unknown(&[]);
    world.wait_ms(250, &["lookup u2"]);
    world.wait_ms(250, &["cursor 2", "lookup u2"]);
    world.wait_ms(250, &["lookup u2"]);
    world.wait_ms(250, &[]);
    world.check(Input::Committed { through: Seq(3) }, &["read 3..3"]);
    world.records(&[message("u1", 3, 11)], &["lookup u2"]);
    world.found(&[route("u2", 1, 1)], true, &["push 1: u2/1! u2 3"]);
    world.pushed(1, Pushed::Gone, &["owed #2 ", "cursor 3"]);
    world.check(Input::Committed { through: Seq(4) }, &["read 4..4"]);
    world.records(&[message("u1", 4, 11)], &["lookup u2"]);
    world.found(&[route("u2", 1, 2)], true, &["push 1: u2/2 u2 4"]);
}

#[test]
fn incomplete_presence_is_used_and_asked_again() {
    let mut world = World::new("u2@u2", ChannelKind::PERSON);
    world.lead(0, 1, &["read 1..1"]);
    world.records(&[message("u1", 1, 11)], &["lookup u2"]);
    world.found(&[route("u2", 1, 1)], false, &["push 1: u2/1 u2 1"]);
    world.pushed(1, Pushed::Bound, &[]);
    world.wait_ms(250, &["lookup u2"]);
    let routes = [route("u2", 1, 1), route("u2", 2, 2)];
    world.found(&routes, true, &["push 2: u2/2 u2 1"]);
    world.pushed(2, Pushed::Bound, &["cursor 1"]);
}

#[test]
fn a_silent_node_delays_no_other_and_is_given_up() {
    let mut world = World::group(1, &["read 1..1"]);
    world.records(&[message("s", 1, 9)], &["members 2/g None"]);
    world.page(1, &[("a", 0), ("b", 0)], false, &["lookup a,b"]);
    let pushes = ["push 1: a/1 g 1", "push 2: b/2 g 1"];
    world.found(&[route("a", 1, 1), route("b", 2, 2)], true, &pushes);
    world.pushed(2, Pushed::Bound, &[]);
    world.wait_ms(250, &["push 1: a/1 g 1"]);
    world.wait_ms(500, &["push 1: a/1 g 1"]);
    world.wait_ms(1_000, &["push 1: a/1 g 1"]);
    world.wait_ms(1_250, &["owed #1 a", "cursor 1"]);
    assert_eq!(world.channel.counters().given_up, 1);
    assert_eq!(world.channel.counters().bound, 1);
}

/// A group with a message that reached one session of `a` and not its session on node 1.
fn owing() -> World {
    let mut world = World::group(1, &["read 1..1"]);
    world.records(&[message("s", 1, 9)], &["members 2/g None"]);
    world.page(1, &[("a", 0)], false, &["lookup a"]);
    let routes = [route("a", 1, 1), route("a", 2, 2)];
    let pushes = ["push 1: a/1 g 1", "push 2: a/2 g 1"];
    world.found(&routes, true, &pushes);
    world.pushed(2, Pushed::Bound, &[]);
    for wait_ms in [250, 500, 1_000] {
        world.wait_ms(wait_ms, &["push 1: a/1 g 1"]);
    }
    world.wait_ms(1_250, &["owed #1 a", "cursor 1"]);
    world
}

#[test]
fn who_is_owed_something_is_looked_for_until_found() {
    let mut world = owing();
    let routes = [route("a", 1, 1), route("a", 2, 2)];
    assert!(!world.channel.is_idle());
    world.wait_ms(250, &["lookup a"]);
    world.unknown(&[]);
    world.wait_ms(250, &["lookup a"]);
    // Only the session that was not reached has a hole.
    world.found(&routes, true, &["push 1: a/1! g "]);
    // Its node is still silent: the debt stays, for another leader too.
    world.wait_ms(250, &["lookup a"]);
    world.found(&routes, true, &["push 1: a/1! g "]);
    world.pushed(1, Pushed::Gone, &["owed #2 "]);
    assert!(world.channel.is_idle());
}

#[test]
fn a_session_that_subscribed_meanwhile_is_told_what_it_is_owed() {
    let mut world = owing();
    let route_of_a = route("a", 1, 1);
    world.check(
        Input::Subscribe {
            route: route_of_a.clone(),
        },
        &[],
    );
    world.wait_ms(250, &["lookup a"]);
    world.found(&[route_of_a], true, &["push 1: a/1! g "]);
}

/// PC-1: that a user was found says nothing about the session that could not be reached as a subscriber.
#[test]
fn who_was_not_reached_as_a_subscriber_is_owed_although_found_as_a_member() {
    let mut world = World::group(1, &["read 1..1"]);
    let subscriber = route("a", 1, 1);
    world.check(
        Input::Subscribe {
            route: subscriber.clone(),
        },
        &[],
    );
    world.records(&[message("s", 1, 9)], &["push 1: a/1 g 1", "members 2/g None"]);
    for wait_ms in [250, 500, 1_000] {
        world.wait_ms(wait_ms, &["push 1: a/1 g 1"]);
    }
    world.wait_ms(1_249, &[]);
    world.wait_ms(1, &["members 2/g None", "owed #1 a"]);
    world.page(1, &[("a", 0)], false, &["lookup a"]);
    // The debt stays: it would be told as `owed #2` if it had ended.
    world.found(&[subscriber], true, &["cursor 1"]);
}

#[test]
fn a_debt_ends_when_the_session_is_gone() {
    let mut world = owing();
    world.wait_ms(250, &["lookup a"]);
    world.found(&[route("a", 2, 2)], true, &["owed #2 "]);
    assert!(world.channel.is_idle());
}

#[test]
fn a_sender_that_missed_something_is_told_with_its_own_message() {
    let mut world = owing();
    world.check(Input::Committed { through: Seq(2) }, &["read 2..2"]);
    world.records(&[message("a", 2, 1)], &["members 2/g Some(1)"]);
    let token = world.members;
    let page = MembersPage::Unchanged;
    world.check(Input::Members { token, page }, &["lookup a"]);
    let mut own = route("a", 1, 1);
    own.node = NodeId(1);
    world.found(&[own], true, &["push 1: a/1! g "]);
}

#[test]
fn a_session_on_a_silent_node_is_owed_and_not_waited_for() {
    let mut world = World::group(1, &["read 1..1"]);
    world.records(&[message("s", 1, 9)], &["members 2/g None"]);
    world.page(1, &[("a", 0)], false, &["lookup a"]);
    let silent = [route("a", 1, 1)];
    world.found_but(&[], true, &silent, &["owed #1 a", "cursor 1"]);
    world.wait_ms(250, &["lookup a"]);
    // A session that came later has missed nothing.
    world.found_but(&[route("a", 2, 2)], true, &silent, &[]);
    world.wait_ms(500, &["lookup a"]);
    let both = [route("a", 1, 1), route("a", 2, 2)];
    world.found(&both, true, &["push 1: a/1! g "]);
}

#[test]
fn the_next_leader_inherits_what_is_owed() {
    let mut world = World::new("g", ChannelKind::GROUP);
    let word = OwedWord {
        leader_epoch: LeaderEpoch(1),
        number: 7,
        users: vec![Uid::new("a"), Uid::new("b")],
    };
    assert_eq!(OwedWord::decode(&word.encode()), Some(word.clone()));
    assert_eq!(OwedWord::decode(&word.encode()[..17]), None);
    let leading = Input::Leading {
        incarnation: Incarnation(5),
        leader_epoch: LeaderEpoch(2),
        cursor: Seq(4),
        committed: Seq(4),
        owed: word,
    };
    world.check(leading, &["lookup a,b"]);
    world.found(&[route("a", 1, 1)], true, &["push 1: a/1! g ", "owed #1 a"]);
    world.pushed(1, Pushed::Gone, &["owed #2 "]);
    assert!(world.channel.is_idle());
}

#[test]
fn a_session_that_is_not_open_yet_is_pushed_again() {
    let mut world = World::new("u2@u2", ChannelKind::PERSON);
    world.lead(0, 1, &["read 1..1"]);
    world.records(&[message("u1", 1, 11)], &["lookup u2"]);
    world.found(&[route("u2", 1, 1)], true, &["push 1: u2/1 u2 1"]);
    world.pushed(1, Pushed::NotYet, &[]);
    world.wait_ms(250, &["push 1: u2/1 u2 1"]);
    world.pushed(1, Pushed::Bound, &["cursor 1"]);
}

#[test]
fn a_session_whose_window_is_full_is_pushed_again_very_soon() {
    let mut world = World::new("u2@u2", ChannelKind::PERSON);
    world.lead(0, 1, &["read 1..1"]);
    world.records(&[message("u1", 1, 11)], &["lookup u2"]);
    world.found(&[route("u2", 1, 1)], true, &["push 1: u2/1 u2 1"]);
    for _ in 0..5 {
        world.pushed(1, Pushed::Full, &[]);
        world.wait_ms(2, &["push 1: u2/1 u2 1"]);
    }
    world.pushed(1, Pushed::Bound, &["cursor 1"]);
}

#[test]
fn expired_messages_are_skipped() {
    let mut world = World::group(2, &["read 1..2"]);
    world.records(&[expiring(1, 50), expiring(2, 51)], &["members 2/g None"]);
    world.page(1, &[("a", 0)], false, &["lookup a"]);
    world.found(&[route("a", 1, 1)], true, &["push 1: a/1 g 2"]);
    assert_eq!(world.channel.counters().expired, 1);
    let mut world = World::group(1, &["read 1..1"]);
    world.records(&[expiring(1, 1)], &["cursor 1"]);
}

#[test]
fn a_command_channel_is_seen_as_its_source() {
    let mut world = World::new("g____cmd", ChannelKind::GROUP);
    world.lead(0, 1, &["read 1..1"]);
    world.records(&[message("s", 1, 9)], &["members 2/g None"]);
    // Positions of the command channel are not those that members joined at.
    world.page(1, &[("a", 500)], false, &["lookup a"]);
    world.found(&[route("a", 1, 1)], true, &["push 1: a/1 g 1"]);
    let mut world = World::new("u2@u1____cmd", ChannelKind::PERSON);
    world.lead(0, 1, &["read 1..1"]);
    world.records(&[message("u1", 1, 11)], &["lookup u1,u2"]);
    world.found(&[route("u2", 1, 1)], true, &["push 1: u2/1 u1 1"]);
}

#[test]
fn a_message_that_is_not_stored_reaches_who_is_online() {
    let mut world = World::new("g", ChannelKind::GROUP);
    world.typing(&["refused 18"]);
    world.lead(0, 0, &[]);
    world.typing(&["accepted", "members 2/g None"]);
    world.page(1, &[("a", 9)], false, &["lookup a"]);
    world.found(&[route("a", 1, 1)], true, &["push 1: a/1 g 0"]);
    world.typing(&["accepted"]);
    world.typing(&["accepted"]);
    world.typing(&["refused 22"]);
    world.check(Input::Committed { through: Seq(1) }, &[]);
    // It may have arrived, so it is not pushed again; then the stored ones have their turn.
    world.wait_ms(250, &["read 1..1"]);
    world.records(&[message("s", 1, 9)], &["members 2/g Some(1)"]);
    world.check(Input::Lost, &[]);
    assert_eq!(world.channel.counters().ephemeral_lost, 2);
}

#[test]
fn the_two_kinds_of_messages_take_turns() {
    let mut world = World::group(2, &["read 1..2"]);
    world.typing(&["accepted"]);
    world.records(&[message("s", 1, 9)], &["members 2/g None"]);
    world.page(1, &[], false, &["cursor 1", "members 2/g Some(1)"]);
    world.page(1, &[], false, &["read 2..2"]);
}

#[test]
fn lost_leadership_drops_everything_and_the_cursor_resumes() {
    let mut world = World::group(2, &["read 1..2"]);
    world.records(&[message("s", 1, 9)], &["members 2/g None"]);
    world.page(1, &[("a", 0)], false, &["lookup a"]);
    world.found(&[route("a", 1, 1)], true, &["push 1: a/1 g 1"]);
    world.check(Input::Lost, &[]);
    assert_eq!(world.channel.next_deadline(), None);
    world.pushed(1, Pushed::Bound, &[]);
    world.check(Input::Committed { through: Seq(3) }, &[]);
    world.lead(1, 3, &["read 2..3"]);
}

#[test]
fn a_failed_read_is_repeated_and_what_retention_removed_is_passed() {
    let mut world = World::group(5, &["read 1..5"]);
    let failed = Input::Records {
        token: world.read,
        messages: None,
        log_start: Seq(1),
    };
    world.check(failed.clone(), &[]);
    world.wait_ms(250, &["read 1..5"]);
    world.check(failed, &[]);
    world.wait_ms(3_000, &["read 1..5"]);
    // A gap that retention does not explain is no answer.
    world.records_from(3, &[message("s", 4, 9)], &[]);
    world.wait_ms(250, &["read 1..5"]);
    world.records_from(4, &[message("s", 4, 9)], &["members 2/g None"]);
    world.page(1, &[], false, &["cursor 4", "read 5..5"]);
    world.records_from(5, &[], &[]);
    world.wait_ms(250, &["read 5..5"]);
    world.records_from(6, &[], &["cursor 5"]);
}

#[test]
#[should_panic(expected = "CH_3")]
fn nothing_uncommitted_is_delivered() {
    let mut world = World::group(1, &["read 1..1"]);
    world.records(&[message("s", 1, 9), message("s", 2, 9)], &[]);
}

#[test]
fn ephemeral_subscribers_receive_until_they_leave_or_their_lease_ends() {
    let mut world = World::new("live", ChannelKind::LIVE);
    world.lead(0, 0, &[]);
    for connection in [1, 2, 3] {
        let route = route("v", 1, connection);
        world.check(Input::Subscribe { route }, &[]);
    }
    let member = route("v", 1, 1);
    let gone = route("v", 1, 2);
    world.check(Input::Unsubscribe { route: gone }, &[]);
    let next = |world: &mut World, seq, expected: &str| {
        let through = Seq(seq);
        world.check(Input::Committed { through }, &[&format!("read {seq}..{seq}")]);
        world.records(&[message("s", seq, 9)], &[expected, "members 9/live None"]);
    };
    next(&mut world, 1, "push 1: v/1 live 1, v/3 live 1");
    // Who is a member as well gets it once.
    world.page(1, &[("v", 0)], true, &["lookup v"]);
    world.found(
        std::slice::from_ref(&member),
        true,
        &["members 9/live None after v"],
    );
    world.page(1, &[], false, &[]);
    let token = world.pushes[0].0;
    let outcomes = vec![(0, Pushed::Bound), (1, Pushed::Gone)];
    world.check(Input::Pushed { token, outcomes }, &["cursor 1"]);
    next(&mut world, 2, "push 1: v/1 live 2");
    world.page(1, &[], false, &[]);
    world.pushed(1, Pushed::Bound, &["cursor 2"]);
    world.wait_ms(60_000, &[]);
    world.check(Input::Subscribe { route: member }, &[]);
    world.wait_ms(30_000, &[]);
    assert!(!world.channel.is_idle());
    world.wait_ms(60_000, &[]);
    assert!(world.channel.is_idle());
    assert_eq!(world.channel.next_deadline(), None);
}

fn named(from: &str, seq: u64, subscribers: &[&str]) -> Arc<Committed> {
    let mut committed = Arc::unwrap_or_clone(message(from, seq, 9));
    committed.message.draft.subscribers = subscribers.iter().map(|uid| Uid::new(uid)).collect();
    Arc::new(committed)
}

#[test]
fn a_request_names_its_receivers_and_nobody_else_gets_the_message() {
    let mut world = World::new("17____cmd", ChannelKind::TEMPORARY);
    world.lead(0, 3, &["read 1..3"]);
    let five = ["a", "b", "c", "d", "e"];
    // Lists of one hash share a log: each message still goes to its own list.
    let messages = [named("s", 1, &five), named("s", 2, &five), named("s", 3, &["x"])];
    world.records(&messages, &["lookup a,b,c,d"]);
    world.found(&[route("a", 1, 1)], true, &["push 1: a/1 17 1+2", "lookup e"]);
    world.found(&[], true, &[]);
    world.pushed(1, Pushed::Bound, &["cursor 2", "read 3..3"]);
    world.records(&messages[2..], &["lookup x"]);
    world.found(&[route("x", 2, 2)], true, &["push 2: x/2 17 3"]);
    world.pushed(2, Pushed::Bound, &["cursor 3"]);
    let token = Token(77);
    let (first, second) = (named("s", 0, &["a"]), named("s", 0, &["b"]));
    world.check(
        Input::Ephemeral {
            token,
            message: first,
        },
        &["accepted", "lookup a"],
    );
    world.check(
        Input::Ephemeral {
            token,
            message: second,
        },
        &["accepted"],
    );
    world.found(&[], true, &["lookup b"]);
}

#[test]
fn agents_and_visitors_are_named_by_the_id() {
    let mut world = World::new("u@agent", ChannelKind::AGENT);
    world.lead(0, 1, &["read 1..1"]);
    world.records(&[message("u", 1, 9)], &["lookup agent,u"]);
    world.found(&[route("agent", 1, 1)], true, &["push 1: agent/1 u@agent 1"]);
    let mut world = World::new("v", ChannelKind::VISITORS);
    world.lead(0, 1, &["read 1..1"]);
    world.records(&[message("s", 1, 9)], &["lookup v", "members 10/v None"]);
    world.page(1, &[("s", 0), ("v", 0)], false, &["lookup s"]);
}

#[cfg(feature = "mutants")]
#[test]
fn planted_faults_show() {
    let planted = |fault| Settings {
        limits: limits(),
        faults: Faults::planted(fault),
    };
    let mut world = World::with("g", ChannelKind::GROUP, planted(Fault::CursorBeforeBound));
    world.lead(0, 1, &["read 1..1"]);
    world.records(&[message("s", 1, 9)], &["cursor 1", "members 2/g None"]);
    let mut world = World::with("g", ChannelKind::GROUP, planted(Fault::DeliverUncommitted));
    world.lead(0, 1, &[&format!("read 1..{}", u64::MAX)]);
    world.records(&[message("s", 1, 9), message("s", 2, 9)], &["members 2/g None"]);
}
