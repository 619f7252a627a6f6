//! Addresses that are taken before anything listens on them, so that a node finds out that one is in use before it touches its
//! data, and yet nobody connects before it can answer.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Connections that may wait for their accept.
const BACKLOG: u32 = 1024;

/// An address of ours on which nothing listens yet: who connects is refused.
#[derive(Debug)]
pub struct Bound {
    socket: TcpSocket,
    address: SocketAddr,
}

impl Bound {
    /// Takes an address; port 0 becomes a free one. Within a tokio runtime.
    ///
    /// # Errors
    /// The system's answer when it cannot be had, above all because another program listens on it.
    pub fn new(address: SocketAddr) -> io::Result<Bound> {
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        // Else the connections of the process before would keep the port for some minutes.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        let address = socket.local_addr()?;
        Ok(Bound { socket, address })
    }

    /// The address, with the port that it was given.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Listens.
    ///
    /// # Errors
    /// When another program that took the same address at the same time listens already.
    pub(crate) fn listen(self) -> io::Result<TcpListener> {
        self.socket.listen(BACKLOG)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[tokio::test]
    async fn an_address_is_taken_at_once_and_answers_only_when_it_listens() {
        let bound = Bound::new(SocketAddr::from(([127, 0, 0, 1], 0))).expect("loopback");
        let address = bound.address();
        assert_ne!(address.port(), 0);
        let refused = TcpStream::connect(address).expect_err("nobody listens");
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let listener = bound.listen().expect("nobody else listens");
        TcpStream::connect(address).expect("it listens");
        let taken = Bound::new(address).expect_err("it is in use");
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        drop(listener);
    }
}
