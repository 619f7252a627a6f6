//! One world of sessions; every test says what goes in and, line by line, what must come out.

use super::*;
use crate::client::{Connect, Protocol, Subscribe};
use crate::entrance::Admitted;
use crate::message::{Draft, Message, MessageFlags};
use crate::types::{ChannelKey, Incarnation, MessageId, Now, Seq};
use bytes::Bytes;
use std::time::Duration;

struct World {
    sessions: Sessions,
    /// Whether the test answers for the gates.
    gated: bool,
    now: Now,
}

fn limits() -> Limits {
    Limits {
        session_sends_max: 3,
        session_subscriptions_max: 2,
        session_channels_max: 2,
        unacknowledged_max: 3,
        unacknowledged_bytes_max: 2_000,
        reoffer_interval: Duration::from_secs(20),
        reoffers_max: 2,
        payload_bytes_max: 1_500,
        ..Limits::default()
    }
}

fn world_with(any_token: bool, limits: Limits) -> World {
    let settings = Settings {
        node: NodeId(7),
        boot: ProcessBoot(70),
        any_token,
        limits,
        faults: Faults::default(),
    };
    let now = Now {
        monotonic: Duration::from_secs(100),
        wall_ms: 1_000_000,
    };
    World {
        sessions: Sessions::new(settings),
        gated: false,
        now,
    }
}

fn connect(uid: &str, device_id: &str, protocol: Protocol) -> ClientFrame {
    ClientFrame::Connect(Connect {
        protocol,
        version: 2,
        uid: Arc::from(uid),
        token: Secret(Arc::from("secret")),
        device_id: Arc::from(device_id),
        device_flag: DeviceFlag(1),
        client_timestamp_ms: 999_975,
        address: Arc::from("192.0.2.7"),
    })
}

fn send(client_seq: u64, channel_id: &str) -> Send {
    Send {
        client_seq,
        client_msg_no: Arc::from(format!("m{client_seq}").as_str()),
        channel_id: Arc::from(channel_id),
        kind: ChannelKind::GROUP,
        no_persist: false,
        red_dot: true,
        sync_once: false,
        setting: 0,
        expire_s: 0,
        topic: Arc::from(""),
        payload: Ok(Bytes::from_static(b"hi")),
    }
}

fn subscribe(channel_id: &str, subscribe: bool) -> ClientFrame {
    ClientFrame::Subscribe(Subscribe {
        sub_no: Arc::from("n"),
        channel_id: Arc::from(channel_id),
        kind: ChannelKind::DATA,
        subscribe,
        param: Arc::from(""),
    })
}

fn message(incarnation: u64, seq: u64) -> Arc<Committed> {
    let id = i64::try_from(incarnation * 100 + seq).expect("small");
    let draft = Draft {
        from_uid: Uid::new("writer"),
        client_msg_no: Arc::from(""),
        flags: MessageFlags::default(),
        setting: 0,
        expire_s: 0,
        topic: Arc::from(""),
        payload: Bytes::from_static(b"hi"),
        origin: None,
        subscribers: Arc::from([]),
        attributes: None,
        hops: 0,
    };
    Arc::new(Committed {
        channel: ChannelKey::new("g", ChannelKind::GROUP),
        incarnation: Incarnation(incarnation),
        message: Message {
            id: MessageId(id),
            seq: Seq(seq),
            stamp_ms: 1_000_000,
            draft,
        },
    })
}

fn changed(message: &Arc<Committed>, change: impl FnOnce(&mut Message)) -> Arc<Committed> {
    let mut copy = Committed::clone(message);
    change(&mut copy.message);
    Arc::new(copy)
}

fn line(output: Output) -> String {
    match output {
        Output::Frame { connection, frame } => format!("{connection} {}", frame_line(frame)),
        Output::Close { connection, reason } => format!("{connection} close {reason:?}"),
        Output::Authenticate { token, uid, flag, .. } => format!("authenticate {token} {uid} {}", flag.0),
        Output::Enter {
            connection,
            request,
            level,
        } => format!("enter {connection} {} {level:?} {}", request.uid, request.address),
        Output::Left { connection } => format!("left {connection}"),
        Output::Register { token, route } => format!("register {token} {}", route_line(&route)),
        Output::Unregister { route } => format!("unregister {}", route_line(&route)),
        Output::Touch { routes } => {
            let routes: Vec<_> = routes.iter().map(route_line).collect();
            format!("touch {}", routes.join(","))
        }
        Output::Submit { token, send, .. } => {
            format!("submit {token} {} {}", send.channel_id, send.client_seq)
        }
        Output::Subscribe {
            token,
            channel_id,
            renewal,
            ..
        } => format!("subscribe {token} {channel_id} {renewal}"),
        Output::Unsubscribe { channel_id, .. } => format!("unsubscribe {channel_id}"),
        Output::Offered { outcomes, .. } => format!("offered {outcomes:?}"),
    }
}

