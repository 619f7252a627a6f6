//! `penstock plugin deploy`: from a component to what runs.

use crate::api::{Api, check_name};
use crate::arguments::Options;
use crate::binding::{BINDING, Binding};
use crate::{build, check};
use anyhow::{Context as _, Result, bail};
use penstock_plugin_host::{Manifest, inspect};
use serde_json::{Value, json};
use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

/// How long a broker may take to be ready: it compiles the component first.
const READY_WITHIN: Duration = Duration::from_secs(150);
/// How often it is asked.
const POLL: Duration = Duration::from_millis(100);

/// Uploads, proposes, waits, binds, promotes.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let component = build::component(options, out)?;
    let inspected = inspect(&component).context("no broker of this version takes it")?;
    let manifest = &inspected.manifest;
    let binding = wanted_binding(options, manifest)?;
    // A configuration that `init` refuses is found here, before a binding that runs is changed to it.
    check::starts(&inspected, binding.as_ref())?;
    let api = Api::of(options)?;
    let uploaded = api.upload("/v1/plugins", &component)?;
    let digest = uploaded["digest"]
        .as_str()
        .context("the broker named no digest")?
        .to_owned();
    writeln!(out, "uploaded   {digest}, {} bytes", component.len())?;
    let deployment = Deployment {
        api: &api,
        name: &manifest.name,
        digest: &digest,
    };
    let runs_already = deployment.propose(out)?;
    if !runs_already {
        deployment.wait_until_ready(out)?;
    }
    let known = binding
        .as_ref()
        .map(|binding| bound(&api, &binding.id))
        .transpose()?
        .flatten();
    // A new binding has no version before the promotion unless one ran: a canary needs it. A changed one waits for the version
    // that it was written for.
    if let (Some(binding), None) = (&binding, &known) {
        put(&api, binding, out)?;
    }
    if let Some(percent) = options.canary.filter(|_| !runs_already) {
        deployment.give_a_share(percent, out)?;
        if let (Some(binding), Some(known)) = (&binding, &known)
            && !binding.is(known)
        {
            writeln!(
                out,
                "kept       the binding {} as it is: {BINDING} says something else, which would be for the version before too. After \
                 `penstock plugin promote`, `penstock plugin bind` takes it over",
                binding.id
            )?;
        }
        return Ok(());
    }
    if !runs_already {
        api.post(&deployment.path("promote"), &json!({}))?;
        writeln!(
            out,
            "promoted   {} runs in all channels of its bindings",
            manifest.name
        )?;
    }
    match (&binding, &known) {
        // Always: what was taken out of the file is nowhere to be compared. One that is the same changes nothing.
        (Some(binding), Some(_)) => put(&api, binding, out)?,
        (None, _) => deployment.say_what_is_bound(out)?,
        _ => {}
    }
    deployment.wait_until_loaded(out)
}

fn wanted_binding(options: &Options, manifest: &Manifest) -> Result<Option<Binding>> {
    if options.no_bind {
        return Ok(None);
    }
    let id = options.bind.as_deref().map(check_name).transpose()?;
    Binding::of(options, manifest, id)
}

/// A component on its way.
struct Deployment<'a> {
    api: &'a Api,
    name: &'a str,
    digest: &'a str,
}

