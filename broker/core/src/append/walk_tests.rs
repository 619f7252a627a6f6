//! Random interleavings of submissions, answers, commits, retries and changes of leader: one position per key, outcomes in
//! order, and no refusal of what was appended.

use super::ids::Generator;
use super::tests::{MemoryRows, leadership, now, ready_ids};
use super::{Append, Authority, Checked, Input, Leadership, Output, Role, faults};
use crate::limits::Limits;
use crate::message::{DedupeRow, Draft, MessageFlags, Outcome, Record};
use crate::rows::{Key, Miss};
use crate::types::{Incarnation, LeaderEpoch, MessageId, Reason, Seq, Token, Uid};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// Chance from a seed (xorshift).
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 11) % bound as u64).expect("below a usize")
    }

    fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }
}

/// A channel's log as a quorum sees it, its authority, and everything that was told to clients.
struct Walk {
    chance: Chance,
    authority: Authority,
    ids: Generator,
    rows: MemoryRows,
    faults: faults::Faults,
    epoch: u64,
    /// The leader's log. What is above `committed` may be cut by the next leader.
    log: Vec<(Record, Draft)>,
    committed: usize,
    log_start: usize,
    clock: u64,
    /// Whether a cut leaves idempotency rows behind, as damage could. Retention does not move then: below the log start
    /// nothing could tell such a row from a true one.
    stale_rows: bool,
    /// Appends that the replica has not taken yet, and questions that are open.
    appends: VecDeque<Append>,
    hooks: Vec<(Token, Vec<Draft>)>,
    checks: Vec<(Token, Seq)>,
    plans: Vec<Token>,
    submissions: u64,
    /// Submissions that wait for their reply, in order.
    waiting: VecDeque<Token>,
    sent: BTreeMap<Token, Vec<Draft>>,
    /// Topics, which are unique per submission, of everything that ever stood in a log.
    appended: BTreeSet<Arc<str>>,
    told: Vec<(Draft, Outcome)>,
    seen: Seen,
}

/// What the walks met, so that they are not empty.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    committed: u64,
    repeated: u64,
    unknown: u64,
    conflicts: u64,
    cut: u64,
    misses: u64,
    ephemeral: u64,
}