fn frame_line(frame: ServerFrame) -> String {
    match frame {
        ServerFrame::Connack {
            reason,
            text,
            time_difference_ms,
            node,
        } => {
            let words = text.map_or_else(String::new, |text| format!(" {text}"));
            format!("CONNACK {} {time_difference_ms} {node}{words}", reason.0)
        }
        ServerFrame::SendAck {
            client_seq,
            client_msg_no,
            id,
            seq,
            reason,
            text,
        } => {
            let words = text.map_or_else(String::new, |text| format!(" {text}"));
            format!(
                "SENDACK {client_seq} {client_msg_no} {id} {seq} {}{words}",
                reason.0
            )
        }
        ServerFrame::OutcomeUnknown { client_seq, .. } => format!("unknown {client_seq}"),
        ServerFrame::Recv {
            message,
            channel_id,
            duplicate,
            ..
        } => format!(
            "RECV {channel_id} {}{}",
            message.message.seq,
            if duplicate { " again" } else { "" }
        ),
        ServerFrame::Pong => "PONG".to_owned(),
        ServerFrame::SubAck {
            channel_id,
            subscribe,
            reason,
            ..
        } => format!("SUBACK {channel_id} {subscribe} {}", reason.0),
        ServerFrame::Disconnect { reason, text } => format!("DISCONNECT {} {text}", reason.0),
    }
}

fn route_line(route: &Route) -> String {
    format!(
        "{}/{}/{}#{}",
        route.uid, route.device_id, route.connection, route.owner_seq
    )
}

impl World {
    fn open(connections: &[(u64, &str)]) -> World {
        let mut world = world_with(true, limits());
        for (connection, uid) in connections {
            world.connect(*connection, uid, Protocol::WkProto);
        }
        world
    }

    fn connect(&mut self, connection: u64, uid: &str, protocol: Protocol) -> Route {
        let connection = ConnectionId(connection);
        self.input(Input::Opened { connection });
        let frame = connect(uid, "d", protocol);
        let outputs = self.input(Input::Frame { connection, frame });
        let [Output::Register { token, route }] = outputs.as_slice() else {
            panic!("no registration: {outputs:?}");
        };
        let lines = self.lines(Input::Registered {
            token: *token,
            result: Ok(()),
        });
        assert_eq!(lines, [format!("{connection} CONNACK 1 25 7")]);
        route.clone()
    }

    fn input(&mut self, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        self.sessions.handle(self.now, input, &mut out);
        self.let_in(out)
    }

    /// Unless they are watched, the gates let everybody in as they come.
    fn let_in(&mut self, out: Vec<Output>) -> Vec<Output> {
        let mut all = Vec::new();
        for output in out {
            match output {
                Output::Enter {
                    connection,
                    request,
                    level,
                } if !self.gated => {
                    let admitted = Admitted {
                        uid: request.uid,
                        level,
                        attributes: None,
                    };
                    let result = Ok(admitted);
                    let input = Input::Entered { connection, result };
                    self.sessions.handle(self.now, input, &mut all);
                }
                other => all.push(other),
            }
        }
        all
    }

    fn lines(&mut self, input: Input) -> Vec<String> {
        self.input(input).into_iter().map(line).collect()
    }

    #[track_caller]
    fn check(&mut self, input: Input, expected: &[&str]) {
        assert_eq!(self.lines(input), expected);
    }

    #[track_caller]
    fn frame(&mut self, connection: u64, frame: ClientFrame, expected: &[&str]) {
        let connection = ConnectionId(connection);
        self.check(Input::Frame { connection, frame }, expected);
    }

    #[track_caller]
    fn done(&mut self, token: u64, outcome: Outcome, expected: &[&str]) {
        let token = Token(token);
        self.check(Input::SendDone { token, outcome }, expected);
    }

    #[track_caller]
    fn offer(&mut self, route: &Route, messages: &[Arc<Committed>], expected: &[&str]) {
        let offer = Offer {
            route: route.clone(),
            channel_id: Arc::from("g"),
            kind: ChannelKind::GROUP,
            messages: messages.to_vec(),
            missed: false,
        };
        let token = Token(0);
        self.check(
            Input::Offer {
                token,
                offers: vec![offer],
            },
            expected,
        );
    }

