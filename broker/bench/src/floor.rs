//! What this machine can do without any broker: appends that are synced, and echoes over loopback. No broker on it can
//! acknowledge faster than its disk syncs or deliver faster than its sockets carry.

use std::fs::{self, File, OpenOptions};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::{SinkExt as _, StreamExt as _};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async, client_async};

use crate::crew::say;
use crate::meter::{Latencies, Percentiles};
use crate::pace::nanoseconds;
use crate::report::per_second;

/// Bytes of a record and of an echoed message.
pub(crate) const RECORD_BYTES: usize = 150;
/// Records in one append.
pub(crate) const BATCHES: [usize; 5] = [1, 16, 64, 256, 1_024];
/// Clients that echo at the same time.
pub(crate) const ECHO_CLIENTS: usize = 200;
/// How long each figure is measured.
const MEASURED: Duration = Duration::from_secs(2);
/// The file, which is written before the measurement, so that an append changes no metadata.
const FILE_BYTES: usize = 64 << 20;

/// The limits of a machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Floor {
    /// Bytes of a record and of an echoed message.
    pub(crate) record_bytes: usize,
    /// Synced appends, by batch.
    pub(crate) disk: Vec<Disk>,
    /// Echoes over TCP.
    pub(crate) tcp: Echo,
    /// Echoes over WebSockets.
    pub(crate) websocket: Echo,
}

/// Appends of one batch size, each followed by fdatasync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Disk {
    /// Records in one append.
    pub(crate) batch: usize,
    /// Records per second.
    pub(crate) records_per_s: f64,
    /// Time of one append with its sync.
    pub(crate) append_ms: Percentiles,
}

/// Messages that come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Echo {
    /// Round trips of one client that is alone.
    pub(crate) round_trip_ms: Percentiles,
    /// How many clients make the throughput.
    pub(crate) clients: usize,
    /// Round trips per second of all of them, each with one message under way.
    pub(crate) round_trips_per_s: f64,
}

/// Measures everything.
///
/// # Errors
/// When the disk or the loopback cannot be used.
pub(crate) async fn measure(directory: &Path) -> Result<Floor> {
    say(&format!("appends with fdatasync in {}", directory.display()));
    let directory = directory.to_owned();
    let disk = tokio::task::spawn_blocking(move || disk(&directory, MEASURED)).await??;
    say("echoes over loopback");
    Ok(Floor {
        record_bytes: RECORD_BYTES,
        disk,
        tcp: echo(false, ECHO_CLIENTS, MEASURED).await?,
        websocket: echo(true, ECHO_CLIENTS, MEASURED).await?,
    })
}

/// A file that is gone when the measurement is over.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn disk(directory: &Path, measured: Duration) -> Result<Vec<Disk>> {
    let path = directory.join(format!("penstock-floor-{}", std::process::id()));
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)
        .with_context(|| format!("{} cannot be written", path.display()))?;
    let _scratch = Scratch(path);
    let zeros = vec![0; 1 << 20];
    for _ in 0..FILE_BYTES / zeros.len() {
        file.write_all(&zeros)?;
    }
    file.sync_all()?;
    BATCHES
        .into_iter()
        .map(|batch| appends(&mut file, batch, measured))
        .collect()
}

fn appends(file: &mut File, batch: usize, measured: Duration) -> Result<Disk> {
    let records = vec![0x5a; batch * RECORD_BYTES];
    let mut latencies = Latencies::default();
    let mut count = 0;
    let started = Instant::now();
    let mut at = FILE_BYTES;
    while started.elapsed() < measured {
        // At the end of the file it begins again: a write beyond would change the length, and that is metadata.
        if at + records.len() > FILE_BYTES {
            at = 0;
            file.seek(SeekFrom::Start(0))?;
        }
        let begun = Instant::now();
        file.write_all(&records)?;
        file.sync_data()?;
        latencies.record(nanoseconds(begun.elapsed()));
        at += records.len();
        count += batch as u64;
    }
    Ok(Disk {
        batch,
        records_per_s: per_second(count, started.elapsed()),
        append_ms: latencies.percentiles(),
    })
}

async fn echo(websocket: bool, clients: usize, measured: Duration) -> Result<Echo> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let server = tokio::spawn(async move {
        let mut sessions = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            sessions.spawn(async move {
                // A client that is done closes, which is no failure of the echo.
                let _ = serve_echo(websocket, stream).await;
            });
        }
    });
    let mut alone = Client::connect(websocket, address).await?;
    let (_, round_trips) = alone.round_trips(measured).await?;
    let mut crowd = JoinSet::new();
    for _ in 0..clients {
        let mut client = Client::connect(websocket, address).await?;
        crowd.spawn(async move { client.round_trips(measured).await });
    }
    let started = Instant::now();
    let mut count = 0;
    while let Some(joined) = crowd.join_next().await {
        count += joined??.0;
    }
    let elapsed = started.elapsed();
    server.abort();
    Ok(Echo {
        round_trip_ms: round_trips.percentiles(),
        clients,
        round_trips_per_s: per_second(count, elapsed),
    })
}

