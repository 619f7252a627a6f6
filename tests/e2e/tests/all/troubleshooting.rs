//! What goes wrong in the first hour, provoked: the troubleshooting page has a row that quotes what the node then says.

use crate::{HELLO, make_group, send};
use anyhow::{Context, Result, ensure};
use penstock_e2e::{Node, Raw, binary, exchange, get, post};
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The shortest text that is telling enough to look for.
const TELLING: usize = 7;

/// The texts that the page quotes.
fn quoted() -> Result<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../broker/docs/troubleshooting.md");
    let page = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let spans = page
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2).map(str::to_owned));
    Ok(spans.collect())
}

/// Demands that the page quotes a part of what was said which is not the name of a key or path.
fn is_explained(said: &str) -> Result<()> {
    let found = quoted()?
        .into_iter()
        .any(|text| text.len() >= TELLING && text.contains(' ') && said.contains(&text));
    ensure!(found, "troubleshooting.md quotes nothing of: {said}");
    Ok(())
}

/// What a node says that does not start with these arguments and data.
fn refused(data: &Path, arguments: &[&str]) -> Result<String> {
    let ports = ["gateway.tcp_listen", "gateway.ws_listen", "http.listen"];
    let mut child = Command::new(binary()?)
        .args(["serve", "--data-dir"])
        .arg(data)
        .args(
            ports
                .iter()
                .flat_map(|key| ["--set".to_owned(), format!("{key}=127.0.0.1:0")]),
        )
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    // A node that starts all the same prints its ready line; then it is ended, and there is nothing that it said.
    let mut ready = String::new();
    let output = child.stdout.take().context("standard output")?;
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut ready)?;
    if !ready.is_empty() {
        child.kill()?;
    }
    let output = child.wait_with_output()?;
    ensure!(
        ready.is_empty() && !output.status.success(),
        "it started: {ready}"
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said.lines().find(|line| line.starts_with("penstock: "));
    let last = last
        .with_context(|| format!("no line for people: {said}"))?
        .to_owned();
    // Once is enough.
    let half = last.len() / 2;
    ensure!(
        !last.is_char_boundary(half) || last[..half] != last[half..],
        "{last}"
    );
    Ok(last)
}

#[test]
fn a_node_that_does_not_start_says_what_the_page_explains() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let node = Node::start(&[])?;
    let (tcp, http) = (
        format!("gateway.tcp_listen={}", node.tcp()),
        format!("http.listen={}", node.http()),
    );
    for (arguments, named) in [
        (vec!["--dev", "--set", tcp.as_str()], "gateway.tcp_listen"),
        (vec!["--dev", "--set", http.as_str()], "http.listen"),
        (vec!["--dev", "--set", "http.listen=192.0.2.1:0"], "http.listen"),
        (vec![], "auth.api_key_sha256"),
        (vec!["--dev", "--set", "log.level=inof"], "did you mean `info`"),
        (
            vec!["--dev", "--set", "gateway.tcp_lisen=1"],
            "gateway.tcp_listen",
        ),
        (vec!["--dev", "--set", "node.id=0"], "from 1 to 1023"),
        (
            vec![
                "--dev",
                "--set",
                "gateway.ws_listen=127.0.0.1:9",
                "--set",
                "http.listen=127.0.0.1:9",
            ],
            "gateway.ws_listen",
        ),
        (
            vec!["--dev", "--config", "/nowhere/penstock.toml"],
            "/nowhere/penstock.toml",
        ),
    ] {
        let said = refused(&data, &arguments)?;
        ensure!(said.contains(named), "{arguments:?}: {said}");
        is_explained(&said)?;
        // Above all not because of a port: who starts it with another configuration then finds nothing of this start.
        ensure!(!data.exists(), "{arguments:?}: it has made a data directory");
    }
    Ok(())
}