    #[track_caller]
    fn wait(&mut self, seconds: u64, expected: &[&str]) {
        self.now.monotonic += Duration::from_secs(seconds);
        self.now.wall_ms += seconds * 1_000;
        let mut out = Vec::new();
        self.sessions.expire(self.now, &mut out);
        let lines: Vec<String> = out.into_iter().map(line).collect();
        assert_eq!(lines, expected);
    }
}

fn committed(id: i64, seq: u64) -> Outcome {
    Outcome::Committed {
        id: MessageId(id),
        seq: Seq(seq),
        stamp_ms: 0,
    }
}

#[test]
fn a_client_is_authenticated_then_registered_then_told() {
    let mut world = world_with(false, limits());
    let connection = ConnectionId(1);
    world.check(Input::Opened { connection }, &[]);
    world.frame(1, connect("u1", "d", Protocol::WkProto), &["authenticate 1 u1 1"]);
    let answer = Input::Authenticated {
        token: Token(1),
        result: Ok(DeviceLevel::Master),
    };
    world.check(answer, &["register 2 u1/d/1#1"]);
    let answer = Input::Registered {
        token: Token(2),
        result: Ok(()),
    };
    world.check(answer.clone(), &["1 CONNACK 1 25 7"]);
    world.check(answer, &[]);
    world.frame(1, ClientFrame::Ping, &["1 PONG"]);
}

#[test]
fn a_wrong_token_is_refused() {
    let mut world = world_with(false, limits());
    let connection = ConnectionId(1);
    world.check(Input::Opened { connection }, &[]);
    world.frame(1, connect("u1", "d", Protocol::WkProto), &["authenticate 1 u1 1"]);
    let answer = Input::Authenticated {
        token: Token(1),
        result: Err(Reason::AUTH_FAIL),
    };
    world.check(answer, &["1 CONNACK 2 0 7", "1 close AuthFailed"]);
    assert_eq!(world.sessions.count(), 0);
}

#[test]
fn a_token_that_cannot_be_looked_up_in_time_is_refused() {
    let mut world = world_with(false, limits());
    let connection = ConnectionId(1);
    world.check(Input::Opened { connection }, &[]);
    world.frame(1, connect("u1", "d", Protocol::WkProto), &["authenticate 1 u1 1"]);
    world.wait(3, &["1 CONNACK 15 0 7", "1 close AuthFailed"]);
    assert_eq!(world.sessions.open_questions(), 0);
}

#[test]
fn uids_with_meaning_are_refused() {
    for uid in ["", "a@b", "a#b", "a&b", "____system"] {
        let mut world = world_with(true, limits());
        let connection = ConnectionId(1);
        world.check(Input::Opened { connection }, &[]);
        let frame = connect(uid, "d", Protocol::WkProto);
        world.frame(1, frame, &["1 CONNACK 2 0 7", "1 close AuthFailed"]);
    }
}

/// A session that waits for the gates.
fn at_the_gates() -> World {
    let mut world = world_with(true, limits());
    world.gated = true;
    let connection = ConnectionId(1);
    world.check(Input::Opened { connection }, &[]);
    world.frame(
        1,
        connect("u1", "d", Protocol::WkProto),
        &["enter 1 u1 Slave 192.0.2.7"],
    );
    world
}

fn entered(result: Result<&str, Refusal>) -> Input {
    let attributes: Attributes = Arc::from([(Arc::from("team"), Arc::from("red"))]);
    Input::Entered {
        connection: ConnectionId(1),
        result: result.map(|uid| Admitted {
            uid: Uid::new(uid),
            level: DeviceLevel::Master,
            attributes: Some(attributes),
        }),
    }
}

#[test]
fn a_session_is_whom_the_gates_let_in() {
    let mut world = at_the_gates();
    let outputs = world.input(entered(Ok("u2")));
    let [Output::Register { token, route }] = &outputs[..] else {
        panic!("{outputs:?}");
    };
    assert_eq!((route.uid.as_str(), route.level), ("u2", DeviceLevel::Master));
    world.check(entered(Ok("u3")), &[]);
    let answer = Input::Registered {
        token: *token,
        result: Ok(()),
    };
    world.check(answer, &["1 CONNACK 1 25 7"]);
    let connection = ConnectionId(1);
    let frame = ClientFrame::Send(send(1, "g"));
    let outputs = world.input(Input::Frame { connection, frame });
    let [
        Output::Submit {
            route, attributes, ..
        },
    ] = &outputs[..]
    else {
        panic!("{outputs:?}");
    };
    let team = attributes.as_ref().and_then(|all| all.first());
    assert_eq!(team.map(|(_, value)| &**value), Some("red"));
    assert_eq!(route.uid.as_str(), "u2");
    let kick = |uid: &str| Input::KickUser {
        uid: Uid::new(uid),
        flag: None,
    };
    world.check(kick("u1"), &[]);
    world.check(
        kick("u2"),
        &["1 DISCONNECT 12 kicked", "unregister u2/d/1#1", "1 close Kicked"],
    );
}

