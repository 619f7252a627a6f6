//! Facts are gathered and permission is decided (M-16, SF-4).

use super::Shard;
use super::continuation::Then;
use super::ingress::Job;
use super::peer::{Reply, Request};
use super::step::Step;
use super::turn::Turn;
use crate::permission::{self, Facts};
use crate::rows::{Key, Miss, Rows};
use crate::types::{GroupId, Reason, Token};
use std::collections::BTreeMap;

/// What the rows at hand say.
fn verdict(job: &Job) -> Result<Facts, Reason> {
    let rows = job
        .rows
        .iter()
        .map(|(_, row)| row.as_ref().and_then(Option::as_ref));
    let facts = super::facts::facts_of(&job.question, rows)?;
    permission::decide(&job.question, &facts)?;
    Ok(facts)
}

impl Shard {
    /// Rows of groups that are replicated here and have a leader are read here; the others are asked for (M-16). A replica
    /// that follows knows its leader long before it has caught up after a restart, and its rows would refuse members of
    /// channels that it has not heard of yet (SF-4): a refusal is decided again by the leaders' rows.
    pub(super) fn gather_facts(&mut self, turn: &mut Turn<'_>, token: Token) -> Result<(), Miss> {
        let Some(job) = self.ingress.jobs.get(&token) else {
            return Ok(());
        };
        let mut found = Vec::new();
        let mut missing = Vec::new();
        let mut far: BTreeMap<GroupId, Vec<usize>> = BTreeMap::new();
        for (position, (row, known)) in job.rows.iter().enumerate() {
            if known.is_some() {
                continue;
            }
            let group = self.directory.group_of(row.slot);
            let here = self.directory.group(group).is_some_and(|route| {
                route.leads_here || (!job.certain && route.hosted && route.leader.is_some())
            });
            if !here {
                far.entry(group).or_default().push(position);
                continue;
            }
            match turn.rows.row(&Key::Slot {
                slot: row.slot,
                table: row.table,
                key: row.key.clone(),
            }) {
                Ok(value) => found.push((position, value)),
                Err(Miss(keys)) => missing.extend(keys),
            }
        }
        if !missing.is_empty() {
            return Err(Miss(missing));
        }
        let Some(job) = self.ingress.jobs.get_mut(&token) else {
            return Ok(());
        };
        for (position, value) in found {
            job.rows[position].1 = Some(value);
        }
        job.asked = far.len();
        let questions: Vec<_> = far
            .into_iter()
            .map(|(group, positions)| {
                let keys = positions
                    .iter()
                    .map(|&position| job.rows[position].0.clone())
                    .collect();
                (group, positions, keys)
            })
            .collect();
        if questions.is_empty() {
            self.decide(turn, token);
        }
        for (group, positions, keys) in questions {
            self.call(
                turn,
                Request::Rows { group, keys },
                Then::Facts {
                    job: token,
                    positions,
                },
            );
        }
        Ok(())
    }

    /// Rows came from elsewhere, or could not be had: then it is refused, worth a retry (SF-4).
    pub(super) fn on_facts(
        &mut self,
        turn: &mut Turn<'_>,
        token: Token,
        positions: &[usize],
        reply: Option<Reply>,
    ) {
        let Some(job) = self.ingress.jobs.get_mut(&token) else {
            return;
        };
        let Some(Reply::Rows(rows)) = reply else {
            if let Some(job) = self.ingress.jobs.remove(&token) {
                let refused = Err(Reason::NODE_NOT_MATCH);
                self.finish(turn, job.source, job.purpose, Some(job.question), refused);
            }
            return;
        };
        for (&position, row) in positions.iter().zip(rows) {
            job.rows[position].1 = Some(row);
        }
        job.asked -= 1;
        if job.asked == 0 {
            self.decide(turn, token);
        }
    }

    fn decide(&mut self, turn: &mut Turn<'_>, token: Token) {
        let Some(mut job) = self.ingress.jobs.remove(&token) else {
            return;
        };
        let verdict = verdict(&job);
        if !job.certain && verdict.is_err() {
            job.certain = true;
            for (_, row) in &mut job.rows {
                *row = None;
            }
            self.ingress.jobs.insert(token, job);
            return self.queue.push_back(Step::Facts { job: token });
        }
        self.finish(turn, job.source, job.purpose, Some(job.question), verdict);
    }
}
