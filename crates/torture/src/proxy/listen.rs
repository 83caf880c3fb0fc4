//! The port of a proxy: kept even while the proxy does not listen on it, so that refusing is what it would be on a real host.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// A port that is ours. Bound but not listened on, it refuses connections; sockets that share it may listen.
#[derive(Debug)]
pub(super) struct Port {
    number: u16,
    _keeper: OwnedFd,
}

impl Port {
    /// A free one.
    pub(super) fn take() -> Self {
        let keeper = bound(0);
        // The kernel chose the number.
        let address = net::getsockname(&keeper).expect("a bound socket has an address");
        let address = SocketAddr::try_from(address).expect("an address of the loopback interface");
        Self { number: address.port(), _keeper: keeper }
    }

    pub(super) fn number(&self) -> u16 {
        self.number
    }

    /// Begins to accept connections, until it is dropped.
    pub(super) fn listen(&self) -> tokio::net::TcpListener {
        let socket = bound(self.number);
        net::listen(&socket, 128).expect("it listens");
        let listener = TcpListener::from(socket);
        listener.set_nonblocking(true).expect("it does not block");
        tokio::net::TcpListener::from_std(listener).expect("within the runtime of the proxy")
    }
}

fn bound(port: u16) -> OwnedFd {
    let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    sockopt::set_socket_reuseport(&socket, true).expect("a port can be shared");
    net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("the port can be had");
    socket
}

/// Closing it now resets the connection, without a word of goodbye.
pub(super) fn reset_on_close(stream: &impl AsFd) {
    let _ = sockopt::set_socket_linger(stream, Some(std::time::Duration::ZERO));
}
