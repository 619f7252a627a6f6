//! Plugins, as an operator brings them in over HTTP.

use crate::{Node, PATIENCE, Response, binary, get, post, put, upload};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The component of a plugin of this repository, which `cargo xtask plugins` builds.
///
/// # Errors
/// When it is not built.
pub fn component(name: &str) -> Result<Vec<u8>> {
    let path = target_folder()?.join("plugins").join(format!("{name}.wasm"));
    fs::read(&path).with_context(|| format!("{}: build it first: cargo xtask plugins", path.display()))
}

/// Where cargo puts what it builds. The plugins of the tests' authors go there too, because the standard library was compiled
/// there for those of the repository.
///
/// # Errors
/// When the binary is not built.
pub fn target_folder() -> Result<PathBuf> {
    let binary = binary()?;
    let target = binary.ancestors().nth(2).context("the target folder")?;
    Ok(target.to_owned())
}

/// Uploads a component and proposes it. The answer of the proposal.
///
/// # Errors
/// When the node refuses the upload.
pub fn propose(node: &Node, name: &str, component: &[u8]) -> Result<Response> {
    let uploaded = upload(node.http(), "/v1/plugins", component)?;
    ensure!(
        uploaded.status == 200,
        "the upload was refused: {}",
        uploaded.text
    );
    let path = format!("/v1/plugins/{name}/propose");
    post(node.http(), &path, &json!({ "digest": uploaded.body["digest"] }))
}

/// Waits until the candidate of a plugin is ready on every node.
///
/// # Errors
/// When a node says that it cannot run it, or says nothing in time.
pub fn until_ready(node: &Node, name: &str) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let plugins = get(node.http(), "/v1/plugins")?.body["plugins"].clone();
        let named = |plugin: &&Value| plugin["name"] == name;
        let plugin = plugins.as_array().and_then(|plugins| plugins.iter().find(named));
        let rollout = plugin.map(|plugin| plugin["rollout"].clone()).unwrap_or_default();
        if rollout["ready"] == true {
            return Ok(());
        }
        let reports = rollout["reports"].as_array().cloned().unwrap_or_default();
        if let Some(failed) = reports.iter().find(|report| report["state"] == "failed") {
            bail!("{}", failed["text"].as_str().unwrap_or_default());
        }
        ensure!(Instant::now() < deadline, "{name} is not ready: {plugins}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Uploads a component, proposes it, waits until it is ready and promotes it.
///
/// # Errors
/// When a step is refused.
pub fn deploy(node: &Node, name: &str, component: &[u8]) -> Result<()> {
    let proposed = propose(node, name, component)?;
    ensure!(
        proposed.status == 200,
        "the proposal was refused: {}",
        proposed.text
    );
    until_ready(node, name)?;
    let promoted = post(node.http(), &format!("/v1/plugins/{name}/promote"), &json!({}))?;
    ensure!(
        promoted.status == 200,
        "the promotion was refused: {}",
        promoted.text
    );
    Ok(())
}

/// Binds a plugin.
///
/// # Errors
/// When the node refuses it.
pub fn bind(node: &Node, id: &str, binding: &Value) -> Result<()> {
    let bound = put(node.http(), &format!("/v1/bindings/{id}"), binding)?;
    ensure!(bound.status == 200, "the binding was refused: {}", bound.text);
    Ok(())
}
