//! Starts that must fail: without the secret, with half of it, or with a key that is spelt wrong.

use anyhow::{Context, Result};
use penstock_e2e::{PATIENCE, binary};
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What a node says that does not start on this configuration file and with these arguments.
fn refusal(file: Option<&[u8]>, arguments: &[&str]) -> Result<String> {
    let data = tempfile::tempdir()?;
    let mut command = Command::new(binary()?);
    command
        .arg("serve")
        .arg("--data-dir")
        .arg(data.path().join("data"));
    if let Some(text) = file {
        let path = data.path().join("penstock.toml");
        fs::write(&path, text)?;
        command.arg("--config").arg(path);
    }
    // Free ports, so that a node that starts all the same is not mistaken for one that could not listen.
    for key in ["gateway.tcp_listen", "gateway.ws_listen", "http.listen"] {
        command.args(["--set", &format!("{key}=127.0.0.1:0")]);
    }
    let mut child = command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let deadline = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if Instant::now() > deadline => break None,
            None => thread::sleep(Duration::from_millis(20)),
        }
    };
    drop(child.kill());
    let mut said = String::new();
    child
        .stderr
        .take()
        .context("standard error")?
        .read_to_string(&mut said)?;
    let status = status.with_context(|| format!("it started: {said}"))?;
    assert!(!status.success(), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    Ok(said)
}

#[test]
fn s5_a_node_with_half_a_configuration_does_not_start_and_names_the_key() -> Result<()> {
    let files: [(&[u8], &str); 16] = [
        (b"", "auth.api_key_sha256"),
        (b"# nothing\n\n", "auth.api_key_sha256"),
        (b"[auth]\n", "auth.api_key_sha256"),
        (b"[auth]\napi_key_sha256 = \"\"\n", "auth.api_key_sha256"),
        (b"[auth]\napi_key_sha256 = \"12\"\n", "auth.api_key_sha256"),
        (b"[auth]\napi_key_sha256 = 12\n", "auth.api_key_sha256"),
        (b"[auth]\napi_key_sha256 = false\n", "auth.api_key_sha256"),
        (b"[auth]\napi_key = \"secret\"\n", "auth.api_key"),
        (b"[auht]\napi_key_sha256 = \"00\"\n", "auht.api_key_sha256"),
        (b"[AUTH]\napi_key_sha256 = \"00\"\n", "AUTH.api_key_sha256"),
        (b"api_key_sha256 = \"00\"\n", "api_key_sha256"),
        (b"[auth]\ndev = true\n", "auth.dev"),
        (b"dev = true\n", "dev"),
        (b"[auth\n", "TOML"),
        (
            b"[auth]\napi_key_sha256 = \"00\"\napi_key_sha256 = \"11\"\n",
            "TOML",
        ),
        (b"\xff\xfe", "penstock.toml"),
    ];
    for (text, named) in files {
        let said = refusal(Some(text), &[])?;
        assert!(
            said.contains(named),
            "{:?}: {said}",
            String::from_utf8_lossy(text)
        );
        assert!(!said.contains("\"secret\""), "{said}");
    }
    let said = refusal(None, &[])?;
    assert!(
        said.contains("auth.api_key_sha256") && said.contains("penstock key"),
        "{said}"
    );
    let said = refusal(None, &["--config", "/nowhere/penstock.toml"])?;
    assert!(said.contains("/nowhere/penstock.toml"), "{said}");
    Ok(())
}

/// A line that is no TOML may hold a secret: only its place is told, in the configuration and in a file of secrets.
#[test]
fn s24_a_secret_in_a_line_that_is_none_is_not_repeated() -> Result<()> {
    const CANARY: &str = "CanaryMarch8";
    for wrong in [
        format!("github = {CANARY}"),
        format!("github = \"{CANARY}"),
        format!("github \"{CANARY}\""),
    ] {
        for section in ["plugins", "webhooks"] {
            let text = format!("[node]\nid = 1\n[{section}.secrets]\n{wrong}\n");
            let said = refusal(Some(text.as_bytes()), &[])?;
            assert!(
                said.contains("not valid TOML: line 4, column ") && !said.contains(CANARY),
                "{said}"
            );
            let folder = tempfile::tempdir()?;
            let path = folder.path().join("secrets.toml");
            fs::write(&path, format!("{wrong}\n"))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
            let file = format!("{section}.secrets_file={}", path.display());
            let said = refusal(None, &["--set", &file])?;
            assert!(
                said.contains("secrets.toml: not TOML") && said.contains("line 1, column "),
                "{said}"
            );
            assert!(!said.contains(CANARY), "{said}");
        }
    }
    Ok(())
}

#[test]
fn b63_a_wrong_option_or_a_public_development_node_does_not_start() -> Result<()> {
    let key = "auth.api_key_sha256=9dca666eb54730714630d1519264a7bf1eeaad00b8f2edc90d3ecbfad928d163";
    for (arguments, named) in [
        (vec!["--dev", "--set", "http.listen=0.0.0.0:0"], "http.listen"),
        (
            vec!["--dev", "--set", "gateway.tcp_listen=[::]:0"],
            "gateway.tcp_listen",
        ),
        (
            vec!["--dev", "--set", "gateway.ws_listen=192.0.2.1:0"],
            "gateway.ws_listen",
        ),
        (vec!["--dve"], "--dve"),
        (vec!["--set", "auth.api_key_sha256"], "auth.api_key_sha256"),
        (
            vec!["--set", key, "--set", "gateway.allowed_origins=*"],
            "gateway.allowed_origins",
        ),
        (
            vec!["--set", key, "--set", "gateway.allowed_origin=[]"],
            "gateway.allowed_origins",
        ),
        (
            vec!["--set", key, "--set", "gateway.connections_max=0"],
            "gateway.connections_max",
        ),
        (
            vec!["--set", key, "--set", "gateway.outbound_bytes_max=-1"],
            "gateway.outbound_bytes_max",
        ),
    ] {
        let said = refusal(None, &arguments)?;
        assert!(said.contains(named), "{arguments:?}: {said}");
    }
    Ok(())
}
