//! Configuration: one TOML file, `--set section.key=value` on top, documented defaults below. Unknown keys are refused.

mod keys;
mod kind;
mod log_filter;
mod nearest;
mod plugin_secrets;
mod reference;
mod secrets;
mod values;
mod webhooks;

pub use keys::{KEYS, KeyInfo};
pub use kind::Kind;
pub use reference::{default_toml, markdown};
pub use values::Error;
pub use webhooks::Webhooks;

use penstock_core::limits::Limits;
use penstock_egress::Credential;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use values::Values;

/// The configuration of a node, checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Node id.
    pub node: u16,
    /// Data directory.
    pub data_dir: PathBuf,
    /// Shards; never 0.
    pub shards: u16,
    /// Cluster name.
    pub cluster: String,
    /// Copies.
    pub copies: u8,
    /// Slot groups at bootstrap.
    pub slot_groups: u32,
    /// Gateway.
    pub gateway: Gateway,
    /// HTTP API.
    pub http: Http,
    /// SHA-256 of the API key; none only in development mode.
    pub api_key_sha256: Option<[u8; 32]>,
    /// Person channels need an allowlist entry.
    pub person_allowlist_required: bool,
    /// Bounds of the core.
    pub limits: Limits,
    /// Quick filters may run on the shards.
    pub plugins_inline: bool,
    /// Values for plugins, by name.
    pub plugin_secrets: BTreeMap<String, Credential>,
    /// What webhooks need.
    pub webhooks: Webhooks,
    /// Free space below which sends are refused, bytes.
    pub low_space_bytes: u64,
    /// Start a damaged single copy.
    pub accept_lost_data: bool,
    /// Log filter.
    pub log_level: String,
    /// Log lines as JSON.
    pub log_json: bool,
    /// Drain time at SIGTERM.
    pub drain: Duration,
}

/// Settings of the gateway.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// TCP listener.
    pub tcp_listen: SocketAddr,
    /// WebSocket listener.
    pub ws_listen: SocketAddr,
    /// Web pages that may open a WebSocket; empty for all.
    pub allowed_origins: Vec<String>,
    /// Time for CONNECT.
    pub connect_timeout: Duration,
    /// Time without inbound frames.
    pub idle_timeout: Duration,
    /// Connections in total.
    pub connections_max: usize,
    /// Connections per address.
    pub connections_per_ip_max: usize,
    /// Bytes queued per connection.
    pub outbound_bytes_max: usize,
    /// Frames queued per connection.
    pub outbound_frames_max: usize,
}

/// Settings of the HTTP API.
#[derive(Clone, Debug)]
pub struct Http {
    /// Listener.
    pub listen: SocketAddr,
    /// Largest body.
    pub body_bytes_max: usize,
    /// Open connections.
    pub connections_max: usize,
    /// Open connections per address.
    pub connections_per_ip_max: usize,
    /// Time for the head of a request, and for its body.
    pub request_timeout: Duration,
    /// Told to clients.
    pub external_tcp_addr: Option<String>,
    /// Told to clients.
    pub external_ws_addr: Option<String>,
    /// Serve the demo page outside of development mode too.
    pub demo_page: bool,
}

impl Settings {
    /// Parses a configuration text and `section.key=value` overrides.
    ///
    /// # Errors
    /// Says which key is wrong, why, and what would be right.
    pub fn parse(text: &str, overrides: &[String]) -> Result<Settings, Error> {
        let values = Values::read(text, overrides)?;
        let shards = shards(&values)?;
        let gateway = gateway(&values)?;
        let limits = limits(&values, gateway.idle_timeout)?;
        let http_listen = values.address("http.listen")?;
        distinct([
            ("gateway.tcp_listen", gateway.tcp_listen),
            ("gateway.ws_listen", gateway.ws_listen),
            ("http.listen", http_listen),
        ])?;
        Ok(Settings {
            node: values.integer("node.id")? as u16,
            data_dir: PathBuf::from(values.non_empty("node.data_dir")?),
            shards,
            cluster: values.non_empty("cluster.name")?,
            copies: values.integer("cluster.copies")? as u8,
            slot_groups: values.integer("cluster.slot_groups")? as u32,
            gateway,
            http: Http {
                listen: http_listen,
                body_bytes_max: values.integer("http.body_bytes_max")? as usize,
                connections_max: values.integer("http.connections_max")? as usize,
                connections_per_ip_max: values.integer("http.connections_per_ip_max")? as usize,
                request_timeout: values.millis("http.request_timeout_ms")?,
                external_tcp_addr: values.external("http.external_tcp_addr")?,
                external_ws_addr: values.external("http.external_ws_addr")?,
                demo_page: values.boolean("http.demo_page")?,
            },
            api_key_sha256: values.digest("auth.api_key_sha256")?,
            person_allowlist_required: values.boolean("message.person_allowlist_required")?,
            limits,
            plugins_inline: values.boolean("plugins.inline")?,
            plugin_secrets: plugin_secrets::read(&values)?,
            webhooks: webhooks::read(&values)?,
            low_space_bytes: values.integer("store.low_space_bytes")?,
            accept_lost_data: values.boolean("store.accept_lost_data")?,
            log_level: values.log_filter("log.level")?,
            log_json: values.boolean("log.json")?,
            drain: values.millis("shutdown.drain_ms")?,
        })
    }
}

