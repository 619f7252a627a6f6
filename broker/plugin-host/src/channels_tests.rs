//! What is asked of channels for a guest, and what is not.

use super::*;
use penstock_core::hooks::faults::Faults;
use penstock_core::hooks::registry::Source;
use penstock_core::message::{Draft, MessageFlags};
use penstock_core::types::{MessageId, Uid};
use std::collections::BTreeSet;
use std::sync::Mutex;

/// Keeps what it is asked, and shows a long channel.
#[derive(Default)]
struct Kept {
    published: Mutex<Vec<PublishAsk>>,
    fails: bool,
}

fn message(seq: u64, hops: u8, payload: usize) -> Message {
    Message {
        id: MessageId(1),
        seq: Seq(seq),
        stamp_ms: 1,
        draft: Draft {
            from_uid: Uid::new("ann"),
            client_msg_no: Arc::from("n"),
            flags: MessageFlags::default(),
            setting: 0,
            expire_s: 0,
            topic: Arc::from(""),
            payload: Bytes::from(vec![0; payload]),
            origin: None,
            subscribers: Arc::from([]),
            attributes: None,
            hops,
        },
    }
}

impl Channels for Kept {
    fn publish(&self, message: PublishAsk, _: Duration) -> Result<(), PublishError> {
        self.published.lock().expect("whole").push(message);
        if self.fails {
            Err(PublishError::Unavailable)
        } else {
            Ok(())
        }
    }

    fn read(&self, wanted: MessagesAsk, _: Duration) -> Result<Vec<Arc<Committed>>, ReadError> {
        let one = |at: u64| {
            Arc::new(Committed {
                channel: wanted.channel.clone(),
                incarnation: Incarnation(3),
                message: message(wanted.from.0 + at, 0, 30_000),
            })
        };
        Ok((0..u64::from(wanted.limit)).map(one).collect())
    }
}

const SOON: Option<Duration> = Some(Duration::from_secs(1));

fn grants(capability: &str, texts: &[&str]) -> ChannelGrants {
    let texts: BTreeSet<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    ChannelGrants::parse(capability, &texts).expect("grants")
}

fn call(hops: &[u8]) -> Publishing {
    let source = Source {
        binding: Arc::from("b"),
        binding_incarnation: 1,
        channel: ChannelKey::new("room", ChannelKind::GROUP),
        incarnation: Incarnation(1),
    };
    let messages: Vec<Message> = (1..)
        .zip(hops)
        .map(|(seq, &hops)| message(seq, hops, 1))
        .collect();
    Publishing::about(Arc::from("echo"), source, &messages, Faults::default())
}

fn wanted(cause: u32, channel_id: &str, kind: u8) -> Wanted {
    Wanted {
        cause,
        channel_id: channel_id.to_owned(),
        kind: ChannelKind(kind),
        payload: b"hi".to_vec(),
        topic: String::new(),
        expire_s: 0,
    }
}

#[test]
fn what_is_not_granted_or_has_gone_too_far_is_not_asked() {
    let kept = Arc::new(Kept::default());
    let post = Post::new(Arc::clone(&kept) as Arc<dyn Channels>);
    let (plugin, grants) = (
        Arc::from("echo"),
        grants("publish", &["publish:2/room", "publish:1/*ann*"]),
    );
    let mut call = call(&[0, 3]);
    let mut publish = |wanted| post.publish(&plugin, (Some(&mut call), &grants), wanted, SOON);
    assert_eq!(publish(wanted(0, "room", 2)), Ok(()));
    assert_eq!(publish(wanted(0, "hall", 2)), Err(PublishError::NotGranted));
    assert_eq!(publish(wanted(1, "room", 2)), Err(PublishError::TooManyHops));
    assert_eq!(
        publish(wanted(2, "room", 2)),
        Err(PublishError::Refused),
        "no such cause"
    );
    for (id, kind) in [("", 2), ("room____cmd", 2), ("a@b@c", 1), ("room", 99)] {
        assert_eq!(publish(wanted(0, id, kind)), Err(PublishError::Refused), "{id}");
    }
    assert_eq!(
        publish(wanted(0, "ann", 1)),
        Ok(()),
        "its own conversation with ann"
    );
    assert_eq!(publish(wanted(0, "bob", 1)), Err(PublishError::NotGranted));
    assert_eq!(
        publish(wanted(0, "bob@ann", 1)),
        Ok(()),
        "the conversation of two others"
    );
    let nowhere = post.publish(&plugin, (None, &grants), wanted(0, "room", 2), SOON);
    assert_eq!(
        nowhere,
        Err(PublishError::NotGranted),
        "in no hook that publishes"
    );
    let published = kept.published.lock().expect("whole");
    let ids: Vec<&str> = published.iter().map(|message| &*message.channel_id).collect();
    assert_eq!(ids, ["room", "ann", "bob@ann"]);
    assert!(
        published
            .iter()
            .all(|message| message.hops == 1 && message.client_msg_no.len() == 32)
    );
}

#[test]
fn a_failed_send_that_is_repeated_keeps_its_number_and_nothing_is_sent_late() {
    let kept = Arc::new(Kept {
        fails: true,
        ..Kept::default()
    });
    let post = Post::new(Arc::clone(&kept) as Arc<dyn Channels>);
    let (plugin, grants) = (Arc::from("echo"), grants("publish", &["publish:*/*"]));
    let mut call = call(&[0]);
    for within in [SOON, None, SOON] {
        let sent = post.publish(&plugin, (Some(&mut call), &grants), wanted(0, "room", 2), within);
        assert_eq!(sent, Err(PublishError::Unavailable));
    }
    let published = kept.published.lock().expect("whole");
    assert_eq!(published.len(), 2);
    assert_eq!(published[0], published[1]);
}

#[test]
fn a_plugin_publishes_so_much_in_a_second() {
    let post = Post::new(Arc::new(Kept::default()));
    let (plugin, grants) = (Arc::from("echo"), grants("publish", &["publish:*/*"]));
    let mut call = call(&[0]);
    let sends =
        (0..400).map(|_| post.publish(&plugin, (Some(&mut call), &grants), wanted(0, "room", 2), SOON));
    let refused = sends.filter(|sent| *sent == Err(PublishError::Rate)).count();
    assert!((1..=300).contains(&refused), "{refused}");
}

#[test]
fn a_read_is_bounded_by_messages_and_bytes() {
    let post = Post::new(Arc::new(Kept::default()));
    let grants = grants("messages", &["messages:2/room"]);
    let read = |id: &str, limit| {
        let channel = ChannelKey::new(id, ChannelKind::GROUP);
        post.read(("p", &grants), channel, (5, limit), SOON)
            .map(|frame| (frame.index[3], frame.arena.len()))
    };
    assert_eq!(read("hall", 1), Err(ReadError::NotGranted));
    let (count, bytes) = read("room", u32::MAX).expect("messages");
    assert!((30..=34).contains(&count), "{count}");
    assert!(bytes < READ_BYTES_MAX + 8_000, "{bytes}");
    assert_eq!(read("room", 0).expect("messages").0, 1);
}
