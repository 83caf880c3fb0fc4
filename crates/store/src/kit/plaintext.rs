//! Connections that are not encrypted: what is said about them, and for which hosts nothing is said.

/// The warning about a connection that is not encrypted, with what to write instead: a constant text.
#[macro_export]
macro_rules! plaintext_warning {
    ($remedy:literal) => {
        $crate::plaintext_warning!("server", "the password", $remedy, ", and ca=/path/to/ca.pem if the authority is yours")
    };
    ($server:literal, $readable:literal, $($remedy:literal),+) => {
        concat!(
            "the connection is not encrypted: an attacker between this host and the ", $server, " can read ", $readable,
            ", and change what is read and written; ", $($remedy),+
        )
    };
}

/// Whether a host is this machine.
#[must_use]
pub fn is_local(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}
