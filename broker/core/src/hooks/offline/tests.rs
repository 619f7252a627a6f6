//! Pages, doubts, retries.

use super::*;
use crate::hooks::cursors::Cause;
use crate::hooks::faults::Faults;
use crate::limits::Limits;
use crate::message::{Draft, MessageFlags};
use crate::types::{
    ChannelKind, ConnectionId, DeviceFlag, DeviceLevel, MessageId, NodeId, Now, ProcessBoot, Route,
};
use bytes::Bytes;
use std::time::Duration;

/// What is known of the users, for a machine whose questions are answered at once.
struct World {
    machine: Offline,
    members: Vec<(Uid, Seq)>,
    online: BTreeSet<Uid>,
    doubtful: BTreeSet<Uid>,
    unknown: BTreeSet<Uid>,
    at: Duration,
    lookups: usize,
}

fn uid(name: &str) -> Uid {
    Uid::new(name)
}

fn uids(names: &[&str]) -> Vec<Uid> {
    names.iter().copied().map(uid).collect()
}

fn message(seq: u64, from: &str) -> Message {
    Message {
        id: MessageId(7),
        seq: Seq(seq),
        stamp_ms: 1_000,
        draft: Draft {
            from_uid: uid(from),
            client_msg_no: Arc::from("n"),
            flags: MessageFlags::default(),
            setting: 0,
            expire_s: 0,
            topic: Arc::from(""),
            payload: Bytes::new(),
            origin: None,
            subscribers: Arc::from([]),
            attributes: None,
            hops: 0,
        },
    }
}

fn route(uid: &Uid) -> Route {
    Route {
        uid: uid.clone(),
        device_id: Arc::from("d"),
        flag: DeviceFlag(0),
        level: DeviceLevel::Slave,
        node: NodeId(1),
        boot: ProcessBoot(1),
        connection: ConnectionId(1),
        owner_seq: 1,
    }
}

impl World {
    fn new(channel: &ChannelKey, faults: Faults) -> World {
        let limits = Limits {
            delivery_page: 2,
            ..Limits::default()
        };
        World {
            machine: Offline::new(channel, &limits, faults, Token(1)),
            members: Vec::new(),
            online: BTreeSet::new(),
            doubtful: BTreeSet::new(),
            unknown: BTreeSet::new(),
            at: Duration::ZERO,
            lookups: 0,
        }
    }

    fn group(members: &[(&str, u64)]) -> World {
        let mut world = World::new(&ChannelKey::new("g", ChannelKind::GROUP), Faults::default());
        world.members = members.iter().map(|(name, seq)| (uid(name), Seq(*seq))).collect();
        world
    }

    fn now(&self) -> Now {
        Now {
            monotonic: self.at,
            wall_ms: 2_000,
        }
    }

    fn begin(&mut self, message: Message, run: u64) -> Vec<Output> {
        let attempt = Attempt {
            consumer: Arc::from("c"),
            run: Token(run),
            single: false,
        };
        let message = Arc::new(message);
        self.input(Input::Begin { attempt, message })
    }

    /// Gives an input, answers what is asked, and returns the rest.
    fn input(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.machine.handle(self.now(), input, &mut out);
        self.serve(out)
    }

    fn wait(&mut self, milliseconds: u64) -> Vec<Output> {
        self.at += Duration::from_millis(milliseconds);
        let mut out = Vec::new();
        self.machine.expire(self.now(), &mut out);
        self.serve(out)
    }

    fn serve(&mut self, outputs: Vec<Output>) -> Vec<Output> {
        let mut left = Vec::new();
        for output in outputs {
            match output {
                Output::Members {
                    token,
                    after,
                    members_max,
                    ..
                } => {
                    let rest = self.members.iter();
                    let rest = rest.filter(|(uid, _)| after.as_ref().is_none_or(|after| uid > after));
                    let mut members: Vec<(Uid, Seq)> = rest.cloned().collect();
                    let more = members.len() > members_max as usize;
                    members.truncate(members_max as usize);
                    let page = MembersPage::Page {
                        revision: 0,
                        members,
                        more,
                    };
                    left.extend(self.input(Input::Members { token, page }));
                }
                Output::Lookup { token, slots, .. } => {
                    self.lookups += 1;
                    for (slot, uids) in slots {
                        let slots = vec![(slot, self.presence(&uids))];
                        left.extend(self.input(Input::Found { token, slots }));
                    }
                }
                other => left.push(other),
            }
        }
        left
    }