impl Deployment<'_> {
    fn path(&self, action: &str) -> String {
        format!("/v1/plugins/{}/{action}", self.name)
    }

    /// The plugin as the broker has it; null when it has none.
    fn plugin(&self) -> Result<Value> {
        let all = self.api.get("/v1/plugins")?;
        Ok(named(&all["plugins"], self.name).cloned().unwrap_or_default())
    }

    /// Opens the rollout, or finds it open from an attempt before. Says whether the component runs already.
    fn propose(&self, out: &mut dyn Write) -> Result<bool> {
        let plugin = self.plugin()?;
        let candidate = &plugin["rollout"]["candidate"]["digest"];
        if candidate == self.digest {
            writeln!(out, "proposed   before: its rollout is open, and goes on")?;
            return Ok(false);
        }
        if candidate.is_string() {
            bail!(
                "a rollout of {} is open, of the component {}: `penstock plugin promote` takes it to all channels, `penstock plugin \
                 rollback` drops it. Then deploy again",
                self.name,
                candidate.as_str().unwrap_or_default()
            );
        }
        if plugin["active"]["digest"] == self.digest {
            writeln!(out, "unchanged  this component runs already")?;
            return Ok(true);
        }
        self.api
            .post(&self.path("propose"), &json!({ "digest": self.digest }))?;
        writeln!(out, "proposed   {}", self.name)?;
        Ok(false)
    }

    /// Waits until every node has compiled and started the candidate. One that cannot drops it: what ran before stays.
    fn wait_until_ready(&self, out: &mut dyn Write) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let plugin = self.plugin()?;
            let rollout = &plugin["rollout"];
            if rollout["candidate"]["digest"] != self.digest {
                bail!(
                    "the rollout is gone: somebody else promoted or dropped it. See `penstock plugin status`"
                );
            }
            if rollout["ready"] == true {
                writeln!(out, "ready      on every node")?;
                return Ok(());
            }
            let reports = rollout["reports"].as_array();
            let failed = reports
                .into_iter()
                .flatten()
                .find(|report| report["state"] == "failed");
            if let Some(report) = failed {
                // With its revision, so that nothing else is rolled back.
                let drop = json!({ "revision": plugin["revision"] });
                self.api.post(&self.path("rollback"), &drop)?;
                bail!(
                    "node {} cannot run it: {}. The candidate was dropped; what ran before runs on",
                    report["node"],
                    report["text"].as_str().unwrap_or_default()
                );
            }
            if Instant::now() > deadline {
                bail!(
                    "not ready after {} s. The rollout stays open: `penstock plugin status` shows which node is behind; deploy again to \
                     go on, or `penstock plugin rollback`",
                    READY_WITHIN.as_secs()
                );
            }
            thread::sleep(POLL);
        }
    }

    fn give_a_share(&self, percent: u8, out: &mut dyn Write) -> Result<()> {
        self.api
            .post(&self.path("canary"), &json!({ "percent": percent }))?;
        writeln!(
            out,
            "canary     {percent} % of the channels. Watch it with `penstock plugin status`; then `penstock plugin promote` or `rollback`"
        )?;
        Ok(())
    }

    fn say_what_is_bound(&self, out: &mut dyn Write) -> Result<()> {
        let all = self.api.get("/v1/bindings")?;
        let bindings = all["bindings"].as_array();
        if !bindings
            .into_iter()
            .flatten()
            .any(|binding| binding["plugin"] == self.name)
        {
            writeln!(
                out,
                "nothing is bound to it, so it is not called: write a binding.toml, or `penstock plugin deploy --bind ID` for all messages"
            )?;
        }
        Ok(())
    }

    /// Waits until the broker that was asked has loaded what runs for each binding of the plugin.
    fn wait_until_loaded(&self, out: &mut dyn Write) -> Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            let all = self.api.get("/v1/plugins")?;
            match loading(&all, self.name, self.digest) {
                Loading::Done => return Ok(()),
                Loading::Failed { binding, why } => bail!(
                    "{} runs, but not for the binding {binding}: {why}. Until it does, the binding's `on_error` decides. Change its \
                     binding.toml and run `penstock plugin bind`, or `penstock plugin rollback`",
                    self.name
                ),
                Loading::Waits(binding) if Instant::now() > deadline => {
                    writeln!(
                        out,
                        "the binding {binding} is still being loaded: see `penstock plugin status`"
                    )?;
                    return Ok(());
                }
                Loading::Waits(_) => thread::sleep(POLL),
            }
        }
    }
}

/// How far the bindings of a plugin are.
#[derive(Debug, PartialEq, Eq)]
enum Loading {
    Done,
    Waits(String),
    Failed { binding: String, why: String },
}

/// Looks through what the broker says of itself.
fn loading(all: &Value, plugin: &str, digest: &str) -> Loading {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let here = list(&all["here"]);
    for binding in list(&all["bindings"]) {
        if binding["plugin"] != plugin {
            continue;
        }
        let id = binding["id"].as_str().unwrap_or_default().to_owned();
        let state = here.iter().find(|state| {
            state["binding"] == binding["id"]
                && state["digest"] == digest
                && state["generation"] == binding["generation"]
        });
        match state {
            Some(state) if state["state"] == "failed" => {
                let why = state["reason"].as_str().unwrap_or_default().to_owned();
                return Loading::Failed { binding: id, why };
            }
            Some(state) if state["state"] == "ready" => {}
            _ => return Loading::Waits(id),
        }
    }
    Loading::Done
}

/// The entry of this name.
pub(crate) fn named<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list.as_array()?.iter().find(|entry| entry["name"] == name)
}

/// The binding as the broker has it.
pub(crate) fn bound(api: &Api, id: &str) -> Result<Option<Value>> {
    let all = api.get("/v1/bindings")?;
    let found = all["bindings"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|binding| binding["id"] == id);
    Ok(found.cloned())
}

/// Makes or changes a binding.
pub(crate) fn put(api: &Api, binding: &Binding, out: &mut dyn Write) -> Result<()> {
    let id = check_name(&binding.id)?;
    api.put(
        &format!("/v1/bindings/{id}"),
        &Value::Object(binding.body.clone()),
    )?;
    writeln!(
        out,
        "bound      {id}: {}",
        binding.body["hook"].as_str().unwrap_or_default()
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_binding_must_be_loaded_in_its_present_form() {
        let all = |state: Value| {
            json!({
                "bindings": [
                    { "id": "other", "plugin": "b", "generation": 1 },
                    { "id": "all", "plugin": "a", "generation": 2 },
                ],
                "here": [state],
            })
        };
        let state = |digest: &str, generation: u64, state: &str| {
            all(
                json!({ "binding": "all", "digest": digest, "generation": generation, "state": state, "reason": "no words" }),
            )
        };
        assert_eq!(loading(&state("d", 2, "ready"), "a", "d"), Loading::Done);
        assert_eq!(
            loading(&state("d", 1, "ready"), "a", "d"),
            Loading::Waits("all".to_owned())
        );
        assert_eq!(
            loading(&state("e", 2, "ready"), "a", "d"),
            Loading::Waits("all".to_owned())
        );
        let failed = Loading::Failed {
            binding: "all".to_owned(),
            why: "no words".to_owned(),
        };
        assert_eq!(loading(&state("d", 2, "failed"), "a", "d"), failed);
        assert_eq!(
            loading(&state("d", 2, "ready"), "c", "d"),
            Loading::Done,
            "nothing is bound to it"
        );
    }
}
