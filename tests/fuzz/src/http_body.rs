//! `http_body`: every route of the HTTP API, with any method, query and body, on a whole node.
//!
//! Every request is answered. An error is JSON in the shape that section 7 of the client contract gives it, with its own status inside,
//! and none is 500: that would be a question that the API asks and does not understand the answer of.

use crate::input::{Input, cut};
use crate::node;
use crate::peer::Peer;
use serde_json::Value;

/// The router of the API: the routes are read from it, so that none is forgotten.
const ROUTER: &str = include_str!("../../../broker/net/src/http/mod.rs");

/// Members that the routes know.
const MEMBERS: &[&str] = &[
    "channel_id",
    "channel_type",
    "from_uid",
    "payload",
    "client_msg_no",
    "uid",
    "uids",
    "subscribers",
    "token",
    "device_flag",
    "device_level",
    "login_uid",
    "start_message_seq",
    "end_message_seq",
    "limit",
    "pull_mode",
    "header",
    "setting",
    "topic",
    "expire",
    "large",
    "ban",
    "disband",
    "send_ban",
    "allow_stranger",
    "reset",
    "temp_subscriber",
    "no_persist",
    "red_dot",
    "sync_once",
    "intranet",
];

/// Most requests of one input.
const REQUESTS_MAX: usize = 4;

/// Users that the requests name.
const UIDS: &[&str] = &["yan", "zoe", "xia", " ", "a,b", "", "a@b", "____system"];

/// Runs one input.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let routes = routes();
    // All requests of an input are about this channel; many inputs begin with making it.
    let channel = format!("made{}", input.u8());
    for number in 0..REQUESTS_MAX {
        if number > 0 && input.is_empty() {
            break;
        }
        let request = request(&mut input, &routes, &channel);
        let mut peer = Peer::open(node::addresses().http);
        let bytes = [request.head.as_bytes(), &request.body].concat();
        let pieces = cut(&bytes, &mut input);
        peer.write(&pieces);
        let whole = peer.rest();
        judge(&request, &String::from_utf8_lossy(&whole));
    }
    node::assert_well();
}

/// The paths of the router, and one that it does not have.
fn routes() -> Vec<&'static str> {
    let literal = |part: &'static str| part.split('"').nth(1);
    let mut routes: Vec<&str> = ROUTER.split(".route(").skip(1).filter_map(literal).collect();
    assert!(
        routes.len() > 25,
        "the router is written in another way: {routes:?}"
    );
    routes.sort_unstable();
    routes.extend(["/nowhere", "/demo/../route"]);
    routes
}

struct Request {
    method: String,
    route: &'static str,
    head: String,
    body: Vec<u8>,
}

fn request(input: &mut Input<'_>, routes: &[&'static str], channel: &str) -> Request {
    let route = routes[input.below(routes.len())];
    let is_get = ROUTER.contains(&format!("\"{route}\", get("));
    let usual = if is_get { "GET" } else { "POST" };
    let method = if input.rarely(12) {
        input.one_of(&["GET", "POST", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "BREW"])
    } else {
        usual
    };
    let path = route.replace(
        "{file}",
        input.one_of(&["session.js", "nothing.js", "view.js", "%2e%2e"]),
    );
    let query = if is_get || input.rarely(6) {
        query(input, channel)
    } else {
        String::new()
    };
    let body = if is_get && !input.rarely(6) {
        Vec::new()
    } else {
        body(input, route, channel)
    };
    let mut head = format!("{method} {path}{query} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    match input.below(8) {
        0 => head.push_str("Content-Type: application/json\r\n"),
        1 => head.push_str("Token: nothing\r\n"),
        2 => head.push_str("Accept: text/html\r\nIf-None-Match: *\r\n"),
        3 => head.push_str("Origin: http://localhost:5001\r\nSec-Fetch-Site: same-origin\r\n"),
        _ => {}
    }
    head.push_str(&format!("Content-Length: {}\r\n\r\n", body.len()));
    Request {
        method: method.to_owned(),
        route,
        head,
        body,
    }
}

/// A query of known members, with values of any bytes.
fn query(input: &mut Input<'_>, channel: &str) -> String {
    let mut pairs = Vec::new();
    for name in [
        "channel_id",
        "channel_type",
        "from_uid",
        "client_msg_no",
        "intranet",
    ] {
        let value = match input.below(8) {
            0 => continue,
            1 => escaped(input.chunk()),
            2 => input.number().to_string(),
            _ if name.ends_with("type") || name == "intranet" => "2".to_owned(),
            _ if name == "from_uid" => input.one_of(UIDS).replace(' ', "+"),
            _ => channel.to_owned(),
        };
        pairs.push(format!("{name}={value}"));
    }
    if input.rarely(8) {
        pairs.push(escaped(input.chunk()));
    }
    format!("?{}", pairs.join("&"))
}

/// The bytes as they may stand in a request line, some of them plain.
fn escaped(bytes: &[u8]) -> String {
    let shown = |byte: &u8| match byte {
        b'a'..=b'z' | b'0'..=b'9' | b'&' | b'=' | b'%' | b'+' | b'@' | b'_' => char::from(*byte).to_string(),
        other => format!("%{other:02x}"),
    };
    bytes.iter().map(shown).collect()
}