#[test]
fn whom_the_gates_refuse_is_told_why() {
    let mut world = at_the_gates();
    let why = Refusal {
        reason: Reason(19),
        text: Some(Arc::from("banned")),
    };
    let told = ["1 CONNACK 19 0 7 banned", "1 close AuthFailed"];
    world.check(entered(Err(why)), &told);
    assert_eq!(world.sessions.next_deadline(), None);
}

#[test]
fn nobody_waits_at_the_gates_for_longer_than_a_connection_may() {
    let mut world = at_the_gates();
    let told = ["1 CONNACK 15 0 7", "left 1", "1 close AuthFailed"];
    world.wait(3, &told);
    world.check(entered(Ok("u1")), &[]);
}

#[test]
fn who_leaves_the_gates_or_loses_the_token_there_is_forgotten() {
    let connection = ConnectionId(1);
    at_the_gates().check(Input::Closed { connection }, &["left 1"]);
    let kick = Input::KickUser {
        uid: Uid::new("u1"),
        flag: Some(DeviceFlag(1)),
    };
    let told = ["1 CONNACK 12 0 7", "left 1", "1 close Kicked"];
    at_the_gates().check(kick, &told);
    let early = ["left 1", "1 close PolicyViolation"];
    at_the_gates().frame(1, ClientFrame::Ping, &early);
}

#[test]
fn the_system_device_cannot_be_chosen() {
    let mut world = world_with(true, limits());
    let connection = ConnectionId(1);
    world.check(Input::Opened { connection }, &[]);
    world.frame(
        1,
        connect("u1", "____device", Protocol::WkProto),
        &["register 1 u1//1#1"],
    );
}

#[test]
fn a_failed_activation_is_connack_15() {
    for refused in [true, false] {
        let mut world = world_with(true, limits());
        let connection = ConnectionId(1);
        world.check(Input::Opened { connection }, &[]);
        world.frame(1, connect("u1", "d", Protocol::WkProto), &["register 1 u1/d/1#1"]);
        let expected = [
            "1 CONNACK 15 0 7",
            "unregister u1/d/1#1",
            "1 close ActivationFailed",
        ];
        if refused {
            let answer = Input::Registered {
                token: Token(1),
                result: Err(Reason::SYSTEM_ERROR),
            };
            world.check(answer, &expected);
        } else {
            world.wait(3, &expected);
        }
        assert_eq!((world.sessions.count(), world.sessions.open_questions()), (0, 0));
        assert_eq!(world.sessions.next_deadline(), None);
    }
}

#[test]
fn frames_out_of_turn_end_the_connection() {
    let mut world = world_with(true, limits());
    for connection in [1, 2] {
        let connection = ConnectionId(connection);
        world.check(Input::Opened { connection }, &[]);
    }
    world.frame(1, ClientFrame::Ping, &["1 close PolicyViolation"]);
    world.frame(2, connect("u2", "d", Protocol::WkProto), &["register 1 u2/d/2#1"]);
    let early = ["unregister u2/d/2#1", "2 close PolicyViolation"];
    world.frame(2, ClientFrame::Send(send(1, "g")), &early);
    world.connect(3, "u3", Protocol::WkProto);
    let second = ["unregister u3/d/3#2", "3 close PolicyViolation"];
    world.frame(3, connect("u3", "d", Protocol::WkProto), &second);
}

#[test]
fn sends_are_answered_in_order_per_channel_and_a_slow_channel_delays_no_other() {
    let mut world = World::open(&[(1, "u1")]);
    world.frame(1, ClientFrame::Send(send(1, "slow")), &["submit 2 slow 1"]);
    world.frame(1, ClientFrame::Send(send(2, "slow")), &["submit 3 slow 2"]);
    world.frame(1, ClientFrame::Send(send(3, "fast")), &["submit 4 fast 3"]);
    let rejected = Outcome::Rejected {
        reason: Reason::NOT_ALLOWED,
        text: Arc::from("mind-your-words"),
    };
    world.done(3, rejected, &[]);
    world.done(4, committed(40, 4), &["1 SENDACK 3 m3 40 4 1"]);
    world.done(
        2,
        committed(20, 1),
        &["1 SENDACK 1 m1 20 1 1", "1 SENDACK 2 m2 0 0 11 mind-your-words"],
    );
    world.done(2, committed(20, 1), &[]);
    assert_eq!(world.sessions.open_questions(), 0);
}