/// Two listeners cannot have one address; port 0 is another one each time.
fn distinct(listeners: [(&'static str, SocketAddr); 3]) -> Result<(), Error> {
    for (index, &(key, address)) in listeners.iter().enumerate() {
        let same = listeners[..index]
            .iter()
            .find(|(_, other)| *other == address && address.port() != 0);
        if let Some(&(other, _)) = same {
            return Err(Error::SameAddress { key, other, address });
        }
    }
    Ok(())
}

fn shards(values: &Values) -> Result<u16, Error> {
    let wanted = values.integer("node.shards")?;
    if wanted > 0 {
        return Ok(wanted as u16);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // The other half is for the network and the disk.
    Ok(1 << (cores / 2).clamp(1, 8).ilog2())
}

fn gateway(values: &Values) -> Result<Gateway, Error> {
    Ok(Gateway {
        tcp_listen: values.address("gateway.tcp_listen")?,
        ws_listen: values.address("gateway.ws_listen")?,
        allowed_origins: values.origins("gateway.allowed_origins")?,
        connect_timeout: values.millis("gateway.connect_timeout_ms")?,
        idle_timeout: values.millis("gateway.idle_timeout_ms")?,
        connections_max: values.integer("gateway.connections_max")? as usize,
        connections_per_ip_max: values.integer("gateway.connections_per_ip_max")? as usize,
        outbound_bytes_max: values.integer("gateway.outbound_bytes_max")? as usize,
        outbound_frames_max: values.integer("gateway.outbound_frames_max")? as usize,
    })
}

/// How much longer a session's lease is than the time that its client may be idle.
const LEASE_BEYOND_IDLE: Duration = Duration::from_secs(20);

fn limits(values: &Values, idle_timeout: Duration) -> Result<Limits, Error> {
    let defaults = Limits::default();
    let hours = values.integer("message.dedupe_window_hours")?;
    Ok(Limits {
        payload_bytes_max: values.integer("message.payload_bytes_max")? as usize,
        dedupe_window: Duration::from_secs(hours * 3_600),
        append_timeout: values.millis("message.append_timeout_ms")?,
        channel_openings_max: values.integer("channel.openings_max")? as usize,
        channel_idle: values.millis("channel.idle_evict_ms")?,
        large_group_members: values.integer("delivery.large_group_members")? as u32,
        reoffer_interval: values.millis("session.reoffer_interval_ms")?,
        unacknowledged_max: values.integer("session.unacknowledged_max")? as usize,
        // Else an idle session would end with its lease, however long the configuration lets it be idle.
        route_lease: defaults.route_lease.max(idle_timeout + LEASE_BEYOND_IDLE),
        ..defaults
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str, overrides: &[&str]) -> String {
        let overrides: Vec<String> = overrides.iter().map(|&one| one.to_owned()).collect();
        Settings::parse(text, &overrides)
            .expect_err("refused")
            .to_string()
    }

    #[test]
    fn unknown_key_is_refused_and_the_nearest_is_named() {
        let said = refused("[gateway]\ntcp_lisen = \"127.0.0.1:0\"\n", &[]);
        assert!(
            said.contains("gateway.tcp_lisen") && said.contains("gateway.tcp_listen"),
            "{said}"
        );
        let said = refused("", &["nod.id=2"]);
        assert!(said.contains("nod.id") && said.contains("node.id"), "{said}");
    }

    /// The wait before a session with a full window is closed is not configured, but the reference page says how long it is.
    #[test]
    fn the_page_says_how_long_a_full_window_waits() {
        let key = KEYS.iter().find(|key| key.name == "session.unacknowledged_max");
        let wait = format!(
            " {} ms later",
            Limits::default().unacknowledged_patience.as_millis()
        );
        let troubleshooting = include_str!("../../../docs/troubleshooting.md");
        let decision = include_str!("../../../docs/decisions/receive-window.md");
        assert!(key.is_some_and(|key| key.doc.contains(&wait)));
        assert!(troubleshooting.contains(&wait));
        assert!(decision.contains(&wait.replace(" later", "")));
    }

    #[test]
    fn wrong_values_say_what_would_be_right() {
        let said = refused("[node]\nid = 0\n", &[]);
        assert!(said.contains("node.id") && said.contains("1 to 1023"), "{said}");
        let said = refused("[node]\nid = \"one\"\n", &[]);
        assert!(
            said.contains("node.id") && said.contains("whole number"),
            "{said}"
        );
        let said = refused("[auth]\napi_key_sha256 = \"12\"\n", &[]);
        assert!(
            said.contains("auth.api_key_sha256") && said.contains("64"),
            "{said}"
        );
        for origins in [
            "[\"https://a.example.org:443\"]",
            "[\"http://a.example.org:80\"]",
            "[\"https://me@a.example.org\"]",
            "\"https://a.example.org\"",
            "[1]",
            "[\"*\"]",
            "[\"a.example.org\"]",
            "[\"https://a.example.org/\"]",
        ] {
            let said = refused("", &[&format!("gateway.allowed_origins={origins}")]);
            assert!(
                said.contains("gateway.allowed_origins") && said.contains("https://"),
                "{said}"
            );
        }
        let said = refused("[node]\nshards = 3\n", &[]);
        assert!(
            said.contains("node.shards") && said.contains("0, 1, 2, 4, 8"),
            "{said}"
        );
    }

    #[test]
    fn a_misspelt_level_names_the_levels_and_the_nearest() {
        let said = refused("[log]\nlevel = \"inof\"\n", &[]);
        for part in [
            "log.level",
            "off, error, warn, info, debug or trace",
            "did you mean `info`",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let said = refused("", &["log.level=penstok_net=debug"]);
        assert!(said.contains("did you mean `penstock_net`"), "{said}");
    }

    #[test]
    fn what_would_have_no_effect_is_refused() {
        let said = refused("[gatway]\n", &[]);
        assert!(said.contains("[gatway]") && said.contains("[gateway]"), "{said}");
        for (wrong, key) in [
            ("http.external_ws_addr=chat.example.org", "http.external_ws_addr"),
            (
                "http.external_tcp_addr=chat.example.org",
                "http.external_tcp_addr",
            ),
            (
                "http.external_tcp_addr=tcp://chat.example.org:1",
                "http.external_tcp_addr",
            ),
            ("node.data_dir=\"\"", "node.data_dir"),
            ("gateway.tcp_listen=localhost:5100", "gateway.tcp_listen"),
            (
                "http.listen=127.0.0.1:5200",
                "`http.listen` and `gateway.ws_listen`",
            ),
        ] {
            let said = refused("", &[wrong]);
            assert!(said.contains(key), "{wrong}: {said}");
        }
        // A sign before a hexadecimal digit is none.
        let signed = format!("auth.api_key_sha256=\"{}\"", "+1".repeat(32));
        assert!(refused("", &[&signed]).contains("64 hexadecimal digits"));
    }

    #[test]
    fn a_session_may_be_idle_as_long_as_the_configuration_says() {
        let lease_of = |minutes: u64| {
            let wanted = format!("gateway.idle_timeout_ms={}", minutes * 60_000);
            let settings = Settings::parse("", &[wanted]).expect("valid");
            (settings.gateway.idle_timeout, settings.limits.route_lease)
        };
        for minutes in [1, 3, 10, 60] {
            let (idle, lease) = lease_of(minutes);
            assert!(lease > idle, "{minutes} minutes: {lease:?}");
        }
    }

    #[test]
    fn override_wins_over_the_file() {
        let settings = Settings::parse(
            "[node]\nid = 3\n",
            &["node.id=4".to_owned(), "log.level=debug".to_owned()],
        );
        let settings = settings.expect("valid");
        assert_eq!((settings.node, settings.log_level.as_str()), (4, "debug"));
    }
}
