//! What an operator allows beyond the rules: hosts and networks.

use crate::address::plain;
use std::net::IpAddr;

/// What stands before a grant that is about endpoints.
const PREFIX: &str = "egress:";

/// What an operator allows beyond the rules.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    /// Hosts, with a port or for all of them: plain HTTP and every address.
    hosts: Vec<(String, Option<u16>)>,
    /// Networks whose addresses may be connected to.
    networks: Vec<(IpAddr, u8)>,
}

/// Why a text is no grant.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}`: egress:HOST, egress:HOST:PORT, or egress:NETWORK/BITS such as egress:10.0.0.0/8")]
pub struct InvalidGrant(String);

impl Grants {
    /// The grants among these texts that are about endpoints: `egress:HOST[:PORT]` allows plain HTTP to a host and every address of
    /// it, `egress:NETWORK/BITS` allows addresses.
    ///
    /// # Errors
    /// The first one that begins like one and is none.
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Grants, InvalidGrant> {
        let mut grants = Grants::default();
        for text in texts {
            let Some(what) = text.strip_prefix(PREFIX) else {
                continue;
            };
            let invalid = || InvalidGrant(text.to_owned());
            match what.split_once('/') {
                Some(_) => grants.networks.push(network(what).ok_or_else(invalid)?),
                None => grants.hosts.push(host(what).ok_or_else(invalid)?),
            }
        }
        Ok(grants)
    }

    /// Whether a host with this port is allowed whatever the rules say.
    pub(crate) fn has_host(&self, host: &str, port: u16) -> bool {
        self.hosts
            .iter()
            .any(|(name, only)| name.eq_ignore_ascii_case(host) && only.is_none_or(|only| only == port))
    }

    /// Whether an address is.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        let address = plain(address);
        self.networks
            .iter()
            .any(|&(network, bits)| match (network, address) {
                (IpAddr::V4(network), IpAddr::V4(address)) => same(
                    u128::from(network.to_bits()),
                    u128::from(address.to_bits()),
                    32,
                    bits,
                ),
                (IpAddr::V6(network), IpAddr::V6(address)) => {
                    same(network.to_bits(), address.to_bits(), 128, bits)
                }
                _ => false,
            })
    }
}

fn same(left: u128, right: u128, width: u32, bits: u8) -> bool {
    (left ^ right).checked_shr(width - u32::from(bits)).unwrap_or(0) == 0
}

fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = text.split_once('/')?;
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    (bits <= most).then_some((address, bits))
}

/// A name or address with an optional port; an IPv6 address stands in brackets.
fn host(text: &str) -> Option<(String, Option<u16>)> {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => {
            (name, Some(port.parse().ok().filter(|&port| port > 0)?))
        }
        _ => (text, None),
    };
    let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
    if let Some(inner) = inner {
        let address: std::net::Ipv6Addr = inner.parse().ok()?;
        return Some((address.to_string(), port));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    (!name.is_empty() && name.bytes().all(plain)).then(|| (name.to_owned(), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_networks() {
        let texts = [
            "http:x",
            "egress:hooks.internal",
            "egress:127.0.0.1:8080",
            "egress:[::1]:9",
            "egress:10.0.0.0/8",
            "egress:fd00::/8",
        ];
        let grants = Grants::parse(texts).expect("grants");
        for (host, port, allowed) in [
            ("hooks.internal", 1, true),
            ("HOOKS.internal", 65_535, true),
            ("127.0.0.1", 8_080, true),
            ("127.0.0.1", 8_081, false),
            ("::1", 9, true),
            ("internal", 1, false),
        ] {
            assert_eq!(grants.has_host(host, port), allowed, "{host}:{port}");
        }
        for (address, allowed) in [
            ("10.255.0.1", true),
            ("11.0.0.1", false),
            ("::ffff:10.0.0.1", true),
            ("fd12::1", true),
            ("fe80::1", false),
        ] {
            assert_eq!(
                grants.has_address(address.parse().expect("one")),
                allowed,
                "{address}"
            );
        }
        let all = Grants::parse(["egress:0.0.0.0/0"]).expect("grants");
        assert!(all.has_address(IpAddr::from([127, 0, 0, 1])));
        assert!(!all.has_address("::1".parse().expect("one")));
    }

    #[test]
    fn what_is_neither_is_refused() {
        for wrong in [
            "egress:",
            "egress:10.0.0.0/33",
            "egress:x/8",
            "egress:a:0",
            "egress:a:x",
            "egress:http://a",
            "egress:a b",
        ] {
            assert_eq!(Grants::parse([wrong]), Err(InvalidGrant(wrong.to_owned())));
        }
    }
}