    fn presence(&self, uids: &[Uid]) -> Presence {
        if uids.iter().any(|uid| self.unknown.contains(uid)) {
            return Presence::Unknown;
        }
        let of = |set: &BTreeSet<Uid>| -> Vec<Uid> {
            uids.iter().filter(|uid| set.contains(uid)).cloned().collect()
        };
        Presence::Known {
            users: of(&self.online)
                .into_iter()
                .map(|uid| (uid.clone(), vec![route(&uid)]))
                .collect(),
            complete: true,
            doubtful: of(&self.doubtful).iter().map(route).collect(),
        }
    }
}

/// The only call, and its token.
fn called(outputs: &[Output]) -> (Token, Vec<Uid>) {
    let [Output::Call { token, uids, .. }] = outputs else {
        panic!("{outputs:?}")
    };
    (*token, uids.clone())
}

fn ended(outputs: &[Output]) -> Result<Seq, Failure> {
    match outputs {
        [Output::Done { seq, .. }] => Ok(*seq),
        [Output::Failed { failure, .. }] => Err(*failure),
        other => panic!("{other:?}"),
    }
}

fn all(token: Token, count: usize) -> Input {
    Input::Returned {
        token,
        result: Ok(count),
    }
}

fn retry(token: Token) -> Input {
    let failure = Failure::Retry {
        after: None,
        cause: Cause::Asked,
    };
    Input::Returned {
        token,
        result: Err(failure),
    }
}

#[test]
fn the_members_who_are_offline_are_handed_out_page_by_page() {
    let mut world = World::group(&[("a", 1), ("b", 1), ("c", 1), ("d", 9), ("e", 1), ("s", 1)]);
    world.online.insert(uid("a"));
    let (token, page) = called(&world.begin(message(5, "s"), 1));
    assert_eq!(page, uids(&["b"]), "nobody who is online");
    // Who joined later is not told of, and the sender neither.
    let (token, page) = called(&world.input(all(token, 1)));
    assert_eq!(page, uids(&["c"]));
    let (token, page) = called(&world.input(all(token, 1)));
    assert_eq!(page, uids(&["e"]));
    assert_eq!(ended(&world.input(all(token, 1))), Ok(Seq(5)));
    assert!(world.machine.is_idle());
}

#[test]
fn a_person_channel_has_two_recipients() {
    let mut world = World::new(&ChannelKey::new("b@a", ChannelKind::PERSON), Faults::default());
    let (token, page) = called(&world.begin(message(1, "a"), 1));
    assert_eq!(page, uids(&["b"]));
    assert_eq!(ended(&world.input(all(token, 1))), Ok(Seq(1)));
    world.online.insert(uid("b"));
    assert_eq!(ended(&world.begin(message(2, "a"), 2)), Ok(Seq(2)));
    // Of a message from somebody else both are told, and one that was done is not handed out again.
    world.online.clear();
    let (token, page) = called(&world.begin(message(3, "system"), 3));
    assert_eq!(page, uids(&["a", "b"]));
    let (token, rest) = called(&world.input(all(token, 1)));
    assert_eq!(rest, uids(&["b"]));
    world.input(retry(token));
    let (_, again) = called(&world.begin(message(3, "system"), 4));
    assert_eq!(again, uids(&["b"]));
}

