//! The commands about plugins and bindings, applied.

use super::NODES_MAX;
use super::machine::{MALFORMED, Refused, read};
use super::quarantine;
use super::registry;
use super::rows;
use super::view::node_id;
use crate::codec::encode;
use crate::plugins::{
    BINDINGS_MAX, DisabledBy, Hook, PLUGINS_MAX, QUARANTINED_MAX, REGISTRY_BYTES_MAX, REPORT_BYTES_MAX,
    Refused as Why, ReportState,
};
use crate::replicated::{Overlay, Rejection};
use crate::rows::Key;
use penstock_wire::storage::v1::{self, binding::Start, command::Body};

impl From<Why> for Refused {
    fn from(why: Why) -> Refused {
        Rejection::Registry(why).into()
    }
}

/// Applies a command if it is about plugins, and says the revision of the registry after it.
pub(super) fn run(command: &v1::Command, rows: &mut Overlay<'_>) -> Result<Option<u64>, Refused> {
    let Some(body) = &command.body else {
        return Ok(None);
    };
    let about_plugins = matches!(
        body,
        Body::PluginPropose(_)
            | Body::PluginReady(_)
            | Body::PluginCanary(_)
            | Body::PluginPromote(_)
            | Body::PluginRollback(_)
            | Body::PluginRemove(_)
            | Body::PluginTripped(_)
            | Body::PluginRelease(_)
            | Body::PutBinding(_)
            | Body::RemoveBinding(_)
            | Body::DisableBinding(_)
            | Body::EnableBinding(_)
    );
    if !about_plugins {
        return Ok(None);
    }
    if rows.row(&rows::settings())?.is_none() {
        return Err(Rejection::Missing.into());
    }
    let mut sums = read::<v1::PluginRegistry>(rows, &rows::registry())?.unwrap_or_default();
    sums.revision = sums.revision.checked_add(1).ok_or(Rejection::Exhausted)?;
    let mut desk = Desk { rows, sums };
    match body {
        Body::PluginPropose(propose) => desk.propose(propose)?,
        Body::PluginReady(ready) => desk.report(ready)?,
        Body::PluginCanary(canary) => desk.canary(canary)?,
        Body::PluginPromote(promote) => desk.promote(command.wall_ms, promote)?,
        Body::PluginRollback(rollback) => desk.roll_back(rollback)?,
        Body::PluginRemove(remove) => desk.remove(remove)?,
        Body::PluginTripped(tripped) => desk.trip(command.wall_ms, tripped)?,
        Body::PluginRelease(release) => desk.release(release)?,
        Body::PutBinding(put) => desk.bind(command.wall_ms, put)?,
        Body::RemoveBinding(remove) => desk.unbind(remove)?,
        Body::DisableBinding(disable) => desk.disable(command.wall_ms, disable)?,
        Body::EnableBinding(enable) => desk.enable(enable)?,
        _ => return Err(MALFORMED),
    }
    let sums = desk.sums;
    rows.put(rows::registry(), encode(&sums));
    Ok(Some(sums.revision))
}

/// The rows at hand, and the sums over them.
pub(super) struct Desk<'a, 'b> {
    pub(super) rows: &'a mut Overlay<'b>,
    sums: v1::PluginRegistry,
}

impl Desk<'_, '_> {
    /// The plugin, if it has the expected revision.
    pub(super) fn plugin(&mut self, name: &str, expected: u64) -> Result<v1::Plugin, Refused> {
        let plugin = read::<v1::Plugin>(self.rows, &rows::plugin(name))?.ok_or(Why::NoPlugin)?;
        if plugin.revision == expected {
            Ok(plugin)
        } else {
            Err(Why::Changed.into())
        }
    }

    /// Writes a row, within the bound on all rows together.
    fn put(&mut self, key: Key, value: bytes::Bytes) -> Result<(), Refused> {
        let before = self.sums.bytes;
        self.put_always(key, value)?;
        // A command that is refused leaves nothing of what it wrote.
        if self.sums.bytes > REGISTRY_BYTES_MAX && self.sums.bytes > before {
            return Err(Why::TooLarge.into());
        }
        Ok(())
    }

