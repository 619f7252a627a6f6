//! Many seeds on all cores: each seed is a world of its own in one thread.

use crate::coverage::Coverage;
use crate::mutants::{Driver, Mutant};
use crate::oracle::Violation;
use crate::settings::Settings;
use crate::world::World;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// What became of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Broken rules; none when all is well.
    pub violations: Vec<Violation>,
    /// What it met.
    pub coverage: Coverage,
    /// A number that two runs of one seed share.
    pub trace_hash: u64,
}

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Nodes of the cluster.
    pub nodes: usize,
    /// First seed.
    pub from: u64,
    /// The seed after the last.
    pub to: u64,
    /// The planted bug, if any.
    pub mutant: Option<&'static Mutant>,
    /// Print everything that happens from this virtual time on.
    pub trace: Option<Duration>,
    /// Stop at this many failures.
    pub failures_max: usize,
    /// Run every seed twice and compare.
    pub twice: bool,
    /// Seeds of `open_seeds.txt` are counted and named, but are no failures.
    pub tolerate_open: bool,
}

/// Seeds whose violations are known and not repaired yet: `nodes seed rule what`, a line each.
const OPEN_SEEDS: &str = include_str!("../open_seeds.txt");

fn is_open(nodes: usize, outcome: &Outcome) -> bool {
    let known = format!("{nodes} {} ", outcome.seed);
    OPEN_SEEDS.lines().any(|line| line.starts_with(&known))
}

/// The sum over all seeds of a plan.
#[derive(Debug, Default)]
pub struct Report {
    /// Seeds that were run.
    pub seeds: u64,
    /// Sum of all counters.
    pub coverage: Coverage,
    /// Seeds that broke a rule, in order.
    pub failures: Vec<Outcome>,
    /// Seeds that broke a rule and are known to be open.
    pub open: Vec<u64>,
    /// Virtual time of each seed.
    pub virtual_times: Vec<Duration>,
    /// Acknowledged messages of each seed.
    pub acknowledged: Vec<u64>,
    /// Real time.
    pub elapsed: Duration,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Panics of the machines are findings: they are kept with their place instead of being printed.
fn keep_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current()
                .name()
                .is_some_and(|name| name.starts_with("seeds"))
            {
                PANIC.with(|panic| *panic.borrow_mut() = Some(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
}

/// Runs one seed to its end.
#[must_use]
pub fn run_seed(nodes: usize, seed: u64, mutant: Option<&Mutant>, trace: Option<Duration>) -> Outcome {
    let settings = Settings::draw(seed, nodes);
    let driver = mutant.map_or_else(Driver::default, |mutant| mutant.driver());
    let mut world = World::new(settings, driver, trace);
    let violations = match catch_unwind(AssertUnwindSafe(|| world.run())) {
        Ok(violations) => violations,
        Err(payload) => {
            let text = PANIC.with(|panic| panic.borrow_mut().take());
            let text = text
                .or_else(|| payload.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "a panic".to_owned());
            vec![Violation {
                rule: "panic",
                detail: format!("at {:?}: {}", world.now(), text.replace('\n', " ")),
            }]
        }
    };
    Outcome {
        seed,
        violations,
        trace_hash: world.trace_hash(),
        coverage: world.coverage,
    }
}

fn run_checked(plan: &Plan, seed: u64) -> Outcome {
    let mut outcome = run_seed(plan.nodes, seed, plan.mutant, plan.trace);
    if plan.mutant.is_some() && !outcome.violations.is_empty() {
        // A seed that breaks a rule without the planted bug too shows nothing of it.
        let sound = run_seed(plan.nodes, seed, None, None).violations.is_empty();
        if !sound {
            outcome.violations.clear();
        }
    }
    if plan.twice {
        let again = run_seed(plan.nodes, seed, plan.mutant, None);
        if again.trace_hash != outcome.trace_hash {
            outcome.violations.push(Violation {
                rule: "determinism",
                detail: format!(
                    "two runs differ: {:x} and {:x}",
                    outcome.trace_hash, again.trace_hash
                ),
            });
        }
    }
    outcome
}

/// Runs a plan on all cores.
#[must_use]
pub fn run(plan: &Plan, mut progress: impl FnMut(&Report)) -> Report {
    keep_panics();
    let started = Instant::now();
    let next = AtomicU64::new(plan.from);
    let stop = AtomicBool::new(false);
    let (sender, outcomes) = mpsc::channel();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if plan.trace.is_some() { 1 } else { threads };
    let mut report = Report::default();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (sender, next, stop) = (sender.clone(), &next, &stop);
            std::thread::Builder::new()
                .name(format!("seeds-{thread}"))
                .spawn_scoped(scope, move || {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= plan.to || stop.load(Ordering::Relaxed) {
                            return;
                        }
                        // The receiver lives until all threads have ended.
                        drop(sender.send(run_checked(plan, seed)));
                    }
                })
                .expect("a thread for seeds");
        }
        drop(sender);
        for outcome in outcomes {
            let open = plan.tolerate_open && is_open(plan.nodes, &outcome);
            report.take(outcome, open);
            report.elapsed = started.elapsed();
            if report.failures.len() >= plan.failures_max {
                stop.store(true, Ordering::Relaxed);
            }
            progress(&report);
        }
    });
    report.failures.sort_by_key(|outcome| outcome.seed);
    report.elapsed = started.elapsed();
    report
}

