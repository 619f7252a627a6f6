//! Every configuration key: its name, default and meaning. The reference page, `penstock config default` and the check
//! of unknown keys are all made from this table.

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct KeyInfo {
    /// `section.key`.
    pub name: &'static str,
    /// Default, as TOML text.
    pub default: &'static str,
    /// What it is, its unit, and why this default.
    pub doc: &'static str,
}

const fn key(name: &'static str, default: &'static str, doc: &'static str) -> KeyInfo {
    KeyInfo { name, default, doc }
}

/// All keys, by section.
pub const KEYS: &[KeyInfo] = &[
    key(
        "node.id",
        "1",
        "Durable id of this node, 1 to 1023. Part of every message id; never change it.",
    ),
    key(
        "node.data_dir",
        "\"./penstock-data\"",
        "Directory of this node's data. One process at a time.",
    ),
    key(
        "node.shards",
        "0",
        "Threads that own slots, channels and sessions: 1, 2, 4 or 8. 0 = by the number of cores.",
    ),
    key(
        "cluster.name",
        "\"penstock\"",
        "Name of the cluster. A data directory of another cluster is refused.",
    ),
    key(
        "cluster.copies",
        "3",
        "Copies of metadata and channel logs. At most one per node: one node keeps a single copy.",
    ),
    key(
        "cluster.slot_groups",
        "8",
        "Raft groups over the 256 slots, chosen at the first start of the cluster (1 to 64).",
    ),
    key(
        "gateway.tcp_listen",
        "\"127.0.0.1:5100\"",
        "Address for WKProto over TCP. Port 0 takes a free one.",
    ),
    key(
        "gateway.ws_listen",
        "\"127.0.0.1:5200\"",
        "Address for WebSocket: WKProto and JSON-RPC, told apart by the first byte.",
    ),
    key(
        "gateway.allowed_origins",
        "[]",
        "Web pages that may open a WebSocket, such as [\"https://chat.example.org\"]. Empty = all: a session is opened by \
         the token in CONNECT, never by a cookie, so that a foreign page gains nothing. --dev takes local pages besides.",
    ),
    key(
        "gateway.connect_timeout_ms",
        "5000",
        "A connection that has not sent CONNECT by then is closed.",
    ),
    key(
        "gateway.idle_timeout_ms",
        "180000",
        "A connection without an inbound frame for this long is closed. SDKs ping every 60 s.",
    ),
    key(
        "gateway.connections_max",
        "100000",
        "Open connections of this node; further ones are closed at once.",
    ),
    key(
        "gateway.connections_per_ip_max",
        "20000",
        "Open connections from one address. Lower it when no proxy stands in between.",
    ),
    key(
        "gateway.outbound_bytes_max",
        "1048576",
        "Bytes waiting for one slow client before it is closed.",
    ),
    key(
        "gateway.outbound_frames_max",
        "4096",
        "Frames waiting for one slow client before it is closed.",
    ),
    key(
        "http.listen",
        "\"127.0.0.1:5001\"",
        "Address of the HTTP API. Port 0 takes a free one.",
    ),
    key("http.body_bytes_max", "1048576", "Largest request body."),
    key(
        "http.connections_max",
        "4096",
        "Open connections of the HTTP API; further ones are closed at once.",
    ),
    key(
        "http.request_timeout_ms",
        "60000",
        "How long the head of a request may take, and then its body. An idle connection is closed after it too.",
    ),
    key(
        "http.external_tcp_addr",
        "\"\"",
        "TCP address told to clients by /route; empty = the listener's.",
    ),
    key(
        "http.external_ws_addr",
        "\"\"",
        "WebSocket address told to clients by /route; empty = the listener's.",
    ),
    key(
        "http.demo_page",
        "false",
        "Serve the demo page at / . --dev serves it always. Its user types in the API key: keep it off in public.",
    ),
    key(
        "auth.api_key_sha256",
        "\"\"",
        "SHA-256, in hex, of the API key for HTTP. Needed unless --dev. Make both with `penstock key`.",
    ),
    key(
        "message.payload_bytes_max",
        "32767",
        "Largest payload of one message (at most 700000: a RECV frame holds 1 MiB).",
    ),
    key(
        "message.dedupe_window_hours",
        "24",
        "How long a client_msg_no is remembered.",
    ),
    key(
        "message.person_allowlist_required",
        "false",
        "Whether a person may only be written to by uids in the allowlist.",
    ),
    key(
        "message.append_timeout_ms",
        "5000",
        "How long a send waits for its commit before its outcome is unknown.",
    ),
    key(
        "channel.idle_evict_ms",
        "300000",
        "A channel without work for this long leaves memory.",
    ),
    key(
        "delivery.large_group_members",
        "500",
        "Groups above this many members are read page by page.",
    ),
    key(
        "session.reoffer_interval_ms",
        "20000",
        "An unacknowledged message is offered again after this long.",
    ),
    key(
        "session.unacknowledged_max",
        "1024",
        "Messages offered to one session and not acknowledged before it is closed.",
    ),
    key(
        "store.low_space_bytes",
        "1073741824",
        "Free disk space below which sends are refused.",
    ),
    key(
        "store.accept_lost_data",
        "false",
        "Start a single copy although its log is damaged. What is lost is printed at the start.",
    ),
    key(
        "log.level",
        "\"info\"",
        "error, warn, info, debug or trace, or a filter such as `penstock_net=debug,info`.",
    ),
    key(
        "log.json",
        "false",
        "Log lines as JSON instead of text. Logs go to stderr.",
    ),
    key(
        "shutdown.drain_ms",
        "10000",
        "On SIGTERM: time for sends in flight to be answered before the connections close.",
    ),
];

/// The known key that is nearest to `name` by edits, for error messages.
#[must_use]
pub fn nearest(name: &str) -> &'static str {
    KEYS.iter()
        .map(|info| info.name)
        .min_by_key(|known| distance(name, known))
        .unwrap_or("node.id")
}

/// Levenshtein distance of two short texts.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (above, one) in left.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = above + 1;
        for (index, other) in right.iter().enumerate() {
            let substituted = diagonal + usize::from(one != *other);
            diagonal = row[index + 1];
            row[index + 1] = substituted.min(row[index] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

/// The default configuration as a commented TOML file.
#[must_use]
pub fn default_toml() -> String {
    let mut text = String::from("# Penstock configuration. Every key is optional; these are the defaults.\n");
    let mut section = "";
    for info in KEYS {
        let (in_section, name) = info.name.split_once('.').unwrap_or(("", info.name));
        if in_section != section {
            section = in_section;
            text.push_str(&format!("\n[{section}]\n"));
        }
        text.push_str(&format!("# {}\n{name} = {}\n", info.doc, info.default));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_key_is_found_by_edits() {
        assert_eq!(nearest("node.idd"), "node.id");
        assert_eq!(nearest("gateway.tcp_listn"), "gateway.tcp_listen");
        assert_eq!(nearest("http.body_max_bytes"), "http.body_bytes_max");
    }

    #[test]
    fn default_file_is_accepted_and_equals_the_defaults() {
        let written = super::super::Settings::parse(&default_toml(), &[]).expect("the default file is valid");
        let empty = super::super::Settings::parse("", &[]).expect("an empty file is valid");
        assert_eq!(format!("{written:?}"), format!("{empty:?}"));
    }
}