impl Walk {
    fn new(seed: u64, faults: faults::Faults) -> Walk {
        let limits = Limits {
            channel_backlog: 12,
            ..Limits::default()
        };
        let authority = Authority::new(&limits, faults, Token(1));
        Walk {
            chance: Chance(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            authority,
            ids: ready_ids(),
            rows: MemoryRows::default(),
            faults,
            epoch: 0,
            log: Vec::new(),
            committed: 0,
            log_start: 1,
            clock: 0,
            stale_rows: seed % 2 == 1,
            appends: VecDeque::new(),
            hooks: Vec::new(),
            checks: Vec::new(),
            plans: Vec::new(),
            submissions: 0,
            waiting: VecDeque::new(),
            sent: BTreeMap::new(),
            appended: BTreeSet::new(),
            told: Vec::new(),
            seen: Seen::default(),
        }
    }

    fn run(mut self, steps: usize) -> Result<Seen, String> {
        self.lead()?;
        for _ in 0..steps {
            self.step()?;
        }
        self.settle()?;
        self.check()?;
        Ok(self.seen)
    }

    fn step(&mut self) -> Result<(), String> {
        match self.chance.below(20) {
            0..=4 => self.submit(),
            5..=7 => self.answer_hooks(),
            8 | 9 => self.answer_check(),
            10..=12 => self.take_append(),
            13..=15 => self.commit(),
            16 => self.answer_plan(),
            17 if self.chance.one_in(3) => {
                self.clock += 3_000;
                self.expire()
            }
            18 if self.chance.one_in(6) => {
                // The same node may lead again, as another authority or with the same one.
                if self.chance.one_in(2) {
                    self.input(Input::Role(Role::Not))?;
                    self.rebuild();
                }
                self.lead()
            }
            19 if self.committed > 2 && !self.stale_rows && self.chance.one_in(4) => {
                self.log_start = self.log_start.max(self.chance.below(self.committed) + 1);
                if self.chance.one_in(2) {
                    return Ok(());
                }
                self.input(Input::LogStart(seq(self.log_start)))
            }
            _ => Ok(()),
        }
    }

    /// Answers everything, commits everything.
    fn settle(&mut self) -> Result<(), String> {
        for _ in 0..1_000 {
            if self.waiting.is_empty() {
                return Ok(());
            }
            self.answer_hooks()?;
            self.answer_check()?;
            self.answer_plan()?;
            self.take_append()?;
            self.committed = self.log.len();
            self.committed()?;
        }
        Err(format!("{} submissions are never answered", self.waiting.len()))
    }

    fn rebuild(&mut self) {
        let limits = Limits {
            channel_backlog: 12,
            ..Limits::default()
        };
        self.authority = Authority::new(&limits, self.faults, Token(1_000_000 * (self.epoch + 1)));
    }

    fn submit(&mut self) -> Result<(), String> {
        self.submissions += 1;
        let token = Token(self.submissions);
        let drafts: Vec<Draft> = (0..=self.chance.below(3))
            .map(|index| {
                let number = self.chance.below(6);
                let bytes = if self.chance.one_in(5) { "other" } else { "bytes" };
                Draft {
                    from_uid: Uid::new("u"),
                    client_msg_no: Arc::from(if number == 0 {
                        String::new()
                    } else {
                        number.to_string()
                    }),
                    flags: MessageFlags {
                        no_persist: self.chance.one_in(8),
                        ..MessageFlags::default()
                    },
                    setting: 0,
                    expire_s: 0,
                    topic: Arc::from(format!("{token}.{index}")),
                    payload: Bytes::from_static(bytes.as_bytes()),
                    origin: None,
                    subscribers: Arc::from([]),
                    attributes: None,
                    hops: 0,
                }
            })
            .collect();
        self.sent.insert(token, drafts.clone());
        self.waiting.push_back(token);
        self.input(Input::Submit { token, drafts })
    }

    fn answer_hooks(&mut self) -> Result<(), String> {
        if self.hooks.is_empty() {
            return Ok(());
        }
        let (token, drafts) = self.hooks.remove(self.chance.below(self.hooks.len()));
        let verdicts = drafts
            .into_iter()
            .map(|draft| {
                if self.chance.one_in(10) {
                    Err(Reason::NOT_ALLOWED.into())
                } else {
                    Ok(draft)
                }
            })
            .collect();
        self.input(Input::HooksDone { token, verdicts })
    }

    fn answer_check(&mut self) -> Result<(), String> {
        if self.checks.is_empty() {
            return Ok(());
        }
        let (token, at) = self.checks.remove(self.chance.below(self.checks.len()));
        let checked = match self.log.get(index(at)) {
            _ if self.chance.one_in(10) => Checked::Failed,
            _ if index(at) + 1 < self.log_start => Checked::Removed {
                log_start: seq(self.log_start),
            },
            Some((record, _)) => Checked::Record(record.clone()),
            None => Checked::Missing,
        };
        self.input(Input::RecordChecked { token, checked })
    }

    fn answer_plan(&mut self) -> Result<(), String> {
        let Some(token) = self.plans.pop() else {
            return Ok(());
        };
        let accepted = !self.chance.one_in(4);
        self.input(Input::Planned { token, accepted })
    }

    /// The replica takes or refuses the next append, in order.
    fn take_append(&mut self) -> Result<(), String> {
        let Some(append) = self.appends.pop_front() else {
            return Ok(());
        };
        let token = append.token;
        if append.leader_epoch != LeaderEpoch(self.epoch) {
            return Ok(());
        }
        if self.chance.one_in(12) {
            let reason = Reason::NODE_NOT_MATCH;
            return self.input(Input::AppendRefused { token, reason });
        }
        let first = seq(self.log.len() + 1);
        for entry in append.entries {
            let draft = entry.message.draft;
            let record = Record {
                seq: seq(self.log.len() + 1),
                leader_epoch: append.leader_epoch,
                stamp_ms: entry.message.stamp_ms,
                id: entry.message.id,
                key: entry.key,
                body: Bytes::new(),
                crc: 0,
            };
            if let (Some(key), Some(row)) = (record.key, DedupeRow::of(&record)) {
                self.rows
                    .rows
                    .insert(row_key(key.hash, record.stamp_ms), row.encode());
            }
            if !self.appended.insert(Arc::clone(&draft.topic)) {
                return Err(format!("{} was appended twice", draft.topic));
            }
            self.log.push((record, draft));
        }
        self.input(Input::Appended { token, first })
    }

    fn commit(&mut self) -> Result<(), String> {
        self.committed += self.chance.below(self.log.len() - self.committed + 1);
        self.committed()
    }

    fn committed(&mut self) -> Result<(), String> {
        let leader_epoch = LeaderEpoch(self.epoch);
        let through = seq(self.committed);
        self.input(Input::Committed {
            leader_epoch,
            through,
        })
    }

    /// A new leadership: the tail that is not committed may be cut, with its idempotency rows (R20).
    fn lead(&mut self) -> Result<(), String> {
        let keep = self.committed + self.chance.below(self.log.len() - self.committed + 1);
        self.seen.cut += (self.log.len() - keep) as u64;
        for (record, _) in self.log.split_off(keep) {
            if let Some(key) = record.key
                && !self.stale_rows
            {
                self.rows.rows.remove(&row_key(key.hash, record.stamp_ms));
            }
        }
        self.epoch += 1;
        let leading = Leadership {
            log_start: seq(self.log_start),
            last_stamp_ms: self.log.last().map_or(0, |(record, _)| record.stamp_ms),
            ..leadership(self.epoch, self.committed as u64)
        };
        self.input(Input::Role(Role::Leading(leading)))
    }

    fn expire(&mut self) -> Result<(), String> {
        let mut out = Vec::new();
        self.authority.expire(now(self.clock), &mut self.ids, &mut out);
        self.outputs(out)
    }

    fn input(&mut self, input: Input) -> Result<(), String> {
        self.clock += 1;
        let mut out = Vec::new();
        // A miss now and then: the same input comes again when the rows are there.
        self.rows.all_cold = self.chance.one_in(4);
        let (at, ids) = (now(self.clock), &mut self.ids);
        if let Err(Miss(keys)) = self
            .authority
            .handle(at, input.clone(), &self.rows, ids, &mut out)
        {
            self.seen.misses += keys.len() as u64;
            if !out.is_empty() {
                return Err("a miss came with outputs".to_owned());
            }
            self.rows.all_cold = false;
            self.authority
                .handle(at, input, &self.rows, ids, &mut out)
                .map_err(|miss| format!("{miss:?} after loading"))?;
        }
        self.outputs(out)
    }

    fn outputs(&mut self, out: Vec<Output>) -> Result<(), String> {
        for output in out {
            match output {
                Output::BeforeSend { token, drafts } => self.hooks.push((token, drafts)),
                Output::Append(append) => self.appends.push_back(append),
                Output::CheckRecord { token, seq } => self.checks.push((token, seq)),
                Output::Ephemeral { token, .. } => self.plans.push(token),
                Output::Reply { token, outcomes } => self.replied(token, outcomes)?,
            }
        }
        Ok(())
    }

    fn replied(&mut self, token: Token, outcomes: Vec<Outcome>) -> Result<(), String> {
        let busy = outcomes
            .iter()
            .all(|outcome| *outcome == Outcome::Refused(Reason::RATE_LIMITED));
        let next = self.waiting.front() == Some(&token);
        // A submission that is refused at the door may be answered before those that were let in.
        if !next && !busy {
            return Err(format!("{token} is answered before {:?}", self.waiting.front()));
        }
        self.waiting.retain(|waiting| *waiting != token);
        let drafts = self.sent.remove(&token).ok_or("answered twice")?;
        if drafts.len() != outcomes.len() {
            return Err(format!("{} outcomes for {} drafts", outcomes.len(), drafts.len()));
        }
        for (draft, outcome) in drafts.into_iter().zip(outcomes) {
            self.told_now(&draft, &outcome)?;
            self.told.push((draft, outcome));
        }
        Ok(())
    }

    /// What holds at the instant of an answer.
    fn told_now(&mut self, draft: &Draft, outcome: &Outcome) -> Result<(), String> {
        match *outcome {
            Outcome::Committed { seq: Seq(0), .. } => self.seen.ephemeral += 1,
            Outcome::Committed { id, seq, .. } => {
                if index(seq) >= self.committed {
                    return Err(format!(
                        "{} acknowledged at {seq}, committed {}",
                        draft.topic, self.committed
                    ));
                }
                let (record, stored) = &self.log[index(seq)];
                let same = stored.client_msg_no == draft.client_msg_no && stored.payload == draft.payload;
                if record.id != id || !same {
                    return Err(format!("{draft:?} was answered with {stored:?}"));
                }
                self.seen.committed += 1;
                self.seen.repeated += u64::from(stored.topic != draft.topic);
            }
            Outcome::Refused(reason) => {
                self.seen.conflicts += u64::from(reason == Reason::IDEMPOTENCY_CONFLICT);
            }
            Outcome::Rejected { .. } => return Err("no stage says why".to_owned()),
            Outcome::Unknown => self.seen.unknown += 1,
        }
        Ok(())
    }

    /// What holds at the end.
    fn check(&self) -> Result<(), String> {
        let mut positions: BTreeMap<&str, Seq> = BTreeMap::new();
        let mut last = MessageId(0);
        for (record, draft) in &self.log {
            if !draft.client_msg_no.is_empty()
                && let Some(first) = positions.insert(&draft.client_msg_no, record.seq)
            {
                return Err(format!(
                    "{} stands at {first} and {}",
                    draft.client_msg_no, record.seq
                ));
            }
            if record.id <= last {
                return Err(format!("id {} follows {last}", record.id));
            }
            last = record.id;
        }
        for (draft, outcome) in &self.told {
            if matches!(outcome, Outcome::Refused(_)) && self.appended.contains(&draft.topic) {
                return Err(format!("{} was refused and appended", draft.topic));
            }
        }
        Ok(())
    }
}

fn seq(number: usize) -> Seq {
    Seq(number as u64)
}

fn index(seq: Seq) -> usize {
    usize::try_from(seq.0).expect("small") - 1
}

fn row_key(hash: u64, stamp_ms: u64) -> Key {
    Key::Dedupe {
        day: DedupeRow::day(stamp_ms),
        incarnation: Incarnation(1),
        hash,
    }
}

#[test]
fn one_position_per_key_and_outcomes_in_order_whatever_happens() {
    let mut all = Seen::default();
    for seed in 0..3_000 {
        let seen = Walk::new(seed, faults::Faults::default())
            .run(300)
            .unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        all.committed += seen.committed;
        all.repeated += seen.repeated;
        all.unknown += seen.unknown;
        all.conflicts += seen.conflicts;
        all.cut += seen.cut;
        all.misses += seen.misses;
        all.ephemeral += seen.ephemeral;
    }
    let counters = [
        all.committed,
        all.repeated,
        all.unknown,
        all.conflicts,
        all.cut,
        all.misses,
        all.ephemeral,
    ];
    assert!(counters.iter().all(|counter| *counter > 1_000), "{all:?}");
}

/// The walk finds every fault that can be planted here.
#[cfg(feature = "mutants")]
#[test]
fn planted_faults_are_found() {
    for (name, sentence) in faults::FAULTS {
        let planted = faults::Faults::named(name).expect("a listed name");
        let found = (0..200).find_map(|seed| Walk::new(seed, planted).run(300).err());
        assert!(found.is_some(), "{name}: {sentence}");
    }
}
