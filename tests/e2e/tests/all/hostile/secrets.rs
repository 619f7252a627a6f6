//! Secrets: where they may not appear, and what a wrong one is told.

use crate::guarded::{KEY, KEY_SHA256};
use anyhow::{Context, Result};
use penstock_e2e::{Ending, Node, Raw, exchange, post_with_key};
use serde_json::{Value, json};

/// What stands in every secret of these tests.
const CANARY: &str = "CanaryMarch7";
/// `printf %s CanaryMarch7-key | sha256sum`
const CANARY_KEY_SHA256: &str = "d134f2b8d5c18bed108cba525aa31da55f2b6e817ab09b921b04fb57c537c95c";

fn request(node: &Node, head: &str, body: &str) -> Result<u16> {
    let request = format!(
        "{head}Host: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    Ok(exchange(node.http(), request.as_bytes())?.status)
}

/// A login that must fail; how it ended, without the time.
fn refused_login(node: &Node, uid: &str, token: &str) -> Result<Ending> {
    let mut raw = Raw::websocket(node.websocket())?;
    let params = json!({ "uid": uid, "token": token, "deviceId": "d", "deviceFlag": 1 });
    raw.call("c", "connect", &params)?;
    let mut ending = raw.ending()?;
    for text in &mut ending.texts {
        let mut answer: Value = serde_json::from_str(text)?;
        if let Some(result) = answer["result"].as_object_mut() {
            result.remove("timeDiff");
        }
        *text = answer.to_string();
    }
    Ok(ending)
}

#[test]
fn s24_no_secret_stands_in_the_log_or_the_metrics() -> Result<()> {
    let key = format!("{CANARY}-key");
    let node = Node::start_logged(Some(CANARY_KEY_SHA256), &["--set", "log.level=trace"])?;
    let token = format!("{CANARY}-token");
    let body = json!({ "uid": "alice", "token": token, "device_flag": 1, "device_level": 0 });
    assert_eq!(
        post_with_key(node.http(), "/user/token", &body, &key)?.status,
        200
    );
    assert_eq!(
        post_with_key(node.http(), "/user/token", &body, &format!("{key}-wrong"))?.status,
        401
    );
    let header = format!("POST /user/token HTTP/1.1\r\nToken: {CANARY}-header\r\n");
    assert_eq!(request(&node, &header, &body.to_string())?, 401);
    let query = format!("GET /metrics?token={CANARY}&key={key} HTTP/1.1\r\nCookie: {CANARY}\r\n");
    assert_eq!(request(&node, &query, "")?, 401);
    // A body that is no JSON, with the secret at the place of the error.
    let broken = format!("POST /user/token HTTP/1.1\r\nAuthorization: Bearer {key}\r\n");
    assert_eq!(request(&node, &broken, &format!("{{\"token\":{CANARY}}}"))?, 400);
    // Logins, right and wrong, by frame and by address.
    let mut raw = Raw::websocket(node.websocket())?;
    raw.call(
        "c",
        "connect",
        &json!({ "uid": "alice", "token": token, "deviceId": "d", "deviceFlag": 1 }),
    )?;
    assert_eq!(raw.answer("c")?["result"]["reasonCode"], 1);
    refused_login(&node, "alice", &format!("{CANARY}-wrong"))?;
    refused_login(&node, "nobody", &format!("{CANARY}-wrong"))?;
    let mut by_address = Raw::tcp(node.websocket().trim_start_matches("ws://"))?;
    by_address.bytes(format!("GET /?token={CANARY} HTTP/1.1\r\nX: {CANARY}\r\n\r\n").as_bytes())?;
    by_address.rest()?;
    let metrics = format!(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\r\n"
    );
    let metrics = exchange(node.http(), metrics.as_bytes())?;
    assert_eq!(metrics.status, 200);
    assert!(!metrics.text.contains(CANARY));
    let log = node.log()?;
    assert!(log.contains("DEBUG"), "the log tells all it can: {log}");
    let told = log.lines().find(|line| line.contains(CANARY));
    assert_eq!(told, None);
    Ok(())
}

#[test]
fn s28_a_wrong_token_and_an_unknown_user_are_told_the_same() -> Result<()> {
    let node = Node::start_guarded(KEY_SHA256, &[])?;
    let body = json!({ "uid": "alice", "token": "right", "device_flag": 1, "device_level": 0 });
    assert_eq!(post_with_key(node.http(), "/user/token", &body, KEY)?.status, 200);
    let wrong = refused_login(&node, "alice", "wrong")?;
    assert_eq!((wrong.code, wrong.reason.as_str()), (Some(1008), "auth_failed"));
    assert!(wrong.texts.concat().contains("\"reasonCode\":2"), "{wrong:?}");
    let long = "r".repeat(3_000);
    for (uid, token) in [
        ("alice", ""),
        ("alice", "righ"),
        ("alice", "right "),
        ("alice", "RIGHT"),
        ("alice", long.as_str()),
        ("nobody", "right"),
        ("nobody", ""),
    ] {
        assert_eq!(refused_login(&node, uid, token)?, wrong, "{uid} {token:?}");
    }
    Ok(())
}

#[test]
fn b59_a_wrong_key_of_any_kind_is_told_the_same() -> Result<()> {
    let node = Node::start_guarded(KEY_SHA256, &[])?;
    let long = "a".repeat(4_000);
    let headers = [
        String::new(),
        "Authorization: Bearer\r\n".to_owned(),
        "Authorization: Bearer \r\n".to_owned(),
        "Authorization: Bearer wrong\r\n".to_owned(),
        format!("Authorization: {KEY}\r\n"),
        format!("Authorization: Basic {KEY}\r\n"),
        format!("Authorization: Bearer {KEY}x\r\n"),
        format!("Authorization: Bearer {}\r\n", KEY.to_uppercase()),
        format!("Authorization: Bearer {KEY_SHA256}\r\n"),
        format!("Authorization: Bearer {long}\r\n"),
        "Token: undefined\r\n".to_owned(),
        "Token: null\r\n".to_owned(),
        format!("Cookie: Token={KEY}\r\n"),
    ];
    let mut answers = Vec::new();
    for header in &headers {
        let request = format!(
            "GET /metrics?token={KEY} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n"
        );
        let answer = exchange(node.http(), request.as_bytes())?;
        assert_eq!(answer.status, 401, "{header}");
        answers.push(answer.text);
    }
    let first = answers.first().context("an answer")?;
    assert!(answers.iter().all(|answer| answer == first));
    Ok(())
}