#[test]
fn another_attempt_begins_after_what_is_done() {
    let mut world = World::group(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
    let (token, page) = called(&world.begin(message(5, "s"), 1));
    assert_eq!(page, uids(&["a", "b"]));
    let (token, page) = called(&world.input(all(token, 2)));
    assert_eq!(page, uids(&["c", "d"]));
    let (token, page) = called(&world.input(all(token, 1)));
    assert_eq!(page, uids(&["d"]));
    assert!(matches!(
        ended(&world.input(retry(token))),
        Err(Failure::Retry { .. })
    ));
    let (_, page) = called(&world.begin(message(5, "s"), 2));
    assert_eq!(page, uids(&["d"]));
    // Another leadership, and another message, begin at the first page.
    world.input(Input::Lost);
    let (token, page) = called(&world.begin(message(5, "s"), 3));
    assert_eq!(page, uids(&["a", "b"]));
    assert_eq!(world.input(all(Token(0), 1)), [], "of nobody");
    world.input(retry(token));
    let (token, page) = called(&world.begin(message(6, "s"), 4));
    assert_eq!(page, uids(&["a", "b"]));
    // An attempt that is superseded is heard no more.
    world.begin(message(6, "s"), 5);
    assert_eq!(world.input(all(token, 2)), []);
    world.input(Input::Consumers(BTreeSet::new()));
    assert!(world.machine.is_idle());
}

#[test]
fn who_is_not_known_is_asked_for_again_and_never_taken_as_offline() {
    let mut world = World::group(&[("a", 1), ("b", 1)]);
    world.doubtful.insert(uid("a"));
    assert_eq!(world.begin(message(1, "s"), 1), []);
    assert_eq!(world.lookups, 1);
    assert_eq!(world.machine.next_deadline(), Some(Duration::from_millis(250)));
    assert_eq!(world.wait(250), []);
    assert_eq!(world.lookups, 2);
    world.doubtful.clear();
    let (token, page) = called(&world.wait(250));
    assert_eq!(page, uids(&["a", "b"]));
    assert_eq!(ended(&world.input(all(token, 2))), Ok(Seq(1)));
    // Within a bound.
    world.unknown.insert(uid("b"));
    let mut out = world.begin(message(2, "s"), 2);
    for _ in 0..20 {
        assert!(!matches!(out[..], [Output::Call { .. }]));
        if !out.is_empty() {
            break;
        }
        out = world.wait(250);
    }
    assert_eq!(ended(&out), Err(Failure::Untried));
    // Who has a session is online, whatever else may be known.
    world.online.insert(uid("b"));
    world.unknown.clear();
    world.doubtful.insert(uid("b"));
    assert_eq!(called(&world.begin(message(2, "s"), 3)).1, uids(&["a"]));
}

#[test]
fn members_that_cannot_be_read_are_asked_for_again_within_a_bound() {
    let mut world = World::group(&[]);
    let mut out = Vec::new();
    let attempt = Attempt {
        consumer: Arc::from("c"),
        run: Token(1),
        single: true,
    };
    let message = Arc::new(message(1, "s"));
    let begin = Input::Begin { attempt, message };
    world.machine.handle(world.now(), begin, &mut out);
    for _ in 0..20 {
        let [Output::Members { token, .. }] = out[..] else {
            break;
        };
        let page = MembersPage::Failed;
        let now = world.now();
        out.clear();
        world
            .machine
            .handle(now, Input::Members { token, page }, &mut out);
        if out.is_empty() {
            world.at += Duration::from_millis(250);
            world.machine.expire(world.now(), &mut out);
        }
    }
    assert_eq!(ended(&out), Err(Failure::Untried));
    assert!(world.machine.is_idle());
}

#[test]
fn of_some_messages_nobody_is_told() {
    let mut world = World::group(&[("a", 1)]);
    let with = |change: fn(&mut Message)| {
        let mut message = message(3, "s");
        change(&mut message);
        message
    };
    for quiet in [
        with(|message| message.draft.flags.sync_once = true),
        with(|message| message.draft.subscribers = Arc::from(uids(&["a"]))),
        with(|message| message.draft.expire_s = 1),
    ] {
        assert_eq!(ended(&world.begin(quiet, 1)), Ok(Seq(3)));
    }
    assert_eq!(world.lookups, 0);
}

/// Every planted fault shows.
#[cfg(feature = "mutants")]
mod planted {
    use super::*;

    #[test]
    fn who_is_not_known_is_taken_for_offline() {
        let faults = Faults::named("unknown_presence_is_offline").expect("a fault");
        let mut world = World::new(&ChannelKey::new("g", ChannelKind::GROUP), faults);
        world.members = vec![(uid("a"), Seq(1))];
        world.unknown.insert(uid("a"));
        assert_eq!(called(&world.begin(message(1, "s"), 1)).1, uids(&["a"]));
    }

    #[test]
    fn pages_are_left_out() {
        let faults = Faults::named("pages_skipped").expect("a fault");
        let mut world = World::new(&ChannelKey::new("g", ChannelKind::GROUP), faults);
        world.members = ["a", "b", "c"].map(|name| (uid(name), Seq(1))).to_vec();
        let (token, _) = called(&world.begin(message(1, "s"), 1));
        assert_eq!(ended(&world.input(all(token, 2))), Ok(Seq(1)));
    }
}
