//! Opening connections: one, and many at a rate.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use penstock_wire::client::{ClientKey, NotAdmitted};
use penstock_wire::encryption::SessionCipher;
use penstock_wire::reason::Reason;
use penstock_wire::wkproto::{Frame, Version};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::link::Link;
use crate::meter::Latencies;
use crate::options::{Target, Transport};
use crate::pace::{Clock, Schedule};
use crate::plan::User;

/// How long a connection may take to open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Connections from one loopback address: what the range of local ports has room for.
const CONNECTIONS_PER_ADDRESS: usize = 20_000;

/// An open session.
pub(crate) struct Session {
    /// Its socket.
    pub(crate) stream: TcpStream,
    /// Its buffers.
    pub(crate) link: Link,
    /// Its cipher.
    pub(crate) cipher: SessionCipher,
    /// The layout of its frames.
    pub(crate) version: Version,
}

/// What all connections of a run share.
pub(crate) struct Opener {
    target: Target,
    address: SocketAddr,
    key: ClientKey,
    protocol: u8,
}

impl Opener {
    /// Looks the target up and draws the key of the run.
    ///
    /// # Errors
    /// When the host is unknown or the system has no random bytes.
    pub(crate) async fn new(target: &Target, protocol: u8) -> Result<Self> {
        let address = tokio::net::lookup_host(&target.address)
            .await
            .with_context(|| format!("{} cannot be looked up", target.address))?
            .next()
            .with_context(|| format!("{} has no address", target.address))?;
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).context("the system gives no random bytes")?;
        Ok(Self {
            target: target.clone(),
            address,
            key: ClientKey::new(secret),
            protocol,
        })
    }

    /// Opens the session of one user. The error is a short text that is the same for the same reason.
    async fn open(&self, user: &User, number: usize) -> Result<Session, String> {
        match tokio::time::timeout(OPEN_TIMEOUT, self.open_unhurried(user, number)).await {
            Ok(opened) => opened,
            Err(_) => Err(format!("not open after {} s", OPEN_TIMEOUT.as_secs())),
        }
    }

    async fn open_unhurried(&self, user: &User, number: usize) -> Result<Session, String> {
        let stream = self
            .connect(number)
            .await
            .map_err(|error| format!("no connection: {}", error.kind()))?;
        let mut stream = match self.target.transport {
            Transport::Tcp => stream,
            Transport::WebSocket => {
                let upgraded = tokio_tungstenite::client_async(&self.target.url, stream).await;
                let (websocket, _) = upgraded.map_err(|error| format!("no WebSocket: {error}"))?;
                // The server speaks only after CONNECT, so nothing was read beyond the upgrade.
                websocket.into_inner()
            }
        };
        let mut link = Link::new(self.target.transport);
        let mut connect = self
            .key
            .connect(self.protocol, &user.uid, &user.token, &format!("bench-{number}"));
        connect.client_timestamp_ms = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .ok()
            .and_then(|since| i64::try_from(since.as_millis()).ok())
            .unwrap_or_default();
        let version = Version::negotiate(self.protocol);
        link.write(&Frame::Connect(connect), version)
            .map_err(|error| error.to_string())?;
        stream
            .write_all_buf(&mut link.output)
            .await
            .map_err(|error| format!("no CONNACK: {}", error.kind()))?;
        loop {
            match link.frame(version).map_err(|error| error.to_string())? {
                Some(Frame::Connack(connack)) => {
                    let cipher = self.key.admitted(&connack).map_err(refusal)?;
                    // A server that knows less says so, and both speak what both know.
                    let newest = connack.server_version.unwrap_or(self.protocol);
                    return Ok(Session {
                        stream,
                        link,
                        cipher,
                        version: version.min(Version::negotiate(newest)),
                    });
                }
                Some(other) => return Err(format!("no CONNACK, but {:?}", other.frame_type())),
                None => match stream.read_buf(&mut link.input).await {
                    Ok(0) => return Err("closed without a CONNACK".to_owned()),
                    Ok(_) => {}
                    Err(error) => return Err(format!("no CONNACK: {}", error.kind())),
                },
            }
        }
    }

    /// On loopback further connections come from further addresses.
    async fn connect(&self, number: usize) -> std::io::Result<TcpStream> {
        let socket = match self.address {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        let block = u8::try_from(number / CONNECTIONS_PER_ADDRESS).unwrap_or(u8::MAX);
        if block > 0 && self.address.is_ipv4() && self.address.ip().is_loopback() {
            let source = IpAddr::V4(Ipv4Addr::new(127, 0, block, 1));
            socket.bind(SocketAddr::new(source, 0))?;
        }
        let stream = socket.connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

fn refusal(error: NotAdmitted) -> String {
    match error {
        NotAdmitted::Refused(code) => format!("CONNACK {}", reason_name(code)),
        NotAdmitted::Key => error.to_string(),
    }
}

/// The name of a reason code, or the number of one that has none.
#[must_use]
pub(crate) fn reason_name(code: u8) -> String {
    Reason::from_code(code).map_or_else(|| format!("reason_{code}"), |reason| reason.name().to_owned())
}

/// How connections are opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    /// Per second.
    pub(crate) per_second: u64,
    /// How many may be opening at once; without a bound they come as in a storm, and the time of each counts from when it
    /// was due.
    pub(crate) at_once: Option<usize>,
}

/// What came of opening many connections.
#[derive(Default)]
pub(crate) struct Arrived {
    /// The sessions with the numbers of their users.
    pub(crate) sessions: Vec<(usize, Session)>,
    /// Those that failed, by reason.
    pub(crate) failed: BTreeMap<String, u64>,
    /// From the start of each to its CONNACK.
    pub(crate) connack: Latencies,
    /// How long it took until the last was open or had failed.
    pub(crate) elapsed: Duration,
}

/// Opens a session for each user.
pub(crate) async fn open_all(opener: &Arc<Opener>, users: &[User], arrivals: Arrivals) -> Arrived {
    let clock = Clock::start();
    let mut due = arrivals_due(clock, arrivals.per_second);
    let places = Arc::new(Semaphore::new(arrivals.at_once.unwrap_or(Semaphore::MAX_PERMITS)));
    let mut opening = JoinSet::new();
    let mut arrived = Arrived::default();
    for (number, user) in users.iter().enumerate() {
        let Some(due_ns) = due.recv().await else { break };
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            break;
        };
        let begun_ns = match arrivals.at_once {
            Some(_) => clock.now_ns(),
            None => due_ns,
        };
        let (opener, user) = (Arc::clone(opener), user.clone());
        opening.spawn(async move {
            let opened = opener.open(&user, number).await;
            drop(place);
            (number, opened, clock.now_ns().saturating_sub(begun_ns))
        });
    }
    while let Some(joined) = opening.join_next().await {
        match joined {
            Ok((number, Ok(session), took_ns)) => {
                arrived.connack.record(took_ns);
                arrived.sessions.push((number, session));
            }
            Ok((_, Err(reason), _)) => *arrived.failed.entry(reason).or_default() += 1,
            Err(error) => *arrived.failed.entry(error.to_string()).or_default() += 1,
        }
    }
    arrived.elapsed = Duration::from_nanos(clock.now_ns());
    arrived.sessions.sort_unstable_by_key(|(number, _)| *number);
    arrived
}

/// The due times of arrivals at a rate. Ends with the receiver.
fn arrivals_due(clock: Clock, per_second: u64) -> mpsc::Receiver<u64> {
    let (sender, receiver) = mpsc::channel(1_024);
    let schedule = Schedule {
        start_ns: 0,
        per_second,
    };
    std::thread::spawn(move || {
        schedule.keep(clock, u64::MAX, |_, due_ns| sender.blocking_send(due_ns).is_ok());
    });
    receiver
}
