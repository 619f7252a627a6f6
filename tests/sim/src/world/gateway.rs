//! The gateways: connections between clients and nodes, and the calls of the HTTP API. A connection keeps the order of
//! its frames both ways; a refused frame waits at the gateway, as bytes wait in a socket.

use super::{Call, Happening, State, World};
use crate::clients::{Purpose, Wish};
use penstock_core::admin::{Answer, Ask, Failure};
use penstock_core::client::{ClientFrame, ServerFrame, shard_of};
use penstock_core::effect::Event;
use penstock_core::types::{ConnectionId, Token};
use std::collections::VecDeque;
use std::time::Duration;

/// A caller of the HTTP API waits this long.
const CALL_WITHIN: Duration = Duration::from_secs(8);

/// A connection of a client to a process.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) user: usize,
    pub(super) opened: Duration,
    /// Index of the node.
    pub(super) node: usize,
    life: u32,
    open_at_server: bool,
    /// When the last frame arrives there.
    to_server_at: Duration,
    to_client_at: Duration,
    /// Frames that the shard refused for now.
    refused: VecDeque<ClientFrame>,
}

impl World {
    /// A user looks at the clock.
    pub(super) fn user_acts(&mut self, user: usize) {
        let mut wishes = Vec::new();
        let next = self.clients.act(self.now, user, &mut self.oracle, &mut wishes);
        self.grant(user, wishes);
        self.agenda.put(next, Happening::User(user));
    }

    pub(super) fn grant(&mut self, user: usize, wishes: Vec<Wish>) {
        for wish in wishes {
            match wish {
                Wish::Open { node, connection } => self.open(user, node, connection),
                Wish::Frame { connection, frame } => self.client_writes(connection, Some(frame)),
                Wish::Close { connection } => self.client_writes(connection, None),
                Wish::Ask { node, ask, purpose } => self.call(node, ask, purpose),
            }
        }
    }

    fn open(&mut self, user: usize, node: usize, connection: usize) {
        assert_eq!(connection, self.connections.len());
        self.connections.push(Connection {
            user,
            opened: self.now,
            node,
            life: self.nodes[node].life,
            open_at_server: false,
            to_server_at: self.now,
            to_client_at: self.now,
            refused: VecDeque::new(),
        });
        if self.nodes[node].state == State::Down {
            return self.tell_client(connection, None);
        }
        self.connections[connection].open_at_server = true;
        let id = connection_id(connection);
        let shard = shard_of(id, self.settings.shards);
        let at = self.client_latency(connection, true);
        self.arrive_at(at, node, shard, Event::ClientOpened { connection: id });
    }

    fn client_latency(&mut self, connection: usize, to_server: bool) -> Duration {
        let arrival = self.now + self.shard_rng.tailed(Duration::from_micros(400));
        let connection = &mut self.connections[connection];
        let last = if to_server {
            &mut connection.to_server_at
        } else {
            &mut connection.to_client_at
        };
        *last = arrival.max(*last);
        *last
    }

    fn client_writes(&mut self, connection: usize, frame: Option<ClientFrame>) {
        let at = self.client_latency(connection, true);
        self.agenda.put(at, Happening::ToServer { connection, frame });
    }

    fn tell_client(&mut self, connection: usize, frame: Option<ServerFrame>) {
        let at = self.client_latency(connection, false);
        self.agenda.put(at, Happening::ToClient { connection, frame });
    }

    /// A client's frame reaches its gateway.
    pub(super) fn reach_server(&mut self, connection: usize, frame: Option<ClientFrame>) {
        let link = &mut self.connections[connection];
        if !link.open_at_server || self.nodes[link.node].life != link.life {
            return;
        }
        let (node, id) = (link.node, connection_id(connection));
        let shard = shard_of(id, self.settings.shards);
        match frame {
            None => {
                link.open_at_server = false;
                self.arrive(node, shard, Event::ClientClosed { connection: id });
            }
            Some(frame) if !link.refused.is_empty() => link.refused.push_back(frame),
            Some(frame) => self.arrive(
                node,
                shard,
                Event::ClientFrame {
                    connection: id,
                    frame,
                },
            ),
        }
    }

    /// A full mailbox refused an admission.
    pub(super) fn refuse(&mut self, event: Event) {
        match event {
            Event::ClientFrame { connection, frame } => {
                let number = connection_number(connection);
                let link = &mut self.connections[number];
                // In front: nothing of this connection overtakes it.
                link.refused.push_front(frame);
                let at = self.now + Duration::from_micros(200);
                self.agenda.put(at, Happening::Retry { connection: number });
            }
            Event::Ask { token, .. } => self.answer(token, Answer::Failed(Failure::Busy)),
            _ => {}
        }
    }