    /// Writes a row whatever the bound: what takes a bad version out of service is bounded in another way, and is never refused.
    pub(super) fn put_always(&mut self, key: Key, value: bytes::Bytes) -> Result<(), Refused> {
        let before = self.rows.row(&key)?.map_or(0, |row| row.len() as u64);
        self.sums.bytes = self.sums.bytes.saturating_sub(before) + value.len() as u64;
        self.rows.put(key, value);
        Ok(())
    }

    /// The revision that this command makes.
    pub(super) fn revision(&self) -> u64 {
        self.sums.revision
    }

    fn delete(&mut self, key: Key) -> Result<(), Refused> {
        let before = self.rows.row(&key)?.map_or(0, |row| row.len() as u64);
        self.sums.bytes = self.sums.bytes.saturating_sub(before);
        self.rows.delete(key);
        Ok(())
    }

    pub(super) fn put_plugin(&mut self, mut plugin: v1::Plugin) -> Result<(), Refused> {
        plugin.revision = self.sums.revision;
        self.put(rows::plugin(&plugin.name), encode(&plugin))
    }

    fn propose(&mut self, propose: &v1::PluginPropose) -> Result<(), Refused> {
        let artifact = propose.artifact.as_ref().ok_or(MALFORMED)?;
        registry::check_name(&propose.name)?;
        registry::check_artifact(artifact)?;
        let mut wanted = propose.wanted.clone();
        wanted.sort_unstable();
        wanted.dedup();
        if !(1..=NODES_MAX).contains(&wanted.len()) || wanted.iter().any(|&node| node_id(node).is_err()) {
            return Err(MALFORMED);
        }
        let present = read::<v1::Plugin>(self.rows, &rows::plugin(&propose.name))?;
        let revision = present.as_ref().map_or(0, |plugin| plugin.revision);
        if revision != propose.expected_revision {
            return Err(Why::Changed.into());
        }
        if present.is_none() {
            if self.sums.plugins as usize >= PLUGINS_MAX {
                return Err(Why::TooManyPlugins.into());
            }
            self.sums.plugins += 1;
        }
        let mut plugin = present.unwrap_or_else(|| v1::Plugin {
            name: propose.name.clone(),
            ..v1::Plugin::default()
        });
        if plugin.rollout.is_some() {
            return Err(Why::RolloutOpen.into());
        }
        let same = |active: &v1::PluginArtifact| active.digest == artifact.digest;
        if quarantine::holds(&plugin, &artifact.digest) {
            return Err(Why::Quarantined.into());
        }
        if plugin.active.as_ref().is_some_and(same) {
            return Err(Why::SameDigest.into());
        }
        if plugin.quarantined.len() >= QUARANTINED_MAX {
            return Err(Why::TooManyQuarantined.into());
        }
        plugin.rollout = Some(v1::PluginRollout {
            id: self.sums.revision,
            artifact: Some(artifact.clone()),
            wanted,
            reports: Vec::new(),
            canary_percent: 0,
        });
        self.put_plugin(plugin)
    }

    /// What nodes say comes at any revision: only the rollout must be the one that they speak of.
    fn report(&mut self, ready: &v1::PluginReady) -> Result<(), Refused> {
        let report = ready.report.as_ref().ok_or(MALFORMED)?;
        let said = node_id(report.node).is_ok() && ReportState::of(report.state).is_some();
        if !said || report.text.len() > REPORT_BYTES_MAX {
            return Err(MALFORMED);
        }
        let mut plugin = read::<v1::Plugin>(self.rows, &rows::plugin(&ready.name))?.ok_or(Why::NoPlugin)?;
        let rollout = plugin
            .rollout
            .as_mut()
            .filter(|rollout| rollout.id == ready.rollout)
            .ok_or(Why::NoRollout)?;
        match rollout
            .reports
            .binary_search_by_key(&report.node, |known| known.node)
        {
            Ok(at) => rollout.reports[at] = report.clone(),
            Err(_) if rollout.reports.len() >= NODES_MAX => return Err(Rejection::TooMany.into()),
            Err(at) => rollout.reports.insert(at, report.clone()),
        }
        // A report is not intent: whoever changes the plugin need not read it again because of it.
        self.put(rows::plugin(&plugin.name), encode(&plugin))
    }

