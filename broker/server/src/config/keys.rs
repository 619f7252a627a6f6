//! Every configuration key, declared once. The check of a configuration, `penstock config default`, the reference page
//! `broker/docs/config.md` and the texts of errors are all made from this table.

use super::kind::Kind;

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct KeyInfo {
    /// `section.key`.
    pub name: &'static str,
    /// Default, as TOML text.
    pub default: &'static str,
    /// Type, bounds and unit.
    pub kind: Kind,
    /// What it is, and why this default.
    pub doc: &'static str,
    /// When to change it.
    pub change: &'static str,
}

const fn key(
    name: &'static str,
    default: &'static str,
    kind: Kind,
    doc: &'static str,
    change: &'static str,
) -> KeyInfo {
    KeyInfo {
        name,
        default,
        kind,
        doc,
        change,
    }
}

/// All keys, by section.
pub const KEYS: &[KeyInfo] = &[
    key(
        "node.id",
        "1",
        Kind::Number {
            from: 1,
            to: 1_023,
            unit: "",
        },
        "Durable id of this node. Part of every message id.",
        "Once, before the first start; never afterwards: a data directory of another node is refused.",
    ),
    key(
        "node.data_dir",
        "\"./penstock-data\"",
        Kind::Text,
        "Directory of this node's data, relative to where the process starts. One process at a time.",
        "Give it an absolute path on a disk of its own; `--data-dir` does the same.",
    ),
    key(
        "node.shards",
        "0",
        Kind::OneOf(&[0, 1, 2, 4, 8]),
        "Threads that own slots, channels and sessions. 0 = by the number of cores: the largest of 1, 2, 4, 8 that is not above half of it.",
        "When other programs need cores of this machine.",
    ),
    key(
        "cluster.name",
        "\"penstock\"",
        Kind::Text,
        "Name of the cluster. A data directory of another cluster is refused.",
        "Before the first start, so that nodes of two clusters cannot be mixed up.",
    ),
    key(
        "cluster.copies",
        "3",
        Kind::Number {
            from: 1,
            to: 7,
            unit: "copies",
        },
        "Copies of metadata and channel logs. At most one per node: one node keeps a single copy.",
        "Leave it: it takes effect with several nodes.",
    ),
    key(
        "cluster.slot_groups",
        "8",
        Kind::Number {
            from: 1,
            to: 64,
            unit: "groups",
        },
        "Raft groups over the 256 slots, chosen at the first start of the cluster.",
        "Before the first start, when many cores share the metadata; never afterwards.",
    ),
    key(
        "gateway.tcp_listen",
        "\"127.0.0.1:5100\"",
        Kind::Address,
        "Address for WKProto over TCP. Port 0 takes a free one.",
        "To be reached from other machines, such as 0.0.0.0:5100, or when the port is in use.",
    ),
    key(
        "gateway.ws_listen",
        "\"127.0.0.1:5200\"",
        Kind::Address,
        "Address for WebSocket: WKProto and JSON-RPC, told apart by the first byte. No TLS: a proxy in front ends it.",
        "To be reached from other machines or by a proxy, or when the port is in use.",
    ),
    key(
        "gateway.allowed_origins",
        "[]",
        Kind::Origins,
        "Web pages that may open a WebSocket, such as [\"https://chat.example.org\"]. Empty = all: a session is opened by \
         the token in CONNECT, never by a cookie, so that a foreign page gains nothing. --dev takes local pages besides.",
        "In production, once you know which pages are yours.",
    ),
    key(
        "gateway.connect_timeout_ms",
        "5000",
        Kind::millis(100, 60_000),
        "A connection that has not sent CONNECT by then is closed (connect_timeout).",
        "Raise it for clients on very slow links.",
    ),
    key(
        "gateway.idle_timeout_ms",
        "180000",
        Kind::millis(1_000, 3_600_000),
        "A connection without an inbound frame for this long is closed (idle_timeout). SDKs ping every 60 s.",
        "Lower it to notice dead peers sooner, but keep it above twice the clients' ping interval.",
    ),
    key(
        "gateway.connections_max",
        "100000",
        Kind::Number {
            from: 1,
            to: 10_000_000,
            unit: "connections",
        },
        "Open connections of this node; further ones are closed at once (too_many_connections).",
        "With the memory of the machine, and the limit of open files (`ulimit -n`).",
    ),
    key(
        "gateway.connections_per_ip_max",
        "20000",
        Kind::Number {
            from: 1,
            to: 10_000_000,
            unit: "connections",
        },
        "Open connections from one IPv4 address or one IPv6 /64 network (too_many_connections).",
        "Lower it when no proxy stands in between; behind one, all clients share its address.",
    ),
    key(
        "gateway.outbound_bytes_max",
        "1048576",
        Kind::Number {
            from: 65_536,
            to: 1 << 30,
            unit: "bytes",
        },
        "Bytes waiting for one slow client before it is closed (outbound_overflow).",
        "Raise it for bursts of large messages; it is memory for each slow client.",
    ),
    key(
        "gateway.outbound_frames_max",
        "4096",
        Kind::Number {
            from: 16,
            to: 1 << 20,
            unit: "frames",
        },
        "Frames waiting for one slow client before it is closed (outbound_overflow).",
        "Raise it for bursts of small messages.",
    ),
    key(
        "http.listen",
        "\"127.0.0.1:5001\"",
        Kind::Address,
        "Address of the HTTP API. Port 0 takes a free one.",
        "To be reached by back ends on other machines, or when the port is in use.",
    ),
    key(
        "http.body_bytes_max",
        "1048576",
        Kind::Number {
            from: 1_024,
            to: 64 << 20,
            unit: "bytes",
        },
        "Largest request body; a larger one is answered 413.",
        "Raise it for long lists of members in one request.",
    ),
    key(
        "http.connections_max",
        "4096",
        Kind::Number {
            from: 1,
            to: 1_000_000,
            unit: "connections",
        },
        "Open connections of the HTTP API; further ones are closed at once.",
        "Raise it when many back ends keep connections open.",
    ),
    key(
        "http.connections_per_ip_max",
        "1024",
        Kind::Number {
            from: 1,
            to: 1_000_000,
            unit: "connections",
        },
        "Open connections of the HTTP API from one IPv4 address or one IPv6 /64 network; further ones are closed at once.",
        "Raise it, up to http.connections_max, behind a proxy: all back ends then share its address.",
    ),
    key(
        "http.request_timeout_ms",
        "60000",
        Kind::millis(100, 3_600_000),
        "How long the head of a request may take, and then its body (408). An idle connection is closed after it too.",
        "Lower it on a public network.",
    ),
    key(
        "http.external_tcp_addr",
        "\"\"",
        Kind::HostAndPort,
        "Host and port for TCP told to clients by /route; empty = the listener's.",
        "When clients reach the node by another name than it listens on, such as chat.example.org:5100.",
    ),
    key(
        "http.external_ws_addr",
        "\"\"",
        Kind::WebSocketAddress,
        "WebSocket address told to clients by /route; empty = the listener's.",
        "Behind a proxy that ends TLS, such as wss://chat.example.org.",
    ),
    key(
        "http.demo_page",
        "false",
        Kind::Switch,
        "Serve the demo page at / . --dev serves it always. Its user types in the API key.",
        "For a demonstration; keep it off in public.",
    ),
    key(
        "auth.api_key_sha256",
        "\"\"",
        Kind::Digest,
        "SHA-256, in hex, of the API key for HTTP. Needed unless --dev. Make both with `penstock key`.",
        "Before the first start in production, and when the key has become known.",
    ),
    key(
        "message.payload_bytes_max",
        "32767",
        Kind::Number {
            from: 1,
            to: 700_000,
            unit: "bytes",
        },
        "Largest payload of one message. A RECV frame of 1 MiB holds no more than the upper bound.",
        "Rather store large things elsewhere and send their address.",
    ),
    key(
        "message.dedupe_window_hours",
        "24",
        Kind::Number {
            from: 1,
            to: 24 * 30,
            unit: "hours",
        },
        "How long a client_msg_no is remembered: a send that is repeated within it is stored once.",
        "Raise it for clients that retry after days; each send takes a row for as long.",
    ),
    key(
        "message.person_allowlist_required",
        "false",
        Kind::Switch,
        "Whether a person may only be written to by uids in the allowlist.",
        "When strangers must not write to each other.",
    ),
    key(
        "message.append_timeout_ms",
        "5000",
        Kind::millis(100, 60_000),
        "How long a send waits for its commit before its outcome is unknown.",
        "Raise it on a disk with long stalls.",
    ),
    key(
        "channel.idle_evict_ms",
        "300000",
        Kind::millis(1_000, 86_400_000),
        "A channel without work for this long leaves memory.",
        "Lower it with very many channels and little memory; the next use reads from disk.",
    ),
    key(
        "channel.openings_max",
        "256",
        Kind::Number {
            from: 1,
            to: 1_000_000,
            unit: "channels",
        },
        "Channels of one shard that are being opened at once for their first use; sends to others that are cold are refused with 22.",
        "Lower it on a slow disk, if sends to new channels take seconds.",
    ),
    key(
        "delivery.large_group_members",
        "500",
        Kind::Number {
            from: 1,
            to: 100_000,
            unit: "members",
        },
        "Groups above this many members are read page by page.",
        "Leave it, unless measured.",
    ),
    key(
        "session.reoffer_interval_ms",
        "20000",
        Kind::millis(100, 3_600_000),
        "A message that was pushed and not acknowledged is pushed again after this long.",
        "Raise it for clients that acknowledge slowly, so that they see fewer repeats.",
    ),
    key(
        "session.unacknowledged_max",
        "1024",
        Kind::Number {
            from: 16,
            to: 1_000_000,
            unit: "messages",
        },
        "Messages pushed to one session and not acknowledged. Then its channels wait; a session that has not acknowledged half of them 200 ms later is closed (unacknowledged_overflow).",
        "Raise it for clients that acknowledge in large batches.",
    ),
    key(
        "plugins.inline",
        "true",
        Kind::Switch,
        "Whether a before-send plugin that has proved to be quick runs on the thread of the shard. That spares a message the \
         way to another thread and back; a call that takes longer than two milliseconds is ended and done elsewhere.",
        "To keep the shards free of plugins, if you do not trust yours to stay quick; for one of them, the binding says `inline`.",
    ),
    key(
        "plugins.secrets",
        "{}",
        Kind::Credentials,
        "Values for plugins by name, such as keys of services. A binding that grants `secret:NAME` has one put into headers of its \
         plugin's requests; one that grants `reveal:NAME` lets the plugin see it. They are never shown.",
        "With each service that a plugin asks.",
    ),
    key(
        "plugins.secrets_file",
        "\"\"",
        Kind::File,
        "A TOML file of the same form, one `name = \"value\"` a line, that only the owner may read (mode 0600).",
        "When the configuration is readable for others, or kept in a repository.",
    ),
    key(
        "webhooks.secrets",
        "{}",
        Kind::Secrets,
        "What webhooks are signed with, by the name that a binding's `secret` says. Requests carry a signature of each secret of the \
         list: during a rotation receivers verify by the old one or the new one. They are never shown.",
        "With each endpoint; make secrets with `penstock key`. To rotate, put the new one first, and take the old one out later.",
    ),
    key(
        "webhooks.secrets_file",
        "\"\"",
        Kind::File,
        "A TOML file of the same form, one `name = [\"whsec_…\"]` a line, that only the owner may read (mode 0600).",
        "When the configuration is readable for others, or kept in a repository.",
    ),
    key(
        "webhooks.ca_file",
        "\"\"",
        Kind::File,
        "Certificates in PEM that endpoints, and places that plugins ask, may be signed by, besides the authorities of the web.",
        "For endpoints inside, with certificates of your own authority.",
    ),
    key(
        "store.low_space_bytes",
        "1073741824",
        Kind::Number {
            from: 0,
            to: 1 << 50,
            unit: "bytes",
        },
        "Free disk space below which sends are refused (503, or reason 22), so that the node can still shut down in order.",
        "Lower it on a small disk for trying out; raise it where others fill the same disk.",
    ),
    key(
        "store.accept_lost_data",
        "false",
        Kind::Switch,
        "Start a single copy although its log is damaged. What is lost is printed at the start.",
        "For one start, when there is no backup; then remove it.",
    ),
    key(
        "log.level",
        "\"info\"",
        Kind::LogFilter,
        "What is logged: off, error, warn, info, debug or trace, or a filter by part such as `penstock_net=debug,info`.",
        "To debug while looking for a fault; `penstock_net=debug` says why a connection was refused.",
    ),
    key(
        "log.json",
        "false",
        Kind::Switch,
        "Log lines as JSON instead of text. Logs go to standard error.",
        "When a program reads the log.",
    ),
    key(
        "shutdown.drain_ms",
        "10000",
        Kind::millis(0, 600_000),
        "On SIGTERM: time for sends in flight to be answered before the connections close.",
        "Keep it below the time after which the service manager kills.",
    ),
];

/// The declaration of a key. Absent for a name that is no key.
pub(super) fn find(name: &str) -> Option<&'static KeyInfo> {
    KEYS.iter().find(|info| info.name == name)
}

/// Whether any key stands in this section.
pub(super) fn is_section(section: &str) -> bool {
    KEYS.iter()
        .any(|info| info.name.split_once('.').is_some_and(|(name, _)| name == section))
}