#[test]
fn an_unknown_outcome_closes_wkproto_and_is_an_error_on_json_rpc() {
    let mut world = world_with(true, limits());
    world.connect(1, "u1", Protocol::WkProto);
    world.connect(2, "u2", Protocol::JsonRpc);
    world.frame(1, ClientFrame::Send(send(1, "g")), &["submit 3 g 1"]);
    world.done(
        3,
        Outcome::Unknown,
        &["unregister u1/d/1#1", "1 close OutcomeUnknown"],
    );
    world.frame(2, ClientFrame::Send(send(1, "g")), &["submit 4 g 1"]);
    world.done(4, Outcome::Unknown, &["2 unknown 1"]);
    world.frame(2, ClientFrame::Send(send(2, "g")), &["submit 5 g 2"]);
    world.done(5, committed(9, 9), &["2 SENDACK 2 m2 9 9 1"]);
}

#[test]
fn a_send_without_an_answer_is_unknown_in_the_end() {
    let mut world = World::open(&[(1, "u1")]);
    world.frame(1, ClientFrame::Send(send(1, "g")), &["submit 2 g 1"]);
    world.frame(1, ClientFrame::Send(send(2, "h")), &["submit 3 h 2"]);
    world.done(2, committed(1, 1), &["1 SENDACK 1 m1 1 1 1"]);
    world.wait(8, &["unregister u1/d/1#1", "1 close OutcomeUnknown"]);
    world.done(3, committed(1, 1), &[]);
}

#[test]
fn sends_beyond_the_bound_are_refused_at_once() {
    let mut world = World::open(&[(1, "u1")]);
    for number in 1..=3 {
        let expected = format!("submit {} g {number}", number + 1);
        world.frame(1, ClientFrame::Send(send(number, "g")), &[&expected]);
    }
    world.frame(1, ClientFrame::Send(send(4, "g")), &["1 SENDACK 4 m4 0 0 22"]);
    world.done(2, committed(1, 1), &["1 SENDACK 1 m1 1 1 1"]);
    world.frame(1, ClientFrame::Send(send(5, "g")), &["submit 5 g 5"]);
}

#[test]
fn a_payload_that_cannot_be_used_is_refused_in_order() {
    let mut world = World::open(&[(1, "u1")]);
    world.frame(1, ClientFrame::Send(send(1, "g")), &["submit 2 g 1"]);
    let mut sealed = send(2, "g");
    sealed.payload = Err(Reason::MESSAGE_KEY);
    world.frame(1, ClientFrame::Send(sealed), &[]);
    world.done(
        2,
        committed(1, 1),
        &["1 SENDACK 1 m1 1 1 1", "1 SENDACK 2 m2 0 0 8"],
    );
    let mut large = send(3, "g");
    large.payload = Ok(Bytes::from(vec![0; 1_501]));
    world.frame(1, ClientFrame::Send(large), &["1 SENDACK 3 m3 0 0 9"]);
    world.frame(1, ClientFrame::Send(send(4, "")), &["1 SENDACK 4 m4 0 0 16"]);
}

#[test]
fn first_offers_increase_per_incarnation() {
    let mut world = world_with(true, limits());
    let route = world.connect(1, "u1", Protocol::WkProto);
    let bound = "offered [Bound]";
    world.offer(
        &route,
        &[message(1, 1), message(1, 2)],
        &["1 RECV g 1", "1 RECV g 2", bound],
    );
    world.offer(&route, &[message(1, 1), message(1, 2)], &[bound]);
    for seq in [1, 2] {
        let id = MessageId(100 + seq);
        let seq = Seq(seq.unsigned_abs());
        world.frame(1, ClientFrame::RecvAck { id, seq }, &[]);
    }
    world.offer(&route, &[message(1, 2), message(1, 3)], &["1 RECV g 3", bound]);
    world.offer(&route, &[message(2, 1)], &["1 RECV g 1", bound]);
}

#[test]
fn the_channels_used_last_are_remembered() {
    let wide = Limits {
        unacknowledged_max: 100,
        unacknowledged_bytes_max: 100_000,
        ..limits()
    };
    let mut world = world_with(true, wide);
    let route = world.connect(1, "u1", Protocol::WkProto);
    let bound = "offered [Bound]";
    for incarnation in [1, 2, 3] {
        world.offer(&route, &[message(incarnation, 1)], &["1 RECV g 1", bound]);
    }
    world.offer(&route, &[message(3, 1), message(2, 1)], &[bound]);
    world.offer(&route, &[message(1, 1)], &["1 RECV g 1", bound]);
}