    /// The gateway tries a refused frame again.
    pub(super) fn retry(&mut self, connection: usize) {
        let link = &mut self.connections[connection];
        if !link.open_at_server || self.nodes[link.node].life != link.life {
            return;
        }
        let node = link.node;
        let id = connection_id(connection);
        let shard = shard_of(id, self.settings.shards);
        let Some(frame) = link.refused.pop_front() else {
            return;
        };
        let waiting = link.refused.len();
        self.arrive(
            node,
            shard,
            Event::ClientFrame {
                connection: id,
                frame,
            },
        );
        let link = &self.connections[connection];
        if !link.refused.is_empty() && link.refused.len() <= waiting {
            let at = self.now + Duration::from_micros(10);
            self.agenda.put(at, Happening::Retry { connection });
        }
    }

    /// A node writes a frame to a client.
    pub(super) fn client_frame(&mut self, node: usize, connection: ConnectionId, frame: ServerFrame) {
        if let Some(number) = self.connection_at(node, connection) {
            let shard = shard_of(connection, self.settings.shards);
            self.note_entry((node, shard), number, &frame);
            self.tell_client(number, Some(frame));
        }
    }

    /// A node closes a client.
    pub(super) fn close_client(&mut self, node: usize, connection: ConnectionId) {
        if let Some(number) = self.connection_at(node, connection) {
            self.connections[number].open_at_server = false;
            self.tell_client(number, None);
        }
    }

    fn connection_at(&self, node: usize, connection: ConnectionId) -> Option<usize> {
        let number = connection_number(connection);
        let link = self.connections.get(number)?;
        let present = link.node == node && link.life == self.nodes[node].life && link.open_at_server;
        present.then_some(number)
    }

    /// A frame of the server reaches a client.
    pub(super) fn reach_client(&mut self, connection: usize, frame: Option<ServerFrame>) {
        let user = self.connections[connection].user;
        let mut wishes = Vec::new();
        match frame {
            None => self.clients.closed(self.now, user, connection, &mut self.oracle),
            Some(frame) => {
                if let ServerFrame::Recv { message, .. } = &frame {
                    self.invariants.shown(message, &mut self.oracle);
                }
                let place = (user, connection);
                self.clients
                    .receive(self.now, place, frame, &mut self.oracle, &mut wishes);
            }
        }
        self.grant(user, wishes);
    }

    /// All connections of a process break; their clients notice.
    pub(super) fn break_connections(&mut self, node: usize) {
        for connection in 0..self.connections.len() {
            let link = &mut self.connections[connection];
            if link.node == node && link.open_at_server {
                link.open_at_server = false;
                self.tell_client(connection, None);
            }
        }
    }

    /// One connection breaks; both sides notice.
    pub(super) fn break_one(&mut self) {
        let open: Vec<usize> = (0..self.connections.len())
            .filter(|&number| self.connections[number].open_at_server)
            .collect();
        if open.is_empty() {
            return;
        }
        let connection = self.faults.rng.pick(&open);
        self.coverage.fault("broken connection", 1);
        self.client_writes(connection, None);
        self.tell_client(connection, None);
    }

    pub(super) fn call(&mut self, node: usize, ask: Ask, purpose: Purpose) {
        let call = self.calls.len();
        self.calls.push(Call {
            purpose: Some(purpose),
        });
        let timeout = Happening::Answered { call, answer: None };
        self.agenda.put(self.now + CALL_WITHIN, timeout);
        if self.nodes[node].state == State::Down {
            return;
        }
        let shard = u16::try_from(call % usize::from(self.settings.shards)).unwrap_or(0);
        let token = Token(call as u64);
        let at = self.now + self.shard_rng.tailed(Duration::from_micros(400));
        self.arrive_at(at, node, shard, Event::Ask { token, ask });
    }

    /// A node answers a call.
    pub(super) fn answer(&mut self, token: Token, answer: Answer) {
        let call = usize::try_from(token.0).expect("a number of ours");
        let at = self.now + self.shard_rng.tailed(Duration::from_micros(400));
        let answer = Some(answer);
        self.agenda.put(at, Happening::Answered { call, answer });
    }

    /// An answer reaches its caller, once.
    pub(super) fn answered(&mut self, call: usize, answer: Option<Answer>) {
        if let Some(purpose) = self.calls[call].purpose.take() {
            match purpose {
                Purpose::Deploy => self.deployed(answer.as_ref()),
                Purpose::Publish(name) => self.published(name, answer.as_ref()),
                Purpose::EchoRoom => self.echo_room(answer.as_ref()),
                purpose => self.clients.answered(self.now, purpose, answer, &mut self.oracle),
            }
        }
    }
}

fn connection_id(number: usize) -> ConnectionId {
    ConnectionId(number as u64)
}

fn connection_number(id: ConnectionId) -> usize {
    usize::try_from(id.0).expect("a number of ours")
}
