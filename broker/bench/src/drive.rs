//! One run against a server, from the first connection to the report.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::api::Api;
use crate::crew::{Crew, say};
use crate::machine::{Machine, Usage, open_files_max, usage};
use crate::meter::Meter;
use crate::options::{Mode, Options};
use crate::pace::{Clock, nanoseconds};
use crate::plan::{Plan, User, users};
use crate::report::{Connecting, Login, Process, Report, Tally};
use crate::session::{Arrivals, Arrived, Opener, Session, open_all};
use crate::traffic::Shared;
use crate::verify::judge;

/// Connections that may be opening at once, except in a storm.
const OPENING_AT_ONCE: usize = 128;
/// Files that a process has open besides its connections, generously.
const OTHER_FILES: usize = 64;
/// The first send of the open loop is due this long after the traffic was announced, so that every connection has heard of it.
const LEAD_IN: Duration = Duration::from_millis(50);

/// Drives a server as the options say.
///
/// # Errors
/// When the run cannot be made. A run that was made and found something wrong is a report with a failure in it.
pub(crate) async fn drive(options: &Options) -> Result<Report> {
    enough_files(options.connections + options.background)?;
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).context("the system gives no random bytes")?;
    let run = Run {
        options,
        id: u64::from_le_bytes(bytes),
        opener: Arc::new(Opener::new(&options.target, options.protocol).await?),
        before: watched(options)?,
    };
    let report = Report::new(options, Machine::here());
    match options.mode {
        Mode::Person | Mode::Group | Mode::Fanout => run.traffic(report).await,
        Mode::Idle => run.idle(report).await,
        Mode::Login => run.login(report).await,
    }
}

/// What all modes need.
struct Run<'a> {
    options: &'a Options,
    id: u64,
    opener: Arc<Opener>,
    before: Option<Usage>,
}

fn enough_files(connections: usize) -> Result<()> {
    match open_files_max() {
        Some(files) if files < connections + OTHER_FILES => bail!(
            "{connections} connections need as many open files and this process may have {files}: ulimit -n {}",
            connections + OTHER_FILES
        ),
        _ => Ok(()),
    }
}

fn watched(options: &Options) -> Result<Option<Usage>> {
    match options.pid {
        None => Ok(None),
        Some(pid) => usage(pid)
            .map(Some)
            .with_context(|| format!("process {pid} cannot be watched: /proc/{pid} tells nothing")),
    }
}