#[test]
fn what_is_not_acknowledged_is_offered_again_and_then_ends_the_session() {
    let mut world = world_with(true, limits());
    let route = world.connect(1, "u1", Protocol::WkProto);
    world.offer(
        &route,
        &[message(1, 1), message(1, 2)],
        &["1 RECV g 1", "1 RECV g 2", "offered [Bound]"],
    );
    world.wait(19, &[]);
    // Only its own entry: a wrong position clears nothing.
    let id = MessageId(101);
    world.frame(1, ClientFrame::RecvAck { id, seq: Seq(2) }, &[]);
    let id = MessageId(102);
    world.frame(1, ClientFrame::RecvAck { id, seq: Seq(2) }, &[]);
    assert_eq!(world.sessions.unacknowledged(), 1);
    world.wait(1, &["1 RECV g 1 again"]);
    world.wait(20, &["1 RECV g 1 again", "touch u1/d/1#1"]);
    world.wait(20, &["unregister u1/d/1#1", "1 close UnacknowledgedOverflow"]);
}

#[test]
fn an_acknowledged_message_is_not_offered_again() {
    let mut world = world_with(true, limits());
    let route = world.connect(1, "u1", Protocol::WkProto);
    world.offer(&route, &[message(1, 1)], &["1 RECV g 1", "offered [Bound]"]);
    world.wait(20, &["1 RECV g 1 again"]);
    let id = MessageId(101);
    world.frame(1, ClientFrame::RecvAck { id, seq: Seq(1) }, &[]);
    world.wait(20, &["touch u1/d/1#1"]);
    assert_eq!(world.sessions.next_deadline(), None);
}

#[test]
fn unacknowledged_messages_are_bounded_in_count_and_bytes() {
    let mut world = world_with(true, limits());
    let route = world.connect(1, "u1", Protocol::WkProto);
    let four: Vec<_> = (1..=4).map(|seq| message(1, seq)).collect();
    let window = ["1 RECV g 1", "1 RECV g 2", "1 RECV g 3", "offered [Full]"];
    world.offer(&route, &four, &window);
    // One is not half of it.
    let id = MessageId(101);
    world.frame(1, ClientFrame::RecvAck { id, seq: Seq(1) }, &[]);
    world.offer(&route, &four, &["offered [Full]"]);
    let id = MessageId(102);
    world.frame(1, ClientFrame::RecvAck { id, seq: Seq(2) }, &[]);
    world.offer(&route, &four, &["1 RECV g 4", "offered [Bound]"]);
    let route = world.connect(2, "u2", Protocol::WkProto);
    let large = |seq| {
        changed(&message(1, seq), |message| {
            message.draft.payload = Bytes::from(vec![0; 900]);
        })
    };
    world.offer(&route, &[large(1), large(2)], &["2 RECV g 1", "offered [Full]"]);
}

#[test]
fn a_window_that_stays_full_ends_the_session() {
    let mut world = world_with(true, limits());
    let route = world.connect(1, "u1", Protocol::WkProto);
    let four: Vec<_> = (1..=4).map(|seq| message(1, seq)).collect();
    let window = ["1 RECV g 1", "1 RECV g 2", "1 RECV g 3", "offered [Full]"];
    world.offer(&route, &four, &window);
    world.now.monotonic += Duration::from_millis(199);
    world.offer(&route, &four, &["offered [Full]"]);
    // A window that opened meanwhile begins to count anew.
    for seq in [1, 2] {
        let id = MessageId(100 + seq);
        let seq = Seq(seq.unsigned_abs());
        world.frame(1, ClientFrame::RecvAck { id, seq }, &[]);
    }
    let next: Vec<_> = (4..=6).map(|seq| message(1, seq)).collect();
    world.offer(&route, &next, &["1 RECV g 4", "1 RECV g 5", "offered [Full]"]);
    world.now.monotonic += Duration::from_millis(199);
    world.offer(&route, &next, &["offered [Full]"]);
    world.now.monotonic += Duration::from_millis(1);
    let over = [
        "unregister u1/d/1#1",
        "1 close UnacknowledgedOverflow",
        "unregister u1/d/1#1",
        "offered [Gone]",
    ];
    world.offer(&route, &next, &over);
}

#[test]
fn a_message_that_is_not_stored_is_offered_once() {
    let mut world = world_with(true, limits());
    let route = world.connect(1, "u1", Protocol::WkProto);
    let typing = message(1, 0);
    world.offer(
        &route,
        &[Arc::clone(&typing), typing],
        &["1 RECV g 0", "1 RECV g 0", "offered [Bound]"],
    );
    assert_eq!(world.sessions.unacknowledged(), 0);
    world.wait(60, &[]);
}

