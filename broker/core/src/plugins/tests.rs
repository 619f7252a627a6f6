//! Patterns, shares and versions.

use super::*;
use crate::limits::Limits;
use crate::types::ChannelKind;

fn artifact(byte: u8) -> Artifact {
    Artifact {
        digest: Digest([byte; 32]),
        hooks: [Hook::BeforeSend, Hook::PersistAfter].into(),
        facts: Bytes::new(),
    }
}

fn plugin(percent: u8) -> Plugin {
    Plugin {
        name: Arc::from("p"),
        revision: 3,
        active: Some(artifact(1)),
        previous: None,
        rollout: Some(Rollout {
            id: 9,
            artifact: artifact(2),
            wanted: [NodeId(1)].into(),
            reports: BTreeMap::new(),
            canary_percent: percent,
        }),
        ..Plugin::default()
    }
}

fn binding(id: &str, priority: i32, selector: Selector) -> Binding {
    Binding {
        id: Arc::from(id),
        plugin: Arc::from("p"),
        hook: Hook::PersistAfter,
        selector,
        priority,
        deadline: Duration::from_secs(1),
        on_error: OnError::all(Policy::Reject),
        grants: Bytes::new(),
        config: Bytes::new(),
        start: None,
        attempts_max: 3,
        exact: true,
        patience: Duration::from_secs(60),
        inline: false,
        public: false,
        events: Events::default(),
        own_messages: false,
        capture: Captured::default(),
    }
}

/// S17: a message of a plugin goes to no binding of that plugin, unless one asks for it.
#[test]
fn a_binding_gets_its_own_messages_on_request_alone() {
    let takes = |binding: &Binding, uid: &str| binding.takes_sender(&Uid::new(uid));
    let mut all = binding("b", 0, Selector::default());
    assert!(takes(&all, "ann") && takes(&all, "p") && takes(&all, "plugin:pp"));
    assert!(!takes(&all, "plugin:p"));
    all.own_messages = true;
    assert!(takes(&all, "plugin:p"));
    all.selector.uids = [Uid::new("ann")].into();
    assert!(takes(&all, "ann") && !takes(&all, "plugin:p"));
}

fn channel(number: u32) -> ChannelKey {
    ChannelKey::new(&format!("group{number}"), ChannelKind::GROUP)
}

#[test]
fn a_star_stands_for_any_text() {
    let shown = |pattern: &str, text: &str| Pattern(pattern.to_owned()).matches(text);
    for (pattern, text, takes) in [
        ("a", "a", true),
        ("a", "ab", false),
        ("a*", "ab", true),
        ("*b", "ab", true),
        ("*b", "ba", false),
        ("a*b", "ab", true),
        ("a*b", "a", false),
        ("ab*ba", "aba", false),
        ("a*c*e", "abcde", true),
        ("a*c*e", "ace", true),
        ("a*c*e", "aec", false),
        ("*x*x*", "axbxc", true),
        ("*x*x*", "axbc", false),
        ("*", "", true),
        ("**", "a", true),
        ("a**b", "ab", true),
    ] {
        assert_eq!(shown(pattern, text), takes, "{pattern} {text}");
    }
}

#[test]
fn a_canary_has_its_share_and_a_channel_stays_on_its_side() {
    let bound = |percent| Bound::new(binding("b", 0, Selector::default()), 1, 1, 1, &plugin(percent));
    let on_candidate = |bound: &Bound| {
        (0..1_000)
            .filter(|&number| {
                bound
                    .version(&channel(number))
                    .is_some_and(|version| version.digest == Digest([2; 32]))
            })
            .collect::<BTreeSet<u32>>()
    };
    assert!(on_candidate(&bound(0)).is_empty());
    assert_eq!(on_candidate(&bound(100)).len(), 1_000);
    let (ten, thirty) = (on_candidate(&bound(10)), on_candidate(&bound(30)));
    assert!((60..140).contains(&ten.len()), "{}", ten.len());
    assert!((240..360).contains(&thirty.len()), "{}", thirty.len());
    assert!(ten.is_subset(&thirty), "a growing share takes nobody back");
}

