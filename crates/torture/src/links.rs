//! The links: a proxy from each node to each server, and the URL that leads through them.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use crate::proxy::{Direction, Proxy};

use crate::fault::FaultKind;

/// Links for each node, if the store is reached over any.
#[derive(Debug)]
pub(crate) struct Links {
    url: String,
    /// Where the hosts and the ports stand in it.
    place: Option<std::ops::Range<usize>>,
    /// For each node, one to each server.
    proxies: Vec<Vec<Proxy>>,
}

impl Links {
    /// Links for so many nodes to the servers in that URL.
    pub(crate) fn to(url: &str, nodes: usize) -> Self {
        let servers = servers(url).unwrap_or_default();
        let proxies = if servers.is_empty() { 0 } else { nodes };
        let each = |_| servers.iter().map(|server| Proxy::to(*server)).collect();
        Self { url: url.to_owned(), place: place(url), proxies: (0..proxies).map(each).collect() }
    }

    /// The URL that a node is given.
    pub(crate) fn url(&self, node: usize) -> String {
        match (self.proxies.get(node), &self.place) {
            (Some(proxies), Some(place)) => {
                let mut url = self.url.clone();
                let addresses: Vec<String> =
                    proxies.iter().map(|proxy| proxy.address().to_string()).collect();
                url.replace_range(place.clone(), &addresses.join(","));
                url
            }
            _ => self.url.clone(),
        }
    }

    /// Troubles the links of a node.
    pub(crate) fn inject(&self, node: usize, kind: FaultKind, ttl: Duration) {
        for link in self.proxies.get(node).into_iter().flatten() {
            inject(link, kind, ttl);
        }
    }

    /// Heals the links of a node.
    pub(crate) fn heal(&self, node: usize) {
        self.proxies.get(node).into_iter().flatten().for_each(Proxy::heal);
    }
}

fn inject(link: &Proxy, kind: FaultKind, ttl: Duration) {
    match kind {
        FaultKind::Refuse => {
            link.refuse(true);
            link.reset();
        }
        FaultKind::Reset => link.reset(),
        FaultKind::BlackHole => link.black_hole(),
        FaultKind::LoseRequests => link.lose(Direction::Up),
        FaultKind::LoseReplies => link.lose(Direction::Down),
        FaultKind::Delay => {
            link.delay(Direction::Up, ttl / 20, Duration::ZERO);
            link.delay(Direction::Down, ttl / 20, Duration::ZERO);
        }
        FaultKind::Jitter => link.delay(Direction::Down, Duration::ZERO, ttl / 3),
        FaultKind::Throttle => link.throttle(Direction::Down, 4_000),
        FaultKind::CutReply => link.cut_after(Direction::Down, 20),
        _ => {}
    }
}

/// Whether a proxy can stand between: no TLS, which would notice, and no servers that tell each other's addresses.
pub(crate) fn can_be_led(url: &str) -> bool {
    servers(url).is_some()
}

/// Every server that a URL names, if a proxy can stand before each.
fn servers(url: &str) -> Option<Vec<SocketAddr>> {
    url[place(url)?].split(',').map(|host| address(host, url)).collect()
}

/// Where the hosts and the ports stand in a URL.
fn place(url: &str) -> Option<std::ops::Range<usize>> {
    let (scheme, rest) = url.split_once("://")?;
    let plain = ["redis", "valkey", "postgres", "postgresql", "mysql", "mariadb", "etcd", "nats", "peers"]
        .contains(&scheme);
    let secure = ["sslmode=require", "sslmode=verify", "ssl-mode=", "tls=", "ca="]
        .iter()
        .any(|word| rest.contains(word));
    if !plain || secure {
        return None;
    }
    let authority = rest.find(['/', '?']).map_or(rest, |end| &rest[..end]);
    let host = authority.rfind('@').map_or(0, |at| at + 1);
    let begin = scheme.len() + 3;
    // Only of peers, etcd and NATS may there be several: clients ask whichever is named, and never those that it tells of.
    let single = ["etcd", "nats", "peers"].contains(&scheme) || !authority.contains(',');
    (single && host < authority.len()).then(|| begin + host..begin + authority.len())
}

fn address(host: &str, url: &str) -> Option<SocketAddr> {
    let port = match url.split(':').next() {
        Some("redis" | "valkey") => 6379,
        Some("postgres" | "postgresql") => 5432,
        Some("etcd") => 2379,
        Some("nats") => 4222,
        _ => 3306,
    };
    let ends_with_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let found = if ends_with_port { host.to_socket_addrs() } else { (host, port).to_socket_addrs() };
    found.ok()?.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_in_urls_that_a_proxy_can_lead() {
        let found = |url: &'static str| place(url).map(|place| &url[place]);
        assert_eq!(found("redis://127.0.0.1:7000/0"), Some("127.0.0.1:7000"));
        assert_eq!(found("postgres://user:p@ss@db:5432/app?x=1"), Some("db:5432"));
        assert_eq!(found("mysql://root@localhost/app"), Some("localhost"));
        assert_eq!(found("redis://[::1]:7000"), Some("[::1]:7000"));
        assert_eq!(found("peers://a:1,b:2,c:3?secret-file=x"), Some("a:1,b:2,c:3"));
        assert_eq!(found("etcd://u:p@a:1,b:2,c:3/x"), Some("a:1,b:2,c:3"));
        assert_eq!(found("nats://u:p@a:1,b:2,c:3/x?sync=always"), Some("a:1,b:2,c:3"));
        assert_eq!(servers("peers://127.0.0.1:1,127.0.0.1:2?secret-file=x").unwrap().len(), 2);
        for url in [
            "rediss://db:1",
            "etcds://a:1,b:2/x",
            "tls://a:1,b:2/x",
            "redis+sentinel://a:1,b:2/main",
            "postgres://a:1,b:2/x",
            "postgres://db/x?sslmode=verify-full",
            "sqlite:x",
            "memory:",
        ] {
            assert_eq!(found(url), None, "{url}");
        }
    }
}