async fn serve_echo(websocket: bool, mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    if websocket {
        let mut session = accept_async(stream).await?;
        while let Some(message) = session.next().await {
            session.send(message?).await?;
        }
        return Ok(());
    }
    let mut buffer = [0; RECORD_BYTES];
    loop {
        stream.read_exact(&mut buffer).await?;
        stream.write_all(&buffer).await?;
    }
}

enum Client {
    Tcp(TcpStream),
    WebSocket(Box<WebSocketStream<TcpStream>>),
}

impl Client {
    async fn connect(websocket: bool, address: std::net::SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        if !websocket {
            return Ok(Self::Tcp(stream));
        }
        let (session, _) = client_async(format!("ws://{address}"), stream).await?;
        Ok(Self::WebSocket(Box::new(session)))
    }

    async fn round_trips(&mut self, measured: Duration) -> Result<(u64, Latencies)> {
        let mut latencies = Latencies::default();
        let mut count = 0;
        let started = Instant::now();
        while started.elapsed() < measured {
            let begun = Instant::now();
            self.round_trip().await?;
            latencies.record(nanoseconds(begun.elapsed()));
            count += 1;
        }
        Ok((count, latencies))
    }

    async fn round_trip(&mut self) -> Result<()> {
        match self {
            Self::Tcp(stream) => {
                let mut buffer = [0x5a; RECORD_BYTES];
                stream.write_all(&buffer).await?;
                stream.read_exact(&mut buffer).await?;
            }
            Self::WebSocket(session) => {
                session.send(Message::from(vec![0x5a_u8; RECORD_BYTES])).await?;
                session.next().await.context("the echo ended")??;
            }
        }
        Ok(())
    }
}

impl Floor {
    /// The appends of this batch size.
    #[must_use]
    pub(crate) fn batch(&self, batch: usize) -> Option<&Disk> {
        self.disk.iter().find(|disk| disk.batch == batch)
    }

    /// A few lines for people.
    #[must_use]
    pub(crate) fn summary(&self) -> String {
        let mut lines: Vec<String> = self
            .disk
            .iter()
            .map(|disk| {
                format!(
                    "append + fdatasync of {:>4} x {} bytes: {:>9.0} records/s, p50 {:.3} ms, p99 {:.3} ms",
                    disk.batch, self.record_bytes, disk.records_per_s, disk.append_ms.p50, disk.append_ms.p99
                )
            })
            .collect();
        for (name, echo) in [("TCP", &self.tcp), ("WebSocket", &self.websocket)] {
            lines.push(format!(
                "{name} echo of {} bytes: p50 {:.3} ms, p99 {:.3} ms alone; {:.0} round trips/s of {} clients",
                self.record_bytes,
                echo.round_trip_ms.p50,
                echo.round_trip_ms.p99,
                echo.round_trips_per_s,
                echo.clients
            ));
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn every_batch_is_measured_and_the_file_is_gone() {
        let folder = tempfile::tempdir().expect("a folder");
        let disk = disk(folder.path(), SHORT).expect("measured");
        assert_eq!(disk.iter().map(|disk| disk.batch).collect::<Vec<_>>(), BATCHES);
        assert!(
            disk.iter()
                .all(|disk| disk.records_per_s > 0.0 && disk.append_ms.count > 0)
        );
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0);
    }

    #[tokio::test]
    async fn echoes_come_back_over_both_transports() {
        for websocket in [false, true] {
            let echo = echo(websocket, 3, SHORT).await.expect("measured");
            assert!(echo.round_trip_ms.count > 0 && echo.round_trips_per_s > 0.0);
            assert_eq!(echo.clients, 3);
        }
    }

    #[test]
    fn what_is_written_can_be_read() {
        let floor = Floor {
            record_bytes: 150,
            disk: vec![Disk {
                batch: 16,
                records_per_s: 5.5,
                append_ms: Percentiles::default(),
            }],
            ..Floor::default()
        };
        let text = serde_json::to_string(&floor).expect("written");
        let read: Floor = serde_json::from_str(&text).expect("read");
        assert_eq!(read, floor);
        assert!(read.batch(16).is_some() && read.batch(1).is_none());
    }
}