    fn ready_rollout(plugin: &v1::Plugin, down: &[u32]) -> Result<v1::PluginRollout, Refused> {
        let rollout = plugin.rollout.clone().ok_or(Why::NoRollout)?;
        let ready = |node: &u32| {
            let said =
                |report: &v1::PluginReport| report.node == *node && report.state == ReportState::Ready as u32;
            rollout.reports.iter().any(said)
        };
        let is_up = |node: &&u32| !down.contains(node);
        if rollout.wanted.iter().filter(is_up).all(ready) {
            Ok(rollout)
        } else {
            Err(Why::NotReady.into())
        }
    }

    fn canary(&mut self, canary: &v1::PluginCanary) -> Result<(), Refused> {
        if canary.percent > 100 {
            return Err(MALFORMED);
        }
        let mut plugin = self.plugin(&canary.name, canary.expected_revision)?;
        let mut rollout = Desk::ready_rollout(&plugin, &canary.down)?;
        rollout.canary_percent = canary.percent;
        plugin.rollout = Some(rollout);
        quarantine::forget_trips(&mut plugin);
        self.put_plugin(plugin)
    }

    fn promote(&mut self, wall_ms: u64, promote: &v1::PluginPromote) -> Result<(), Refused> {
        let mut plugin = self.plugin(&promote.name, promote.expected_revision)?;
        let rollout = Desk::ready_rollout(&plugin, &promote.down)?;
        plugin.previous = plugin.active.take();
        plugin.active = rollout.artifact;
        plugin.rollout = None;
        plugin.promoted_ms = wall_ms;
        quarantine::forget_trips(&mut plugin);
        self.put_plugin(plugin)
    }

    fn roll_back(&mut self, rollback: &v1::PluginRollback) -> Result<(), Refused> {
        let mut plugin = self.plugin(&rollback.name, rollback.expected_revision)?;
        if plugin.rollout.take().is_none() {
            let previous = plugin.previous.take().ok_or(Why::NothingBefore)?;
            if quarantine::holds(&plugin, &previous.digest) {
                return Err(Why::Quarantined.into());
            }
            plugin.previous = plugin.active.replace(previous);
            plugin.promoted_ms = 0;
        }
        quarantine::forget_trips(&mut plugin);
        self.put_plugin(plugin)
    }

    fn remove(&mut self, remove: &v1::PluginRemove) -> Result<(), Refused> {
        let plugin = self.plugin(&remove.name, remove.expected_revision)?;
        if plugin.bindings > 0 {
            return Err(Why::StillBound.into());
        }
        self.sums.plugins = self.sums.plugins.saturating_sub(1);
        self.delete(rows::plugin(&remove.name))
    }