impl Report {
    fn take(&mut self, outcome: Outcome, open: bool) {
        self.seeds += 1;
        self.coverage.add(&outcome.coverage);
        if outcome.violations.is_empty() {
            self.virtual_times.push(outcome.coverage.virtual_time);
            self.acknowledged.push(outcome.coverage.acknowledged);
        } else if open {
            self.open.push(outcome.seed);
        } else {
            self.failures.push(outcome);
        }
    }

    /// Median virtual time and acknowledged messages of the seeds that ran to their end.
    #[must_use]
    pub fn medians(&self) -> (Duration, u64) {
        let mut times = self.virtual_times.clone();
        let mut acknowledged = self.acknowledged.clone();
        times.sort_unstable();
        acknowledged.sort_unstable();
        (
            times.get(times.len() / 2).copied().unwrap_or_default(),
            acknowledged.get(acknowledged.len() / 2).copied().unwrap_or(0),
        )
    }

    /// What a run of 1,000 seeds at three nodes lacks (M-21); nothing for smaller runs.
    #[must_use]
    pub fn lacks(&self, nodes: usize) -> Vec<String> {
        if nodes != 3 || self.seeds < 1_000 {
            return Vec::new();
        }
        let mut lacks: Vec<String> = self
            .coverage
            .missing()
            .iter()
            .map(|what| format!("no {what:?}"))
            .collect();
        let (time, acknowledged) = self.medians();
        if time < Duration::from_secs(60) {
            lacks.push(format!("the median seed has only {time:?}"));
        }
        if acknowledged < 500 {
            lacks.push(format!(
                "the median seed has only {acknowledged} acknowledged messages"
            ));
        }
        lacks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_has_one_trace() {
        let plan = Plan {
            nodes: 3,
            from: 1,
            to: 3,
            mutant: None,
            trace: None,
            failures_max: 10,
            twice: true,
            tolerate_open: false,
        };
        let report = run(&plan, |_| {});
        assert_eq!(report.seeds, 2);
        let differs = report
            .failures
            .iter()
            .flat_map(|outcome| &outcome.violations)
            .any(|violation| violation.rule == "determinism");
        assert!(!differs, "{:?}", report.failures);
        assert_ne!(
            run_seed(3, 1, None, None).trace_hash,
            run_seed(3, 2, None, None).trace_hash
        );
    }

    #[test]
    fn a_planted_bug_is_caught() {
        let mutant = crate::mutants::ALL
            .iter()
            .find(|mutant| mutant.name == "stored-before-durable");
        let outcome = run_seed(3, 1, mutant, None);
        let rules: Vec<&str> = outcome
            .violations
            .iter()
            .map(|violation| violation.rule)
            .collect();
        // What is told before it is durable is seen when it leaves, or when it is called committed.
        let seen = rules.iter().any(|rule| ["F1", "M-1", "CH-2"].contains(rule));
        assert!(seen, "{rules:?}");
    }
}