fn body(input: &mut Input<'_>, route: &str, channel: &str) -> Vec<u8> {
    match input.below(12) {
        0 => return input.chunk().to_vec(),
        1 => return value(input, 6).into_bytes(),
        2 => {
            return format!(
                "{}{}",
                "[".repeat(usize::from(input.u16()) % 2_000),
                value(input, 2)
            )
            .into_bytes();
        }
        _ => {}
    }
    if matches!(route, "/user/onlinestatus" | "/route/batch") && !input.rarely(8) {
        let uids: Vec<String> = (0..input.below(6))
            .map(|_| usual(input, "uid", channel))
            .collect();
        return format!("[{}]", uids.join(",")).into_bytes();
    }
    let mut members = Vec::new();
    for name in MEMBERS {
        let shown = match input.below(8) {
            0 => value(input, 3),
            1..=3
                if !matches!(
                    *name,
                    "channel_id" | "channel_type" | "from_uid" | "payload" | "login_uid"
                ) =>
            {
                continue;
            }
            _ => usual(input, name, channel),
        };
        members.push(format!("\"{name}\":{shown}"));
    }
    if input.rarely(8) {
        members.push(format!("{}:{}", Value::from(input.text()), value(input, 2)));
    }
    if input.rarely(12)
        && let Some(first) = members.first().cloned()
    {
        members.push(first);
    }
    format!("{{{}}}", members.join(",")).into_bytes()
}

/// What a back end would give for this member.
fn usual(input: &mut Input<'_>, name: &str, channel: &str) -> String {
    match name {
        "channel_id" => match input.below(8) {
            0 => "\"\"".to_owned(),
            1 => Value::from(input.text()).to_string(),
            _ => format!("\"{channel}\""),
        },
        "channel_type" => match input.below(4) {
            0 => (input.below(12)).to_string(),
            _ => "2".to_owned(),
        },
        "payload" => match input.below(4) {
            0 => "\"\"".to_owned(),
            1 => format!("\"{}\"", "QUFB".repeat(usize::from(input.u16()) % 12_000)),
            _ => "\"aGVsbG8=\"".to_owned(),
        },
        "uid" | "from_uid" | "login_uid" => Value::from(input.one_of(UIDS)).to_string(),
        "uids" | "subscribers" => {
            let uids: Vec<String> = (0..input.below(4))
                .map(|_| Value::from(input.one_of(UIDS)).to_string())
                .collect();
            format!("[{}]", uids.join(","))
        }
        "client_msg_no" | "token" | "topic" => Value::from(input.text()).to_string(),
        "header" => format!(
            "{{\"sync_once\":{},\"red_dot\":{}}}",
            input.below(3),
            value(input, 0)
        ),
        "limit" | "start_message_seq" | "end_message_seq" | "expire" => input.number().to_string(),
        "device_flag" => (i32::from(input.u8() % 5) - 1).to_string(),
        "reset" | "disband" | "ban" | "send_ban" => u8::from(input.rarely(8)).to_string(),
        _ => input.below(3).to_string(),
    }
}

/// Any JSON value, and sometimes what is none.
fn value(input: &mut Input<'_>, depth: usize) -> String {
    match input.below(if depth == 0 { 7 } else { 10 }) {
        0 => "null".to_owned(),
        1 => (input.rarely(2)).to_string(),
        2 => input.number().to_string(),
        3 => format!("-{}", input.number()),
        4 => format!("{}.{}e{}", input.u8(), input.u8(), input.u8()),
        5 => Value::from(input.text()).to_string(),
        6 => String::from_utf8_lossy(input.bytes(4)).into_owned(),
        7 | 8 => {
            let items: Vec<String> = (0..input.below(5)).map(|_| value(input, depth - 1)).collect();
            format!("[{}]", items.join(","))
        }
        _ => {
            let member = |input: &mut Input<'_>| {
                let name = MEMBERS[input.below(MEMBERS.len())];
                format!("\"{name}\":{}", value(input, depth - 1))
            };
            let members: Vec<String> = (0..input.below(4)).map(|_| member(input)).collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

fn judge(request: &Request, answer: &str) {
    let shown = || format!("{} answered {answer}", request.head);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {}", shown()));
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3));
    let status: u16 = status
        .and_then(|status| status.parse().ok())
        .unwrap_or_else(|| panic!("{}", shown()));
    assert!((200..=599).contains(&status) && status != 500, "{}", shown());
    if request.method == "HEAD" || status == 304 {
        assert!(body.is_empty(), "{}", shown());
        return;
    }
    let is_json = head
        .to_ascii_lowercase()
        .contains("\r\ncontent-type: application/json");
    if status < 400 {
        let is_text =
            request.route == "/metrics" || request.route == "/" || request.route.starts_with("/demo/");
        assert!(is_text || is_json, "{}", shown());
        if is_json {
            serde_json::from_str::<Value>(body).unwrap_or_else(|_| panic!("no JSON: {}", shown()));
        }
        return;
    }
    assert!(is_json, "an error is JSON: {}", shown());
    let error: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {}", shown()));
    if request.route.starts_with("/message/") {
        assert!(
            error["error"].as_str().is_some_and(|text| !text.is_empty()),
            "{}",
            shown()
        );
    } else if request.route != "/readyz" {
        assert!(
            error["msg"].as_str().is_some_and(|text| !text.is_empty()),
            "{}",
            shown()
        );
        assert_eq!(error["status"], status, "{}", shown());
    }
}

/// Usual requests of each route, some behind one that makes the channel, and some of their edges.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let routes = routes();
    let count = u8::try_from(routes.len()).unwrap_or(u8::MAX);
    let make = routes
        .iter()
        .position(|route| *route == "/channel")
        .unwrap_or_default();
    let make = u8::try_from(make).unwrap_or_default();
    let usual = [4, 0, 7, 1, 4, 2, 6, 5].repeat(12);
    let mut seeds = Vec::new();
    for route in 0..count {
        for choice in [4, 7] {
            seeds.push([&[route, route, 0][..], &[choice; 90]].concat());
        }
        seeds.push([&[route, make, 0, 4][..], &[7; 60], &[route, 0, 0, 3], &usual].concat());
        seeds.push([&[route, route, 11, 5, 3][..], &usual].concat());
    }
    seeds
}
