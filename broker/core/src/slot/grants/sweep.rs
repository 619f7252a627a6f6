//! Grants that nobody asked for: the channels of a dead leader, and the steps of voter changes.

use super::{Grants, Output, Report, Sweep, World, decide};
use crate::rows::{Miss, Page, ReadRequest, Rows, Table};
use crate::slot::command::{MetaPut, clear_previous};
use crate::slot::keys;
use crate::types::{ChannelKey, NodeId, Now, Token};
use std::collections::BTreeSet;

/// Channels of one page of a sweep.
const SWEEP_PAGE: u32 = 256;

impl Grants {
    pub(super) fn on_world(&mut self, world: World, out: &mut Vec<Output>) {
        let died: Vec<NodeId> = world
            .nodes
            .keys()
            .copied()
            .filter(|node| !world.is_alive(*node) && self.world.is_alive(*node))
            .collect();
        self.world = world;
        if self.leads {
            self.start_sweeps(&died, out);
        }
    }

    /// M-5: the channels that a dead node led get another leader without waiting for their next use.
    pub(super) fn start_sweeps(&mut self, nodes: &[NodeId], out: &mut Vec<Output>) {
        for node in nodes {
            self.sweeps.retain(|sweep| sweep.node != *node);
            self.sweeps.push_back(Sweep {
                slots: self.slots.iter().copied().collect(),
                node: *node,
                after: None,
            });
        }
        if self.reading.is_none() && self.proposed.is_empty() {
            self.sweep_on(out);
        }
    }

    /// Reads the next page of the running sweep; one page at a time, and only when no proposal is under way.
    pub(super) fn sweep_on(&mut self, out: &mut Vec<Output>) {
        if !self.leads || self.reading.is_some() || !self.proposed.is_empty() {
            return;
        }
        while let Some(sweep) = self.sweeps.front_mut() {
            // A node that came back is left alone: its channels are granted at their next use.
            let alive = self.world.is_alive(sweep.node);
            let Some(slot) = sweep.slots.front().filter(|_| !alive).copied() else {
                self.sweeps.pop_front();
                continue;
            };
            let (prefix, after) = (keys::node_prefix(sweep.node), sweep.after.clone());
            let token = self.token();
            self.reading = Some(token);
            out.push(Output::Read {
                token,
                request: ReadRequest::SlotRows {
                    slot,
                    table: Table::LeaderIndex,
                    prefix,
                    after,
                    rows_max: SWEEP_PAGE,
                },
            });
            return;
        }
    }

    pub(super) fn on_page(
        &mut self,
        now: Now,
        read: (Token, Page),
        rows: &dyn Rows,
        out: &mut Vec<Output>,
    ) -> Result<(), Miss> {
        let (token, page) = read;
        if self.reading != Some(token) {
            return Ok(());
        }
        let (found, more) = match page {
            Page::Rows { rows, more } => (rows, more),
            _ => (Vec::new(), false),
        };
        let channels = found
            .iter()
            .filter_map(|(_, key, _)| keys::read_index(key))
            .map(|(_, channel)| channel)
            .collect();
        let metas = Grants::metas(&channels, rows)?;
        self.reading = None;
        if let Some(sweep) = self.sweeps.front_mut() {
            sweep.after = found.last().map(|(_, key, _)| key.clone()).filter(|_| more);
            if sweep.after.is_none() {
                sweep.slots.pop_front();
            }
        }
        let mut puts = Vec::new();
        for (channel, meta) in metas {
            if let Some(meta) = meta
                && !self.is_waiting_for_grant(&channel)
                && let Some(put) = self.wanted(&channel, Some(&meta), now)
            {
                self.waiting.entry(channel).or_default();
                puts.push(put);
            }
        }
        self.propose(now, puts, out);
        self.sweep_on(out);
        Ok(())
    }

    pub(super) fn on_report(
        &mut self,
        now: Now,
        channel: &ChannelKey,
        report: Report,
        rows: &dyn Rows,
        out: &mut Vec<Output>,
    ) -> Result<(), Miss> {
        if !self.leads || self.is_waiting_for_grant(channel) {
            return Ok(());
        }
        let metas = Grants::metas(&BTreeSet::from([channel.clone()]), rows)?;
        let Some(Some(meta)) = metas.get(channel) else {
            return Ok(());
        };
        let wanted = match report {
            Report::CaughtUp {
                learner,
                leader_epoch,
            } => (meta.leader_epoch == leader_epoch)
                .then(|| decide::promoted(meta, learner, &self.world, now.monotonic))
                .flatten(),
            Report::Withheld { node, epoch } => (meta.leader_epoch < epoch)
                .then(|| decide::renewed(channel, meta, node, &self.world, now.monotonic))
                .flatten(),
            Report::BothQuorums { leader_epoch } => {
                if meta.previous.is_some() && meta.leader_epoch == leader_epoch {
                    self.waiting.entry(channel.clone()).or_default();
                    let token = self.token();
                    self.proposed.insert(token, vec![channel.clone()]);
                    out.push(Output::Propose {
                        token,
                        command: clear_previous(now.wall_ms, channel, meta.version, leader_epoch),
                    });
                }
                None
            }
        };
        if let Some(wanted) = wanted {
            self.waiting.entry(channel.clone()).or_default();
            let put = MetaPut {
                channel: channel.clone(),
                expected_version: meta.version,
                meta: wanted,
            };
            self.propose(now, vec![put], out);
        }
        Ok(())
    }
}
