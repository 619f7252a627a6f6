//! What each hook asks a guest, and what its answer means.

use super::{Guest, PAYLOAD_BYTES_MAX, frame_bytes};
use crate::chance::seed_of;
use crate::contract::{Done, Event, FailureKind, GuestFailure, Operation, SharedFrame};
use crate::frame::{self, Frame};
use crate::requests;
use crate::routes;
use crate::session;
use crate::typed;
use bytes::Bytes;
use penstock_core::hooks::call::{Answer, Failed, HttpRequest, KvChange, KvOperation, Returned, StatusBatch};
use penstock_core::hooks::faults::Faults;
use penstock_core::hooks::gates::Request;
use penstock_core::hooks::pipeline::Failure;
use penstock_core::hooks::registry::{Publishing, Source};
use penstock_core::message::{Draft, Message};
use penstock_core::types::{ChannelKey, Incarnation, Uid};
use std::sync::Arc;
use std::time::Duration;

impl Guest {
    pub(super) fn before_send(&mut self, channel: &ChannelKey, drafts: &[Draft], wall_ms: u64) -> Returned {
        let seed = drafts
            .first()
            .map_or(0, |draft| seed_of(draft.client_msg_no.as_bytes(), wall_ms));
        self.moment(wall_ms, seed);
        if let Some(function) = self.functions.typed {
            self.crossed.0 += drafts.iter().map(|draft| draft.payload.len()).sum::<usize>();
            let messages = drafts
                .iter()
                .map(|draft| typed::outgoing(channel, draft))
                .collect();
            let (verdicts,) = self.run(&function, (messages,))?;
            return typed::verdicts(verdicts, drafts, PAYLOAD_BYTES_MAX)
                .map(Answer::Verdicts)
                .map_err(|error| self.bad(&error.to_string()));
        }
        let Some(function) = self.functions.flat else {
            return Err(Failed::Call(Failure::NotReady));
        };
        let frame = self.frame(|frame| frame.fill_wanted(channel, drafts, wall_ms));
        let ((arena, index),) = self.run(&function, frame)?;
        self.crossed.1 += frame_bytes(&arena, &index);
        frame::verdicts(&arena, &index, drafts, PAYLOAD_BYTES_MAX)
            .map(Answer::Verdicts)
            .map_err(|error| self.bad(&error.to_string()))
    }

    pub(super) fn connect(&mut self, request: &Request, wall_ms: u64) -> Returned {
        let Some(function) = self.functions.connect else {
            return Err(Failed::Call(Failure::NotReady));
        };
        self.moment(wall_ms, seed_of(request.uid.as_str().as_bytes(), wall_ms));
        let (found,) = self.run(&function, (session::request(request),))?;
        session::decision(found)
            .map(Answer::Decision)
            .map_err(|why| self.bad(&why))
    }

    pub(super) fn route(&mut self, request: &HttpRequest, wall_ms: u64) -> Returned {
        let Some(function) = self.functions.route else {
            return Err(Failed::Call(Failure::NotReady));
        };
        self.moment(wall_ms, seed_of(request.url.as_bytes(), wall_ms));
        self.crossed.0 += request.url.len() + request.body.len();
        let (found,) = self.run(&function, (routes::request(request),))?;
        self.crossed.1 += found.body.len();
        routes::checked(found)
            .map(Answer::Response)
            .map_err(|why| self.bad(&why))
    }

    pub(super) fn persist_after(&mut self, source: Source, messages: &[Message]) -> Returned {
        let Some(function) = self.functions.persist else {
            return Err(Failed::Call(Failure::NotReady));
        };
        let frame = self.committed(&source.channel, source.incarnation, messages);
        self.may_publish(source, messages);
        let (result,) = self.run(&function, frame)?;
        match result {
            Ok(done) => self.done(done, messages.len()),
            Err(failure) => Err(self.failure("persist-after", &failure)),
        }
    }

    /// Tells of a page of offline recipients of a message.
    pub(super) fn take_note(
        &mut self,
        channel: &ChannelKey,
        incarnation: Incarnation,
        (message, uids): (&Message, &[Uid]),
    ) -> Returned {
        let Some(function) = self.functions.offline else {
            return Err(Failed::Call(Failure::NotReady));
        };
        let (arena, index) = self.committed(channel, incarnation, std::slice::from_ref(message));
        self.crossed.0 += uids.iter().map(|uid| uid.as_str().len()).sum::<usize>();
        let (result,) = self.run(&function, (arena, index, texts(uids)))?;
        match result {
            Ok(done) if done as usize <= uids.len() => Ok(Answer::Done {
                messages: done,
                changes: Vec::new(),
            }),
            Ok(done) => Err(self.bad(&format!("{done} uids done of {}", uids.len()))),
            Err(failure) => Err(self.failure("offline", &failure)),
        }
    }

