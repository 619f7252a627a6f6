//! How often what happens, drawn anew for each seed: rare combinations are found where one seed makes them common.

use crate::rng::Rng;

/// The kinds of steps with the share of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Append,
    Send,
    Deliver,
    Lose,
    Sync,
    Pull,
    Grant,
    Change,
    Restart,
    Wipe,
    Register,
    Evict,
    Trim,
    Retain,
    Tell,
}

pub(crate) struct Weights {
    steps: Vec<(Step, usize)>,
    total: usize,
    /// A delivered message stays in the network once in so many times.
    pub(crate) duplicate_one_in: usize,
    /// A grant keeps the leader in all but one of so many cases.
    pub(crate) keep_leader: usize,
    /// A recovery breaks off while it copies, once in so many times.
    pub(crate) break_off_one_in: usize,
    /// Mostly the newest message is delivered first.
    pub(crate) newest_first: bool,
    /// The metadata grants at once when a leader restarts or a disk is lost, once in so many times.
    pub(crate) grant_late: usize,
}

impl Weights {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::new(seed, 0xD134_2543_DE82_EF95);
        let mut pick = |choices: &[usize]| choices[rng.below(choices.len())];
        let steps = vec![
            (Step::Append, 100),
            (Step::Send, 200),
            (Step::Deliver, 520),
            (Step::Lose, pick(&[40, 40, 10])),
            (Step::Sync, pick(&[100, 30, 10])),
            (Step::Pull, pick(&[30, 10, 60])),
            (Step::Grant, pick(&[3, 3, 8])),
            (Step::Change, pick(&[0, 5, 15])),
            (Step::Restart, pick(&[10, 4, 20])),
            (Step::Wipe, pick(&[5, 1, 0])),
            (Step::Register, 15),
            (Step::Evict, pick(&[0, 20])),
            (Step::Trim, pick(&[0, 40])),
            (Step::Retain, pick(&[0, 30])),
            (Step::Tell, 40),
        ];
        Self {
            total: steps.iter().map(|(_, share)| share).sum(),
            steps,
            duplicate_one_in: pick(&[20, 4, 2]),
            keep_leader: pick(&[1, 2, 3]),
            break_off_one_in: pick(&[4, 1, 20]).max(2),
            newest_first: pick(&[0, 1]) == 1,
            grant_late: pick(&[1, 4]),
        }
    }

    pub(crate) fn step(&self, rng: &mut Rng) -> Step {
        let mut place = rng.below(self.total);
        for &(step, share) in &self.steps {
            if place < share {
                return step;
            }
            place -= share;
        }
        Step::Tell
    }
}
