//! Which addresses belong to the outside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not one of the outside; none when it is.
pub(crate) fn refusal(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => refusal_v4(address),
        IpAddr::V6(address) => refusal_v6(address),
    }
}

fn refusal_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [first, second, third, _] = address.octets();
    let refused = match (first, second, third) {
        (0, ..) => "an address of this network",
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => "a private address",
        (100, 64..=127, _) => "an address behind a carrier's NAT",
        (127, ..) => "a loopback address",
        (169, 254, _) => "a link-local address, where clouds have their metadata",
        (192, 0, 0) | (192, 88, 99) => "an address for protocols",
        (192, 0, 2) | (198, 51, 100) | (203, 0, 113) => "an address for documentation",
        (198, 18 | 19, _) => "an address for benchmarks",
        (168, 63, 129) => "an address where clouds have their metadata",
        (224..=239, ..) => "a multicast address",
        (240..=255, ..) => "a reserved address",
        _ => return None,
    };
    Some(refused)
}

fn refusal_v6(address: Ipv6Addr) -> Option<&'static str> {
    let words = address.segments();
    if address.is_unspecified() || address.is_loopback() {
        return Some("a loopback address");
    }
    if let Some(inner) = embedded(&words) {
        return refusal_v4(inner);
    }
    match words {
        // 6to4 and NAT64 were decoded above: what is left of these ranges is refused, with all that is not global unicast.
        [0x2001, 0x0000, ..] => Some("a Teredo address"),
        [0x2001, 0x0db8, ..] | [0x3fff, 0x0000..=0x0fff, ..] => Some("an address for documentation"),
        [0x2001, 0x0000..=0x01ff, ..] => Some("an address for protocols"),
        [0x2000..=0x3fff, ..] => None,
        [0xfc00..=0xfdff, ..] => Some("a private address"),
        [0xfe80..=0xfebf, ..] => Some("a link-local address"),
        [0xfec0..=0xfeff, ..] => Some("a site-local address"),
        [0xff00..=0xffff, ..] => Some("a multicast address"),
        _ => Some("a reserved address"),
    }
}

/// The IPv4 address that stands in an IPv6 address: mapped, compatible, translated (NAT64, well-known and local prefix), 6to4.
fn embedded(words: &[u16; 8]) -> Option<Ipv4Addr> {
    let of = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Some(Ipv4Addr::new(a, b, c, d))
    };
    match *words {
        [0, 0, 0, 0, 0, 0xffff | 0, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
        | [0x64, 0xff9b, 1, _, _, _, high, low]
        | [0x2002, high, low, ..] => of(high, low),
        _ => None,
    }
}

/// An address in its shortest form: what is an IPv4 address in IPv6 clothes is one.
pub(crate) fn plain(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(inner) => embedded(&inner.segments())
            .filter(|_| !inner.is_loopback() && !inner.is_unspecified())
            .map_or(address, IpAddr::V4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outside_is_let_through() {
        for outside in [
            "1.1.1.1",
            "8.8.8.8",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700:4700::1111",
            "2a00::1",
        ] {
            assert_eq!(refusal(outside.parse().expect("an address")), None, "{outside}");
        }
    }

    #[test]
    fn the_inside_is_not_in_whatever_clothes() {
        let inside = [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.0.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.51.100.1",
            "203.0.113.1",
            "168.63.129.16",
            "224.0.0.1",
            "255.255.255.255",
            "240.0.0.1",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::7f00:1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2002:c0a8:101::",
            "2001::1",
            "2001:db8::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ];
        for address in inside {
            assert!(
                refusal(address.parse().expect("an address")).is_some(),
                "{address}"
            );
        }
        // The same translation of an address outside leads outside.
        assert_eq!(refusal("64:ff9b::808:808".parse().expect("an address")), None);
    }
}