    pub(super) fn render(
        &mut self,
        channel: &ChannelKey,
        incarnation: Incarnation,
        (messages, uids): (&[Message], &[Uid]),
    ) -> Returned {
        let frame = self.committed(channel, incarnation, messages);
        let event = if uids.is_empty() {
            Event::MessageNotify
        } else {
            Event::MessageOffline
        };
        self.requests(event, frame, texts(uids))
    }

    pub(super) fn render_statuses(&mut self, batch: &StatusBatch) -> Returned {
        self.moment(batch.wall_ms, u64::from(batch.slot.0) << 48 ^ batch.number);
        let frame = self.frame(Frame::fill_empty);
        self.requests(Event::UserOnlineStatus, frame, batch.statuses.clone())
    }

    fn requests(&mut self, event: Event, (arena, index): SharedFrame, uids: Vec<String>) -> Returned {
        let Some(function) = self.functions.render else {
            return Err(Failed::Call(Failure::NotReady));
        };
        self.crossed.0 += uids.iter().map(String::len).sum::<usize>();
        let (result,) = self.run(&function, (event, arena, index, uids))?;
        match result {
            Ok(requests) => {
                let bodies = requests
                    .iter()
                    .map(|request| request.url.len() + request.body.len());
                self.crossed.1 += bodies.sum::<usize>();
                requests::checked(requests)
                    .map(Answer::Requests)
                    .map_err(|why| self.bad(&why))
            }
            Err(failure) => Err(self.failure("webhook", &failure)),
        }
    }

    /// From now on until the call ends the guest may publish because of these messages.
    fn may_publish(&mut self, source: Source, messages: &[Message]) {
        let plugin = Arc::clone(&self.prepared.plugin);
        let publishing = Publishing::about(plugin, source, messages, Faults::default());
        self.store.data_mut().publishing = Some(publishing);
    }

    /// The frame of committed messages, at the moment of the first of them.
    fn committed(
        &mut self,
        channel: &ChannelKey,
        incarnation: Incarnation,
        messages: &[Message],
    ) -> SharedFrame {
        let first = messages.first();
        self.moment(
            first.map_or(0, |message| message.stamp_ms),
            first.map_or(0, |message| message.id.0.cast_unsigned()),
        );
        self.frame(|frame| frame.fill_committed(channel, incarnation, messages))
    }

    fn done(&mut self, done: Done, messages: usize) -> Returned {
        let count = done.messages as usize;
        if count > messages {
            return Err(self.bad(&format!("{count} messages done of {messages}")));
        }
        if !done.changes.is_empty() && !self.prepared.changes_keys {
            return Err(self.bad("it changes keys, but its manifest does not ask for the capability `kv`"));
        }
        let mut changes = Vec::with_capacity(done.changes.len());
        for change in done.changes {
            self.crossed.1 += change.key.len();
            if change.message >= done.messages {
                return Err(self.bad(&format!(
                    "a change for message {}, but {count} are done",
                    change.message
                )));
            }
            changes.push(KvChange {
                message: change.message,
                key: Arc::from(change.key),
                operation: match change.change {
                    Operation::Set(value) => {
                        self.crossed.1 += value.value.len();
                        KvOperation::Set {
                            value: Bytes::from(value.value),
                            ttl_ms: value.ttl_ms,
                        }
                    }
                    Operation::Increment(by) => KvOperation::Increment(by),
                    Operation::Delete => KvOperation::Delete,
                },
            });
        }
        Ok(Answer::Done {
            messages: done.messages,
            changes,
        })
    }

    fn failure(&mut self, hook: &str, failure: &GuestFailure) -> Failed {
        self.went_wrong("warn", format!("{hook} failed: {}", failure.message));
        let after = (failure.after_ms > 0).then(|| Duration::from_millis(u64::from(failure.after_ms)));
        match failure.kind {
            FailureKind::Poison => Failed::Poison,
            FailureKind::Retry => Failed::Retry { after },
            FailureKind::Busy => Failed::Busy { after },
        }
    }
}

/// Users as texts.
fn texts(uids: &[Uid]) -> Vec<String> {
    uids.iter().map(|uid| uid.as_str().to_owned()).collect()
}