#[test]
fn an_expired_message_is_not_offered_and_not_offered_again() {
    let mut world = world_with(true, limits());
    let route = world.connect(1, "u1", Protocol::WkProto);
    let short = |seq, expire_s| changed(&message(1, seq), |message| message.draft.expire_s = expire_s);
    world.offer(&route, &[short(1, 10)], &["1 RECV g 1", "offered [Bound]"]);
    world.wait(20, &[]);
    assert_eq!(world.sessions.unacknowledged(), 0);
    world.offer(
        &route,
        &[short(2, 10), short(3, 100)],
        &["1 RECV g 3", "offered [Bound]"],
    );
}

#[test]
fn an_offer_reaches_only_the_session_that_is_meant() {
    let mut world = world_with(true, limits());
    let route = world.connect(1, "u1", Protocol::WkProto);
    let earlier = Route {
        owner_seq: 0,
        ..route.clone()
    };
    world.offer(
        &earlier,
        &[message(1, 1)],
        &["unregister u1/d/1#0", "offered [Gone]"],
    );
    let rebooted = Route {
        boot: ProcessBoot(1),
        ..route
    };
    world.offer(
        &rebooted,
        &[message(1, 1)],
        &["unregister u1/d/1#1", "offered [Gone]"],
    );
    let connection = ConnectionId(2);
    world.check(Input::Opened { connection }, &[]);
    let frame = connect("u2", "d", Protocol::WkProto);
    let outputs = world.input(Input::Frame { connection, frame });
    let [Output::Register { route, .. }] = outputs.as_slice() else {
        panic!("no registration: {outputs:?}");
    };
    world.offer(route, &[message(1, 1)], &["offered [NotYet]"]);
}

#[test]
fn a_session_with_a_hole_is_closed() {
    let mut world = world_with(true, limits());
    let route = world.connect(1, "u1", Protocol::WkProto);
    let offer = Offer {
        route,
        channel_id: Arc::from("g"),
        kind: ChannelKind::GROUP,
        messages: vec![message(1, 9)],
        missed: true,
    };
    let lines = world.lines(Input::Offer {
        token: Token(1),
        offers: vec![offer],
    });
    assert!(lines.contains(&"1 close DeliveryMissed".to_owned()), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("RECV")), "{lines:?}");
}

#[test]
fn a_kicked_client_reads_disconnect_first() {
    let mut world = world_with(true, limits());
    let route = world.connect(1, "u1", Protocol::WkProto);
    let kick = Input::Kick { route };
    let expected = ["1 DISCONNECT 12 kicked", "unregister u1/d/1#1", "1 close Kicked"];
    world.check(kick.clone(), &expected);
    // Told again, because the confirmation was lost.
    world.check(kick, &["unregister u1/d/1#1"]);
}

#[test]
fn a_users_sessions_of_a_flag_are_kicked() {
    let mut world = World::open(&[(1, "u1"), (2, "u1"), (3, "u3")]);
    let uid = Uid::new("u1");
    let kick = |flag| Input::KickUser {
        uid: uid.clone(),
        flag,
    };
    world.check(kick(Some(DeviceFlag(0))), &[]);
    let expected = [
        "1 DISCONNECT 12 kicked",
        "unregister u1/d/1#1",
        "1 close Kicked",
        "2 DISCONNECT 12 kicked",
        "unregister u1/d/2#2",
        "2 close Kicked",
    ];
    world.check(kick(Some(DeviceFlag(1))), &expected);
    world.check(kick(None), &[]);
    assert_eq!(world.sessions.count(), 1);
}

#[test]
fn a_subscription_is_granted_by_the_permission_and_ends_with_the_session() {
    let mut world = World::open(&[(1, "u1")]);
    world.frame(1, subscribe("a", true), &["subscribe 2 a false"]);
    world.frame(1, subscribe("b", true), &["subscribe 3 b false"]);
    world.frame(1, subscribe("c", true), &["1 SUBACK c true 22"]);
    let done = |token, reason| Input::SubscribeDone {
        token: Token(token),
        reason,
        leader: Some(NodeId(7)),
    };
    world.check(done(2, Reason::SUCCESS), &["1 SUBACK a true 1"]);
    world.check(done(3, Reason::NOT_SUBSCRIBER), &["1 SUBACK b true 3"]);
    world.frame(1, subscribe("c", true), &["subscribe 4 c false"]);
    let connection = ConnectionId(1);
    let ends = ["unsubscribe a", "unsubscribe c", "unregister u1/d/1#1"];
    world.check(Input::Closed { connection }, &ends);
    assert_eq!(world.sessions.open_questions(), 0);
}

