//! Connections that are not encrypted: what is said about them, and for which hosts nothing is said.

/// What to do about one to a SQL server.
pub const SQL: &str = "the connection is not encrypted: an attacker between this host and the server can read the \
    password, and change what is read and written; add sslmode=verify-full to the URL, and ca=/path/to/ca.pem if the \
    authority is yours";

/// What to do about one to a Redis server.
pub const REDIS: &str = "the connection is not encrypted: an attacker between this host and the server can read the \
    password, and change what is read and written; write rediss:// instead of redis://, and ca=/path/to/ca.pem if the \
    authority is yours";

/// What to do about one to an etcd server.
pub const ETCD: &str = "the connection is not encrypted: an attacker between this host and the server can read the \
    password, and change what is read and written; write etcds:// instead of etcd://, and ca=/path/to/ca.pem if the \
    authority is yours";

/// What to do about one to an API server of Kubernetes.
pub const KUBERNETES: &str = "the connection is not encrypted: an attacker between this host and the API server can read the \
    token, and change what is read and written; write https:// in the kubeconfig";

/// Whether a host is this machine.
#[must_use]
pub fn is_local(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse().is_ok_and(|ip: std::net::IpAddr| ip.is_loopback())
}