    fn bind(&mut self, wall_ms: u64, put: &v1::PutBinding) -> Result<(), Refused> {
        let mut wanted = put.binding.clone().ok_or(MALFORMED)?;
        registry::check_binding(&wanted)?;
        let mut plugin =
            read::<v1::Plugin>(self.rows, &rows::plugin(&wanted.plugin))?.ok_or(Why::NoPlugin)?;
        let candidate = plugin
            .rollout
            .as_ref()
            .and_then(|rollout| rollout.artifact.as_ref());
        let exports = |artifact: &v1::PluginArtifact| artifact.hooks.contains(&wanted.hook);
        if !plugin.active.iter().chain(candidate).any(exports) {
            return Err(Why::NoHook.into());
        }
        let key = rows::binding(&wanted.id);
        let present = read::<v1::Binding>(self.rows, &key)?;
        let revision = present.as_ref().map_or(0, |binding| binding.revision);
        if revision != put.expected_revision {
            return Err(Why::Changed.into());
        }
        wanted.revision = self.sums.revision;
        wanted.disabled = None;
        if let Some(present) = present {
            if (&present.plugin, present.hook) != (&wanted.plugin, wanted.hook) {
                return Err(Why::Fixed.into());
            }
            let same = present.config == wanted.config && present.grants == wanted.grants;
            wanted.incarnation = present.incarnation;
            wanted.generation = present.generation + u64::from(!same);
            // Another configuration may name another endpoint: it is tried.
            wanted.disabled = present.disabled.filter(|_| same);
            // Where it began is history.
            wanted.start = present.start;
        } else {
            if self.sums.bindings as usize >= BINDINGS_MAX {
                return Err(Why::TooManyBindings.into());
            }
            if wanted.hook == Hook::Route as u32 {
                if !plugin.route_binding.is_empty() {
                    return Err(Why::RouteBound.into());
                }
                plugin.route_binding.clone_from(&wanted.id);
            }
            self.sums.bindings += 1;
            plugin.bindings += 1;
            self.put(rows::plugin(&plugin.name), encode(&plugin))?;
            wanted.incarnation = self.sums.revision;
            wanted.generation = 1;
            wanted.start = wanted.start.or(Some(Start::StartMs(wall_ms)));
        }
        self.put(key, encode(&wanted))
    }

    /// A node may say it late: what counts is the creation and the configuration that it speaks of.
    fn disable(&mut self, wall_ms: u64, disable: &v1::DisableBinding) -> Result<(), Refused> {
        if DisabledBy::of(disable.by).is_none() {
            return Err(MALFORMED);
        }
        let key = rows::binding(&disable.id);
        let mut present = read::<v1::Binding>(self.rows, &key)?.ok_or(Why::NoBinding)?;
        if !Hook::of(present.hook).is_some_and(Hook::follows) {
            return Err(Why::NotFollowing.into());
        }
        let named = (disable.incarnation, disable.generation);
        if (present.incarnation, present.generation) != named || present.disabled.is_some() {
            return Err(Why::Known.into());
        }
        present.disabled = Some(v1::BindingDisabled {
            by: disable.by,
            since_ms: wall_ms,
        });
        present.revision = self.sums.revision;
        // A few bytes, and never refused: an endpoint that is gone is to be left alone.
        self.put_always(key, encode(&present))
    }

    fn enable(&mut self, enable: &v1::EnableBinding) -> Result<(), Refused> {
        let key = rows::binding(&enable.id);
        let mut present = read::<v1::Binding>(self.rows, &key)?.ok_or(Why::NoBinding)?;
        if present.revision != enable.expected_revision {
            return Err(Why::Changed.into());
        }
        if present.disabled.take().is_none() {
            return Err(Why::NotDisabled.into());
        }
        present.revision = self.sums.revision;
        self.put(key, encode(&present))
    }

    fn unbind(&mut self, remove: &v1::RemoveBinding) -> Result<(), Refused> {
        let key = rows::binding(&remove.id);
        let present = read::<v1::Binding>(self.rows, &key)?.ok_or(Why::NoBinding)?;
        if present.revision != remove.expected_revision {
            return Err(Why::Changed.into());
        }
        self.sums.bindings = self.sums.bindings.saturating_sub(1);
        let mut plugin =
            read::<v1::Plugin>(self.rows, &rows::plugin(&present.plugin))?.ok_or(Why::NoPlugin)?;
        plugin.bindings = plugin.bindings.saturating_sub(1);
        if plugin.route_binding == remove.id {
            plugin.route_binding.clear();
        }
        self.put(rows::plugin(&plugin.name), encode(&plugin))?;
        self.delete(key)
    }
}
