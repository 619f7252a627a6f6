//! Web pages of elsewhere, which a developer's browser may happen to show.

use crate::guarded::KEY_SHA256;
use crate::hostile::{still_serves, until};
use anyhow::Result;
use penstock_e2e::{Node, Raw, Response, exchange};

const GROUP: &str = r#"{"channel_id":"room","channel_type":2,"subscribers":["alice"]}"#;

/// What a browser sends for a page: these headers, and a content type that needs no permission.
fn asked(node: &Node, host: &str, headers: &str) -> Result<Response> {
    let length = GROUP.len();
    let request = format!(
        "POST /channel HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: text/plain\r\n{headers}\
         Content-Length: {length}\r\n\r\n{GROUP}"
    );
    exchange(node.http(), request.as_bytes())
}

#[test]
fn s9_a_page_of_elsewhere_gives_a_development_node_no_orders() -> Result<()> {
    let node = Node::start(&[])?;
    let here = node.http();
    for (host, headers) in [
        (here, "Sec-Fetch-Site: cross-site\r\n"),
        (
            here,
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n",
        ),
        (here, "Origin: https://evil.example.org\r\n"),
        (here, "Origin: http://127.0.0.1.evil.example.org\r\n"),
        (here, "Origin: null\r\n"),
        // A name of the attacker's that leads to this machine.
        ("evil.example.org:5001", ""),
        (
            "evil.example.org:5001",
            "Origin: http://evil.example.org:5001\r\nSec-Fetch-Site: same-origin\r\n",
        ),
    ] {
        let refused = asked(&node, host, headers)?;
        assert_eq!(
            (refused.status, &refused.body["status"]),
            (403, &403.into()),
            "{host} {headers}"
        );
        let said = refused.body["msg"].as_str().unwrap_or_default();
        assert!(said.contains("--dev") && said.contains("localhost"), "{said}");
    }
    // None of them was obeyed: the group does not exist.
    let message = r#"{"from_uid":"alice","channel_id":"room","channel_type":2,"payload":"eA=="}"#;
    let request = format!(
        "POST /message/send HTTP/1.1\r\nHost: {here}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{message}",
        message.len()
    );
    assert_eq!(exchange(here, request.as_bytes())?.status, 404);
    let port = here.rsplit(':').next().unwrap_or_default();
    for (host, headers) in [
        (here.to_owned(), String::new()),
        (format!("localhost:{port}"), String::new()),
        (format!("[::1]:{port}"), String::new()),
        (
            here.to_owned(),
            format!("Origin: http://{here}\r\nSec-Fetch-Site: same-origin\r\n"),
        ),
        (
            here.to_owned(),
            "Origin: http://localhost:3000\r\nSec-Fetch-Site: same-site\r\n".to_owned(),
        ),
    ] {
        assert_eq!(asked(&node, &host, &headers)?.status, 200, "{host} {headers}");
    }
    Ok(())
}

#[test]
fn s9_a_form_that_is_posted_to_the_tcp_listener_opens_no_session() -> Result<()> {
    let node = Node::start(&[])?;
    // Behind the head of a POST, which a page cannot leave out, stands what a session would begin with.
    let mut connect = Raw::tcp(node.tcp())?;
    connect.bytes(b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1\r\n\r\n\x70")?;
    assert_eq!(connect.rest()?, b"");
    drop(connect);
    until("it is forgotten", || {
        Ok(node.counted("penstock_gateway_unauthenticated_connections")? == 0)
    })?;
    still_serves(&node, node.process(), "alice")
}

#[test]
fn b55_a_foreign_page_opens_no_websocket() -> Result<()> {
    let node = Node::start(&[])?;
    let here = node.websocket().trim_start_matches("ws://");
    for (host, headers) in [
        (here, "Origin: https://evil.example.org\r\nCookie: session=1\r\n"),
        (here, "Origin: null\r\n"),
        ("evil.example.org", "Origin: http://evil.example.org\r\n"),
        ("evil.example.org", ""),
    ] {
        let (mut refused, head) = Raw::upgrade(here, host, headers)?;
        assert!(head.starts_with("HTTP/1.1 403 "), "{host} {headers}: {head}");
        let said = String::from_utf8(refused.rest()?)?;
        assert!(
            said.contains("gateway.allowed_origins") && said.contains("--dev"),
            "{said}"
        );
    }
    assert_eq!(node.closed("policy_violation")?, 4);
    for headers in [
        "",
        "Origin: http://localhost:3000\r\n",
        "Origin: http://[::1]\r\n",
    ] {
        let (_, head) = Raw::upgrade(here, here, headers)?;
        assert!(head.starts_with("HTTP/1.1 101 "), "{headers}: {head}");
    }
    Ok(())
}

#[test]
fn s9_a_production_node_holds_browsers_to_its_list_of_origins() -> Result<()> {
    let answers = |node: &Node| {
        let statuses = [
            "",
            "Origin: https://chat.example.org\r\n",
            "Origin: https://evil.example.org\r\n",
        ];
        let asked = statuses.map(|headers| {
            let (_, head) = Raw::upgrade(node.websocket(), "chat.example.org", headers)?;
            Ok(head.get(9..12).unwrap_or_default().to_owned())
        });
        asked.into_iter().collect::<Result<Vec<String>>>()
    };
    let open = Node::start_guarded(KEY_SHA256, &[])?;
    assert_eq!(answers(&open)?, ["101", "101", "101"]);
    let listed = "gateway.allowed_origins=[\"https://chat.example.org\"]";
    let held = Node::start_guarded(KEY_SHA256, &["--set", listed])?;
    assert_eq!(answers(&held)?, ["101", "101", "403"]);
    Ok(())
}