#[test]
fn bindings_stand_in_order_and_name_their_consumers() {
    let plugin = plugin(0);
    let only = Selector {
        ids: [Pattern("group1*".to_owned())].into(),
        kinds: [ChannelKind::GROUP.0].into(),
        uids: BTreeSet::new(),
    };
    let bounds = vec![
        Bound::new(binding("low", -1, Selector::default()), 1, 4, 1, &plugin),
        Bound::new(binding("high", 1, only), 1, 5, 1, &plugin),
        Bound::new(binding("also-low", -1, Selector::default()), 1, 6, 1, &plugin),
    ];
    let registry = Registry::new(8, vec![plugin], bounds);
    let ids: Vec<&str> = registry
        .bindings()
        .iter()
        .map(|bound| bound.binding.id.as_ref())
        .collect();
    assert_eq!(ids, vec!["high", "also-low", "low"]);
    assert_eq!(registry.consumers(&channel(17), &Limits::default()).len(), 3);
    let consumers = registry.consumers(&channel(2), &Limits::default());
    assert_eq!(consumers.len(), 2);
    let found = registry.consumed_by(&consumers[1].name);
    assert_eq!(
        found.map(|(bound, told)| (bound.binding.id.as_ref(), told)),
        Some(("low", Told::Messages))
    );
    assert!(
        registry.consumed_by("binding/9/low").is_none(),
        "of another creation"
    );
    let versions: BTreeSet<&Version> = registry.versions().map(|(_, version)| version).collect();
    // What runs, and the candidate, which may run after one command.
    assert_eq!(versions.len(), 6);
}

#[test]
fn events_come_back_from_their_number_and_a_row_without_them_notifies() {
    assert_eq!(Events::of(0), Events::default());
    let named = |names: &[&str]| {
        names
            .iter()
            .try_fold(Events::NONE, |events, name| events.with(name))
    };
    for names in [
        &[][..],
        &Events::NAMES[..1],
        &Events::NAMES[1..2],
        &Events::NAMES[..],
    ] {
        let events = named(names).expect("known");
        assert_eq!(Events::of(events.number()), events, "{names:?}");
    }
    assert_eq!(named(&["msg.other"]), None);
}

/// A webhook has a cursor for each of the two events of messages, and one binding of its own for commands in neither.
#[test]
fn a_webhook_follows_by_a_cursor_for_each_event() {
    let names = |hook: Hook, events: Events, channel: &ChannelKey| -> Vec<String> {
        let binding = Binding {
            hook,
            events,
            ..binding("w", 0, Selector::default())
        };
        let bound = Bound::new(binding, 5, 4, 1, &plugin(0));
        let registry = Registry::new(5, vec![plugin(0)], vec![bound]);
        let consumers = registry.consumers(channel, &Limits::default());
        for consumer in &consumers {
            let (_, told) = registry.consumed_by(&consumer.name).expect("its own");
            assert_eq!(told == Told::Offline, consumer.run_max == 1 && !consumer.exact);
        }
        let names = consumers.iter();
        names.map(|consumer| consumer.name.to_string()).collect()
    };
    let both = Events {
        message_offline: true,
        ..Events::default()
    };
    let group = channel(1);
    assert_eq!(names(Hook::Webhook, Events::default(), &group), ["binding/4/w"]);
    assert_eq!(names(Hook::Webhook, both, &group), ["binding/4/w", "offline/4/w"]);
    assert_eq!(names(Hook::Webhook, Events::NONE, &group), [""; 0]);
    assert_eq!(names(Hook::Offline, both, &group), ["binding/4/w"]);
    let commands = ChannelKey::new("group1____cmd", ChannelKind::GROUP);
    assert_eq!(names(Hook::Webhook, both, &commands), ["binding/4/w"]);
    assert_eq!(names(Hook::Offline, both, &commands), [""; 0]);
    let name = LetterName {
        binding_incarnation: 4 | OFFLINE_LETTER,
        incarnation: crate::types::Incarnation(1),
        seq: crate::types::Seq(1),
    };
    assert_eq!(name.of(), (4, Told::Offline));
}