#[test]
fn leaving_before_the_grant_leaves() {
    let mut world = World::open(&[(1, "u1")]);
    world.frame(1, subscribe("a", true), &["subscribe 2 a false"]);
    world.frame(1, subscribe("a", false), &["unsubscribe a", "1 SUBACK a false 1"]);
    let granted = Input::SubscribeDone {
        token: Token(2),
        reason: Reason::SUCCESS,
        leader: None,
    };
    world.check(granted, &["unsubscribe a", "1 SUBACK a true 1"]);
    world.wait(10, &["touch u1/d/1#1"]);
    assert_eq!(world.sessions.next_deadline(), None);
}

#[test]
fn a_subscription_without_an_answer_is_refused() {
    let mut world = World::open(&[(1, "u1")]);
    world.frame(1, subscribe("a", true), &["subscribe 2 a false"]);
    world.wait(3, &["unsubscribe a", "1 SUBACK a true 15"]);
}

#[test]
fn leases_of_subscriptions_are_renewed_while_they_are_permitted() {
    let mut world = World::open(&[(1, "u1")]);
    world.frame(1, subscribe("a", true), &["subscribe 2 a false"]);
    let done = |token, reason| Input::SubscribeDone {
        token: Token(token),
        reason,
        leader: Some(NodeId(7)),
    };
    world.check(done(2, Reason::SUCCESS), &["1 SUBACK a true 1"]);
    world.wait(10, &["subscribe 3 a true", "touch u1/d/1#1"]);
    world.check(done(3, Reason::SYSTEM_ERROR), &[]);
    world.wait(10, &["subscribe 4 a true"]);
    world.check(
        done(4, Reason::NOT_SUBSCRIBER),
        &["unsubscribe a", "1 SUBACK a true 3"],
    );
    world.wait(10, &[]);
    assert_eq!(world.sessions.next_deadline(), None);
}

#[test]
fn subscriptions_at_a_lost_node_are_renewed_at_once() {
    let mut world = World::open(&[(1, "u1")]);
    world.frame(1, subscribe("a", true), &["subscribe 2 a false"]);
    let done = |token, node| Input::SubscribeDone {
        token: Token(token),
        reason: Reason::SUCCESS,
        leader: Some(NodeId(node)),
    };
    world.check(done(2, 7), &["1 SUBACK a true 1"]);
    world.check(Input::NodeLost { node: NodeId(8) }, &[]);
    world.wait(0, &[]);
    world.check(Input::NodeLost { node: NodeId(7) }, &[]);
    world.wait(0, &["subscribe 3 a true"]);
    world.check(done(3, 8), &[]);
    world.check(Input::NodeLost { node: NodeId(7) }, &[]);
    world.wait(0, &[]);
}

#[test]
fn a_session_that_may_have_missed_something_ends_so_that_its_client_pulls() {
    let mut world = world_with(true, limits());
    let route = world.connect(1, "u1", Protocol::WkProto);
    world.check(
        Input::Lapsed { route: route.clone() },
        &["unregister u1/d/1#1", "1 close DeliveryMissed"],
    );
    world.check(Input::Lapsed { route }, &["unregister u1/d/1#1"]);
}

#[test]
fn any_frame_is_liveness_and_is_told_in_batches() {
    let mut world = World::open(&[(1, "u1"), (2, "u2"), (3, "u3")]);
    world.frame(1, ClientFrame::Ping, &["1 PONG"]);
    let id = MessageId(1);
    world.frame(2, ClientFrame::RecvAck { id, seq: Seq(1) }, &[]);
    world.wait(10, &["touch u1/d/1#1,u2/d/2#2"]);
    world.wait(100, &[]);
}

#[test]
fn a_client_that_leaves_is_forgotten() {
    let mut world = World::open(&[(1, "u1"), (2, "u2")]);
    world.frame(1, ClientFrame::Send(send(1, "g")), &["submit 3 g 1"]);
    let reason = Reason::SUCCESS;
    let frame = ClientFrame::Disconnect { reason };
    world.frame(1, frame, &["unregister u1/d/1#1", "1 close PeerClosed"]);
    world.check(Input::Stop, &["unregister u2/d/2#2", "2 close ServerStop"]);
    assert_eq!((world.sessions.count(), world.sessions.open_questions()), (0, 0));
    assert_eq!(world.sessions.next_deadline(), None);
}