#[test]
fn a_data_directory_that_is_refused_is_explained() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let data = folder.path().join("data");
    let with_data = |arguments: &[&str]| {
        let mut all = vec!["--dev"];
        all.extend(arguments);
        refused(&data, &all)
    };
    fs::create_dir(&data)?;
    fs::write(data.join("notes.txt"), "mine")?;
    is_explained(&with_data(&[])?)?;
    fs::remove_dir_all(&data)?;

    let place = data.display().to_string();
    let mut node = Node::start(&["--data-dir", &place])?;
    is_explained(&with_data(&[])?)?;
    ensure!(node.terminate()?.success(), "an orderly end");
    is_explained(&with_data(&["--set", "cluster.name=other"])?)?;
    is_explained(&with_data(&["--set", "node.id=2"])?)?;

    fs::write(data.join("mark-data"), "twelve bytes")?;
    let said = with_data(&[])?;
    ensure!(said.contains("store.accept_lost_data"), "{said}");
    is_explained(&said)?;
    // What the page says to do without a backup.
    let lossy = Node::start(&["--data-dir", &place, "--set", "store.accept_lost_data=true"])?;
    ensure!(get(lossy.http(), "/readyz")?.status == 200, "ready");
    Ok(())
}

#[test]
fn a_refused_connection_or_request_is_explained() -> Result<()> {
    let node = Node::start(&[])?;
    let websocket = node.websocket().trim_start_matches("ws://");
    for path in ["/", "/channel"] {
        is_explained(&get(websocket, path)?.text)?;
    }
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: https://example.org\r\n";
    let head = format!("GET / HTTP/1.1\r\nHost: {websocket}\r\n{upgrade}\r\n");
    let answer = exchange(websocket, head.as_bytes())?;
    ensure!(answer.status == 403, "{answer:?}");
    is_explained(&answer.text)?;
    let head = format!(
        "GET /readyz HTTP/1.1\r\nHost: {}\r\nOrigin: https://example.org\r\nConnection: close\r\n\r\n",
        node.http()
    );
    is_explained(&exchange(node.http(), head.as_bytes())?.text)?;
    for (path, body) in [
        ("/message/send", json!({ "from_uid": "a".repeat(1_001) })),
        (
            "/channel/messagesync",
            json!({ "login_uid": "eve", "channel_id": "nowhere", "channel_type": 2 }),
        ),
    ] {
        let answer = post(node.http(), path, &body)?;
        ensure!(answer.status == 400, "{answer:?}");
        is_explained(&answer.text)?;
    }
    let mut early = Raw::websocket(node.websocket())?;
    early.call(
        "s",
        "send",
        &json!({ "channelId": "room", "channelType": 2, "payload": {} }),
    )?;
    is_explained(&early.answer("s")?.to_string())?;
    let guarded = Node::start_guarded(crate::guarded::KEY_SHA256, &[])?;
    is_explained(&get(guarded.http(), "/metrics")?.text)
}

#[test]
fn a_disk_that_is_nearly_full_is_explained() -> Result<()> {
    let node = Node::start_logged(None, &["--set", "store.low_space_bytes=1125899906842624"])?;
    make_group(&node, &["alice"])?;
    let sent = send(&node, "alice", "m", HELLO)?;
    ensure!(sent.status == 503, "{sent:?}");
    is_explained(&sent.text)?;
    is_explained(&get(node.http(), "/readyz")?.text)?;
    ensure!(
        node.counted("penstock_store_space_low")? == 1,
        "the series says so"
    );
    is_explained(&node.log()?)?;
    ensure!(
        node.log()?.contains("free space is below store.low_space_bytes"),
        "the log says so"
    );
    let mut alice = Raw::session(node.websocket(), "alice", "d")?;
    alice.call(
        "s",
        "send",
        &json!({ "channelId": "room", "channelType": 2, "payload": {} }),
    )?;
    ensure!(alice.answer("s")?["result"]["reasonCode"] == 22, "rate limited");
    Ok(())
}

#[test]
fn every_series_that_the_page_names_is_there() -> Result<()> {
    let node = Node::start(&[])?;
    let metrics = get(node.http(), "/metrics")?.text;
    let series: Vec<String> = quoted()?
        .into_iter()
        .filter(|text| text.starts_with("penstock_") && !text.contains('='))
        .collect();
    ensure!(series.len() >= 3, "the page names series: {series:?}");
    for name in series {
        ensure!(metrics.contains(&format!("\n{name}")), "no series {name}");
    }
    Ok(())
}
