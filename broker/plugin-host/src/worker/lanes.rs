//! Where calls wait: a lane for each version.

use super::pace::{Change, Pace, Ran};
use crate::captures::Fault;
use crate::instance::{Guest, Prepared};
use crate::status::Board;
use penstock_core::hooks::call::{Call, Returned, Version};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An instance that was not called for so long is dropped, but for one of each version: a call should not wait for `init`.
const IDLE: Duration = Duration::from_secs(60);
/// How often idle ones are looked for.
pub(super) const TEND: Duration = Duration::from_secs(5);

/// Which threads run the calls of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crew {
    /// For what waits for nothing outside of the cluster.
    Inside,
    /// For what may ask places outside, which may be slow or gone: all of them together hold up nothing inside.
    Outside,
}

impl Crew {
    pub(crate) const ALL: [Crew; 2] = [Crew::Inside, Crew::Outside];

    pub(super) fn of(prepared: &Prepared) -> Crew {
        if prepared.asks_outside {
            Crew::Outside
        } else {
            Crew::Inside
        }
    }
}

/// Is told the result of a call, exactly once.
pub(crate) type Reply = Box<dyn FnOnce(Returned) + Send>;

/// A call that waits.
pub(super) struct Job {
    pub(super) call: Call,
    pub(super) reply: Reply,
    pub(super) since: Instant,
}

/// The calls and the warm instances of one version.
#[derive(Default)]
pub(super) struct Lane {
    /// Tells this life of the version from an earlier one, whose calls may still run.
    pub(super) number: u64,
    pub(super) waiting: VecDeque<Job>,
    /// None while it is still being loaded.
    pub(super) prepared: Option<Arc<Prepared>>,
    /// Used from the end, so that those in front become idle.
    pub(super) warm: Vec<(Guest, Instant)>,
    pub(super) running: usize,
    /// Whether its calls follow channels: nobody waits for them at a client.
    pub(super) follows: bool,
    /// Whether it stands in the list of lanes that have work.
    pub(super) queued: bool,
    pub(super) pace: Pace,
}

impl Lane {
    /// A call ran, or did not.
    pub(super) fn count(&mut self, ran: Option<Ran>, now: Instant) {
        let prepared = self.prepared.as_ref();
        let may = prepared.is_some_and(|prepared| prepared.may_run_inline());
        if let Some(ran) = ran.filter(|_| may) {
            let change = self.pace.ran(ran, now);
            self.note(change);
        }
    }

    /// Counts a change of where its calls run.
    pub(super) fn note(&self, change: Option<Change>) {
        let (Some(change), Some(prepared)) = (change, &self.prepared) else {
            return;
        };
        note(&prepared.board, change);
    }
}

fn note(board: &Board, change: Change) {
    board.count(|status| {
        status.inline = change == Change::Promoted;
        match change {
            Change::Promoted => status.promotions += 1,
            Change::Demoted(why) => *status.demotions.entry(why).or_default() += 1,
        }
    });
}

/// A call whose turn it is.
pub(super) struct Turn {
    pub(super) job: Job,
    pub(super) lane: u64,
    pub(super) prepared: Arc<Prepared>,
    pub(super) guest: Option<Guest>,
    /// The crew of which it takes a thread for what follows channels; none when somebody waits for it at a client.
    pub(super) follows: Option<Crew>,
}

/// An instance that ended on the thread of a caller, who has no time to drop it and to start another.
pub(super) struct Errand {
    pub(super) version: Version,
    pub(super) prepared: Arc<Prepared>,
    pub(super) gone: Guest,
    /// Its last call, if that is to be captured.
    pub(super) failing: Option<Box<Failing>>,
}

/// A call that failed, to be captured by a thread that has the time.
pub(super) struct Failing {
    pub(super) call: Call,
    pub(super) fault: Fault,
}

/// What a thread does next.
pub(super) enum Task {
    Call(Turn),
    Replace(Errand),
}

#[derive(Default)]
pub(super) struct Lanes {
    pub(super) lanes: BTreeMap<Version, Lane>,
    /// Versions with work that may start, in turn, for each crew.
    pub(super) ready: [VecDeque<Version>; Crew::ALL.len()],
    pub(super) errands: VecDeque<Errand>,
    /// Calls that follow channels and run, of each crew.
    pub(super) following: [usize; Crew::ALL.len()],
    numbers: u64,
    tended: Option<Instant>,
    pub(super) stopped: bool,
}

impl Lanes {
    /// The lane of a version, made when there is none.
    pub(super) fn lane(&mut self, version: &Version) -> &mut Lane {
        let numbers = &mut self.numbers;
        self.lanes.entry(version.clone()).or_insert_with(|| {
            *numbers += 1;
            Lane {
                number: *numbers,
                ..Lane::default()
            }
        })
    }

    /// The lane of this life of a version.
    pub(super) fn life(&mut self, version: &Version, number: u64) -> Option<&mut Lane> {
        self.lanes.get_mut(version).filter(|lane| lane.number == number)
    }

    /// Takes out what nobody called for long.
    pub(super) fn idle(&mut self) -> Vec<Guest> {
        let now = Instant::now();
        if self
            .tended
            .is_some_and(|tended| now.duration_since(tended) < TEND)
        {
            return Vec::new();
        }
        self.tended = Some(now);
        let mut idle = Vec::new();
        for lane in self.lanes.values_mut() {
            while lane.warm.len() > 1 && now.duration_since(lane.warm[0].1) > IDLE {
                idle.push(lane.warm.remove(0).0);
            }
        }
        idle
    }

    /// The call whose turn it is, of the version at the front of those with work. None when that has none.
    pub(super) fn turn(&mut self, version: &Version) -> Option<Turn> {
        // A version that went, or went and is expected again, stands there from its former life.
        let lane = self.lanes.get_mut(version)?;
        lane.queued = false;
        let prepared = lane.prepared.clone()?;
        let job = lane.waiting.pop_front()?;
        lane.running += 1;
        let crew = Crew::of(&prepared);
        let follows = lane.follows.then_some(crew);
        self.following[crew as usize] += usize::from(lane.follows);
        Some(Turn {
            job,
            lane: lane.number,
            prepared,
            guest: lane.warm.pop().map(|(guest, _)| guest),
            follows,
        })
    }

    /// The version whose turn it is. Where as many calls follow channels as may, those that do not come first: a message that a guest
    /// publishes and waits for may need a thread for a filter.
    pub(super) fn next(&mut self, crew: Crew, following_max: usize) -> Option<Version> {
        let full = self.following[crew as usize] >= following_max;
        let may = |version: &Version| !full || self.lanes.get(version).is_none_or(|lane| !lane.follows);
        let ready = &mut self.ready[crew as usize];
        let at = ready.iter().position(may)?;
        ready.remove(at)
    }
}
