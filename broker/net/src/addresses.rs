//! Addresses of clients, and how many connections each has: one host must not take all the places of a listener (rule S10).

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::net::TcpStream;

/// The address at the other end of a connection: of the client, or of the proxy before it. Empty when the socket does not know it
/// any more.
pub(crate) fn peer(stream: &TcpStream) -> Arc<str> {
    let address = stream.peer_addr().map(|address| address.ip().to_canonical());
    address.map_or_else(|_| Arc::from(""), |address| Arc::from(address.to_string()))
}

/// The number of connections of each address.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Mutex<HashMap<IpAddr, u32>>);

impl Addresses {
    /// A place for one more connection of this address; none when it has as many as it may have.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr, most: u32) -> Option<Place> {
        let address = counted(address);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Place {
            addresses: Arc::clone(self),
            address,
        })
    }

    fn leave(&self, address: IpAddr) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

/// The place of one connection among those of its address, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    addresses: Arc<Addresses>,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.addresses.leave(self.address);
    }
}

/// What counts as one address: an IPv4 address, or the /64 network that an IPv6 host can choose addresses from.
fn counted(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [first, second, third, fourth, ..] = address.segments();
            IpAddr::from([first, second, third, fourth, 0, 0, 0, 0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_what_a_host_cannot_multiply() {
        let same = |left: &str, right: &str| {
            counted(left.parse().expect("an address")) == counted(right.parse().expect("an address"))
        };
        assert!(same("10.0.0.1", "::ffff:10.0.0.1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
        assert!(same("2001:db8::1", "2001:db8::ffff:1"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
    }

    #[test]
    fn addresses_are_counted_and_forgotten() {
        let addresses = Arc::new(Addresses::default());
        let address = IpAddr::from([127, 0, 0, 1]);
        let first = addresses.enter(address, 2).expect("room");
        let second = addresses.enter(address, 2).expect("room");
        assert!(addresses.enter(address, 2).is_none());
        drop(first);
        let third = addresses.enter(address, 2).expect("room");
        assert!(addresses.enter(address, 2).is_none());
        assert!(addresses.enter(IpAddr::from([127, 0, 0, 2]), 2).is_some());
        drop((second, third));
        let counts = addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(counts.is_empty(), "{counts:?}");
    }
}