impl Run<'_> {
    async fn traffic(&self, mut report: Report) -> Result<Report> {
        let plan = Plan::new(self.options, self.id, self.users(self.options.connections)?);
        self.create_groups(&plan).await?;
        let arrived = self.open(&plan.users).await;
        report.connect = Connecting::new(&arrived);
        let mut crew = self.crew(&plan, everyone(arrived, plan.users.len())?);
        let (warm_up, measured) = (self.options.warm_up, self.options.duration);
        let start_ns = self.begin(&mut crew, self.options.rate, Some(measured));
        let mut tally = crew.measure(start_ns, warm_up, measured).await;
        crew.drain(&mut tally, self.options.drain).await;
        report.duration_s = tally.measured().as_secs_f64();
        report.process = self.process();
        account(&mut report, crew, tally, &plan).await;
        Ok(report)
    }

    async fn idle(&self, mut report: Report) -> Result<Report> {
        let plan = Plan::silent(self.users(self.options.connections)?);
        let mut arrived = self.open(&plan.users).await;
        report.connect = Connecting::new(&arrived);
        let crew = self.crew(&plan, std::mem::take(&mut arrived.sessions));
        say(&format!(
            "{} connections are open; holding them for {:?}",
            report.connect.connected, self.options.duration
        ));
        let started = tokio::time::Instant::now();
        while started.elapsed() < self.options.duration {
            let left = self.options.duration.saturating_sub(started.elapsed());
            tokio::time::sleep(left.min(Duration::from_secs(1))).await;
            let seconds = started.elapsed().as_secs_f64();
            say(&format!("{seconds:>6.1} s  {} connections ended", crew.ended()));
        }
        report.duration_s = started.elapsed().as_secs_f64();
        report.process = self.process();
        report.connect.lost = crew.stop().await.lost;
        Ok(report)
    }

    /// The storm comes after the background had its time alone. What is acknowledged or received while it lasts counts as
    /// during it.
    async fn login(&self, mut report: Report) -> Result<Report> {
        let background = self.options.background;
        let mut all = self.users(background + self.options.connections)?;
        let newcomers = all.split_off(background);
        let plan = Plan::pairs(all);
        let sessions = everyone(self.open(&plan.users).await, background)?;
        let mut crew = self.crew(&plan, sessions);
        let mut tally = Tally::default();
        if background > 0 {
            let start_ns = self.begin(&mut crew, self.options.rate, None);
            tally = crew
                .measure(start_ns, self.options.warm_up, self.options.duration)
                .await;
        }
        let mut login = Login {
            background,
            sendack_before_ms: tally.total.sendack.percentiles(),
            recv_before_ms: tally.total.recv.percentiles(),
            ..Login::default()
        };
        say(&format!("the storm begins: {} logins", newcomers.len()));
        let storm = Arrivals {
            per_second: self.options.connect_rate,
            at_once: None,
        };
        let mut arrived = open_all(&self.opener, &newcomers, storm).await;
        let during = crew.collect();
        report.connect = Connecting::new(&arrived);
        let newcomers = self.crew(&Plan::silent(newcomers), std::mem::take(&mut arrived.sessions));
        if background > 0 {
            report.duration_s = tally.measured().as_secs_f64();
            login.sendack_during_ms = during.sendack.percentiles();
            login.recv_during_ms = during.recv.percentiles();
            report.login = Some(login);
            tally.total.add(&during);
            crew.end_pace();
            crew.drain(&mut tally, self.options.drain).await;
            account(&mut report, crew, tally, &plan).await;
        }
        report.process = self.process();
        for (reason, count) in newcomers.stop().await.lost {
            *report.connect.lost.entry(reason).or_default() += count;
        }
        Ok(report)
    }

    fn users(&self, count: usize) -> Result<Vec<User>> {
        users(&self.options.users, self.id, count)
    }

    async fn create_groups(&self, plan: &Plan) -> Result<()> {
        let Some(url) = &self.options.api else {
            return Ok(());
        };
        let api = Api::new(url, self.options.api_key.as_deref());
        for group in &plan.groups {
            api.create(group).await?;
        }
        say(&format!("{} groups are created", plan.groups.len()));
        Ok(())
    }

    async fn open(&self, users: &[User]) -> Arrived {
        let arrivals = Arrivals {
            per_second: self.options.connect_rate,
            at_once: Some(OPENING_AT_ONCE),
        };
        let arrived = open_all(&self.opener, users, arrivals).await;
        say(&format!(
            "{} connections opened in {:.1} s",
            arrived.sessions.len(),
            arrived.elapsed.as_secs_f64()
        ));
        arrived
    }

    fn crew(&self, plan: &Plan, sessions: Vec<(usize, Session)>) -> Crew {
        let open_loop = self.options.rate.is_some() || self.options.mode == Mode::Login;
        let shared = Shared {
            clock: Clock::start(),
            run: self.id,
            payload: self.options.payload,
            window: (!open_loop).then_some(self.options.window as usize),
            count_from_ns: AtomicU64::new(0),
            meter: Meter::new(self.options.threads),
        };
        Crew::new(plan, sessions, Arc::new(shared))
    }

    /// Begins the traffic; says when, on the crew's clock. Without an end it goes on until it is told to stop.
    fn begin(&self, crew: &mut Crew, rate: Option<u64>, measured: Option<Duration>) -> u64 {
        let lead_in = if rate.is_some() { LEAD_IN } else { Duration::ZERO };
        let start_ns = crew.now_ns() + nanoseconds(lead_in);
        let counted_ns = start_ns + nanoseconds(self.options.warm_up);
        let end_ns = measured.map_or(u64::MAX, |measured| counted_ns + nanoseconds(measured));
        crew.begin(rate, [start_ns, counted_ns, end_ns]);
        start_ns
    }

    fn process(&self) -> Option<Process> {
        let after = usage(self.options.pid?)?;
        let idle = (self.options.mode == Mode::Idle).then_some(self.options.connections);
        Some(Process::new(self.before?, after, idle))
    }
}

/// Exact accounts need every connection.
fn everyone(arrived: Arrived, wanted: usize) -> Result<Vec<(usize, Session)>> {
    if arrived.sessions.len() < wanted {
        bail!(
            "{} of {wanted} connections could not be opened: {:?}",
            wanted - arrived.sessions.len(),
            arrived.failed
        );
    }
    Ok(arrived.sessions)
}

/// Closes the connections and puts what they saw into the report.
async fn account(report: &mut Report, crew: Crew, tally: Tally, plan: &Plan) {
    let given = crew.given();
    let aftermath = crew.stop().await;
    let verify = judge(&plan.members, &aftermath.witnesses);
    report.connect.lost = aftermath.lost;
    report.traffic = Some(tally.report(verify, aftermath.unanswered, given));
}
