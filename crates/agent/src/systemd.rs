//! What systemd is told: ready, reloading, stopping, and signs of life for its watchdog.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Where the service manager listens, if there is one.
#[derive(Debug)]
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl ServiceManager {
    /// As the environment says.
    #[must_use]
    pub fn from_env() -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        let ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
        let period = variable("WATCHDOG_USEC").and_then(|text| text.parse().ok()).map(Duration::from_micros);
        let socket = variable("NOTIFY_SOCKET").and_then(|path| connect(&path));
        Self { socket, watchdog: period.filter(|_| ours) }
    }

    /// Says something; a manager that does not listen does no harm.
    pub fn notify(&self, state: &str) {
        if let Some((socket, to)) = &self.socket {
            let _ = socket.send_to_addr(state.as_bytes(), to);
        }
    }

    /// How often the watchdog wants a sign of life: twice as often as it says.
    #[must_use]
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some()).map(|period| period / 2)
    }
}

fn connect(path: &str) -> Option<(UnixDatagram, SocketAddr)> {
    let to = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(path),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.set_nonblocking(true).ok()?;
    Some((socket, to.ok()?))
}
